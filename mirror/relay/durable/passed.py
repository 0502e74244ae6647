"""Keeps in the internal topic which records were passed over because they are too large for the destination.

These entries prove, to every later owner and to the audit, that a marker rightly stands where the source has a record.
An entry counts only for the record of its leader epoch, and only as long as both topics have the same ids.
"""

import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from mirror.net.errors import NotSent
from mirror.offsetmap.entries.passed import DEAD_LETTER, MOST_OFFSETS, PassedOverOffsets
from mirror.offsetmap.fields import TopicIds, id_text, same_ids
from mirror.offsetmap.internal.memory import Memory
from mirror.relay.durable.due import take_away
from mirror.relay.partition.partition import Partition

NONE: Mapping[int, int] = {}


class PassedOverRecords:
    """Keeps these entries for all partitions of a process."""

    def __init__(self, state: Memory, *, fresh_s: float) -> None:
        """``fresh_s``: see ``take_away``."""
        self._state = state
        self._fresh_s = fresh_s
        self._writer = uuid.uuid4().hex[:16]

    async def offsets(self, partition: Partition) -> Mapping[int, int | str]:
        """Returns all records of the current topics that were passed over: offset -> leader epoch of the source's
        record there, or the digest of an old message. Reads first what another owner has written since.

        Raises:
            NetworkError: the internal topic cannot be read now.
        """
        await self._state.load()
        found: dict[int, int | str] = {}
        for each in self._of(partition):
            if each.digests:
                found.update(zip(each.offsets, each.digests, strict=True))
            else:
                found.update(dict.fromkeys(each.offsets, each.leader_epoch))
        return found

    def known(self, partition: Partition, offset: int, leader_epoch: int, digest: str = "") -> PassedOverOffsets | None:
        """Returns the entry for this record; None if none was written. Among several, one with a dead letter is
        preferred. ``digest``: that of an old message."""
        found = [
            each
            for each in self._of(partition)
            if each.leader_epoch == leader_epoch
            and offset in each.offsets
            and (not each.digests or each.digests[each.offsets.index(offset)] == digest)
        ]
        return min(found, key=lambda each: each.cause != DEAD_LETTER, default=None)

    async def write(
        self, partition: Partition, offset: int, leader_epoch: int, cause: str, digest: str = ""
    ) -> PassedOverOffsets:
        """Writes down that the record is passed over, and returns its entry. ``digest``: that of an old message.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        source_id, destination_id = _ids(partition)
        now_ms = round(time.time() * 1000)
        digests = (digest,) if digest else ()
        kind = (self._writer, leader_epoch, cause, bool(digests))
        last = next(
            (
                each
                for each in reversed(self._of(partition))
                if (each.writer, each.leader_epoch, each.cause, bool(each.digests)) == kind
            ),
            None,
        )
        if last is not None and last.end <= offset and len(last.offsets) < MOST_OFFSETS:
            entry = replace(
                last,
                offsets=(*last.offsets, offset),
                digests=last.digests + digests,
                source_id=source_id or last.source_id,
                destination_id=destination_id or last.destination_id,
                at_ms=now_ms,
            )
        else:
            entry = PassedOverOffsets(
                subject=partition.subject,
                writer=self._writer,
                offsets=(offset,),
                leader_epoch=leader_epoch,
                source_id=source_id,
                destination_id=destination_id,
                cause=cause,
                at_ms=now_ms,
                digests=digests,
            )
        await self._state.put(entry)
        return entry

    async def forget(self, partition: Partition, log_start: int) -> None:
        """Removes entries about offsets that the destination has deleted, to keep the internal topic small.
        ``log_start``: the destination's log start offset.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        # The writers of these entries may add to them meanwhile. What is not removed for lack of time, the next look
        # removes.
        with suppress(NotSent):
            gone = [each for each in self._of(partition) if each.end <= log_start]
            await take_away(self._state, gone, fresh_s=self._fresh_s)

    def _of(self, partition: Partition) -> list[PassedOverOffsets]:
        """Returns the entries about the partition's current topics, ordered by their first offsets."""
        ids = _ids(partition)
        return [
            each
            for each in self._state.ledger.passed(partition.subject)
            if same_ids((each.source_id, each.destination_id), ids)
        ]


def _ids(partition: Partition) -> TopicIds:
    return id_text(partition.claim.source_id), id_text(partition.claim.destination_id)
