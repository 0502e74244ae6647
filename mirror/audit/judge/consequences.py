"""Reports each fault once. Pure.

A lost or doubled batch moves everything after it, including the log's end. The fault is that batch. The other batches'
new places are a consequence, and belong to the fault's description. So a run of moved batches is folded into the fault
before it if the offsets that were lost and added before the run amount to exactly the run's shift. A run that they do
not explain remains a finding.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from mirror.audit.judge.fills import NO_HOLE
from mirror.audit.judge.kinds import joined
from mirror.audit.judge.spans import less, merged
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Span, TopicPartition
from mirror.audit.model.rows import Hole

LOSES = frozenset({Kind.MISSING, Kind.UNFILLED})
"""Findings about offsets of the source that the destination does not have."""
ADDS = frozenset({Kind.DUPLICATE, Kind.EXTRA, Kind.MISROUTED, Kind.OVERFILLED, Kind.FOREIGN})
"""Findings about offsets of the destination that the source does not have."""
REPLACES = frozenset({Kind.CORRUPT, Kind.VALUE_CHANGED, Kind.HEADER_CHANGED, Kind.MOVED})
"""Findings about offsets that one side has in place of the other's."""
BEYOND = "the other log ends before, and this was not looked at batch by batch"
MOST_MOVED = 100
"""If a partition has more moved runs than this, a run is not considered as the cause of another one."""


class Told(NamedTuple):
    """A partition's findings, with each fault once. ``shift``: by how many offsets the end of the destination's log is
    moved."""

    findings: list[Finding]
    shift: int


def told_once(found: Iterable[Finding], known: Bounds, holes: Iterable[Hole] = (), *, ended: bool = True) -> Told:
    """Folds findings that only follow from others into those others.

    Args:
        found: one partition's findings about what was read. With ``offsets: mapped``, their destination offsets are not
            yet translated to those of the destination.
        known: the partition's bounds. If the logs' ends differ by exactly what was lost and added, the ends are as they
            should be.
        holes: the source's holes; findings before and after a hole are neighbours.
        ended: both logs were examined to their ends. Otherwise, the offsets that one log has behind the other's end are
            told as well, and so are those in front of batches that were found to be moved there.
    """
    holes = list(holes)
    found = list(found)
    findings = joined(_displaced([*found, *(() if ended else _unseen(found, known))]), holes)
    runs = sorted((one for one in findings if one.kind is Kind.MOVED), key=lambda one: -_span(one.source).offsets)
    rest = [one for one in findings if one.kind is not Kind.MOVED]
    spans = merged(Span(hole.start, hole.end) for hole in holes)
    shift = _ended(rest, runs, known, spans)
    behind: dict[int, list[Finding]] = defaultdict(list)
    few = len(runs) <= MOST_MOVED
    causes = [*rest, *runs] if few else rest
    ways = _ways(causes, spans)
    for run in runs:
        if few:
            ways = _ways([one for one in causes if one is not run], spans)
        cause = next((cause for offsets in ways if (cause := offsets.cause_of(run)) is not None), None)
        if cause is None:
            continue
        if few:
            causes = [one for one in causes if one is not run]
        behind[id(cause)].append(run)
    folded = {id(run) for some in behind.values() for run in some}
    kept = [_with(one, _all_behind(one, behind)) for one in findings if id(one) not in folded]
    return Told(kept, shift)


def _span(span: Span | None) -> Span:
    assert span is not None
    return span


def _shift(run: Finding) -> int:
    return _span(run.destination).start - _span(run.source).start


def _lost(one: Finding) -> Span | None:
    """Returns the source offsets that this finding removes from the copy."""
    return one.source if one.kind in LOSES or one.kind in REPLACES or _is_compared(one) else None


