"""Compares both logs of a partition: the last batch, the holes behind it, and where they diverge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from mirror.net.errors import Refused, Unreachable
from mirror.net.logs.log import Segment
from mirror.reasons import HaltReason
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.raw import raw_records
from mirror.records.content.rewriting import alone
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.stamped import is_stamped
from mirror.relay.halts import MAY_STAND_ELSEWHERE, WAS_COMPACTED, PartitionHalted, halt, source_begins
from mirror.relay.locate.runs import foreign
from mirror.relay.locate.superseded import LostRecord, Superseded, records_of
from mirror.relay.locate.survivors import (
    DIFFERENT,
    ComparedRecords,
    Likeness,
    as_sent,
    compare,
    old_messages,
    same_batch,
)
from mirror.relay.locate.tails import READ_BYTES, Data, Tail, batches, look_back
from mirror.wire.errors import ErrorCode

if TYPE_CHECKING:
    from mirror.relay.locate.resync import Readable, ResyncRules, SourceLogStart

NO_EPOCH = -1
APPENDED = (
    " (the destination's broker has put the time of its append into its own; with destination.timestamps: append the "
    "flow takes that)"
)
"""Added to the detail if that alone may be the difference."""
LOOKS_BACK = 16
"""Data batches of a compacted topic that are tried, from the last one back, until one can be compared."""


class Proof(NamedTuple):
    """The result of comparing the destination's last data batches with the source's."""

    proven: bool
    epoch: int = NO_EPOCH
    """Leader epoch of the source batch before the destination's end; -1: not known."""
    why: str = ""
    """The reason why nothing could be compared, or only an earlier batch; otherwise empty."""
    cleaned: bool = False
    """True if that is because log cleaners have left nothing that both sides still have."""
    upto: int | None = None
    """The end of the batch that was examined last, if that is not the last data batch. The batches behind it are in
    their place only if no marker there stands in the place of a record."""


