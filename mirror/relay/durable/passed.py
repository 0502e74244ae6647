"""Keeps in the internal topic which records were passed over because they are too large for the destination.

It is the proof, for every later owner and for the audit, that a marker stands rightly where the source has a record. A
record counts as passed over only as the one of its leader epoch, and in the topics with the ids of then.
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
    """Keeps them for all partitions of a process."""

    def __init__(self, state: Memory, *, fresh_s: float) -> None:
        """``fresh_s``: see ``take_away``."""
        self._state = state
        self._fresh_s = fresh_s
        self._writer = uuid.uuid4().hex[:16]

    async def offsets(self, partition: Partition) -> Mapping[int, int | str]:
        """Returns offset -> leader epoch of the source's record there, or the digest of an old message, for all that
        were passed over in the topics of now. What another owner has written since is read first.

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
        """Returns the entry that has this record, if one was written; of several, one that tells of a dead letter.
        ``digest``: of an old message."""
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
        """Writes down that the record is passed over. Returns the entry that has it. ``digest``: of an old message.

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
        """Takes away what is about offsets that the destination has deleted: nobody will ask about them. This keeps
        the internal topic small. ``log_start``: where its log begins.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        # Their writer may add to them: the next look takes away what is left for want of time.
        with suppress(NotSent):
            gone = [each for each in self._of(partition) if each.end <= log_start]
            await take_away(self._state, gone, fresh_s=self._fresh_s)

    def _of(self, partition: Partition) -> list[PassedOverOffsets]:
        """Returns the entries about the partition's topics as they are now, in the order of their first offsets."""
        ids = _ids(partition)
        return [
            each
            for each in self._state.ledger.passed(partition.subject)
            if same_ids((each.source_id, each.destination_id), ids)
        ]


def _ids(partition: Partition) -> TopicIds:
    return id_text(partition.claim.source_id), id_text(partition.claim.destination_id)
