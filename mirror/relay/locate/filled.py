"""Checks the offsets behind the destination's last data batch: no marker may stand where the source has a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from mirror.net.errors import Refused, Unreachable
from mirror.net.logs.log import Segment
from mirror.reasons import HaltReason
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.raw import raw_records, record_digest
from mirror.records.content.rewriting import alone
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.relay.halts import PartitionHalted, halt
from mirror.relay.locate.cleaned.superseded import LostRecord, Superseded, records_of
from mirror.relay.locate.tails import READ_BYTES, Markers, Tail
from mirror.wire.errors import ErrorCode

if TYPE_CHECKING:
    from mirror.relay.locate.rules import Readable, ResyncRules, SourceLogStart


class Filled(NamedTuple):
    """The result of checking the markers behind the destination's last data batch."""

    until: int
    """The end of the source batch inside which the destination ends; otherwise the destination's end. If batches are
    only copied whole, the rest of that batch is filled as well."""
    accepted: tuple[int, int] | None = None
    """First and next offset of the range where records are missing by an operator's decision; None: there is none."""


class FilledCheck:
    """Checks the filled offsets of one partition, for one look at its logs. Every read may raise NetworkError: cannot
    be determined now."""

    def __init__(self, here: SourceLogStart, there: Readable, rules: ResyncRules) -> None:
        self._here = here
        self._there = there
        self._rules = rules
        self._passed: Mapping[int, int | str] | None = None
        """The result of ``ResyncRules.passed``; None: not asked yet."""

    async def check(self, tail: Tail, source_start: int, end: int, *, blame: bool = False) -> Filled:
        """Checks that no marker stands behind the destination's last data batch where the source has a record. A marker
        is right if that record is superseded at a compacted source (``relay.locate.cleaned.superseded``), or if an
        operator goes on without it. On a compacted topic, the destination may have nothing at such an offset: its log
        cleaner has removed the copy.

        Args:
            tail: the destination's end, from its last data batch on.
            source_start: where the source begins.
            end: where the destination ends.
            blame: halt for any such marker, because it may explain why the batches behind it do not fit.

        Raises:
            PartitionHalted: overfilled (its variant FILLED_RECORD) if there is such a marker; not_a_copy if the
                destination has nothing there, and neither topic is compacted.
        """
        at = max(tail.holes_from, source_start)
        markers = Markers(self._there, at, end)
        back = _Back(self._here, self._rules, at, end, blame=blame)
        while at < end:
            # Aborted data that was left out under another isolation level does not count as records now either.
            left_out = not self._rules.committed and at < self._rules.aborted_to
            segment = await self._source_at(at, committed=self._rules.committed or left_out)
            if segment is None:
                break
            if left_out and segment.batches:
                segment = _before(segment, self._rules.aborted_to)
                if not segment.batches:
                    at = self._rules.aborted_to
                    continue
            if not segment.batches:
                if segment.last_stable_offset < end <= await self._here.true_end():
                    raise Unreachable(
                        f"{self._here.name}: stable to {segment.last_stable_offset}, the destination ends at {end}"
                    )
                break
            for header, batch in records_of(segment):
                if header.base_offset >= end:
                    break
                if header.last_offset >= at:
                    await self._check_batch(header, batch, at, end, markers, back)
            if left_out:
                back.ends_inside(segment)
            at = segment.batches[-1][0].next_offset
        return await back.judged()

    async def _check_batch(
        self, header: BatchHeader, batch: memoryview, start: int, end: int, markers: Markers, back: _Back
    ) -> None:
        """Checks what the destination has in the place of one source batch, from ``start`` up to the batch's end.
        Markers are right between the records of a batch that was cut into pieces, and in the place of records that were
        passed over."""
        first = max(header.base_offset, start)
        filled = await markers.within(first, header.last_offset)
        passed = await self._passed_over(header, batch) if filled else frozenset()
        whole = header.is_dense and not header.is_stand_in
        if not passed and (whole or not self._rules.terms.rewrites):
            if filled:
                await back.take(header, batch)
            else:
                self._check_nothing(first, end)
            return
        try:
            for record in raw_records(header, bytes(batch[HEADER_SIZE:])):
                offset = header.base_offset + record.offset_delta
                if offset >= end:
                    break
                if offset < first or offset in passed:
                    continue
                if await markers.within(offset, offset):
                    await back.take(header, batch, passed)
                    return
                self._check_nothing(offset, end)
        except NotOpened as error:
            raise halt(HaltReason.NOT_OPENED, f"{self._here.name}: {error}") from error

    async def _passed_over(self, header: BatchHeader, batch: memoryview) -> frozenset[int]:
        """Returns the offsets of the batch whose records were passed over, according to the internal topic. Another
        owner may just have written that, so it is read when it is first needed. A record of another leader epoch is not
        the one that was passed over."""
        if self._rules.passed is None:
            return frozenset()
        if self._passed is None:
            self._passed = await self._rules.passed()
        here = {
            offset: told
            for offset, told in self._passed.items()
            if header.base_offset <= offset <= header.last_offset
            and (told == header.leader_epoch or (header.is_stand_in and isinstance(told, str)))
        }
        return self._same(header, batch, here) if here and header.is_stand_in else frozenset(here)

    def _same(self, header: BatchHeader, batch: memoryview, passed: Mapping[int, int | str]) -> frozenset[int]:
        """Returns those of the offsets whose records are the ones that were passed over. Old messages have no leader
        epoch to tell them apart by, so their digests are compared. If an earlier version wrote no digest, the record
        counts if it is too large."""
        most = self._rules.terms.max_batch_size
        same = set[int]()
        try:
            for record in raw_records(header, bytes(batch[HEADER_SIZE:])):
                offset = header.base_offset + record.offset_delta
                told = passed.get(offset)
                if told is None:
                    continue
                if isinstance(told, str):
                    is_same = told == record_digest(header, record)
                else:
                    is_same = most is None or alone(header, record).header.size > most
                if is_same:
                    same.add(offset)
        except NotOpened as error:
            raise halt(HaltReason.NOT_OPENED, f"{self._here.name}: {error}") from error
        return frozenset(same)

    async def _source_at(self, offset: int, *, committed: bool) -> Segment | None:
        """Returns a part of the source; None if ``offset`` is behind the source's end, which may have gone back."""
        try:
            return await self._here.read(offset, max_bytes=READ_BYTES, committed=committed)
        except Refused as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or offset < await self._here.true_end():
                raise
            return None

    def _check_nothing(self, offset: int, end: int) -> None:
        name, terms = self._rules.name, self._rules.terms
        if not (terms.compacted or terms.compacted_there):
            raise halt(
                HaltReason.NOT_A_COPY,
                f"{name}: the source has a record at offset {offset}, and the destination nothing; it ends at {end}",
            )


