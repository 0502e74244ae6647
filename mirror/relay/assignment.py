"""The partitions that the consumer group assigns to this process. They are adopted when assigned, drained when revoked.

A partition that comes back after its release is a new ``Partition`` and a takeover: another worker may have had it in
between. A released partition is forgotten at once, with one exception: it stays pinned to its lane until the last
response for its batches in flight has arrived, because responses find their partition there.
"""

import asyncio
import json
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, NamedTuple

from mirror.offsetmap import fields
from mirror.offsetmap.entries.pins import header_digest
from mirror.offsetmap.fields import id_text
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.claim import Committed
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase

Key = tuple[str, int]
"""Topic and partition index."""


class Committable(NamedTuple):
    """An offset to commit to the group at the source, and what is known of the copy up to there."""

    offset: int
    topic_id: str
    """The source topic's id in hexadecimal; empty if topics have no ids."""
    epoch: int
    """Leader epoch of the source batch that ``digest`` belongs to. Without a digest, that of the batch before the fetch
    position (``Cursor.last_epoch``). -1: not known."""
    digest: str
    """``header_digest`` of the last source batch that is known to be copied; empty: none is known."""
    digest_at: int
    """The offset behind that batch, at most ``offset``; -1: there is no digest."""
    leader_epoch: int = -1
    """Epoch of the source's leader as of the last position, also if the digest was taken over from the last owner; -1:
    not known."""

    @property
    def metadata(self) -> str:
        """The metadata of the committed offset: JSON with short keys in a fixed order."""
        told = {
            "v": 1,
            "id": self.topic_id,
            "epoch": self.epoch,
            "digest": self.digest,
            "at": self.digest_at,
            "leader": self.leader_epoch,
        }
        return json.dumps(told, separators=(",", ":"))