def _lost_count(one: Finding, holes: Sequence[Span]) -> int:
    """Returns the number of source offsets that this finding removes from the copy. A finding about missing data may
    reach over holes. These do not count, because they may be filled; an unfilled one is a finding of its own."""
    span = _lost(one)
    if span is None or one.kind is not Kind.MISSING:
        return _length(span)
    return sum(part.offsets for part in less([span], holes))


def _added(one: Finding, *, pushed: bool = False) -> Span | None:
    """Returns the destination offsets that this finding adds to the copy. A batch in a hole of the source either took
    the place of the hole's markers and added nothing, or (``pushed``) moved these markers on. Markers are all alike, so
    either is possible."""
    in_hole = (one.kind is Kind.EXTRA and one.detail) or (one.kind is Kind.FOREIGN and not one.detail.endswith(NO_HOLE))
    if in_hole and not pushed:
        return None
    return one.destination if one.kind in ADDS or one.kind in REPLACES or _is_compared(one) else None


def _is_compared(one: Finding) -> bool:
    """Returns True for batches with other borders, unless they were compared record by record."""
    return one.kind is Kind.RESEGMENTED and one.batches > 0


class _Offsets:
    """Counts the offsets that causes have removed and added before a place."""

    def __init__(self, causes: Sequence[Finding], holes: Sequence[Span], *, pushed: bool = False) -> None:
        """``causes``: findings that may be causes. ``holes``: the source's, merged. ``pushed``: see ``_added``."""
        self._pushed = pushed
        lost = [(span.end, _lost_count(one, holes), one) for one in causes if (span := _lost(one))]
        added = [(span.end, span.offsets, one) for one in causes if (span := _added(one, pushed=pushed))]
        self._lost, self._added = (sorted(some, key=lambda entry: entry[0]) for some in (lost, added))
        self._sums = [
            list(accumulate((n for _, n, _ in some), initial=0)) for some in (self._lost, self._added)
        ]  # fmt: skip
        self._last_shifting = [self._shifting(some) for some in (self._lost, self._added)]

    def balance(self, source: int, destination: int) -> int:
        """Returns the offsets added minus the offsets lost before these offsets."""
        lost, added = self._before(source, destination)
        return self._sums[1][added] - self._sums[0][lost]

    def _before(self, source: int, destination: int) -> tuple[int, int]:
        end = itemgetter(0)
        return bisect_right(self._lost, source, key=end), bisect_right(self._added, destination, key=end)

    def cause_of(self, run: Finding) -> Finding | None:
        """Returns the last cause before a run, if the causes before the run explain its shift; otherwise None."""
        ours, theirs = _span(run.source), _span(run.destination)
        if self.balance(ours.start, theirs.start) != _shift(run):
            return None
        lost, added = self._before(ours.start, theirs.start)
        found: list[Entry] = []
        if (index := self._last_shifting[0][lost]) is not None:
            end, _, one = self._lost[index]
            found.append((end + _shift(run), index, one))
        if (index := self._last_shifting[1][added]) is not None:
            end, _, one = self._added[index]
            found.append((end, index, one))
        return max(found, key=itemgetter(0, 1))[2] if found else None

    def _shifting(self, entries: Sequence["Entry"]) -> list[int | None]:
        """Returns for each n the index of the last one of the first n entries that shifts what is after it, or None."""
        found: list[int | None] = [None]
        for index, (_, _, one) in enumerate(entries):
            changes = _length(_lost(one)) != _length(_added(one, pushed=self._pushed))
            found.append(index if changes or one.kind is Kind.MOVED else found[-1])
        return found


Entry = tuple[int, int, Finding]
"""The offset behind what was lost or added, the number of offsets, and the finding."""


def _ways(causes: Sequence[Finding], holes: Sequence[Span]) -> "tuple[_Offsets, _Offsets]":
    """Returns the two ways to count what was added, the more likely one first."""
    return _Offsets(causes, holes), _Offsets(causes, holes, pushed=True)


def _length(span: Span | None) -> int:
    return span.offsets if span else 0


