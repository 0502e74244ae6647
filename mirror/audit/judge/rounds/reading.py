"""Reads the windows of a round row by row: each up to the end of its last batch, and at the logs' ends up to these."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate

from mirror.audit.errors import AuditError
from mirror.audit.judge.rounds.looks import Looks
from mirror.audit.judge.rounds.regions import (
    MOST_RECORDS,
    DifferingChunk,
    Followed,
    InOrder,
    Region,
    Window,
    before,
    behind,
    followed,
    is_opaque,
    reach,
    shifts_at,
    unmatched,
    widened,
)
from mirror.audit.judge.spans import merged, overlapping
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Finding
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.prepare.plan import Range

MOST_TAIL = 64 << 20
"""Maximum size in bytes of a tail that is examined. A tail is what one log has behind the end of the other; it matters
if something differs right before it. A larger tail is not examined at all."""

MOST_AHEAD = 4
"""In so many looks at a window, every batch that reaches beyond its end makes it larger. In later looks, batches that
the shift at the window's end explains do not: they are followed together."""
MOST_ROWS = 200_000
"""Once a window has so many rows behind its original end, it does not grow for batches that reach further. These are
judged by what the window has."""


@dataclass(slots=True)
class WindowReader:
    """Reads windows.

    Attributes:
        looks: reads both clusters.
        bounds: the bounds of each partition.
        ended: partitions of which both logs were examined to their ends.
        broken: findings for logs that are damaged behind the other log's end. Such a partition is not in ``ended``.
    """

    looks: Looks
    bounds: Mapping[TopicPartition, Bounds]
    ended: set[TopicPartition] = field(default_factory=set)
    broken: dict[TopicPartition, list[Finding]] = field(default_factory=dict)
    _borders: set[tuple[TopicPartition, int]] = field(default_factory=set)

    def read(
        self, windows: Sequence[Window], *, certain: bool = True, opened: Callable[[Window], bool] | None = None
    ) -> None:
        """Reads the rows of the windows into ``pairs``, up to the ends of their last batches, and sets ``where`` to the
        offsets that were read.

        Args:
            windows: the windows of a round. They may be cut to their first chunks.
            certain: something must differ in each of their chunks that is certain to differ.
            opened: returns True for a window whose batches will be opened.

        Raises:
            AuditError: nothing differs in such a chunk any more, because a log changed on which no cleaner works.
        """
        self._read_all(windows, further=True)
        for window in windows if opened is not None else ():
            if opened is not None and opened(window):
                self._narrow(window)
        for window in windows if certain else ():
            self._check(window)
        self._finish(windows)

    def _read_all(self, windows: Sequence[Window], *, further: bool) -> None:
        for by_record in (False, True):
            some = [window for window in windows if window.region.by_record == by_record]
            self._read(some, by_record=by_record, further=further)

    def _finish(self, windows: Sequence[Window], tails: Set[TopicPartition] | None = None) -> None:
        """Adds the tails, and cuts the windows at their regions' ends. ``tails``: if given, of these partitions
        only."""
        for window in windows:
            self._widen(window)
        self._add_tails(windows, tails)
        for window in windows:
            window.pairs = before(window.pairs, window.region.source.end, window.region.destination.end)

    def _read(self, windows: Sequence[Window], *, by_record: bool, further: bool) -> None:
        """Reads the windows. ``further``: a window whose batches reach beyond its end is read again, with ever more
        behind it: thousands of batches may each reach beyond the end of another."""
        for window in windows:
            window.where = self._bounded(window)
        ends = {id(window): window.where.end for window in windows}
        following = _following(windows)
        some, looks = list(windows), 0
        while some:
            looks += 1
            seen = self.looks.rows([window.where for window in some], by_record=by_record)
            in_order = {key: InOrder(pairs) for key, pairs in seen.items()}
            again = []
            for window in some:
                pairs, known, most = (
                    _taken(in_order, window.region.key, window.where),
                    window.where.end,
                    ends[id(window)],
                )
                first, moved = window.where._replace(end=most), looks <= MOST_AHEAD
                end = reach(first, pairs, self.end_of(window.region), moved=moved)
                if further and end > known and sum(row.base_offset >= most for row in pairs.rows) < MOST_ROWS:
                    ahead = min(end + 2 * (known - most), max(end, following[id(window)]))
                    window.where = window.where._replace(end=min(ahead, self.end_of(window.region)))
                    again.append(window)
                else:
                    end = min(end, known)
                    window.pairs, window.where = before(pairs, end, end), window.where._replace(end=end)
            some = again

    def again(self, windows: Sequence[Window], ended: Set[TopicPartition]) -> list[Window]:
        """Reads windows of one round once more, as they were read before. Returns those in which other rows differ now,
        or none any more. ``ended``: the partitions of which both logs had been examined to their ends in that round.

        Raises:
            AuditError: the part of a log behind the other log's end can no longer be read.
        """
        seen = {id(window): window.pairs for window in windows}
        known = self.ended, self.broken
        self.ended, self.broken = {*ended}, {}
        self._read_all(windows, further=False)
        self._finish(windows, ended)
        for key in sorted(ended - self.ended):
            raise self._broke(key)
        self.ended, self.broken = known  # as later rounds left them
        for window in windows:
            if window.cut is not None:
                window.pairs = before(window.pairs, *window.cut)
            had_none, has_none = (
                {Span(chunk.start, chunk.end) for chunk in equal_chunks(window.chunks, pairs)}
                for pairs in (seen[id(window)], window.pairs)
            )
            window.equal = sorted(has_none - (had_none - {*window.equal}))
        return [window for window in windows if window.pairs != seen[id(window)]]

    def pin(self, windows: Sequence[Window]) -> None:
        """Finds the offsets at which the destination has the borders of old formats in these windows. What was lost or
        added before a border moves it. As long as its place is not known, the wrong batches are opened beside it. Each
        possible shift is tried, and kept if it leaves fewer rows without a counterpart."""
        tried: set[tuple[TopicPartition, int, int]] = set()
        while True:
            trials: dict[TopicPartition, tuple[Window, Window, int]] = {}
            for window in windows:
                key = window.region.key
                if key in trials or window.by_record:
                    continue
                for border in self.looks.borders(key):
                    inside = window.where.start < border < window.where.end and (key, border) not in self._borders
                    shifts = shifts_at(window.pairs, border) if inside else []
                    shift = next((one for one in shifts if (key, border, one) not in tried), None)
                    if shift is not None:
                        tried.add((key, border, shift))
                        self.looks.pin(key, border, border + window.region.shift + shift)
                        trials[key] = window, replace(window), border
                        break
            if not trials:
                break
            ends = {key: (key in self.ended, self.broken.get(key)) for key in trials}
            self.read([other for _, other, _ in trials.values()], certain=False)
            for key, (window, other, border) in trials.items():
                same_ends = (key in self.ended) is ends[key][0]
                if same_ends and unmatched(other.pairs) < unmatched(window.pairs):
                    window.pairs, window.where, window.region = other.pairs, other.where, other.region
                    self._borders.add((key, border))
                else:
                    self.looks.pin(key, border, None)
                    self._ends_as(key, ended=ends[key][0], broken=ends[key][1])

    def _ends_as(self, key: TopicPartition, *, ended: bool, broken: list[Finding] | None) -> None:
        """Forgets what a look that does not count has found at the ends of a partition's logs."""
        self.ended = {*self.ended, key} if ended else self.ended - {key}
        if broken is None:
            self.broken.pop(key, None)
        else:
            self.broken[key] = broken

    def open(self, windows: Sequence[Window], steps: dict[int, Followed]) -> None:
        """Compares records in windows whose batches cannot be matched. A window whose records can be matched is
        compared record by record from then on. ``steps``: the shift of each window, by its id; it is replaced for such
        windows."""
        if not windows:
            return
        both = [window.where._replace(end=min(window.where.end, self.end_of(window.region))) for window in windows]
        seen = self.looks.rows(both, by_record=True)
        in_order = {key: InOrder(pairs) for key, pairs in seen.items()}
        for window, where in zip(windows, both, strict=True):
            region = window.region
            pairs = before(_taken(in_order, region.key, where), region.source.end, region.destination.end)
            step = followed(pairs)
            if is_opaque(pairs, step.matched):
                continue
            window.opened_from = max(region.source.start, window.pairs.starts[0])
            window.pairs, window.by_record, steps[id(window)] = pairs, True, step
            window.where = where
            if not window.rest:
                self.ended.discard(region.key)
                self._add_tails([window])

    def end_of(self, region: Region) -> int:
        """Returns the source offset at which one of the logs ends, at the region's shift."""
        known = self.bounds[region.key]
        return min(known.source.end, known.destination.end - region.shift)

    def _bounded(self, window: Window) -> Range:
        return window.where._replace(end=min(window.where.end, self.end_of(window.region)))

    def _narrow(self, window: Window) -> None:
        """Cuts a window to its first chunks, at least one, so that its batches have no more records than may be held at
        a time. What is behind them becomes a window of its own."""
        ends, sums = [chunk.where.end for chunk in window.chunks], list[list[int]]()
        for rows in (window.pairs.source, window.pairs.destination):
            bases = sorted(rows)
            totals = [*accumulate((rows[base].records for base in bases), initial=0)]
            sums.append([totals[bisect_left(bases, end)] for end in ends])
        count = max(1, sum(max(both) <= MOST_RECORDS for both in zip(*sums, strict=True)))
        if count == len(window.chunks):
            return
        first = window.where._replace(end=ends[count - 1])
        end = min(reach(first, window.pairs, self.end_of(window.region), moved=False), window.where.end)
        window.chunks, window.rest = window.chunks[:count], (*window.chunks[count:], *window.rest)
        window.pairs, window.where = before(window.pairs, end, end), window.where._replace(end=end)
        window.region = replace(window.region, chunks_at_once=-(-count // 2))  # the next one has twice as many

    def _check(self, window: Window) -> None:
        """Checks that something differs in each chunk that is certain to differ. Otherwise, a log changed between the
        two reads. Log cleaners may have made a chunk equal; such chunks are noted.

        Raises:
            AuditError: nothing differs in such a chunk, and no cleaner works on the partition.
        """
        for chunk in equal_chunks(window.chunks, window.pairs):
            if not self.looks.cleaned(window.region.key):
                raise AuditError(
                    f"{chunk.topic} partition {chunk.partition} changed between offsets {chunk.start} and {chunk.end} "
                    "while it was read",
                    "run the audit again",
                )
            window.equal.append(Span(chunk.start, chunk.end))

    def _widen(self, window: Window) -> None:
        """Widens a window's region up to the end of the last batch, since what is behind the differing chunks may
        explain that batch."""
        region, end = window.region, window.where.end
        if behind(window.rest, end) or region.source.end != region.destination.end or end <= region.source.end:
            return
        known, at_end = self.bounds[region.key], end >= self.end_of(region)
        window.region = (
            widened(region, known.source.end, known.destination.end - region.shift)
            if at_end
            else widened(region, end, end)
        )

    def _add_tails(self, windows: Iterable[Window], only: Set[TopicPartition] | None = None) -> None:
        """Adds the part of one log behind the other log's end to the window before it. If that part is too large or
        cannot be read to its end, nothing of it is added; then only the bounds say what a side lacks there
        (``outside``). ``only``: the partitions to do this for; None: all of them."""
        tails: dict[tuple[Side, bool], list[Range]] = defaultdict(list)
        last: dict[TopicPartition, Window] = {}
        for window in windows:
            region, known = window.region, self.bounds[window.region.key]
            ends = {Side.SOURCE: known.source.end, Side.DESTINATION: known.destination.end - region.shift}
            at = min(ends.values())
            longer = max(ends, key=lambda side: ends[side])
            if window.rest or window.where.end < at or (region.source.end, region.destination.end) != (*ends.values(),):
                continue
            if only is not None and region.key not in only:
                continue
            self.ended.discard(region.key)  # it may be from an earlier look at another shift
            tail = window.where._replace(start=at, end=ends[longer], first=False)
            if tail.end > tail.start and self.looks.size(tail) > MOST_TAIL:
                continue
            self.broken.pop(region.key, None)
            if tail.end > tail.start:
                last[region.key] = window
                tails[longer, window.by_record].append(tail)
            else:
                self.ended.add(region.key)
        for (side, by_record), ranges in tails.items():
            seen = self.looks.tails(side, ranges, by_record=by_record)
            for tail in ranges:
                if tail.key in seen.read:
                    self.ended.add(tail.key)
                    last[tail.key].where = last[tail.key].where._replace(end=tail.end)
                    last[tail.key].pairs.add(seen.pairs.get(tail.key, Pairs()))
            for one in seen.broken:
                self.broken.setdefault(TopicPartition(one.topic, one.partition or 0), []).append(one)

    def _broke(self, key: TopicPartition) -> AuditError:
        """Returns the error for a log whose part behind the other log's end could be read before, and cannot be now."""
        why = [one.detail for one in self.broken.get(key, ())]
        return AuditError(
            f"{key.topic} partition {key.partition}: what one log has behind the other one's end cannot "
            f"be read any more: {', '.join(why) or 'it was changed'}",
            "run the audit again: it finds what it cannot read",
        )


def equal_chunks(chunks: Iterable[DifferingChunk], pairs: Pairs) -> Iterator[Range]:
    """Yields those chunks that are certain to differ, and in which nothing differs. A batch counts for the chunk in
    which it begins, a hole for each chunk that it touches."""
    bases = sorted({*pairs.source, *pairs.destination})
    holes = merged(Span(hole.start, hole.end) for hole in (*pairs.holes, *pairs.markers, *pairs.odd))
    for chunk in (one.where for one in chunks if one.certain):
        span = Span(-1 if chunk.first else chunk.start, chunk.end)
        at = bisect_left(bases, span.start)
        begins = at < len(bases) and bases[at] < span.end
        if not begins and next(overlapping(holes, span), None) is None:
            yield chunk


def _taken(seen: Mapping[TopicPartition, InOrder], key: TopicPartition, where: Range) -> Pairs:
    """Returns what ``seen`` has of a partition in this range."""
    return seen[key].within(where) if key in seen else Pairs()


def _following(windows: Iterable[Window]) -> dict[int, int]:
    """Returns for each window, by its id, where the next window of the same partition begins."""
    found, starts = dict[int, int](), dict[TopicPartition, int]()
    for window in sorted(windows, key=lambda one: one.where.start, reverse=True):
        found[id(window)] = starts.get(window.region.key, 1 << 63)
        starts[window.region.key] = window.where.start
    return found
