"""From where both logs are read at a takeover (``offsets: mapped``): the checkpoint, the last point of the map that the
destination still has, or the beginning, where nothing says that there is more."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from mirror.net.coordinator import Ownership
from mirror.net.lockstep import lost_from
from mirror.net.log import PartitionLog, SourceLog
from mirror.net.state import Memory
from mirror.records.identity import Identity
from mirror.records.mapping import OffsetMap, Run
from mirror.records.state import Checkpoint, Chunk, joined
from mirror.relay.fence import Before
from mirror.relay.halts import Trouble, halt
from mirror.relay.partition import Partition
from mirror.relay.resync import Log, Rules

SCAN_BYTES = 4 << 20
"""Read at once where only headers are looked at."""


class Start(NamedTuple):
    """From where both logs are read: what lies before was copied."""

    source: int
    source_epoch: int
    destination: int
    identity: Identity | None
    """Of the first batch of ours from there on, if that is known."""


class Bounds(NamedTuple):
    """Where both logs start, and where the destination's ends for certain."""

    source_start: int
    log_start: int
    end: int


class Beginning:
    """Of one partition, behind the fence."""

    def __init__(
        self,
        partition: Partition,
        here: SourceLog,
        there: PartitionLog,
        rules: Rules,
        state: Memory,
        log: Log,
        *,
        own: Collection[int],
        bounds: Bounds,
    ) -> None:
        """``own``: producer ids under which the partition was ever written."""
        self._partition = partition
        self._here = here
        self._there = there
        self._rules = rules
        self._state = state
        self._log = log
        self._own = own
        self._bounds = bounds

    async def find(self, before: Before, owner: Ownership | None) -> Start:
        """Where to begin.

        Raises:
            PartitionHalted: a topic was recreated, or there is no checkpoint and a trace of copies.
            NetworkError: a log cannot be read.
        """
        checkpoint = self._state.ledger.checkpoint(self._partition.side)
        if checkpoint is None:
            await self._check_unwritten(before, owner)
            return Start(self._bounds.source_start, -1, self._bounds.end, None)
        return await self._start_from(checkpoint)

    async def _start_from(self, checkpoint: Checkpoint) -> Start:
        """The checkpoint; where the destination lost what came before it, the last point of the map that it still
        has."""
        chunks, end = self._state.ledger.chunks(self._partition.side), self._bounds.end
        for pinned, log, side in (
            (checkpoint.source_id, self._here, "source"),
            (checkpoint.destination_id, self._there, "destination"),
        ):
            topic_id = log.topic.topic_id.hex() if log.topic.topic_id else None
            if pinned and topic_id and pinned != topic_id:
                if self._rules.accept_loss:
                    return Start(self._bounds.source_start, -1, end, None)
                detail = f"{side} topic of {self._rules.name}: id {topic_id}, at the last checkpoint {pinned}"
                raise halt(Trouble.RECREATED, detail)
        runs = joined(open_tail(chunks))
        runs.truncate(checkpoint.source_offset)
        last = runs[-1] if len(runs) else None
        if not await self.lost(last):
            return Start(
                checkpoint.source_offset,
                checkpoint.source_epoch,
                min(checkpoint.destination_offset, end),
                checkpoint.identity,
            )
        start = await self._before_loss(runs, chunks)
        self._log.warning(
            "destination_lost",
            topic=self._partition.topic,
            partition=self._partition.index,
            detail=f"{self._there.name} ends at {end} or has others' batches where ours were acknowledged up to "
            f"{checkpoint.destination_offset}; source offsets from {start.source} on are compared and copied again",
        )
        return start

    async def lost(self, last: Run | None) -> bool:
        """Whether the destination has lost what was acknowledged last."""
        return last is not None and await lost_from(self._there, last.destination_end, self._own, self._bounds.end)

    async def _before_loss(self, runs: OffsetMap, chunks: Sequence[Chunk]) -> Start:
        own, log_start, end = self._own, self._bounds.log_start, self._bounds.end
        known = [*runs, *(chunk.map[0] for chunk in chunks if chunk.sealed and len(chunk.map))]
        for run in sorted(known, reverse=True):
            gone = max(0, log_start - run.destination)
            if gone < run.length and not await lost_from(self._there, run.destination + gone + 1, own, end):
                return Start(run.source + gone, -1, run.destination + gone, None)
        return Start(min(chunk.since for chunk in chunks), -1, log_start, None)

    async def _check_unwritten(self, before: Before, owner: Ownership | None) -> None:
        """There is no checkpoint: then there must be no trace of copies. Batches of ours are one, in the log or in the
        leader's memory; so is what the group at the source says of the last batch copied, where anything was ever
        written to the destination. A transactional id that nobody has had before spares reading the log."""
        if self._rules.accept_loss:
            return
        traces = [
            f"batches of producer id {state.producer_id}, which is this flow's"
            for state in before.known or ()
            if state.producer_id in self._own and state.last_sequence >= 0
        ]
        committed = self._partition.committed
        if committed is not None and committed.digest and before.end and not self._is_copied_elsewhere():
            traces.append(
                f"{before.end} offsets, and the group at the source has offset {committed.offset} with the digest of "
                "a batch that was copied"
            )
        at = self._bounds.log_start if owner is None or owner.epoch > 0 else self._bounds.end
        while at < self._bounds.end and not traces:
            segment = await self._there.read(at, max_bytes=SCAN_BYTES)
            if not segment.batches:
                break
            for header, _ in segment.batches:
                at = header.next_offset
                if header.producer_id in self._own and not header.is_control:
                    traces.append(f"batches of producer id {header.producer_id}, which is this flow's")
                    break
        if traces:
            detail = f"{self._there.name} has {traces[0]}; {self._state.topic} has no checkpoint of it"
            raise halt(Trouble.CHECKPOINT_LOST, detail)

    def _is_copied_elsewhere(self) -> bool:
        """Whether the flow has an account of this source partition in another destination topic: what the group says
        may be of that (``topic.rename`` was changed)."""
        side = self._partition.side
        return any(
            (other.topic, other.partition) == (side.topic, side.partition) and other.destination != side.destination
            for other in self._state.ledger.sides
        )


def open_tail(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks behind the last sealed one, in order."""
    sealed = max((at for at, chunk in enumerate(chunks) if chunk.sealed), default=-1)
    return list(chunks[sealed + 1 :])