def _displaced(findings: Iterable[Finding]) -> list[Finding]:
    """Replaces each batch that is missing in its place and doubled elsewhere by one that was moved there. The findings
    must have one batch each."""
    found = list(findings)
    missing = {one.source for one in found if one.kind is Kind.MISSING}
    moved: set[Span | None] = set()
    for at, one in enumerate(found):
        if one.kind is Kind.DUPLICATE and one.source in missing and one.source not in moved:
            moved.add(one.source)
            found[at] = replace(one, kind=Kind.MOVED, detail=f"by {_shift(one):+,} offsets")
    return [one for one in found if one.kind is not Kind.MISSING or one.source not in moved]


def _ended(rest: Sequence[Finding], runs: Sequence[Finding], known: Bounds, holes: Sequence[Span]) -> int:
    """Returns the shift at the logs' ends; 0 if nothing has moved. If ``rest`` explains the difference of the ends, it
    is that difference; otherwise the shift of the last moved run if that reaches an end, or else 0."""
    difference = known.destination.end - known.source.end
    ends = known.source.end, known.destination.end
    if runs and any(offsets.balance(*ends) == difference for offsets in _ways(rest, holes)):
        return difference
    last = max(runs, key=lambda run: _span(run.destination).end, default=None)
    if last is None:
        return 0
    return _shift(last) if _touches(last, rest, known) else 0


def _touches(run: Finding, others: Iterable[Finding], known: Bounds) -> bool:
    """Returns True if a run reaches to one log's end, or what is told of the destination behind it does."""
    at = _span(run.destination).end
    for span in sorted(one.destination for one in others if one.destination):
        at = max(at, span.end) if span.start <= at else at
    return _span(run.source).end >= known.source.end or at >= known.destination.end


def _unseen(found: Sequence[Finding], known: Bounds) -> Iterator[Finding]:
    """Yields findings for what one log has behind the other log's end, in front of batches that were moved by as much.
    It was not read: such batches are found by a search."""
    moved = [one for one in found if one.kind is Kind.MOVED]
    last = max(moved, key=lambda one: _span(one.destination).end, default=None)
    if last is None or not _touches(last, found, known):
        return
    end, is_source = known.audited.end, known.source.end > known.audited.end
    told = sorted(
        ((span, one) for one in found if (span := one.source if is_source else one.destination)),
        key=itemgetter(0),
    )
    at, shift = end, 0
    for span, one in told:
        if one.kind is Kind.MOVED:
            if span.start > at and _shift(one) != shift:
                here, there = (Span(at, span.start), None) if is_source else (None, Span(at, span.start))
                yield Finding(
                    kind=Kind.MISSING if here else Kind.EXTRA, topic=known.topic, partition=known.partition,
                    source=here, destination=there, batches=0, records=0, detail=BEYOND,
                )  # fmt: skip
            shift = _shift(one)
        at = max(at, span.end)


def _all_behind(one: Finding, behind: dict[int, list[Finding]]) -> list[Finding]:
    """Returns the runs that follow from this finding, directly or through other runs."""
    runs = behind.get(id(one), [])
    return [*runs, *(further for run in runs for further in _all_behind(run, behind))]


def _with(cause: Finding, runs: Sequence[Finding]) -> Finding:
    if not runs:
        return cause
    spans = [_span(run.source) for run in runs]
    shifts = sorted({_shift(run) for run in runs})
    words = " and ".join(f"{shift:+,}" for shift in shifts)
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    told = f"all behind it lies by {words} offsets, source offsets {start} to {end - 1}"
    return replace(cause, detail="; ".join(filter(None, [cause.detail, told])))


def keys(found: Iterable[Finding]) -> dict[TopicPartition, list[Finding]]:
    """Returns findings by partition; those of whole topics are under partition -1."""
    by_key: dict[TopicPartition, list[Finding]] = defaultdict(list)
    for one in found:
        by_key[TopicPartition(one.topic, -1 if one.partition is None else one.partition)].append(one)
    return by_key
