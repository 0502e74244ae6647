"""Compares both logs of a partition: their last batches, and where the logs diverge."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mirror.net.errors import Unreachable
from mirror.reasons import HaltReason
from mirror.records.content.decompressing import NotOpened
from mirror.records.header import HEADER_SIZE, TRANSACTIONAL, BatchHeader
from mirror.records.stamped import is_stamped, unstamped
from mirror.records.transactions import Aborted
from mirror.relay.halts import MAY_STAND_ELSEWHERE, WAS_COMPACTED, PartitionHalted, halt, source_begins
from mirror.relay.locate.cleaned.survivors import (
    DIFFERENT,
    ComparedRecords,
    Likeness,
    as_sent,
    compare,
    is_like,
    records_at,
    same_batch,
)
from mirror.relay.locate.runs import foreign, strangers
from mirror.relay.locate.tails import Data, Markers, Tail, batches, look_back

if TYPE_CHECKING:
    from mirror.relay.locate.rules import Readable, ResyncRules, SourceLogStart

NO_EPOCH = -1
APPENDED = (
    " (the destination's broker has put the time of its append into its own; with destination.timestamps: append the "
    "flow takes that)"
)
"""Added to a halt's detail if this alone may be the difference."""
LOOKS_BACK = 16
"""Number of data batches of a compacted topic that are tried, from the last one back, until one can be compared."""


class Proof(NamedTuple):
    """The result of comparing the destination's last data batches with the source's."""

    proven: bool
    epoch: int = NO_EPOCH
    """Leader epoch of the source batch that ends at the destination's end; -1: not known."""
    why: str = ""
    """Why nothing could be compared, or only an earlier batch; otherwise empty."""
    cleaned: bool = False
    """True if log cleaners are the cause: they have left nothing that both sides still have."""
    upto: int | None = None
    """The end of the batch that was examined last, if that is not the last data batch. The batches behind it are in
    their place only if no marker behind it stands in the place of a record."""


class Original(NamedTuple):
    """What the source has at the offsets of a copy."""

    header: BatchHeader
    batch: bytes
    """The whole batch, header and records."""
    several: bool = False
    """True if this is not a batch of the source, but stands for everything that the source has at the copy's
    offsets."""
    displaced: tuple[BatchHeader, bytes] | None = None
    """The source's batch there, if the copy equals it except for its offsets. One of the two may stand in a wrong
    place."""


