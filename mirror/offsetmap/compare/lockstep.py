"""Reads both logs side by side, from a point at which they agreed, and finds which batch is a copy of which.

This is for ``offsets: mapped``: the destination's log has other writers' batches between the flow's own, and the
source's log has batches that are not copied. The flow's batches are recognized by their producer ids. Each of them is
the next source batch that is copied at all, byte for byte except for the writer's fields. All of them are compared. If
a log cleaner or retention leaves several possibilities, ``offsetmap.compare.alignment`` narrows these down.
"""

import asyncio
from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from mirror.net.errors import Refused, Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.compare.alignment import Alignment, Differs, NeverArrived
from mirror.offsetmap.compare.looks import ComparedBatch, Gap
from mirror.offsetmap.runs import OffsetMap
from mirror.records.header import SEQUENCES, BatchHeader
from mirror.records.identity import Identity
from mirror.records.transactions import Aborted
from mirror.wire.errors import ErrorCode

__all__ = ["Differs", "LockStep", "Originals", "StandingBatch", "is_fence", "lost_from"]

READ_BYTES = 1 << 20
_HALF = SEQUENCES // 2


class StandingBatch(NamedTuple):
    """A batch as it is in a log. ``gaps``: those between the previous copied batch and this one."""

    header: BatchHeader
    batch: memoryview
    gaps: tuple[Gap, ...]


class Originals:
    """The batches of the source's log that are copied, one by one: all except markers, empty batches and, if only
    committed data is mirrored, aborted data.

    Attributes:
        offset: the log was read up to this offset.
    """

    def __init__(self, log: PartitionLog, offset: int, *, committed: bool) -> None:
        self._log = log
        self.offset = offset
        self._committed = committed
        self._read: deque[StandingBatch] = deque()
        self._gaps: list[Gap] = []
        self._behind: list[Gap] = []

    @property
    def gaps(self) -> list[Gap]:
        """The offsets behind the last of these batches that no batch takes, as of the last read."""
        return self._gaps + self._behind

    async def next(self) -> StandingBatch | None:
        """Returns the next batch; None at the current visible end. A later call may return more."""
        while not self._read:
            segment = await self._log.read(self.offset, max_bytes=READ_BYTES, committed=self._committed)
            if not segment.batches:
                visible = segment.last_stable_offset if self._committed else segment.high_watermark
                self._behind = [Gap(self.offset, visible - self.offset)] if visible > self.offset else []
                return None
            self._behind = []
            aborted = Aborted(segment.aborted)
            for header, batch in segment.batches:
                if header.base_offset > self.offset:
                    self._gaps.append(Gap(self.offset, header.base_offset - self.offset))
                if aborted.follow(header, batch) or header.is_control:
                    pass
                elif header.record_count:
                    self._read.append(StandingBatch(header, batch, tuple(self._gaps)))
                    self._gaps = []
                else:
                    self._gaps.append(Gap(header.base_offset, header.last_offset_delta + 1, is_batch=True))
                self.offset = header.next_offset
        return self._read.popleft()

    async def next_batch(self) -> ComparedBatch | None:
        """Returns the next batch in the form in which it is compared; None at the current visible end."""
        found = await self.next()
        return None if found is None else ComparedBatch.of(*found)