class _Back:
    """Source batches in whose place the destination has markers. Either the batches came back with another leader, or
    the markers should not be there."""

    def __init__(self, here: Readable, rules: ResyncRules, start: int, end: int, *, blame: bool) -> None:
        self._rules = rules
        self._start = start
        self._until = self._end = end
        self._first: int | None = None
        self._blame = blame
        self._superseded = Superseded(here, rules.opening)
        self._lost: LostRecord | None = None

    async def take(self, header: BatchHeader, batch: memoryview, passed: frozenset[int] = frozenset()) -> None:
        """Takes the next of these batches, in offset order. ``passed``: offsets at which markers are right.

        Raises:
            PartitionHalted: overfilled, as soon as it is certain.
        """
        at = max(header.base_offset, self._start)
        in_pieces = self._rules.terms.rewrites
        if not in_pieces:
            self._until = max(self._until, header.next_offset)
        if min(header.next_offset, self._until) <= self._rules.gaps_to and not self._blame:
            return  # given up by an earlier decision
        self._first = at if self._first is None else self._first
        # A cleaner keeps a batch's first and last offset, or removes all of it. So if batches are not copied in pieces,
        # only whole batches were filled.
        cleaned = self._rules.terms.compacted and (in_pieces or header.base_offset >= self._start)
        if self._lost is None and (self._blame or not cleaned):
            self._lost = LostRecord(at, "")
        if self._lost is None:
            await self._superseded.take(header, batch, at, self._until, passed)
        if self._lost is not None and (self._blame or not self._rules.accept_loss):
            raise self._overfilled(self._lost)

    def ends_inside(self, segment: Segment) -> None:
        """If the destination ends inside a batch of aborted data whose first offsets were filled, extends ``until``
        over the rest of it, so that the rest is filled, too."""
        for header, _ in segment.batches:
            if header.base_offset < self._end < header.next_offset:
                self._until = max(self._until, header.next_offset)

    async def judged(self) -> Filled:
        """Returns the result for all batches taken.

        Raises:
            PartitionHalted: overfilled.
        """
        if self._first is None:
            return Filled(self._until)
        lost = self._lost
        if lost is None:
            lost = await self._superseded.lost(self._until)
        if lost is None:
            return Filled(self._until)
        if self._blame or not self._rules.accept_loss:
            raise self._overfilled(lost)
        return Filled(self._until, accepted=(self._first, self._until))

    def _overfilled(self, lost: LostRecord) -> PartitionHalted:
        behind = (
            f"what stands from offset {self._end} on is not where it belongs"
            if self._blame
            else f"its log ends at {self._end}"
        )
        return halt(
            HaltReason.FILLED_RECORD,
            f"{self._rules.name}: the source has a record at offset {lost.offset}, and the destination a marker; "
            f"{behind}{lost.why and f'; {lost.why}'}",
        )


def _before(segment: Segment, offset: int) -> Segment:
    """Returns the segment with only the batches that begin before the offset."""
    return segment._replace(batches=[each for each in segment.batches if each[0].base_offset < offset])