class Comparison:
    """Compares the logs of one partition, for one look at it. Every read may raise NetworkError: cannot be determined
    now."""

    def __init__(self, here: SourceLogStart, there: Readable, rules: ResyncRules) -> None:
        self._here = here
        self._there = there
        self._rules = rules

    # -- data --------------------------------------------------------------------------------------------------------

    async def tail(self, log_start: int, end: int, *, whole: bool = False) -> Tail:
        """Returns the end of the destination's log: from its last data batch before ``end`` on. ``whole``: True if
        ``end`` is the log's end.

        Raises:
            PartitionHalted: the last data batch is somebody else's, or the log's last batch cannot be read.
        """
        tail = await look_back(self._there, log_start, end, owner=self._rules.owner, whole=whole)
        if tail.data is not None:
            await self._check_own(tail.data[0], log_start)
        return tail

    async def _check_own(self, header: BatchHeader, log_start: int) -> None:
        if not self._rules.strict and not self._rules.is_own(header):
            written = await strangers(self._there, header, log_start, self._rules)
            raise foreign(header, self._rules.name, f"{written} were written by others")

    async def prove(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> Proof:
        """Checks that the destination's last data batch equals the source's. If log cleaners have left nothing of it to
        compare, earlier batches are tried.

        Args:
            tail: the end of the destination's log.
            log_start: the destination's log start offset.
            source_start: where the source begins.
            source_end: where the source ends.
            end: where the destination ends.

        Returns:
            Whether a batch was proven equal, and if not, why.

        Raises:
            PartitionHalted: the batches differ. source_truncated if the source has lost its batch, corrupt if the
                source has it at other offsets, otherwise not_a_copy.
        """
        if tail.data is None and end in (0, self._rules.led_to):
            return Proof(proven=True)  # A log that has never held anything, or only filler, needs no proof.
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
                if found is not None and found.header.base_offset > header.base_offset:
                    # A source has a gap at a batch of the copy only if it has lost its end.
                    truncated = stop.halted.reason == HaltReason.SOURCE_TRUNCATED.slug
                    raise stop if truncated else self._displaced(header, found.header)
                raise stop
            if likeness is Likeness.SAME and found is not None:
                # If markers follow, another source batch stands before the end. Its epoch may be later.
                epoch = found.header.leader_epoch if header.next_offset == end else NO_EPOCH
                return Proof(proven=True, epoch=epoch, why=why, upto=upto)
            why = why or reason
            look = await self.tail(log_start, header.base_offset)
            upto = look.holes_from
        return Proof(proven=False, why=why, cleaned=True, upto=upto)

    async def _shows_nothing(self, header: BatchHeader) -> bool:
        """Returns True if this is an adopted batch without anything for consumers, because its transaction was aborted
        or a cleaner has emptied it, and the source has only markers at its offsets. The source was copied from this
        cluster."""
        if not self._rules.is_adopted(header):
            return False
        if header.record_count and not await self._is_aborted(header):
            return False
        upto = min(header.next_offset, await self._here.true_end())
        async for other, _ in batches(self._here, header.base_offset, upto):
            if not other.is_control:
                return False
        return True

    async def _is_aborted(self, header: BatchHeader) -> bool:
        if not header.attributes & TRANSACTIONAL:
            return False
        segment = await self._there.read(header.base_offset, committed=True)
        return Aborted(segment.aborted).drops(header)

    async def prove_unread(self, at: int, log_start: int, source_start: int, source_end: int, end: int) -> bool:
        """Checks a batch of the destination before its last data batch, as ``prove`` checks the last one. Returns False
        if no data batch begins at ``at``. For the other arguments, see ``prove``.

        Raises:
            PartitionHalted: as ``prove``.
        """
        found = await self._there.batch_at(at)
        if found is None or found[0].base_offset > at or found[0].is_control:
            return False
        header, batch = found
        await self._check_own(header, log_start)
        copy = header, bytes(batch[HEADER_SIZE:])
        await self.prove(Tail(copy, None, header.next_offset), log_start, source_start, source_end, end)
        return True

    async def _shares_rest(self, copy: Data, source_start: int) -> bool:
        """Returns True if the source begins in the middle of the old messages or small batches that became this one
        copy, and still has all of them from there on."""
        found = await self._original(copy[0]) if copy[0].last_offset >= source_start else None
        if found is None or not (found.header.is_stand_in or found.several):
            return False
        compared = await compare(
            copy, found[:2], opening=self._rules.opening, gaps=True, pieces=True, several=True,
            append_times=self._rules.terms.takes_append_times,
        )  # fmt: skip
        return compared.likeness is Likeness.SAME

    async def _is_original(self, copy: Data) -> bool:
        """Returns True if the source has this batch, or has nothing to compare it with."""
        compared = await self._compare(copy, await self._original(copy[0]))
        return compared.likeness is not Likeness.DIFFERENT

    async def _original(self, copy: BatchHeader) -> Original | None:
        """Returns the source's batch that holds the copy's base offset, or the next one; None if the source ends before
        that offset. If it is an old message, or one of several batches that may have become the copy, the result stands
        for everything that the source has at the copy's offsets.

        Raises:
            PartitionHalted: the source answers with nothing below its high watermark, or a batch cannot be opened.
            Unreachable: a new leader does not show these offsets yet.
        """
        base = copy.base_offset
        segment = await self._here.read(base)
        found = Original(segment.batches[0][0], bytes(segment.batches[0][1])) if segment.batches else None
        if found is not None and self._is_a_part(found.header, copy):
            unshown = copy.next_offset > segment.high_watermark
            if unshown and segment.high_watermark < await self._here.true_end():
                # A new leader shows the first part of what became this copy, and the rest in a moment.
                raise Unreachable(f"{self._here.name}: what is at offset {copy.last_offset} is not to be read yet")
            try:
                at_these = await records_at(self._here, base, copy.last_offset, old=found.header.is_stand_in)
            except NotOpened as error:
                raise halt(HaltReason.NOT_OPENED, f"{self._here.name}: {error}") from error
            return Original(*at_these, several=True, displaced=found[:2] if self._is_like(found.header, copy) else None)
        if found is not None:
            return found
        true_end = await self._here.true_end()
        if max(base, segment.high_watermark) < true_end:
            # The high watermark of a new leader lags behind its log for a moment.
            raise Unreachable(f"{self._here.name}: what is at offset {base}, or behind it, is not to be read yet")
        if base < segment.high_watermark:
            # Log cleaners leave the newest segment alone.
            raise halt(
                HaltReason.CORRUPT,
                f"{self._here.name}: offset {base} is answered with nothing, below {segment.high_watermark}",
            )
        return found

    def _is_a_part(self, header: BatchHeader, copy: BatchHeader) -> bool:
        """Returns True if the copy may have been made of this source batch and of batches beside it."""
        if header.is_stand_in or header.base_offset > copy.last_offset:
            return header.base_offset <= copy.last_offset
        beside = header.base_offset > copy.base_offset or header.last_offset < copy.last_offset
        return self._rules.terms.rewrites and beside

    @staticmethod
    def _is_like(header: BatchHeader, copy: BatchHeader) -> bool:
        """Returns True if the copy may be of this batch, although one of the two stands in a wrong place."""
        return is_like(header, unstamped(copy, header.max_timestamp) if is_stamped(copy) else copy)

    async def _check_place(self, copy: Data, found: Original | None, source_start: int) -> None:
        """Halts if the source has the copy's batch at another base offset, which no checksum covers. No other source
        has the same records at other offsets, so the batch must not be taken for a different one. If it is the copy
        that stands in a wrong place, this does not halt."""
        if found is None:
            return
        header, (other, batch) = copy[0], found.displaced or found[:2]
        moved = (other._replace(base_offset=header.base_offset), batch)
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
        """Returns True if a read at the source batch's own base offset also finds it. In a log without gaps, such a
        read finds something else if that offset is wrong. False for a compacted topic."""
        if self._rules.terms.compacted or header.base_offset < source_start:
            return False
        segment = await self._here.read(header.base_offset)
        return bool(segment.batches) and segment.batches[0][0] == header

    async def _compare(self, copy: Data, found: Original | None) -> ComparedRecords:
        if found is None:
            return DIFFERENT
        rules = self._rules
        terms = rules.terms
        compared = await compare(
            copy, found[:2], opening=rules.opening, strict=rules.strict, gaps=terms.compacted, pieces=terms.rewrites,
            several=found.several, append_times=terms.takes_append_times,
        )  # fmt: skip
        if compared.likeness is Likeness.DIFFERENT and await self._shows_nothing(copy[0]):
            why = f"the batch at {copy[0].base_offset} has nothing for consumers, on either side"
            return ComparedRecords(Likeness.NOTHING, why)
        return compared

    # -- where they diverge ------------------------------------------------------------------------------------------

    async def beyond(self, tail: Tail, log_start: int, source_start: int, source_end: int, end: int) -> PartitionHalted:
        """Returns the halt that says why the destination ends behind the source's end. For the arguments, see
        ``prove``.

        Raises:
            PartitionHalted: somebody else's batch stands before that.
        """
        holes_from = max(tail.holes_from, source_end)
        only_filled = tail.holes_from <= source_end and (
            tail.data is None or tail.data[0].base_offset < source_start or await self._is_original(tail.data)
        )
        if only_filled and await Markers(self._there, holes_from, end).within(holes_from, end - 1):
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
        """Returns the halt that says why the logs differ. Within one leader epoch, an offset has only one batch. So a
        source has lost records in any of three cases: it continues in a later epoch where the logs stop agreeing; it
        ends there; or its id shows that it is the topic that was copied, and it ends before the copy.

        Args:
            detail: what was seen, for the message.
            log_start: where the destination begins.
            source_start: where the source begins.
            source_end: where the source ends.
            end: where the destination ends.

        Raises:
            PartitionHalted: somebody else's batch stands before that.
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
        # Old messages have no epoch. If this is the source that was copied, the source has changed, not the copy.
        untold = after is not None and self._rules.pinned and NO_EPOCH in (agreed.leader_epoch, after.leader_epoch)
        if after is not None and after.leader_epoch <= agreed.leader_epoch and not untold:
            return halt(HaltReason.NOT_A_COPY, f"{name}: {detail}; {both}; {ends}")
        goes_on = "ends there" if after is None else f"goes on with other records, of leader epoch {after.leader_epoch}"
        alone = f"only the destination has what the source had at offsets {agreed.next_offset} to {end - 1}"
        return halt(HaltReason.SOURCE_TRUNCATED, f"{name}: {both}, and the source {goes_on}; {ends}; {alone}")

    async def _last_agreed(self, low: int, source_end: int, high: int) -> tuple[BatchHeader | None, BatchHeader | None]:
        """Finds, by bisection, the last batch on which both logs agree.

        Returns:
            A pair. The first is the source's header of that batch; None if there is none. The second is the source's
            header at the destination's next data batch, or behind it; None if the source has nothing there. Markers do
            not count as batches of the destination: the source may have lost its end only behind them.
        """
        agreed: BatchHeader | None = None
        after: BatchHeader | None = None
        start = low
        while low < high:
            middle = (low + high + 1) // 2
            data = (await self.tail(start, middle)).data
            if data is None or data[0].next_offset <= low:
                low = middle  # there is nothing to compare between them
                continue
            base = data[0].base_offset
            found = await self._original(data[0]) if base < source_end else None
            likeness = (await self._compare(data, found)).likeness
            if likeness is Likeness.DIFFERENT:
                high, after = base, found.header if found is not None else None
                if found is not None and found.several and data[0].next_offset > source_end:
                    after = None  # the source ends among the batches that became this copy
            else:
                low = max(middle, data[0].next_offset)
                if likeness is Likeness.SAME and found is not None:
                    agreed = found.header
        return agreed, after