class LockStep:
    """Goes through both logs. Call ``advance`` whenever the destination has grown, then ``decide``.

    Attributes:
        destination_offset: the destination was read up to this offset.
        identity: the identity of the next batch; None as long as it is not known.
        copies: the number of copies that were found so far.
        map: the matches, as of the last ``decide``.
        lost: ranges of source offsets that never arrived and were passed over, as of the last ``decide``.
    """

    def __init__(
        self,
        source: PartitionLog,
        destination: PartitionLog,
        *,
        source_offset: int,
        destination_offset: int,
        source_epoch: int = -1,
        identity: Identity | None,
        own: Collection[int],
        committed: bool,
        source_start: int = 0,
        log_start: int = 0,
        accept_gap: bool = False,
        known_epoch: int = -1,
        opening: asyncio.Lock | None = None,
        may_be_cut: bool = False,
        append_times: bool = False,
    ) -> None:
        """
        Args:
            source: the source's log.
            destination: the destination's log.
            source_offset: everything before this source offset was copied.
            destination_offset: everything before this destination offset was read earlier.
            source_epoch: the leader epoch of what was copied last; -1 if not known.
            identity: the identity that the first of the flow's batches must have; None if that is not known.
            own: the producer ids of the flow.
            committed: only committed data is mirrored.
            source_start: the start of the source's log.
            log_start: the start of the destination's log.
            accept_gap, known_epoch, opening, may_be_cut: see ``Alignment``.
            append_times: the destination's broker may have put the time of the append into copies.
        """
        self.source = source
        self.destination = destination
        self.destination_offset = max(destination_offset, log_start)
        self.identity = identity
        self.map = OffsetMap()
        self.lost: list[tuple[int, int]] = []
        self.copies = 0
        self._own = own
        self._append_times = append_times
        self._originals = Originals(source, max(source_offset, source_start), committed=committed)
        self.alignment = Alignment(
            self._originals.next_batch,
            lambda: self._originals.gaps,
            source_offset=source_offset,
            source_start=source_start,
            source_epoch=source_epoch,
            accept_gap=accept_gap,
            known_epoch=known_epoch,
            opening=opening,
            may_be_cut=may_be_cut,
        )
        self._gaps: list[tuple[int, int]] = []
        """Destination offsets behind the flow's last batch that no batch takes: start and end of each range."""
        self._fenced: int | None = None
        """The number of these ranges before the first marker that fences the writer of ``identity``; None: no
        marker."""
        self._expected = destination_offset

    async def advance(self, end: int) -> int:
        """Matches all of the flow's batches at the destination up to ``end``, which must not be beyond the high
        watermark.

        Returns:
            The number of the flow's batches that were found.

        Raises:
            Differs: the destination is no copy; the message says where.
            NetworkError: a log cannot be read.
        """
        before = self.copies
        while self.destination_offset < end:
            segment = await self.destination.read(self.destination_offset, max_bytes=READ_BYTES)
            if not segment.batches:
                if segment.high_watermark < end:
                    # As in ``relay.locate.tails.batches``: the rest exists, and cannot be read now.
                    raise Unreachable(
                        f"{self.destination.name} ends at {end}, and is to be read to {segment.high_watermark} only"
                    )
                break  # a log cleaner has removed the rest
            for header, batch in segment.batches:
                if header.base_offset > self._expected:
                    self._gaps.append((self._expected, header.base_offset))
                if header.producer_id in self._own and not header.is_control:
                    await self._match(ComparedBatch.of(header, batch, append_times=self._append_times))
                    self._gaps.clear()
                    self._fenced = None
                elif self._fenced is None and self.identity is not None and is_fence(header, self.identity):
                    self._fenced = len(self._gaps)
                self.destination_offset = self._expected = header.next_offset
        return self.copies - before

    def decide(self) -> None:
        """Decides what was found so far. ``map``, ``lost``, ``source_offset`` and ``source_epoch`` are as of the last
        call.

        Raises:
            Ambiguous: see ``Alignment.decide``.
        """
        runs, lost = self.alignment.decide()
        self.map.extend(runs)
        self.lost += lost

    @property
    def source_offset(self) -> int:
        """The source offset behind the last batch that was matched."""
        return self.alignment.source_offset

    @property
    def source_epoch(self) -> int:
        """The leader epoch of the source's last matched batch; -1 if it is not known."""
        return self.alignment.source_epoch

    async def next_of_source(self) -> ComparedBatch | None:
        """Returns the batch that would be copied next; None if the source has none now. To be called after
        ``decide``."""
        return await self.alignment.next()

    @property
    def source_seen(self) -> int:
        """The offset up to which the source was read."""
        return self._originals.offset

    # -- missing copies ----------------------------------------------------------------------------------------------

    def unseen(self, end: int) -> list[int]:
        """Returns the sizes of the destination's gaps between the flow's last batch and ``end``, in which batches of
        the flow may have been. Gaps behind a fence do not count."""
        return [upto - start for start, upto in self._open(end)]

    def gone_to(self, end: int) -> int:
        """Returns the end of the last gap that ``unseen`` counts; 0 if there is none."""
        return max((upto for _, upto in self._open(end)), default=0)

    def _open(self, end: int) -> list[tuple[int, int]]:
        if self._fenced is not None:
            return self._gaps[: self._fenced]
        return [*self._gaps, (self._expected, end)] if end > self._expected else self._gaps

    async def count(self, last_sequence: int, end: int) -> None:
        """Passes over missing copies behind the last one that was found: the flow has written up to ``last_sequence``,
        and the destination ends at ``end``.

        Raises:
            Differs: so many copies cannot be missing there.
        """
        assert self.identity is not None
        missing = (last_sequence + 1 - self.identity.sequence) % SEQUENCES
        if 0 < missing < _HALF:
            where = f"{self.destination.name} up to offset {end}"
            if not await self.alignment.skip(missing, self.unseen(end)):
                raise _unlike(where, missing)
            self.identity = self.identity.after(missing)
            self._gaps.clear()
            self._expected = end
            self._fenced = None

    async def _match(self, copy: ComparedBatch) -> None:
        """Matches one of the flow's batches at the destination with the next batch of the source.

        Raises:
            Differs: it does not fit.
        """
        header = copy.header
        where = f"offset {header.base_offset} of {self.destination.name}"
        follows = await self._pass_cleaned(header, where)
        if not await self.alignment.take(copy, follows=follows):
            raise Differs(f"{where} {await self.alignment.told(self.source.name)}")
        self.identity = Identity(header.producer_id, header.producer_epoch, header.last_sequence).after(1)
        self.copies += 1

    async def _pass_cleaned(self, header: BatchHeader, where: str) -> bool:
        """Passes over batches of the flow in front of this one that were cleaned away at the destination. The sequence
        tells how many offsets they took, and the destination's gaps show whether they were ever there.

        Returns:
            True if there are none, and the batch was written right behind the previous one.

        Raises:
            Differs: that many offsets cannot be missing, or the batch repeats an earlier one.
        """
        expected = self.identity
        if expected is None:
            return False
        same = (expected.producer_id, expected.epoch) == (header.producer_id, header.producer_epoch)
        missing = (header.base_sequence - (expected.sequence if same else 0)) % SEQUENCES
        if missing >= _HALF:
            raise Differs(f"{where} repeats a batch of this flow that stands before it", missing=0)
        try:
            gaps = [upto - start for start, upto in self._gaps]
            if missing and not await self.alignment.skip(missing, gaps):
                raise _unlike(where, missing)
        except NeverArrived as error:
            if same:
                raise
            due = f"{expected.producer_id}, epoch {expected.epoch}"
            detail = (
                f"{where} is of producer id {header.producer_id}, epoch {header.producer_epoch}, behind those of {due}"
            )
            raise Differs(f"{detail}: two workers have written at the same time", missing=0) from error
        return same and not missing


def _unlike(where: str, missing: int) -> Differs:
    return Differs(
        f"{where}: {missing} offsets of this flow are gone before it, unlike the source's batches", missing=missing
    )


def is_fence(header: BatchHeader, last: Identity) -> bool:
    """Returns True for a marker behind which brokers refuse batches of the writer of ``last``."""
    return header.is_control and header.producer_id == last.producer_id and header.producer_epoch > last.epoch


async def lost_from(log: PartitionLog, destination_end: int, own: Collection[int], end: int) -> bool:
    """Returns True if the destination has lost acknowledged copies: its log ends before ``destination_end``, or it has
    a batch of another writer right before that offset.

    Args:
        log: the destination's log.
        destination_end: the offset behind the last acknowledged copy.
        own: the producer ids of the flow.
        end: the end of the log.
    """
    if destination_end > end:
        return True
    if destination_end <= 0:
        return False
    try:
        found = await log.batch_at(destination_end - 1)
    except Refused as error:
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return False
        raise
    return (
        found is not None
        and found[0].base_offset <= destination_end - 1
        and (found[0].producer_id not in own or found[0].is_control)
    )
