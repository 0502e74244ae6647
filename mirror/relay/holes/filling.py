"""Fills the hole at the head of a partition's outbox (``relay.holes.markers``). The partition goes on afterwards."""

from mirror.records.admit import Cause
from mirror.relay.durable.skips import ON_GAP
from mirror.relay.halts import Halted
from mirror.relay.holes.oversize import OversizeRecords
from mirror.relay.holes.parking import park
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.outcome import Doubt, attempted
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch, Hole

MANY_HOLES = 0.5
"""If more than this share of a flow's offsets are holes, ``offsets: mapped`` is the better choice."""
WORTH_A_LOOK = 10_000
NEVER = 1 << 62


class HoleFilling:
    """Fills the holes of all partitions of a process."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._oversize = OversizeRecords(relay)
        self._weigh_at = WORTH_A_LOOK

    def fill(self, partition: Partition) -> None:
        """Begins to fill the hole that is next to be sent. Nothing of the partition may be in flight. Does nothing if
        the hole is being filled already."""
        if partition.phase is Phase.ACTIVE and partition.queue.begin_fill():
            if not partition.queue.parked:
                park(partition, self._relay.pool)
            self._relay.work(partition, self._fill(partition, partition.queue.outbox[0]))

    async def _fill(self, partition: Partition, hole: Batch | Hole) -> None:
        relay = self._relay
        stopped: Halted | Doubt | None = None
        try:
            # The partition may have come into doubt between the call of ``fill`` and this task's first step.
            if _is_next(hole, partition):
                stopped = await attempted(self._fill_hole(partition, hole))
        finally:
            partition.queue.end_fill()
        if not _is_next(hole, partition):
            # The partition is in doubt by now, or has halted. The next resync finds the markers that were written, once
            # the log end stands still.
            partition.claim.leave(taken_over=isinstance(stopped, Doubt) and stopped.taken_over, unsettled=True)
            if partition.emptied():
                relay.emptied(partition)
        elif stopped is not None:
            relay.act(partition, stopped)
        else:
            self._filled(partition)

    async def _fill_hole(self, partition: Partition, hole: Batch | Hole) -> None:
        """Fills the hole. Offsets that are given up are written down before the first marker takes the place of one:
        after that, nothing would show that there is anything to report.

        Raises:
            Moved, PartitionHalted, NetworkError: it was not filled, or not completely.
        """
        assert isinstance(hole, Hole), partition.name
        if hole.cause is Cause.ACCEPTED:
            start = partition.queue.acknowledged
            await self._relay.pins.skips.write(partition.subject, [(start, start + hole.records, ON_GAP)])
        elif hole.cause is Cause.OVERSIZE:
            await self._oversize.pass_over(partition)
        if _is_next(hole, partition):  # it may have come into doubt meanwhile
            await self._relay.locator.filling(partition).run()

    def _filled(self, partition: Partition) -> None:
        relay, hole = self._relay, partition.queue.pop_hole()
        relay.stats.filled_here += hole.records
        if partition.trace is not None:
            end = partition.queue.acknowledged
            partition.trace.note("filled", offset=end - hole.records, next=end, cause=hole.cause.value)
        if hole.cause is Cause.ACCEPTED:
            end = partition.queue.acknowledged
            relay.stats.skip(partition.topic, partition.index, end - hole.records, end, ON_GAP)
        if relay.stats.filled_here >= self._weigh_at:
            self._weigh()
        partition.queue.offer()
        relay.pump_sinks()
        relay.drained()

    def _weigh(self) -> None:
        """Logs, once, that there is a cheaper way for a flow that consists mostly of holes."""
        filled = self._relay.stats.filled_here
        offsets = filled + sum(partition.counts.records for partition in self._relay.partitions.values())
        self._weigh_at = 2 * filled
        if filled <= MANY_HOLES * offsets:
            return
        self._weigh_at = NEVER
        self._relay.log.warning(
            "many_holes",
            detail=f"{filled} of {offsets} offsets have no record at the source and are filled one by one: more than "
            f"{MANY_HOLES:.0%}",
            remedy="set offsets: mapped for these topics, if equal offsets are not needed",
        )


def _is_next(hole: Batch | Hole, partition: Partition) -> bool:
    """Returns True if the hole is still what the partition has to send next."""
    return partition.phase is Phase.ACTIVE and bool(partition.queue.outbox) and partition.queue.outbox[0] is hole
