"""The partitions that a consumer group assigns to this process: adopted when assigned, drained when revoked.

A partition that comes back after it was released is a new ``Partition`` and a takeover: another worker may have had it
in between. A released partition is forgotten at once, except for batches that are still under way: their answers must
find their partition, so it leaves its lane only when the last answer is in.
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
    """An offset to commit to the group at the source, always a batch boundary, and what is known of the copy there."""

    offset: int
    topic_id: str
    """The source topic's id, hexadecimal; empty if topics have no ids."""
    epoch: int
    """Leader epoch of the source batch that ``digest`` is of; -1: not known."""
    digest: str
    """``header_digest`` of the last source batch that is known to be copied; empty: none is known."""
    digest_at: int
    """The offset behind that batch; at most ``offset``."""
    leader_epoch: int = -1
    """Epoch of the source's leader from which the batch was read; -1: not known."""

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
    """Parses a group's committed offset and its metadata. Metadata that is not ours is ignored."""
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
    """Returns ``offset`` with the facts known of the copy up to there."""
    source_id = id_text(partition.claim.source_id)
    topic_id = source_id or ""
    leader = partition.cursor.leader_epoch
    mark = next((mark for mark in reversed(partition.cursor.marks) if mark.next_offset <= offset), None)
    if mark is not None:
        return Committable(offset, topic_id, mark.leader_epoch, header_digest(mark.header), mark.next_offset, leader)
    before = partition.claim.committed
    if before is not None and before.is_of(source_id) and before.digest_at <= offset:
        # Nothing was copied since it was assigned: the facts that its last owner committed still hold.
        return Committable(offset, topic_id, before.epoch, before.digest, before.digest_at, leader)
    return Committable(offset, topic_id, partition.cursor.last_epoch, "", -1, leader)


def inherited(committed: Committed | None, topic_id: bytes | None) -> int:
    """Returns the offset up to which the partition was copied when its last owner committed. -1: not known, or
    committed for another topic."""
    return committed.offset if committed is not None and committed.is_of(id_text(topic_id)) else -1


class Assignment:
    """The partitions that the group gave us. Only the event loop's thread may call."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._wanted: dict[Key, Committed | None] = {}
        self._leaving: dict[Partition, asyncio.Future[None]] = {}

    @property
    def keys(self) -> frozenset[Key]:
        """The assigned partitions, adopted or not."""
        return frozenset(self._wanted)

    def assign(self, keys: Iterable[Key], committed: Mapping[Key, Committed] | None = None) -> None:
        """Adds partitions to those that are ours. ``committed``: the group's committed offsets for them."""
        for key in keys:
            self._wanted[key] = (committed or {}).get(key)
        self.adopt()

    @property
    def unknown(self) -> list[Key]:
        """Assigned partitions that could not be adopted: the source has no such partition, as far as is known here."""
        return [key for key in self._wanted if key not in self._relay.partitions]

    def adopt(self) -> None:
        """Adopts the assigned partitions that are known by now."""
        for key in self.unknown:
            self._relay.adopt(key, committed=self._wanted[key])
        if self.unknown:
            self._relay.look_soon()

    def revoke(self, keys: Iterable[Key], timeout_s: float) -> Coroutine[Any, Any, dict[Key, Committable]]:
        """Stops fetching these partitions, waits ``timeout_s`` at most for batches under way, and releases them. Those
        that are not active have nothing to wait for, and would begin to copy meanwhile: they are released first.

        They are not ours from this call on, not only once the result is awaited: if they are assigned again before
        that, they are adopted anew when they have been released.

        Returns:
            The offsets to commit for them, now that nothing more will be sent from here.
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
        """Returns True if the partition is being revoked, and only waits for what is under way."""
        return partition in self._leaving

    def _let_go(self, partitions: dict[Key, Partition]) -> dict[Key, Committable]:
        """Releases the partitions. Returns the offsets to commit for them."""
        done = {key: found for key, partition in partitions.items() if (found := committable(partition)) is not None}
        for key, partition in partitions.items():
            self._leaving.pop(partition, None)
            # In the meantime, the partition may have been lost, or the relay closed.
            if self._relay.partitions.get(key) is partition and partition.phase is not Phase.STOPPED:
                self._relay.release(partition)
        return done

    def lose(self, keys: Iterable[Key]) -> None:
        """Releases partitions that another worker owns already. Nothing is committed."""
        for partition in self._take(keys).values():
            self._relay.release(partition)
        self.check()

    def _take(self, keys: Iterable[Key]) -> dict[Key, Partition]:
        """Removes partitions from the assigned ones. Returns those of them that were adopted."""
        taken: dict[Key, Partition] = {}
        for key in keys:
            self._wanted.pop(key, None)
            partition = self._relay.partitions.get(key)
            if partition is not None:
                taken[key] = partition
        return taken

    def check(self) -> None:
        """Ends the wait for leaving partitions that are done. Call it after answers and changes of a phase."""
        for partition, done in self._leaving.items():
            if not done.done() and (partition.phase is not Phase.ACTIVE or partition.queue.is_drained):
                done.set_result(None)
