"""Compares holes of the source with markers of the destination, where they differ. Pure.

Both logs are walked from batch to batch. Beside a batch that was moved, holes and markers are expected at the same
shift. For example, if there is one marker too many in front of a thousand holes, one offset is overfilled and none is
unfilled. Between two batches with different shifts, such as right after a lost batch, either shift is possible: the one
that leaves less to report is used.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mirror.audit.judge.spans import clipped, less, merged, overlapping
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Span, TopicPartition
from mirror.audit.model.rows import Hole, What

NAMES = {
    What.CONTROL: "a transaction marker",
    What.ABORTED: "aborted data",
    What.EMPTY: "an empty batch",
    What.GAP: "no batch (compaction)",
    What.INSIDE: "no record (compaction)",
}

NO_HOLE = ", where the source has a record"
"""The end of the detail text for a control batch that is not in a hole."""

REMOVED = (What.GAP, What.EMPTY, What.INSIDE)
"""The kinds of holes that a log cleaner leaves."""

Moved = tuple[Span, int]
"""The offsets of a moved batch, and its shift: destination offset minus source offset."""

PAIRS = frozenset({Kind.MOVED, Kind.VALUE_CHANGED, Kind.HEADER_CHANGED, Kind.CORRUPT})
"""Kinds of findings about a batch of each side, one the counterpart of the other."""


def with_fills(
    key: TopicPartition,
    looked: Sequence[Span],
    holes: Sequence[Hole],
    markers: Sequence[Hole],
    odd: Sequence[Hole],
    found: Sequence[Finding],
    *,
    cleaned: bool = False,
) -> list[Finding]:
    """Adds findings for what is overfilled, unfilled or foreign, and details on what the source has in place of an
    extra batch. It takes about linear time, however many holes differ.

    Args:
        key: the partition.
        looked: the offsets whose batches were examined one by one; nothing is concluded about others.
        holes: the source's holes, including those that equal markers of the destination.
        markers: the destination's markers, including those that equal holes of the source.
        odd: everything else at the destination that is not a batch of records.
        found: the partition's findings about batches of records, one batch each.
        cleaned: a log cleaner works on the destination. It removes markers, which makes no difference to consumers.

    Returns:
        ``found``, with a detail text for extra batches, and the new findings.
    """
    holes, markers, odd, looked = _whole(holes), _whole(markers), _whole(odd), merged(looked)
    pairs = [(one.source, one.destination) for one in found if one.kind in PAIRS and one.source and one.destination]
    hole_spans = merged(Span(hole.start, hole.end) for hole in holes)
    covered = merged(
        [
            *(Span(hole.start, hole.end) for hole in markers),
            *(Span(hole.start, hole.end) for hole in odd if hole.what not in REMOVED),
            *(
                one.destination
                for one in found
                if one.destination and one.kind not in (Kind.MOVED, Kind.MISSING, Kind.REENCODED)
            ),
        ]
    )
    extra = {one.destination.start: one for one in found if one.kind is Kind.EXTRA and one.destination}
    there = _There(markers, odd, [one.destination for one in extra.values() if one.destination])
    at_destination = [(there, there.start - here.start) for here, there in pairs]
    overfilled: list[Finding] = []
    astray: list[Span] = []
    explained = Explained(holes)
    for part, shift in _shifted(there.all, at_destination, hole_spans, back=True):
        here = _moved_by(part, -shift)
        if there.is_marker(part):
            for span in less(clipped(here, looked), hole_spans):
                detail = f"{'aborted data' if part.what is What.ABORTED else 'a marker'} where the source has a record"
                overfilled.append(_finding(Kind.OVERFILLED, key, None, _moved_by(span, shift), detail))
        elif part.start in extra:
            extra[part.start] = replace(extra[part.start], detail=explained.what_is_there(here))
        elif list(less([here], hole_spans)):
            astray.append(Span(part.start, part.end))
    at_source = [(here, there.start - here.start) for here, there in pairs]
    return [
        *(extra[one.destination.start] if one.kind is Kind.EXTRA and one.destination else one for one in found),
        *overfilled,
        *_odd(key, odd, merged(astray)),
        *_unfilled(key, _shifted(holes, at_source, covered), looked, covered, _removed(odd, found) if cleaned else ()),
    ]


def _removed(odd: Iterable[Hole], found: Iterable[Finding]) -> list[Span]:
    """Returns the offsets from which the destination's log cleaner may have removed something: the destination's gaps,
    and the rewritten batches. The headers of the latter do not show where records are missing; all of their remaining
    records were compared."""
    anew = (one.destination for one in found if one.kind is Kind.REENCODED and one.destination)
    return merged([*(Span(hole.start, hole.end) for hole in odd if hole.what in REMOVED), *anew])


class _There:
    """What the destination has at places where the source may have a hole. ``all``: markers, odd offsets and extra
    batches together, in order."""

    def __init__(self, markers: Iterable[Hole], odd: Iterable[Hole], extra: Iterable[Span]) -> None:
        sides = [
            *((hole, True) for hole in markers),
            *((hole, False) for hole in odd),
            *((Hole(span.start, span.end, What.DATA), False) for span in extra),
        ]
        sides.sort(key=lambda side: side[0])
        self.all = [hole for hole, _ in sides]
        self._are_markers = [is_marker for _, is_marker in sides]

    def is_marker(self, part: Hole) -> bool:
        """Returns True if this is a part of one of ``markers``."""
        return self._are_markers[bisect_right(self.all, part.start, key=lambda hole: hole.start) - 1]


def _unfilled(
    key: TopicPartition,
    holes: Iterable[tuple[Hole, int]],
    looked: Sequence[Span],
    covered: Sequence[Span],
    removed: Sequence[Span],
) -> Iterator[Finding]:
    """Yields findings for the offsets of the source's holes that nothing covers at the destination.

    Args:
        key: the partition.
        holes: the holes, each with the shift in force there.
        looked: the offsets that were examined.
        covered: the destination offsets at which there is something.
        removed: the destination offsets from which a log cleaner may have removed something.
    """
    for hole, shift in holes:
        for span in less(clipped(_moved_by(hole, shift), looked), covered):
            for part in less([span], removed):
                detail = f"the source has {NAMES[hole.what]} here, no marker fills it"
                yield _finding(Kind.UNFILLED, key, _moved_by(part, -shift), None, detail)
            for part in clipped(span, removed):
                detail = "the destination's log cleaner has removed markers"
                yield _finding(Kind.CLEANED, key, None, part, detail)


class Explained:
    """Describes what a side, usually the source, has at offsets at which no record is due."""

    def __init__(self, holes: Iterable[Hole]) -> None:
        self._holes = sorted(holes)
        self._all = merged(Span(hole.start, hole.end) for hole in self._holes)
        self._removed = merged(Span(hole.start, hole.end) for hole in self._holes if hole.what in REMOVED)

    def _have_records(self, span: Span) -> bool:
        return bool(list(less([span], self._all)))

    def is_cleaned(self, span: Span) -> bool:
        """Returns True if a log cleaner removed the records at all of these offsets."""
        return not list(less([span], self._removed))

    def what_is_there(self, span: Span) -> str:
        """Returns in words what the source has at these offsets instead of records that are due. Empty if that is not
        known, or if records are due at some of them."""
        if self._have_records(span):
            return ""
        names = dict.fromkeys(NAMES[hole.what] for hole in overlapping(self._holes, span))
        return f"the source has {' and '.join(names)} here" if names else ""


def _odd(key: TopicPartition, odd: Iterable[Hole], astray: Sequence[Span]) -> Iterator[Finding]:
    """Yields findings for odd offsets. ``astray``: the offsets among these at which the source has no hole."""
    for hole in odd:
        span = Span(hole.start, hole.end)
        where = NO_HOLE if clipped(span, astray) else ""
        match hole.what:
            case What.FOREIGN:
                yield _finding(Kind.FOREIGN, key, None, span, f"a control batch that the mirror did not write{where}")
            case What.DAMAGED:
                detail = f"checksum does not match the bytes at the destination: a marker{where}"
                yield _finding(Kind.CORRUPT, key, None, span, detail)
            case _:
                continue  # reported as missing or unfilled, depending on what the source has there


def _finding(kind: Kind, key: TopicPartition, source: Span | None, destination: Span | None, detail: str) -> Finding:
    return Finding(
        kind=kind, topic=key.topic, partition=key.partition, source=source, destination=destination,
        batches=0, records=0, detail=detail,
    )  # fmt: skip


# -- spans ------------------------------------------------------------------------------------------------------------


def _shifted(
    holes: Iterable[Hole], moved: Iterable[Moved], covered: Sequence[Span], *, back: bool = False
) -> Iterator[tuple[Hole, int]]:
    """Yields each hole with the shift in force there: that of the moved batch right before or right after it, or 0. In
    a row of holes that touch, the first shift may give way to the second at some place. The place that leaves the
    fewest offsets outside of ``covered`` is chosen.

    Args:
        holes: the holes of one side.
        moved: the batches of the same side that have a counterpart, each with its shift.
        covered: the offsets at which the other side has something.
        back: False if the shifts lead from the holes' side to the other one, True if they lead back.
    """
    everything = sorted(
        [*((span, None, by) for span, by in moved), *((Span(hole.start, hole.end), hole, 0) for hole in holes)],
        key=lambda entry: entry[0],
    )
    before, at = 0, None
    row: list[Hole] = []
    for span, hole, by in everything:
        touches = span.start == at
        if row and (hole is None or not touches):
            yield from _with_shift(row, (before, by if touches else 0), covered, back=back)
            row = []
        if hole is None:
            before = by
        else:
            before = before if touches else 0
            row.append(hole)
        at = span.end
    yield from _with_shift(row, (before, 0), covered, back=back)


def _with_shift(
    row: Sequence[Hole], shifts: tuple[int, int], covered: Sequence[Span], *, back: bool
) -> Iterator[tuple[Hole, int]]:
    """Yields the holes of ``row``, which touch, with their shifts. The shift may change once: at either end of the row,
    or, if the second shift is larger, also within it. (With a smaller one, two holes would be expected in one
    place.)"""
    if not row:
        return
    start, end = row[0].start, row[-1].end
    before_by, behind_by = (-shift if back else shift for shift in shifts)

    def left(span: Span, by: int) -> list[Span]:
        return [_moved_by(part, -by) for part in less([_moved_by(span, by)], covered)]

    places = [end]
    if before_by != behind_by:
        places.append(start)
    if before_by < behind_by:
        first, last = left(Span(start, end), before_by), left(Span(start, end), behind_by)
        places += [*(span.start for span in first[:1]), *(span.end for span in last[-1:])]

    def told(at: int) -> int:
        before, behind = left(Span(start, at), before_by), left(Span(at, end), behind_by)
        return sum(part.offsets for part in (*before, *behind))

    at = min(places, key=told)
    for hole in row:
        if hole.start < at:
            yield hole._replace(end=min(hole.end, at)), shifts[0]
        if hole.end > at:
            yield hole._replace(start=max(hole.start, at)), shifts[1]


def _whole(holes: Iterable[Hole]) -> list[Hole]:
    """Joins holes of the same kind that touch: the borders of ranges and responses cut them."""
    found: list[Hole] = []
    for hole in holes:
        if found and found[-1].end == hole.start and found[-1].what is hole.what:
            found[-1] = found[-1]._replace(end=hole.end)
        else:
            found.append(hole)
    return found


def _moved_by(hole: Hole | Span, shift: int) -> Span:
    return Span(hole.start + shift, hole.end + shift)
