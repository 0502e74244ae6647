"""Looks at the destination beside the data path: that what was acknowledged is what was sent, and that a log still ends
where the next batch belongs."""

import time
from collections.abc import Coroutine
from typing import Any, Protocol

from mirror.net.errors import NetworkError
from mirror.net.survivors import cleaned
from mirror.reasons import HaltReason
from mirror.records.header import BatchHeader
from mirror.relay.fill import NOT_OWNER, NotOwner
from mirror.relay.halts import Halted, PartitionHalted
from mirror.relay.partition import Batch, Partition
from mirror.relay.phases import Phase
from mirror.relay.position import Locator
from mirror.relay.settings import RelaySettings
from mirror.wire.produce import checksum_of

CLEANED = "cleaned"
LEADER_CHANGED = "leader_changed"


class ProofsOwner(Protocol):
    """What is reported to: the relay."""

    settings: RelaySettings
    locator: Locator

    def doubt_now(self, partition: Partition, cause: str, detail: str) -> None:
        """The position is not certain any more, and with nothing under way it is sought at once."""

    def halt(self, partition: Partition, halted: Halted) -> None:
        """The partition cannot go on."""

    def pump_sinks(self) -> None:
        """There is something to send."""

    def forgets_before_ms(self) -> float:
        """See ``SinkOwner``."""

    def work(self, partition: Partition, work: Coroutine[Any, Any, None]) -> None:
        """Runs a task that ends with the partition."""


class Proofs:
    """Of all partitions of a process."""

    def __init__(self, owner: ProofsOwner) -> None:
        self._owner = owner

    def read_back(self, partition: Partition, base_offset: int, batch: Batch) -> None:
        """Reads the first batch after a resync: a broker recognises a repeat without looking at content. The window
        stays at 1 until it is as it was sent."""
        crc = checksum_of(batch[0])  # the hot path builds plain tuples: no names
        self._owner.work(partition, self._read_back(partition, base_offset, crc, partition.positions))

    async def _read_back(self, partition: Partition, base_offset: int, crc: int, position: int) -> None:
        owner = self._owner
        try:
            _, there = owner.locator.logs(partition)
            found = await there.batch_at(base_offset)
            sent = found is not None and (found[0].base_offset, found[0].crc) == (base_offset, crc)
            if found is not None and sent and partition.positions == position:
                await owner.locator.cut(partition, found[0].next_offset)
        except PartitionHalted as stop:
            if partition.positions == position:
                owner.halt(partition, stop.halted)
            return
        except NetworkError as error:
            if partition.positions == position:
                owner.doubt_now(partition, error.slug, str(error))
            return
        if partition.positions != position:
            return
        if not sent:
            detail = f"{partition.name}: the destination has another batch at offset {base_offset} than was sent"
            if partition.terms.compacted_there and _may_be_cleaned(found, base_offset):
                # The log cleaner was quicker. The next position compares the records that survive.
                owner.doubt_now(partition, CLEANED, f"{detail}, which its log cleaner has changed")
                return
            if there.leader.node_id != partition.destination_leader:
                # Another broker than has acknowledged it, perhaps one that is the leader no more, or not any longer.
                owner.doubt_now(partition, LEADER_CHANGED, f"{detail}, by the word of another leader")
                return
            owner.halt(partition, Halted.of(HaltReason.NOT_A_COPY, detail))
            return
        partition.proven = True
        partition.widen(owner.settings.max_in_flight, owner.forgets_before_ms())
        self._offer(partition)

    def reconfirm(self, partition: Partition) -> None:
        """Offers the partition to its lane once its log end was looked at again. May be called again meanwhile."""
        if not partition.reconfirming:
            partition.reconfirming = True
            self._owner.work(partition, self._reconfirm(partition, partition.positions))

    async def _reconfirm(self, partition: Partition, position: int) -> None:
        owner, cause, moved = self._owner, "end_moved", ""
        stopped: Halted | None = None
        try:
            moved = await owner.locator.moved(partition)
        except NotOwner as error:
            cause, moved = NOT_OWNER, str(error)
        except PartitionHalted as stop:
            stopped = stop.halted
        except NetworkError as error:
            cause, moved = error.slug, str(error)
        finally:
            partition.reconfirming = False
        if partition.phase is not Phase.ACTIVE:
            return
        if partition.positions != position:
            # It was located anew meanwhile. Whoever wanted this of the new position was told that it is under way.
            if partition.outbox:
                self.reconfirm(partition)
        elif stopped is not None:
            owner.halt(partition, stopped)
        elif moved:
            partition.released = cause == NOT_OWNER
            owner.doubt_now(partition, cause, moved)
        else:
            partition.confirmed_at = time.monotonic()
            self._offer(partition)

    def _offer(self, partition: Partition) -> None:
        if partition.outbox and partition.lane is not None:
            partition.lane.offer(partition)
            self._owner.pump_sinks()


def _may_be_cleaned(found: tuple[BatchHeader, bytes] | None, base_offset: int) -> bool:
    """Whether a log cleaner has removed the batch that began there, or records of it."""
    return found is None or found[0].base_offset != base_offset or cleaned(found[0])
