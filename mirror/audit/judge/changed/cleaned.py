"""Judges batches that a log cleaner has rewritten or removed by their records. Pure.

A cleaner keeps a batch's borders and removes records from it. So two batches with the same borders are compared record
by record, and a batch that only one side has is excused if the other side's log has nothing at all there.

A record that the destination lacks is only a note if cleaners work on both sides: consumers of a compacted topic must
expect that it is removed. If no cleaner works at the source, the source's consumers keep a record that the
destination's consumers lack, which is a difference. A record that the source lacks can no longer be compared with
anything: it is ``unverifiable``, or a difference if no cleaner can have removed it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter

from mirror.audit.judge.fills import Explained
from mirror.audit.judge.spans import less, overlapping
from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What

GONE_HERE = (
    "the source's log cleaner may have removed them since: they have no key, or a later record of their key stands, or "
    "a tombstone"
)
GONE_THERE = "the destination's log cleaner has removed records without a key, or of whose key a later record stands"
REWRITTEN = "a log cleaner has rewritten the batch; every record is the same"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedBatches:
    """The result of opening one partition's differing batches.

    ``differences`` are in offset order. ``cleaned``: the sides on which a log cleaner works. ``here`` and ``there``:
    what source and destination have at offsets without records; ``there`` is None if that is not known
    (``offsets: mapped``). ``copied_to``: the end of what the destination has, as a source offset; None: not limited.
    ``append_times``: the destination's broker may have put its own times in, so times are not compared. ``mistimed``:
    the offset of the last record of each destination batch whose max timestamp is not that of its records, in order.
    """

    differences: Sequence[RecordDifference]
    cleaned: Set[Side]
    here: Explained
    there: Explained | None
    copied_to: int | None = None
    append_times: bool = False
    mistimed: Sequence[Span] = ()

    def within(self, span: Span) -> Sequence[RecordDifference]:
        """Returns the differences at these offsets."""
        offset = attrgetter("offset")
        first = bisect_left(self.differences, span.start, key=offset)
        return self.differences[first : bisect_left(self.differences, span.end, key=offset)]


def settled(
    key: TopicPartition,
    source: dict[int, BatchRow],
    destination: dict[int, BatchRow],
    opened: OpenedBatches,
    holes: list[Hole] | None = None,
) -> Iterator[Finding]:
    """Takes out the batches that a log cleaner explains and yields their findings. Others are left to later rules.

    Args:
        key: the partition.
        source: the source's batches that differ, by base offset.
        destination: the destination's batches that differ, by base offset.
        opened: the result of opening them.
        holes: a list that gets the offsets without a record inside of source batches whose copies are gone.
    """
    spans = {
        side: sorted(row.span for row in rows.values()) for side, rows in zip(Side, (source, destination), strict=True)
    }
    for base in sorted(source.keys() | destination.keys()):
        ours, theirs = source.get(base), destination.get(base)
        if ours is not None and theirs is not None:
            finding = _rewritten(key, ours, theirs, opened)
        elif ours is not None:
            finding = _removed(key, ours, Side.SOURCE, opened, spans[Side.DESTINATION], holes)
        else:
            finding = _removed(key, destination[base], Side.DESTINATION, opened, spans[Side.SOURCE])
        if finding is not None:
            source.pop(base, None)
            destination.pop(base, None)
            yield finding
            if ours is not None and theirs is not None and ours.max_timestamp != theirs.max_timestamp:
                yield from mistimed_of(key, [theirs], opened.mistimed)


def _rewritten(key: TopicPartition, ours: BatchRow, theirs: BatchRow, opened: OpenedBatches) -> Finding | None:
    """Returns the finding for two batches at the same place, if everything that one of them lacks is excused; None
    otherwise."""
    found = opened.within(ours.span)
    here = [one for one in found if one.at is Side.SOURCE]
    there = [one for one in found if one.at is Side.DESTINATION]
    if (
        (ours.last_offset, ours.flags) != (theirs.last_offset, theirs.flags)
        or ours.records - len(here) != theirs.records - len(there)
        or not all(is_excused(one, opened.cleaned) for one in found)
    ):
        return None
    if there:
        return _finding(Kind.UNVERIFIABLE, key, ours, theirs, there, GONE_HERE)
    if here:
        return _finding(Kind.CLEANED, key, ours, theirs, here, GONE_THERE)
    same = opened.append_times or ours.max_timestamp == theirs.max_timestamp
    return _finding(Kind.CLEANED, key, ours, theirs, [], REWRITTEN) if same else None


def _removed(
    key: TopicPartition,
    row: BatchRow,
    at: Side,
    opened: OpenedBatches,
    others: Sequence[Span],
    holes: list[Hole] | None = None,
) -> Finding | None:
    """Returns the finding for a batch that only one side has, if the other side has nothing at all there and all
    records are excused; None otherwise. If a source batch has holes inside, the destination may still have markers
    there: then the destination must have nothing only at the offsets of records, and the holes are added to ``holes``.

    Args:
        key: the partition.
        row: the batch.
        at: the side that has it.
        opened: the result of opening the partition's batches.
        others: the offsets of the other side's batches, in order.
        holes: a list that gets the holes inside of a source batch.
    """
    found = opened.within(row.span)
    elsewhere = opened.there if at is Side.SOURCE else opened.here
    due = [row.span]
    if at is Side.SOURCE and elsewhere is not None and not elsewhere.is_cleaned(row.span):
        due = [Span(one.offset, one.offset + 1) for one in found]
    if at is Side.SOURCE and opened.copied_to is not None and row.span.end > opened.copied_to:
        return None  # a cleaner does not shorten a log: this was never copied
    if (
        next(overlapping(others, row.span), None) is not None
        or (elsewhere is not None and not all(elsewhere.is_cleaned(span) for span in due))
        or len(found) != row.records
        or not all(one.at is at and is_excused(one, opened.cleaned) for one in found)
    ):
        return None
    if at is Side.SOURCE:
        if holes is not None:
            holes += [Hole(*span, What.GAP) for span in less([row.span], due)]
        return _finding(Kind.CLEANED, key, row, None, found, GONE_THERE)
    return _finding(Kind.UNVERIFIABLE, key, None, row, found, GONE_HERE)


def is_excused(one: RecordDifference, cleaned: Set[Side]) -> bool:
    """Returns True if a log cleaner on the other side may have removed the record there. If the destination lacks the
    record, a cleaner must work at the source, too: otherwise the source keeps the record for ever."""
    if one.at is None:
        return False
    needed = {Side.SOURCE, Side.DESTINATION} if one.at is Side.SOURCE else {Side.SOURCE}
    return one.excused and needed <= cleaned


def mistimed_of(key: TopicPartition, pieces: Iterable[BatchRow], times: Sequence[Span]) -> list[Finding]:
    """Returns a finding for each batch of the destination that holds the right records under a wrong max timestamp."""
    return [
        Finding(
            kind=Kind.HEADER_CHANGED, topic=key.topic, partition=key.partition, source=piece.span,
            destination=piece.span, batches=1, records=piece.records,
            detail=f"max timestamp {piece.max_timestamp} is not that of the batch's records",
        )
        for piece in pieces if next(overlapping(times, piece.span), None) is not None
    ]  # fmt: skip


def _finding(
    kind: Kind,
    key: TopicPartition,
    ours: BatchRow | None,
    theirs: BatchRow | None,
    records: Iterable[RecordDifference],
    detail: str,
) -> Finding:
    counted = list(records)
    return Finding(
        kind=kind, topic=key.topic, partition=key.partition, source=ours.span if ours else None,
        destination=theirs.span if theirs else None, batches=1, records=len(counted), detail=detail,
        bytes=sum(one.size for one in counted),
    )  # fmt: skip