def read_committed(offset: int, metadata: str) -> Committed:
    """Parses the metadata that the group committed with ``offset``.

    Returns:
        What was committed. Metadata that the mirror did not write are ignored: then only ``offset`` is set.
    """
    try:
        told = {"leader": -1} | json.loads(metadata)
        return Committed(
            offset,
            fields.label(told, "id"),
            fields.number(told, "epoch", least=-1, most=fields.MOST_I32),
            fields.label(told, "digest"),
            fields.number(told, "at", least=-1),
            fields.number(told, "leader", least=-1, most=fields.MOST_I32),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return Committed(offset)


def committable(partition: Partition) -> Committable | None:
    """Returns the offset up to which the partition is copied, or None while that is not known."""
    offset = partition.queue.acknowledged
    return copied_to(partition, offset) if offset >= 0 else None


def copied_to(partition: Partition, offset: int) -> Committable:
    """Returns ``offset`` with what is known of the copy up to there.

    Args:
        partition: the partition.
        offset: a source offset; everything below it is copied.
    """
    source_id = id_text(partition.claim.source_id)
    topic_id = source_id or ""
    leader = partition.cursor.leader_epoch
    mark = next((mark for mark in reversed(partition.cursor.marks) if mark.next_offset <= offset), None)
    if mark is not None:
        return Committable(offset, topic_id, mark.leader_epoch, header_digest(mark.header), mark.next_offset, leader)
    before = partition.claim.committed
    if before is not None and before.is_of(source_id) and before.digest_at <= offset:
        # Nothing was copied since the partition was assigned, so what its last owner committed still holds.
        return Committable(offset, topic_id, before.epoch, before.digest, before.digest_at, leader)
    return Committable(offset, topic_id, partition.cursor.last_epoch, "", -1, leader)


def inherited(committed: Committed | None, topic_id: bytes | None) -> int:
    """Returns the offset up to which the last owner had copied the partition, by what it committed. -1: not known, or
    committed for another topic."""
    return committed.offset if committed is not None and committed.is_of(id_text(topic_id)) else -1


class Assignment:
    """The partitions that the group assigns to this process. All calls must come from the event loop's thread."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._wanted: dict[Key, Committed | None] = {}
        self._leaving: dict[Partition, asyncio.Future[None]] = {}

    @property
    def keys(self) -> frozenset[Key]:
        """The assigned partitions, adopted or not."""
        return frozenset(self._wanted)

    def assign(self, keys: Iterable[Key], committed: Mapping[Key, Committed] | None = None) -> None:
        """Adds partitions to the assigned ones, and adopts them.

        Args:
            keys: the partitions.
            committed: the group's committed offsets for them; those without one are left out.
        """
        for key in keys:
            self._wanted[key] = (committed or {}).get(key)
        self.adopt()

    @property
    def unknown(self) -> list[Key]:
        """The assigned partitions that are not adopted: the source has no such partition, as far as is known here."""
        return [key for key in self._wanted if key not in self._relay.partitions]

    def adopt(self) -> None:
        """Adopts those assigned partitions that are known by now. If some are not, has the topics looked for again
        soon."""
        for key in self.unknown:
            self._relay.adopt(key, committed=self._wanted[key])
        if self.unknown:
            self._relay.look_soon()

    def revoke(self, keys: Iterable[Key], timeout_s: float) -> Coroutine[Any, Any, dict[Key, Committable]]:
        """Revokes partitions: stops fetching them, waits until what was fetched is acknowledged, and releases them.

        They are removed from the assigned partitions by the call itself, not only when the result is awaited. If they
        are assigned again before the release, they are adopted again after it. Partitions that are not active have
        nothing to wait for, and might become active meanwhile: they are released first.

        Args:
            keys: the partitions.
            timeout_s: longest wait for acknowledgements.

        Returns:
            A coroutine that does the rest, and returns the offsets to commit. Nothing more is sent by then.
        """
        return self._revoke(self._take(keys), timeout_s)

    async def _revoke(self, leaving: dict[Key, Partition], timeout_s: float) -> dict[Key, Committable]:
        revoked = frozenset(leaving)
        loop = asyncio.get_running_loop()
        for partition in leaving.values():
            if partition.phase is Phase.ACTIVE:
                self._relay.stop_fetching(partition)
                self._leaving[partition] = loop.create_future()
        resting = {key: partition for key, partition in leaving.items() if partition not in self._leaving}
        done = self._let_go(resting)
        waiting = [self._leaving[partition] for partition in leaving.values() if partition in self._leaving]
        self.check()
        try:
            if waiting:
                await asyncio.wait(waiting, timeout=timeout_s)
        finally:
            for key in resting:
                del leaving[key]
            done |= self._let_go(leaving)
            if not revoked.isdisjoint(self._wanted):
                self.adopt()
        return done

    def leaves(self, partition: Partition) -> bool:
        """Returns True if the partition is being revoked, and only its batches in flight are waited for."""
        return partition in self._leaving

    def _let_go(self, partitions: dict[Key, Partition]) -> dict[Key, Committable]:
        """Releases the partitions, except for those that are released already. Returns the offsets to commit for all of
        them, where they are known."""
        done = {key: found for key, partition in partitions.items() if (found := committable(partition)) is not None}
        for key, partition in partitions.items():
            self._leaving.pop(partition, None)
            # In the meantime, the partition may have been lost, or the relay closed.
            if self._relay.partitions.get(key) is partition and partition.phase is not Phase.STOPPED:
                self._relay.release(partition)
        return done

    def lose(self, keys: Iterable[Key]) -> None:
        """Releases partitions that another worker owns already. Nothing is committed for them."""
        for partition in self._take(keys).values():
            self._relay.release(partition)
        self.check()

    def _take(self, keys: Iterable[Key]) -> dict[Key, Partition]:
        """Removes partitions from the assigned ones. Returns those that were adopted."""
        taken: dict[Key, Partition] = {}
        for key in keys:
            self._wanted.pop(key, None)
            partition = self._relay.partitions.get(key)
            if partition is not None:
                taken[key] = partition
        return taken

    def check(self) -> None:
        """Ends the wait for each leaving partition that has nothing left to send or in flight, or is no longer active.
        Call it after responses and changes of a phase."""
        for partition, done in self._leaving.items():
            if not done.done() and (partition.phase is not Phase.ACTIVE or partition.queue.is_drained):
                done.set_result(None)
