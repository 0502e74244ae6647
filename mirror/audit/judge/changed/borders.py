"""Names batches of both sides that do not have the same borders, or that only one side has. Pure."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from operator import attrgetter

from mirror.audit.judge.changed.cleaned import is_excused
from mirror.audit.judge.spans import overlapping
from mirror.audit.model.differences import RecordDifference
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow


def finding_of(
    kind: Kind, key: TopicPartition, source: Sequence[BatchRow], destination: Sequence[BatchRow], detail: str
) -> Finding:
    """Returns a finding for these batches, with spans that enclose them. One of the sides may have none. The counts are
    the source's, or the destination's if the source has none."""
    counted = source or destination
    return Finding(
        kind=kind,
        topic=key.topic,
        partition=key.partition,
        source=_span(source),
        destination=_span(destination),
        batches=len(counted),
        records=sum(row.records for row in counted),
        detail=detail,
    )


def _span(rows: Sequence[BatchRow]) -> Span | None:
    return Span(min(row.base_offset for row in rows), max(row.last_offset for row in rows) + 1) if rows else None


def overreaching(
    key: TopicPartition,
    source: dict[int, BatchRow],
    destination: dict[int, BatchRow],
    ends: Mapping[Side, int],
    *,
    compacted: bool,
    rebatches: bool,
) -> Iterator[Finding]:
    """Takes out batches whose header claims offsets behind the end of their log, although their checksum is right, and
    the other side's batches from there on: what follows such a batch is not read.

    A source is audited up to the end of a batch. A destination's log may go on behind its audited end. There, only a
    batch that cannot be a copy counts, which is one with fewer records than offsets.

    Args:
        key: the partition.
        source: the source's batches that differ, by base offset.
        destination: the destination's batches that differ, by base offset.
        ends: where the audited part of each log ends; a side is left out if that is not known.
        compacted: a log cleaner works on the destination. Its batches may have fewer records than offsets.
        rebatches: the flow makes larger batches of small ones, which may begin and end anywhere.
    """
    sides = {Side.SOURCE: source, Side.DESTINATION: destination}
    for side, end in ends.items():
        rows, others = sides[side], sides[Side.DESTINATION if side is Side.SOURCE else Side.SOURCE]
        for base in sorted(rows):
            row = rows[base]
            dense = row.records == row.span.offsets
            may_go_on = side is Side.DESTINATION and (dense or (compacted and rebatches))
            if not row.crc_ok or base >= end or row.span.end <= end or may_go_on:
                continue
            hidden = [others.pop(at) for at in sorted(others) if at >= base]
            del rows[base]
            told = finding_of(
                Kind.CORRUPT, key, *((hidden, [row]) if side is Side.DESTINATION else ([row], hidden)),
                f"the header at the {side.value} claims offsets up to {row.last_offset:,}, and the log ends at "
                f"{end - 1:,}; its checksum is right",
            )  # fmt: skip
            yield _up_to(told, side, Span(base, end))


def _up_to(told: Finding, side: Side, span: Span) -> Finding:
    """Returns the finding with ``span`` as the offsets of this side: those that really exist."""
    return replace(told, source=span) if side is Side.SOURCE else replace(told, destination=span)


def groups(
    source: Iterable[BatchRow], destination: Iterable[BatchRow]
) -> Iterator[tuple[list[BatchRow], list[BatchRow]]]:
    """Yields groups of rows of both sides whose offsets overlap, directly or through others."""
    rows = [(row, True) for row in source] + [(row, False) for row in destination]
    ours: list[BatchRow] = []
    theirs: list[BatchRow] = []
    end = -1
    for row, is_ours in sorted(rows, key=lambda entry: (entry[0].base_offset, entry[1])):
        if row.base_offset >= end and (ours or theirs):
            yield ours, theirs
            ours, theirs = [], []
        (ours if is_ours else theirs).append(row)
        end = max(end, row.last_offset + 1)
    if ours or theirs:
        yield ours, theirs


def is_overlaid(source: Iterable[BatchRow], destination: Iterable[BatchRow]) -> bool:
    """Returns True if batches of both sides overlap and have different borders: only their records can be compared."""
    return any(
        ours and theirs and [row.span for row in ours] != [row.span for row in theirs]
        for ours, theirs in groups(source, destination)
    )


def told_by_borders(
    key: TopicPartition,
    source: Mapping[int, BatchRow],
    destination: Mapping[int, BatchRow],
    opened: Sequence[RecordDifference] | None,
    cleaned: Set[Side],
) -> Iterator[Finding]:
    """Yields findings for the rows that are left: offsets that both sides cover with different borders, or that only
    one side has.

    Args:
        key: the partition.
        source: the source's batches, by base offset.
        destination: the destination's batches, by base offset.
        opened: the records that differ in these batches, in offset order; None: they were not opened.
        cleaned: the sides on which a log cleaner works.
    """
    for ours, theirs in groups(source.values(), destination.values()):
        if ours and theirs:
            yield from _over_each_other(key, ours, theirs, opened, cleaned)
        elif ours:
            yield finding_of(Kind.MISSING, key, ours, [], "")
        else:
            for row in theirs:
                yield finding_of(Kind.EXTRA, key, [], [row], "")


def _over_each_other(
    key: TopicPartition,
    ours: Sequence[BatchRow],
    theirs: Sequence[BatchRow],
    opened: Sequence[RecordDifference] | None,
    cleaned: Set[Side],
) -> Iterator[Finding]:
    """Yields the findings for a group of batches that overlap, judged by their records. The batches are
    ``re-segmented`` if the records are the same. If none of the source's records is there, the source's batches are
    ``missing`` and the destination's are ``extra``. Otherwise it is ``value changed``."""
    borders = f"{len(ours)} batches at the source, {len(theirs)} at the destination"
    if opened is None:
        yield finding_of(Kind.RESEGMENTED, key, ours, theirs, f"{borders}; their records were not compared")
        return
    rows = [*ours, *theirs]
    start, end = min(row.base_offset for row in rows), max(row.span.end for row in rows)
    offset = attrgetter("offset")
    inside = opened[bisect_left(opened, start, key=offset) : bisect_left(opened, end, key=offset)]
    wrong = [one for one in inside if not is_excused(one, cleaned)]
    if not wrong:
        yield finding_of(Kind.RESEGMENTED, key, ours, theirs, borders)
        return
    here, there = (
        [
            one.digests[at]
            for one in wrong
            if one.at is not other and next(overlapping(spans, Span(one.offset, one.offset + 1)), None) is not None
        ]
        for at, other, spans in (
            (0, Side.DESTINATION, [row.span for row in ours]),
            (1, Side.SOURCE, [row.span for row in theirs]),
        )
    )
    shifted = (Counter(filter(None, here)) & Counter(filter(None, there))).total()
    if not shifted and sum(row.records for row in ours) <= len(here):
        yield finding_of(Kind.MISSING, key, ours, [], "")
        for row in theirs:
            yield finding_of(Kind.EXTRA, key, [], [row], "")
        return
    told = [
        f"{count:,} {what}"
        for count, what in (
            (len(here) - shifted, "of the source's records are not there"),
            (len(there) - shifted, "of the destination's are not the source's"),
            (shifted, "are at other offsets"),
        )
        if count
    ]
    yield finding_of(Kind.VALUE_CHANGED, key, ours, theirs, f"{borders}: {', '.join(told)}")
