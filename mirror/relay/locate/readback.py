"""Checks the destination beside the data path: that an acknowledged batch is what was sent, and that a log still ends
where the next batch belongs."""

import asyncio
from typing import NamedTuple

from mirror.offsetmap.compare.survivors import cleaned
from mirror.reasons import HaltReason
from mirror.records.header import BatchHeader
from mirror.records.stamped import is_stamped, unstamped
from mirror.relay.halts import Halted, halt
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.outcome import Doubt, Moved, attempted
from mirror.relay.partition.clock import since_boot
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch
from mirror.wire.produce import checksum_of, max_timestamp_of

CUT_POLL_S = 0.1
SLOW_LOOKS = 3
"""Number of consecutive looks that may each take longer than a look counts. The last of them counts from its end:
otherwise nothing would ever be sent to slow brokers. It is unlikely that this process was stopped during every one of
them."""
CLEANED = "cleaned"
REWRITTEN = "rewritten"
LEADER_CHANGED = "leader_changed"
MOST_OTHERWISE = 2
"""Number of consecutive batches that may be found in another form than they were sent in. If there are more, they are
not another worker's: the destination changes batches."""


class SentBatch(NamedTuple):
    """The batch that was acknowledged.

    Attributes:
        base_offset: its base offset at the destination.
        crc: its checksum, as sent.
        records: the offsets that it takes.
        newest_ms: its max timestamp.
        rewritten: True if it was built here from records of the source's batch.
    """

    base_offset: int
    crc: int
    records: int
    newest_ms: int
    rewritten: bool

    def is_there(self, found: BatchHeader, *, append_times: bool) -> bool:
        """Returns True if this is the batch found at the destination. ``append_times``: True if the broker may have
        replaced its timestamps with the time of the append."""
        sent = unstamped(found, self.newest_ms) if append_times and is_stamped(found) else found
        return (sent.base_offset, sent.crc) == (self.base_offset, self.crc)


class ReadBack:
    """Does these checks for all partitions of a process."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay

    def read_back(self, partition: Partition, base_offset: int, batch: Batch) -> None:
        """Begins to read back the first batch after a resync, since a broker recognises a repeat without looking at its
        content. Nothing is sent behind it until it is known to be what was sent (``Queue.widen``)."""
        sent = SentBatch(
            base_offset,
            checksum_of(batch[0]),  # the compiled hot path builds plain tuples, without names
            batch[2],
            max_timestamp_of(batch[0]),
            rewritten=partition.cursor.is_rewritten(_source_offset(partition, base_offset, batch)),
        )
        self._relay.work(partition, self._read_back(partition, sent, partition.positions))

    async def _read_back(self, partition: Partition, sent: "SentBatch", position: int) -> None:
        stopped = await attempted(self._compare(partition, sent, position))
        if partition.positions != position:
            return
        if stopped is not None:
            self._relay.act(partition, stopped)
            return
        partition.queue.prove()
        partition.claim.read_as_sent()
        partition.queue.widen(self._relay.settings.max_in_flight, self._relay.forgets_before_ms())
        if partition.queue.outbox and partition.queue.must_confirm(self._relay.settings.fresh_s):
            self.reconfirm(partition)
        else:
            self._offer(partition)
        exact = partition.queue.copied is None
        if exact and partition.cursor.source_start < sent.base_offset + sent.records <= partition.cursor.floor:
            # The source begins inside of its first batch, and this was a piece of that batch which ends before the
            # source begins.
            self._relay.work(partition, self._cut_later(partition, position))

    async def _cut_later(self, partition: Partition, position: int) -> None:
        """Moves the destination's log start once the copy has passed the offset at which the source begins."""
        while partition.positions == position and partition.phase is Phase.ACTIVE:
            if partition.queue.acknowledged > partition.cursor.floor:
                stopped = await attempted(self._relay.locator.cut(partition, partition.queue.acknowledged))
                if stopped is not None and partition.positions == position:
                    self._relay.act(partition, stopped)
                return
            await asyncio.sleep(CUT_POLL_S)

    async def _compare(self, partition: Partition, sent: "SentBatch", position: int) -> None:
        """Compares the batch at the destination with what was sent.

        Raises:
            PartitionHalted, Moved: the batch is not there as it was sent.
            NetworkError: it could not be read.
        """
        locator = self._relay.locator
        _, there = locator.logs(partition)
        base_offset = sent.base_offset
        found = await there.batch_at(base_offset)
        if found is not None and sent.is_there(found[0], append_times=partition.terms.takes_append_times):
            if partition.positions == position:
                await locator.cut(partition, found[0].next_offset)
            return
        detail = f"{partition.name}: the destination has another batch at offset {base_offset} than was sent"
        if partition.positions == position and partition.queue.copied is None:
            partition.claim.leave_unread(base_offset)
        if sent.rewritten or (partition.terms.rewrites and partition.claim.otherwise < MOST_OTHERWISE):
            # Another worker, with another configuration, may have cut or compressed it in another way. The next resync
            # compares the records.
            partition.claim.read_otherwise()
            raise Moved(REWRITTEN, detail)
        if partition.terms.compacted_there and _may_be_cleaned(found, base_offset):
            # The log cleaner was faster. The next resync compares the records that survive.
            raise Moved(CLEANED, f"{detail}, which its log cleaner has changed")
        if there.leader.node_id != partition.claim.destination_leader:
            # The answer comes from another broker than the acknowledgement. One of the two may be a deposed leader.
            raise Moved(LEADER_CHANGED, f"{detail}, by the word of another leader")
        raise halt(HaltReason.NOT_A_COPY, detail)

    def reconfirm(self, partition: Partition) -> None:
        """Begins to check the partition's log end again. Once that is confirmed, the partition is offered to its lane.
        Does nothing while such a check is in progress."""
        if partition.queue.begin_reconfirm():
            self._relay.work(partition, self._reconfirm(partition, partition.positions))

    async def _reconfirm(self, partition: Partition, position: int) -> None:
        stopped: Halted | Doubt | None = None
        began = since_boot()
        try:
            for _ in range(SLOW_LOOKS):
                began = since_boot()
                stopped = await attempted(self._relay.locator.check_unmoved(partition))
                late = since_boot() - began > self._relay.settings.fresh_s
                if stopped is not None or not late or partition.positions != position:
                    break
            else:
                began = since_boot()
        finally:
            if partition.positions == position:
                partition.queue.end_reconfirm()
        if partition.phase is not Phase.ACTIVE or partition.positions != position:
            return  # if it was located again meanwhile, the new position is checked by itself (``Queue.start``)
        if stopped is not None:
            self._relay.act(partition, stopped)
        else:
            partition.queue.confirm(began)
            self._offer(partition)

    def _offer(self, partition: Partition) -> None:
        if partition.queue.offer():
            self._relay.pump_sinks()


def _source_offset(partition: Partition, base_offset: int, batch: Batch) -> int:
    """Returns the source offset of the batch that was just acknowledged at ``base_offset``."""
    copied = partition.queue.copied
    last = copied.open_map.last if copied is not None else None
    return last.source_end - batch[2] if last is not None else base_offset


def _may_be_cleaned(found: tuple[BatchHeader, bytes] | None, base_offset: int) -> bool:
    """Returns True if a log cleaner may have removed the batch that began there, or records of it."""
    return found is None or found[0].base_offset != base_offset or cleaned(found[0])