class Comparison:
    """Compares the logs of one partition, for one look at it. Every read may raise NetworkError: cannot be determined
    now."""

    def __init__(self, here: SourceLogStart, there: Readable, rules: ResyncRules) -> None:
        self._here = here
        self._there = there
        self._rules = rules
        self._passed: Mapping[int, int] | None = None
        """See ``ResyncRules.passed``; None: not asked yet."""

    # -- data --------------------------------------------------------------------------------------------------------

    async def tail(self, log_start: int, end: int, *, whole: bool = False) -> Tail:
        """Returns the destination from its last data batch before ``end`` on. ``whole``: its log ends at ``end``.

        Raises:
            PartitionHalted: that batch is somebody else's, or the log's last batch is damaged.
        """
        return await look_back(self._there, log_start, end, owner=self._rules.owner, own=self._own, whole=whole)

    def _own(self, header: BatchHeader) -> None:
        if not self._rules.strict and not self._rules.is_own(header):
            raise foreign(header, self._rules.name)

    async def prove(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> Proof:
        """Checks that the destination's last data batch equals the source's. Where a log cleaner has left nothing to
        compare, an earlier one is checked.

        Raises:
            PartitionHalted: it does not: source_truncated if the source lost it, corrupt if the source has it
                elsewhere, else not_a_copy.
        """
        if tail.data is None and end in (0, self._rules.led_to):
            return Proof(proven=True)  # A log that has held nothing, or nothing but filler, needs no proof.
        why, look, upto = "", tail, None
        for _ in range(LOOKS_BACK):
            if look.data is None:
                return Proof(
                    proven=False, why=why or "the destination's log holds no record", cleaned=bool(why), upto=upto
                )
            header = look.data[0]
            if header.base_offset < source_start and await self._shares_rest(look.data, source_start):
                return Proof(proven=True, why=why, upto=upto)
            if header.base_offset < source_start:
                begins = source_begins(source_start, self._here.floor)
                return Proof(proven=False, why=why or begins, cleaned=bool(why), upto=upto)
            found = await self._original(header)
            likeness, reason = await self._compare(look.data, found)
            if likeness is Likeness.DIFFERENT:
                await self._check_place(look.data, found, source_start)
                detail = f"the batches at offset {header.base_offset} differ"
                if is_stamped(header) and not self._rules.terms.takes_append_times:
                    detail += APPENDED
                stop = await self.parted(detail, log_start, source_start, source_end, end)
                if found is not None and found[0].base_offset > header.base_offset:
                    # Only a source that has lost its end has a gap where the copy has a batch.
                    truncated = stop.halted.reason == HaltReason.SOURCE_TRUNCATED.slug
                    raise stop if truncated else self._displaced(header, found[0])
                raise stop
            if likeness is Likeness.SAME and found is not None:
                # If markers follow, the source's batch before the end is another one, whose epoch may be later.
                epoch = found[0].leader_epoch if header.next_offset == end else NO_EPOCH
                return Proof(proven=True, epoch=epoch, why=why, upto=upto)
            why = why or reason
            look = await self.tail(log_start, header.base_offset)
            upto = look.holes_from
        return Proof(proven=False, why=why, cleaned=True, upto=upto)

    async def _shares_rest(self, copy: Data, source_start: int) -> bool:
        """Returns True if the source begins in the middle of what was gathered of old messages into this copy, and
        still has all the others."""
        found = await self._original(copy[0]) if copy[0].last_offset >= source_start else None
        if found is None or not found[0].is_stand_in:
            return False
        compared = await compare(copy, found, opening=self._rules.opening, gaps=True, pieces=True)
        return compared.likeness is Likeness.SAME

    async def _is_original(self, copy: Data) -> bool:
        """Returns True if the source has that batch, as far as can be compared."""
        compared = await self._compare(copy, await self._original(copy[0]))
        return compared.likeness is not Likeness.DIFFERENT

    async def _original(self, copy: BatchHeader) -> tuple[BatchHeader, bytes] | None:
        """Returns the source's batch that holds the copy's base offset, or the next one; None if the source ends before
        it. Of old messages, it is all that the source has at the copy's offsets."""
        base = copy.base_offset
        segment = await self._here.read(base)
        found = (segment.batches[0][0], bytes(segment.batches[0][1])) if segment.batches else None
        if found is not None and found[0].is_stand_in and found[0].base_offset <= copy.last_offset:
            unshown = copy.next_offset > segment.high_watermark
            if unshown and segment.high_watermark < await self._here.true_end():
                # A new leader shows the beginning of what was gathered, and the rest in a moment.
                raise Unreachable(f"{self._here.name}: what is at offset {copy.last_offset} is not to be read yet")
            try:
                return await old_messages(self._here, base, copy.last_offset)
            except NotOpened as error:
                raise halt(HaltReason.NOT_OPENED, f"{self._here.name}: {error}") from error
        if found is not None:
            return found
        true_end = await self._here.true_end()
        if max(base, segment.high_watermark) < true_end:
            # A new leader's high watermark lags behind its log for a moment.
            raise Unreachable(f"{self._here.name}: what is at offset {base}, or behind it, is not to be read yet")
        if base < segment.high_watermark:
            # No cleaner touches the newest segment.
            raise halt(
                HaltReason.CORRUPT,
                f"{self._here.name}: offset {base} is answered with nothing, below {segment.high_watermark}",
            )
        return found

    async def _check_place(self, copy: Data, found: tuple[BatchHeader, bytes] | None, source_start: int) -> None:
        """Halts if the source has the copy's batch under another base offset, which no checksum covers. No other source
        has the same records elsewhere, so the batch must not be passed over as a different one. If it is the copy that
        is displaced, this does not halt."""
        if found is None:
            return
        header, other = copy[0], found[0]
        moved = (other._replace(base_offset=header.base_offset), found[1])
        sent = as_sent(copy, moved) if self._rules.terms.takes_append_times else copy
        if same_batch(sent, moved, strict=self._rules.strict) and (
            other.base_offset > header.base_offset or not await self._stands(other, source_start)
        ):
            raise self._displaced(header, other)

    def _displaced(self, header: BatchHeader, other: BatchHeader) -> PartitionHalted:
        return halt(
            HaltReason.CORRUPT,
            f"{self._here.name}: offset {header.base_offset} is answered with offsets {other.base_offset} to "
            f"{other.last_offset}, where the source had {header.base_offset} to {header.last_offset}"
            f"{MAY_STAND_ELSEWHERE if self._rules.terms.compacted else WAS_COMPACTED}",
        )

    async def _stands(self, header: BatchHeader, source_start: int) -> bool:
        """Returns True if the source's batch is also found at its own base offset. In a log without gaps, a read there
        finds something else if that offset is wrong."""
        if self._rules.terms.compacted or header.base_offset < source_start:
            return False
        segment = await self._here.read(header.base_offset)
        return bool(segment.batches) and segment.batches[0][0] == header

    async def _compare(self, copy: Data, found: tuple[BatchHeader, bytes] | None) -> ComparedRecords:
        if found is None:
            return DIFFERENT
        rules = self._rules
        terms = rules.terms
        return await compare(
            copy, found, opening=rules.opening, strict=rules.strict, gaps=terms.compacted, pieces=terms.rewrites,
            append_times=terms.takes_append_times,
        )  # fmt: skip

    # -- where they diverge ------------------------------------------------------------------------------------------

    async def beyond(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> PartitionHalted:
        """Returns the halt that says why the destination ends behind the source's end.

        Raises:
            PartitionHalted: a batch of somebody else's stands before that.
        """
        holes_from = max(tail.holes_from, source_end)
        only_filled = tail.holes_from <= source_end and (
            tail.data is None or tail.data[0].base_offset < source_start or await self._is_original(tail.data)
        )
        if only_filled and await _Markers(self._there, holes_from, end).within(holes_from, end - 1):
            return halt(
                HaltReason.OVERFILLED,
                f"{self._rules.name}: the destination ends at {end} and the source at {source_end}; there are only "
                f"markers from {tail.holes_from} on",
            )
        detail = "the source does not have what was copied last"
        return await self.parted(detail, log_start, source_start, source_end, end)

    async def parted(
        self, detail: str, log_start: int, source_start: int, source_end: int, end: int
    ) -> PartitionHalted:
        """Returns the halt that says why the logs differ. Within one leader epoch an offset has only one batch. So a
        source has lost records if it continues in a later epoch from where both still agree, if it ends there, or if
        its id proves that it is the one that was copied and it ends before the copy.

        Args:
            detail: what was seen, for the message.
            log_start: where the destination begins.
            source_start: where the source begins.
            source_end: where the source ends.
            end: where the destination ends.

        Raises:
            PartitionHalted: a batch of somebody else's stands before that.
        """
        name = self._rules.name
        agreed, after = await self._last_agreed(max(log_start, source_start), source_end, end)
        ends = f"the source ends at {source_end}, the destination at {end}"
        if agreed is None and source_end < end and self._rules.pinned:
            alone = f"only the destination can have what the source had at offsets {source_end} to {end - 1}"
            return halt(
                HaltReason.SOURCE_TRUNCATED,
                f"{name}: its id says that this is the source that was copied; {ends}; {alone}",
            )
        if agreed is None:
            return halt(HaltReason.NOT_A_COPY, f"{name}: {detail}; {ends}")
        both = f"both agree up to offset {agreed.last_offset}, of leader epoch {agreed.leader_epoch}"
        # Old messages have no epoch. If it is the source that was copied, it has changed, not the copy.
        untold = after is not None and self._rules.pinned and NO_EPOCH in (agreed.leader_epoch, after.leader_epoch)
        if after is not None and after.leader_epoch <= agreed.leader_epoch and not untold:
            return halt(HaltReason.NOT_A_COPY, f"{name}: {detail}; {both}; {ends}")
        goes_on = "ends there" if after is None else f"goes on with other records, of leader epoch {after.leader_epoch}"
        alone = f"only the destination has what the source had at offsets {agreed.next_offset} to {end - 1}"
        return halt(HaltReason.SOURCE_TRUNCATED, f"{name}: {both}, and the source {goes_on}; {ends}; {alone}")

    async def _last_agreed(self, low: int, source_end: int, high: int) -> tuple[BatchHeader | None, BatchHeader | None]:
        """Returns ``(agreed, after)``. ``agreed``: the source's last batch that the destination has as well, found by
        bisection, or None. ``after``: the source's batch at the destination's next batch, or behind that. Markers in
        between do not count as batches of the destination: the source may have lost its end only behind them."""
        agreed: BatchHeader | None = None
        after: BatchHeader | None = None
        start = low
        while low < high:
            middle = (low + high + 1) // 2
            data = (await self.tail(start, middle)).data
            if data is None or data[0].next_offset <= low:
                low = middle  # nothing between them to compare
                continue
            base = data[0].base_offset
            found = await self._original(data[0]) if base < source_end else None
            likeness = (await self._compare(data, found)).likeness
            if likeness is Likeness.DIFFERENT:
                high, after = base, found[0] if found is not None else None
            else:
                low = max(middle, data[0].next_offset)
                if likeness is Likeness.SAME and found is not None:
                    agreed = found[0]
        return agreed, after

    # -- holes -------------------------------------------------------------------------------------------------------

    async def check_holes(self, tail: Tail, source_start: int, end: int, *, blame: bool = False) -> Filled:
        """Checks that the destination has no marker where the source has a record behind the last data batch. A marker
        is right if that record is superseded at a compacted source (``relay.locate.superseded``), or if an operator
        goes on without it. On a compacted topic the destination may have nothing there: its log cleaner has removed the
        copy.

        Args:
            tail: the destination's end, from its last data batch on.
            source_start: where the source begins.
            end: where the destination ends.
            blame: report any such marker, because it may explain why the batches behind it do not fit.

        Raises:
            PartitionHalted: overfilled if there is such a marker; not_a_copy if there is nothing, and the topic is not
                compacted.
        """
        at = max(tail.holes_from, source_start)
        markers = _Markers(self._there, at, end)
        back = _Back(self._here, self._rules, at, end, blame=blame)
        while at < end:
            # Aborted data that was left out under another isolation level does not count as records here either.
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
        self, header: BatchHeader, batch: memoryview, start: int, end: int, markers: _Markers, back: _Back
    ) -> None:
        """Checks what the destination has in the place of one source batch, from ``start`` up to its end. Between the
        records of a batch that was cut into pieces, markers are right, and in the place of those that were passed
        over."""
        first = max(header.base_offset, start)
        filled = await markers.within(first, header.last_offset)
        passed = await self._passed_over(header) if filled else frozenset()
        if passed and header.is_stand_in:
            passed = self._still_large(header, batch, passed)
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

    async def _passed_over(self, header: BatchHeader) -> frozenset[int]:
        """Returns the offsets of the batch whose records were passed over, by what is written down. Another owner may
        have written it a moment ago, so it is read when it is needed. A record of another leader epoch is not the one
        that was passed over."""
        if self._rules.passed is None:
            return frozenset()
        if self._passed is None:
            self._passed = await self._rules.passed()
        return frozenset(
            offset
            for offset, epoch in self._passed.items()
            if header.base_offset <= offset <= header.last_offset and epoch == header.leader_epoch
        )

    def _still_large(self, header: BatchHeader, batch: memoryview, passed: frozenset[int]) -> frozenset[int]:
        """Returns those of the offsets whose records are too large. Old messages have no leader epoch that tells the
        record that was passed over from one that has come in its place."""
        most = self._rules.terms.max_batch_size
        if most is None:
            return passed
        try:
            return frozenset(
                offset
                for record in raw_records(header, bytes(batch[HEADER_SIZE:]))
                if (offset := header.base_offset + record.offset_delta) in passed
                and alone(header, record).header.size > most
            )
        except NotOpened as error:
            raise halt(HaltReason.NOT_OPENED, f"{self._here.name}: {error}") from error

    async def _source_at(self, offset: int, *, committed: bool) -> Segment | None:
        """Returns a piece of the source; None if ``offset`` is behind its end, which may have gone back."""
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


class Filled(NamedTuple):
    """The result for the markers behind the destination's last data batch that stand in the place of records."""

    until: int
    """The end of the source's batch that the destination ends inside of, otherwise the destination's end. The rest of
    that batch is filled as well, if batches are only copied whole."""
    accepted: tuple[int, int] | None = None
    """The range of offsets (first, end) where records are missing by an operator's decision."""


class _Back:
    """Source batches for which the destination has markers: either they came back with another leader, or the markers
    should not be there."""

    def __init__(self, here: Readable, rules: ResyncRules, start: int, end: int, *, blame: bool) -> None:
        self._rules = rules
        self._start = start
        self._until = self._end = end
        self._first: int | None = None
        self._blame = blame
        self._superseded = Superseded(here, rules.opening)
        self._lost: LostRecord | None = None

    async def take(self, header: BatchHeader, batch: memoryview, passed: frozenset[int] = frozenset()) -> None:
        """Takes the next of these batches, in offset order. ``passed``: offsets at which markers are right."""
        at = max(header.base_offset, self._start)
        in_pieces = self._rules.terms.rewrites
        if not in_pieces:
            self._until = max(self._until, header.next_offset)
        if min(header.next_offset, self._until) <= self._rules.gaps_to and not self._blame:
            return  # given up before
        self._first = at if self._first is None else self._first
        # A cleaner keeps a batch's first and last offset or removes all of it, so only whole batches were filled, if
        # batches are not copied in pieces.
        cleaned = self._rules.terms.compacted and (in_pieces or header.base_offset >= self._start)
        if self._lost is None and (self._blame or not cleaned):
            self._lost = LostRecord(at, "")
        if self._lost is None:
            await self._superseded.take(header, batch, at, self._until, passed)
        if self._lost is not None and (self._blame or not self._rules.accept_loss):
            raise self._overfilled(self._lost)

    def ends_inside(self, segment: Segment) -> None:
        """Extends ``until`` over the rest of a batch of aborted data whose first offsets were filled: that is filled,
        too."""
        for header, _ in segment.batches:
            if header.base_offset < self._end < header.next_offset:
                self._until = max(self._until, header.next_offset)

    async def judged(self) -> Filled:
        """Returns the result for all batches taken, or raises the halt."""
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
    """Returns the segment with only those batches that begin before the offset."""
    return segment._replace(batches=[each for each in segment.batches if each[0].base_offset < offset])


class _Markers:
    """The markers of a log, to be queried in offset order."""

    def __init__(self, there: Readable, start: int, end: int) -> None:
        self._walk = batches(there, start, end)
        self._next: BatchHeader | None = None
        self._ended = False

    async def within(self, first: int, last: int) -> bool:
        """Returns True if a marker stands at one of the offsets from ``first`` to ``last``."""
        while not self._ended and (self._next is None or self._next.last_offset < first or not self._next.is_control):
            found = await anext(self._walk, None)
            self._next, self._ended = (found[0], False) if found is not None else (None, True)
        return self._next is not None and self._next.base_offset <= last
