"""Reads both logs side by side, from a point at which they agreed, and finds which batch is a copy of which.

This is for ``offsets: mapped``: the destination's log holds other writers' batches between the flow's own, and the
source's log holds batches that are not copied. The flow's batches are known by their producer ids, and each of them is
the next one of the source that is copied at all, byte for byte but for who wrote it. All of it is compared; where a log
cleaner or retention leaves a choice, ``offsetmap.compare.alignment`` narrows it down.
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
    """A batch as it stands in a log. ``gaps``: those between it and the one before."""

    header: BatchHeader
    batch: memoryview
    gaps: tuple[Gap, ...]


class Originals:
    """The batches of the source's log from ``offset`` on that are copied, one by one: all but markers, empty ones and,
    if only committed data is mirrored, those of aborted transactions. ``offset``: all before it was read."""

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
        """Returns the next one; None at the current visible end. A later call may return more."""
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
        """Returns the next one in the form in which it is compared."""
        found = await self.next()
        return None if found is None else ComparedBatch.of(*found)


class LockStep:
    """Goes through both logs: ``advance`` as often as the destination has grown, then ``decide``.

    Attributes:
        destination_offset: all before was looked at.
        identity: of the batch that comes next; None as long as it is not known.
        copies: how many were seen so far.
        map: the matches so far, as of the last ``decide``.
        lost: source offsets that never arrived and were gone over, as of the last ``decide``.
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
            identity: the one that the first of the flow's batches must have, if that is known.
            own: producer ids of the flow.
            committed: only committed data is mirrored.
            source_start: where the source begins.
            log_start: where the destination begins.
            accept_gap, known_epoch, opening, may_be_cut: see ``Alignment``.
            append_times: the destination's broker may have put the times of their append into copies.
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
        """Ranges behind the flow's last batch, start and end, where nothing at the destination takes offsets."""
        self._fenced: int | None = None
        """How many of them lie before the first marker that keeps out the writer of ``identity``; None: no marker."""
        self._expected = destination_offset

    async def advance(self, end: int) -> int:
        """Goes through all of the flow's batches at the destination up to ``end``, which has to be visible.

        Returns:
            How many batches of the flow it found.

        Raises:
            Differs: the destination is no copy; the message says where.
            NetworkError: one of them cannot be read.
        """
        before = self.copies
        while self.destination_offset < end:
            segment = await self.destination.read(self.destination_offset, max_bytes=READ_BYTES)
            if not segment.batches:
                if segment.high_watermark < end:
                    # As in ``relay.locate.tails.batches``: the rest is there, and cannot be read now.
                    raise Unreachable(
                        f"{self.destination.name} ends at {end}, and is to be read to {segment.high_watermark} only"
                    )
                break  # a log cleaner has removed what stood there
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
        """Settles what was found so far. ``map``, ``source_offset`` and all that follows from them are as of the last
        call.

        Raises:
            Ambiguous: see ``Alignment``.
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
        """Leader epoch of the source's last matched batch; -1 if there is none."""
        return self.alignment.source_epoch

    async def next_of_source(self) -> ComparedBatch | None:
        """Returns the batch that would be copied next; None if the source has none now."""
        return await self.alignment.next()

    @property
    def source_seen(self) -> int:
        """The offset up to which the source was read."""
        return self._originals.offset

    # -- copies that are not there -----------------------------------------------------------------------------------

    def unseen(self, end: int) -> list[int]:
        """Returns the sizes of the destination's gaps up to ``end`` in which batches of the flow may have stood, behind
        the last one seen. Gaps behind a fence do not count."""
        return [upto - start for start, upto in self._open(end)]

    def gone_to(self, end: int) -> int:
        """Returns where the last of these gaps ends; 0 if there is none."""
        return max((upto for _, upto in self._open(end)), default=0)

    def _open(self, end: int) -> list[tuple[int, int]]:
        if self._fenced is not None:
            return self._gaps[: self._fenced]
        return [*self._gaps, (self._expected, end)] if end > self._expected else self._gaps

    async def count(self, last_sequence: int, end: int) -> None:
        """Passes over copies that were not seen: the flow has written up to this sequence, and they are gone from the
        destination, which ends at ``end``.

        Raises:
            Differs: not as many as that can be gone.
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
        """Matches one batch of ours at the destination with the next one of the source."""
        header = copy.header
        where = f"offset {header.base_offset} of {self.destination.name}"
        follows = await self._pass_cleaned(header, where)
        if not await self.alignment.take(copy, follows=follows):
            raise Differs(f"{where} {await self.alignment.told(self.source.name)}")
        self.identity = Identity(header.producer_id, header.producer_epoch, header.last_sequence).after(1)
        self.copies += 1

    async def _pass_cleaned(self, header: BatchHeader, where: str) -> bool:
        """Passes over batches of ours that were cleaned away at the destination before this one. Its sequence says how
        many offsets they took, and the destination's own offsets show whether they were ever there.

        Returns:
            True if there are none: it was written right behind the one before.
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
    """Returns True for a marker behind which the writer of ``last`` is refused."""
    return header.is_control and header.producer_id == last.producer_id and header.producer_epoch > last.epoch


async def lost_from(log: PartitionLog, destination_end: int, own: Collection[int], end: int) -> bool:
    """Returns True if the destination lost what was acknowledged: its log ends before ``destination_end``, or has
    another's batch in that place."""
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
