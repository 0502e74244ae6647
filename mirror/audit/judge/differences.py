"""Turns chunks that differ into findings, in rounds: each examines a window of each region and follows its shift.

No Spark in here: ``Looks`` does the reading. At any time, memory holds the windows of one round, the findings, and the
chunks that still differ (about a thousand rows per GB). Each round searches elsewhere for batches that nothing
explains. When there are too many of these, the rest is counted but not examined (``wholesale``).
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mirror.audit.errors import AuditError
from mirror.audit.judge.changed.borders import is_overlaid
from mirror.audit.judge.changed.reencoded import suspects
from mirror.audit.judge.drill import by_content
from mirror.audit.judge.kinds import Content, PlacedBatch, Scene, joined, named
from mirror.audit.judge.looks import ChunkComparison, Looks
from mirror.audit.judge.regions import (
    DifferingChunk,
    Followed,
    Region,
    ShiftToTry,
    Window,
    before,
    behind,
    chunks_of,
    differing_offsets,
    followed,
    is_opaque,
    jump_ahead,
    jump_back,
    overlaps,
    reach,
    regions,
    shifts_at,
    skipped,
    united,
    unmatched,
    widened,
    within,
)
from mirror.audit.judge.runs import MovedRun, folded, less, moved_finding, resegmented, wholesale
from mirror.audit.judge.spans import merged, overlapping
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole
from mirror.audit.prepare.plan import Range

ROUND_BATCHES = 200_000
"""Differing batches per round, all partitions together: about 100 MB."""
MOST_UNEXPLAINED = 100_000
"""After so many batches that no shift and no log cleaner explains, no more are examined one by one."""

MOST_OPENED = 100_000
"""Records per round in batches that are opened for no other reason than their borders."""
MOST_TAIL = 64 << 20
"""A tail is what one log has after the other's end. If something differs before it, it is examined up to so many bytes;
a larger tail is not examined at all."""


@dataclass(slots=True)
class _Found:
    """The places, at source and destination, of a round's rows that have no counterpart. ``asked``: the digests that
    were searched for on each side, whether they were found or not."""

    source: dict[Content, list[PlacedBatch]] = field(default_factory=dict)
    destination: dict[Content, list[PlacedBatch]] = field(default_factory=dict)
    asked: tuple[set[bytes], set[bytes]] = field(default_factory=lambda: (set(), set()))


@dataclass(slots=True)
class Differences:
    """Examines the regions that differ, and collects findings. ``mapped``: the destination has offsets of its own.
    ``passed``: offsets of records that the flow says it has passed over, each with what became of it. ``codec``: with
    which the flow compresses batches anew. ``rebatches``: it makes larger batches of small ones. ``append_times``: the
    destination's broker may have put its own times in.

    ``unexplained``: number of batches that no shift and no cleaner explains. ``ended``: partitions of which both logs
    were examined to their ends.
    """

    looks: Looks
    bounds: Mapping[TopicPartition, Bounds]
    mapped: bool = False
    passed: Mapping[TopicPartition, Mapping[int, str]] = field(default_factory=dict)
    codec: int | None = None
    rebatches: bool = False
    append_times: bool = False
    unexplained: int = 0
    ended: set[TopicPartition] = field(default_factory=set)
    _findings: list[Finding] = field(default_factory=list)
    _holes: dict[TopicPartition, list[Hole]] = field(default_factory=lambda: defaultdict(list))
    _queues: dict[TopicPartition, deque[Region]] = field(default_factory=lambda: defaultdict(deque))
    _moved: dict[TopicPartition, list[MovedRun]] = field(default_factory=lambda: defaultdict(list))
    _opened: dict[TopicPartition, list[MovedRun]] = field(default_factory=lambda: defaultdict(list))
    _borders: set[tuple[TopicPartition, int]] = field(default_factory=set)

    def run(self, found: Iterable[Region]) -> list[Finding]:
        """Returns findings for what differs in these regions. Runs are not joined across windows, and consequences are
        not folded yet.

        Raises:
            AuditError: a log changed while it was read.
        """
        for region in found:
            self._queues[region.key].append(region)
        while windows := self._windows():
            self._look(windows)
            windows = self._apart(windows)
            self._pin(windows)
            places = self._follow(windows)
            self._name(windows, places)
        for _, queue in sorted(self._queues.items()):
            self._findings += wholesale(queue, MOST_UNEXPLAINED)
        for key, moved in self._moved.items():
            self._findings += [moved_finding(key, one) for one in moved]
        for key, opened in self._opened.items():
            self._findings += resegmented(key, opened)
        return self._findings

    def holes(self, key: TopicPartition) -> Sequence[Hole]:
        """The source's holes, from windows with unexplained differences."""
        return self._holes[key]

    # -- a round -------------------------------------------------------------------------------------------------------

    def _windows(self) -> list[Window]:
        """Returns the next windows. Regions of one partition share a round only if they cannot overlap."""
        found: list[Window] = []
        if self.unexplained >= MOST_UNEXPLAINED:
            return found
        room = ROUND_BATCHES
        for queue in self._queues.values():
            while queue and (window := Window.first_of(queue[0], room)):
                alone = queue[0].shift or queue[0].source.end != queue[0].destination.end
                queue.popleft()
                found.append(window)
                room -= window.batches
                if alone or (queue and queue[0].shift):
                    break
        return found

    def _pin(self, windows: Sequence[Window]) -> None:
        """Finds out where the destination has the borders of old formats in these windows, if not where they are due:
        what was lost or added before one moves it. Until then, batches are opened there that should not be, or not
        opened that should be. What leaves fewer rows without a counterpart counts."""
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
            self._look([other for _, other, _ in trials.values()], certain=False)
            for key, (window, other, border) in trials.items():
                if unmatched(other.pairs) < unmatched(window.pairs):
                    window.pairs, window.where, window.region = other.pairs, other.where, other.region
                    self._borders.add((key, border))
                else:
                    self.looks.pin(key, border, None)

    def _look(self, windows: list[Window], *, certain: bool = True) -> None:
        """Reads the windows, up to the ends of their last batches. ``certain``: something differs in their chunks."""
        for by_record in (False, True):
            some = [window for window in windows if window.region.by_record == by_record]
            while some:
                for window in some:
                    window.where = self._bounded(window)
                seen = self.looks.rows([window.where for window in some], by_record=by_record)
                again = []
                for window in some:
                    window.pairs = within(seen.get(window.region.key, Pairs()), window.where)
                    end = reach(window.where, window.pairs, self._end(window.region))
                    if end > window.where.end:
                        window.where = window.where._replace(end=end)
                        again.append(window)
                some = again
        for window in windows if certain else ():
            self._check(window)
        for window in windows:
            self._widen(window)
        self._look_at_tails(windows)
        for window in windows:
            window.pairs = before(window.pairs, window.region.source.end, window.region.destination.end)

    def _widen(self, window: Window) -> None:
        """Lets a region end where its last batch does: what stands behind chunks that differ may explain that batch."""
        region, end = window.region, window.where.end
        if behind(window.rest, end) or region.source.end != region.destination.end or end <= region.source.end:
            return
        known, at_end = self.bounds[region.key], end >= self._end(region)
        window.region = (
            widened(region, known.source.end, known.destination.end - region.shift)
            if at_end
            else widened(region, end, end)
        )

    def _apart(self, windows: Sequence[Window]) -> list[Window]:
        """Returns the windows that no other region overlaps. Those that a batch has widened into the next region are
        queued again, joined with it: a batch may be longer than all that lies between two regions."""
        left: list[Window] = []
        wide: dict[TopicPartition, Region] = {}
        for window in windows:
            key, region = window.region.key, window.region
            if left and key not in wide and overlaps(left[-1].region, region):
                wide[key] = left.pop().region
            if key in wide and overlaps(wide[key], region):
                wide[key] = united(wide[key], region)
            else:
                left.append(window)
        for window in [*left]:
            key, queue = window.region.key, self._queues[window.region.key]
            if queue and overlaps(window.region, queue[0]):
                left.remove(window)
                wide[key] = window.region
        for key, region in wide.items():
            queue = self._queues[key]
            while queue and overlaps(region, queue[0]):
                region = united(region, queue.popleft())
            queue.appendleft(region)
        return left

    def _end(self, region: Region) -> int:
        """Returns the end of what both logs have, at the region's shift."""
        known = self.bounds[region.key]
        return min(known.source.end, known.destination.end - region.shift)

    def _bounded(self, window: Window) -> Range:
        return window.where._replace(end=min(window.where.end, self._end(window.region)))

    def _look_at_tails(self, windows: Iterable[Window]) -> None:
        """Adds what one log has after the other log's end, unless it is too much."""
        tails: dict[tuple[Side, bool], list[Range]] = defaultdict(list)
        last: dict[TopicPartition, Window] = {}
        for window in windows:
            region, known = window.region, self.bounds[window.region.key]
            ends = {Side.SOURCE: known.source.end, Side.DESTINATION: known.destination.end - region.shift}
            at = min(ends.values())
            longer = max(ends, key=lambda side: ends[side])
            if window.rest or window.where.end < at or (region.source.end, region.destination.end) != (*ends.values(),):
                continue
            tail = window.where._replace(start=at, end=ends[longer], first=False)
            if tail.end > tail.start and self.looks.size(tail) > MOST_TAIL:
                continue
            self.ended.add(region.key)
            window.where = window.where._replace(end=ends[longer])
            if tail.end > tail.start:
                last[region.key] = window
                tails[longer, window.by_record].append(tail)
        for (side, by_record), ranges in tails.items():
            for key, pairs in self.looks.tails(side, ranges, by_record=by_record).items():
                if key in last:
                    last[key].pairs.add(pairs)

    def _check(self, window: Window) -> None:
        """Checks that something differs in each chunk that is certain to differ. Otherwise, the log changed between the
        two reads. A batch differs in the chunk in which it begins, a hole in each that it touches.

        Raises:
            AuditError: nothing differs in such a chunk.
        """
        pairs = window.pairs
        bases = sorted({*pairs.source, *pairs.destination})
        holes = merged(Span(hole.start, hole.end) for hole in (*pairs.holes, *pairs.markers, *pairs.odd))
        for chunk, certain in ((chunk.where, chunk.certain) for chunk in window.chunks):
            span = Span(-1 if chunk.first else chunk.start, chunk.end)
            at = bisect_left(bases, span.start)
            begins = at < len(bases) and bases[at] < span.end
            if certain and not begins and next(overlapping(holes, span), None) is None:
                raise AuditError(
                    f"{chunk.topic} partition {chunk.partition} changed between offsets {chunk.start} and {chunk.end} "
                    "while it was read",
                    "run the audit again; if the topic is compacted, while its cleaner is idle",
                )

    # -- shifts --------------------------------------------------------------------------------------------------------

    def _follow(self, windows: Sequence[Window]) -> _Found:
        """Compares what follows the windows at the shift with which they end, and cuts them where that shift begins.

        The shift comes first from rows that match within a window. A shift may be larger than a window; it is then
        found by searching both logs for the window's rows.
        """
        steps = {id(window): followed(window.pairs) for window in windows}
        self._open(
            [
                window
                for window in windows
                if not window.region.by_record
                and not self.looks.cleaned(window.region.key)
                and not self._is_anew(window)
                and is_opaque(window.pairs, steps[id(window)].matched)
            ],
            steps,
        )
        left = [window for window in windows if window.rest]
        trials = []
        for window in left:
            step = steps[id(window)]
            if step.shift or window.by_record != window.region.by_record:
                trials.append((window, ShiftToTry(step.shift, step.start if step.shift else window.where.end)))
        left = self._adopted(trials, left)
        places = _Found()
        self._search([window.pairs for window in left if not window.by_record], places)
        for jump in (jump_ahead, jump_back):
            jumps = ((window, jump(window, places.source, places.destination)) for window in left)
            left = self._adopted([(window, found) for window, found in jumps if found], left)
        for window in left:
            self._go_on(window)
        return places

    def _open(self, windows: Sequence[Window], steps: dict[int, Followed]) -> None:
        """Compares records in windows whose batches cannot be matched, and stays with records where they can be."""
        if not windows:
            return
        both = [window.where._replace(end=min(window.where.end, self._end(window.region))) for window in windows]
        seen = self.looks.rows(both, by_record=True)
        for window, where in zip(windows, both, strict=True):
            region = window.region
            pairs = before(within(seen.get(region.key, Pairs()), where), region.source.end, region.destination.end)
            step = followed(pairs)
            if is_opaque(pairs, step.matched):
                continue
            window.opened_from = max(region.source.start, window.pairs.starts[0])
            window.pairs, window.by_record, steps[id(window)] = pairs, True, step
            window.where = where
            if not window.rest:
                self.ended.discard(region.key)
                self._look_at_tails([window])

    def _adopted(self, trials: Sequence[tuple[Window, ShiftToTry]], windows: Sequence[Window]) -> list[Window]:
        """Tries these shifts. Returns the windows for which no shift made fewer offsets after them differ."""
        adopted: set[int] = set()
        for by_record in (False, True):
            some = []
            for window, (step, start) in trials:
                shift = window.region.shift + step
                end = min(window.region.end_at(shift), self._end(replace(window.region, shift=shift)))
                if window.by_record == by_record and end > start:
                    some.append((window, window.where._replace(start=start, end=end, shift=shift, first=False)))
            passes = self.looks.chunks([where for _, where in some], by_record=by_record) if some else []
            for (window, where), passed in zip(some, passes, strict=True):
                chunks = chunks_of(passed.differing, where)
                less = differing_offsets(chunks, where.start) < differing_offsets(window.rest, where.start)
                if passed.whole and less:
                    self._adopt(window, where, chunks, passed)
                    adopted.add(id(window))
        return [window for window in windows if id(window) not in adopted]

    def _adopt(self, window: Window, where: Range, chunks: list[DifferingChunk], passed: ChunkComparison) -> None:
        region, step = window.region, where.shift - window.region.shift
        begun, end = min(window.pairs.starts, default=where.start), window.where.end
        window.pairs = before(window.pairs, where.start, where.start + step)
        window.where = window.where._replace(end=max(where.start, where.start + step))
        whole = replace(
            region,
            source=Span(where.start, region.source.end),
            destination=Span(where.start, region.destination.end - step),
            shift=where.shift,
            by_record=window.by_record,
        )
        if whole.source.end != whole.destination.end and (not chunks or chunks[-1].where.end < where.end):
            # No chunk of this pass has what the shift moved beyond the region's end.
            last = where._replace(start=max(where.start, where.end - where.width))
            chunks.append(DifferingChunk(last, 0, certain=False))
        self._moved[region.key] = less(self._moved[region.key], Span(begun, where.end))
        moved = MovedRun(Span(where.start, where.end), where.shift, 0 if window.by_record else passed.batches)
        if where.shift:
            self._moved[region.key].append(moved)
        if window.by_record:
            self._opened[region.key].append(moved)
        passed_over = skipped(window, Span(end, where.start), Span(end, where.start + step))
        self._queues[region.key].extendleft(reversed([*passed_over, *regions(chunks, whole)]))

    def _go_on(self, window: Window) -> None:
        """Queues the rest of a window without a shift to follow; its next window will be larger."""
        region, end = window.region, window.where.end
        chunks = behind(window.rest, end)
        if chunks:
            start = chunks[0].where.start
            self._queues[region.key].appendleft(
                replace(
                    region,
                    chunks=chunks,
                    source=Span(start, region.source.end),
                    destination=Span(start, region.destination.end),
                    by_record=window.by_record,
                    chunks_at_once=2 * region.chunks_at_once,
                )
            )

    # -- names ---------------------------------------------------------------------------------------------------------

    def _name(self, windows: Sequence[Window], places: _Found) -> None:
        """Adds the windows' findings."""
        self._search([window.pairs for window in windows if not window.by_record], places)
        inside = self._records_inside(windows, places)
        for window in windows:
            key, known = window.region.key, self.bounds[window.region.key]
            if window.by_record:
                span = Span(max(window.where.start, window.opened_from), min(window.where.end, known.source.end))
                self._opened[key].append(MovedRun(span, window.region.shift, 0))
            cleaned = self.looks.cleaned(key)
            opened = inside.get(id(window))
            local = by_content((key, row) for row in window.pairs.source.values())
            found = named(
                Scene(
                    key=key,
                    audited=known.audited,
                    source=window.pairs.source,
                    destination=window.pairs.destination,
                    in_source={**places.source, **local},
                    in_tail=_behind_audited(places.destination, known) if key not in self.ended else {},
                    holes=window.pairs.holes,
                    markers=window.pairs.markers,
                    odd=window.pairs.odd,
                    equal=window.pairs.equal,
                    looked=[Span(window.where.start, window.where.end)],
                    cleaned=cleaned,
                    opened=None if opened is None else [one for one in opened if not one.mistimed],
                    mistimed=[one.offset for one in opened or () if one.mistimed],
                    mapped=self.mapped,
                    shift=window.region.shift,
                    by_record=window.by_record,
                    ended=key in self.ended,
                    passed=self.passed.get(key, {}),
                    codec=self.codec,
                    rebatches=self.rebatches,
                    append_times=self.append_times,
                    source_end=known.source.end,
                    cut_off_at=known.destination.end - window.region.shift,
                )
            )
            explained = joined([one for one in found if one.kind in _EXPLAINED], window.pairs.holes)
            others = [one for one in found if one.kind not in _EXPLAINED]
            # A run that moved is one fault, however long. But an endless series of runs is no shift to follow: so each
            # run counts as one.
            self.unexplained += sum(one.batches or one.records for one in others)
            self.unexplained += sum(one.kind is Kind.MOVED for one in explained)
            self._holes[key] += window.pairs.holes if others and not self.mapped else []
            self._findings += [*folded(explained), *others]

    def _records_inside(self, windows: Sequence[Window], places: _Found) -> dict[int, list[RecordDifference]]:
        """Returns the records that differ in the windows whose batches have to be opened, by the windows' ids."""
        wanted = [window for window in windows if self._opens(window)]
        asked = {id(window) for window in wanted}
        room = MOST_OPENED
        for window in windows:
            if id(window) not in asked and not window.by_record and _is_overlaid(window.pairs, places):
                room -= sum(row.records for row in window.pairs.rows)
                if room >= 0:
                    wanted.append(window)
        opened: dict[TopicPartition, list[RecordDifference]] = {}
        for is_cleaned in (True, False):
            pairs: dict[TopicPartition, Pairs] = defaultdict(Pairs)
            for window in wanted:
                if bool(self.looks.cleaned(window.region.key)) is is_cleaned:
                    pairs[window.region.key].add(window.pairs)
            shifts = {window.region.key: window.region.shift for window in wanted if window.region.key in pairs}
            # What cleaners have taken may be very much, and nobody asks what it was.
            opened |= self.looks.records(pairs, shifts, digests=not is_cleaned) if pairs else {}
        return {id(window): opened.get(window.region.key, []) for window in wanted}

    def _suspects(self, window: Window) -> Sequence[BatchRow]:
        """Returns the batches of the window that may have been written anew."""
        return suspects(
            window.pairs, self.passed.get(window.region.key, {}), codec=self.codec, rebatches=self.rebatches
        )

    def _is_anew(self, window: Window) -> bool:
        """Returns True if most batches of a window say themselves why they stand in other batches: they are compared
        one by one, not as a stream of records."""
        return 2 * len(self._suspects(window)) > len(window.pairs.source)

    def _opens(self, window: Window) -> bool:
        """Returns True if the window's batches have to be compared record by record: log cleaners, or the mirror
        itself, may have written them anew."""
        anew = not window.by_record and bool(self._suspects(window))
        return anew or bool(self.looks.cleaned(window.region.key))

    def _search(self, seen: Sequence[Pairs], places: _Found) -> None:
        """Searches both clusters for the rows that have no counterpart in their window, and adds their places."""
        asked_source, asked_destination = places.asked
        lost: set[bytes] = set()
        strange: set[bytes] = set()
        for pairs in seen:
            ours = {row.content for row in pairs.source.values()}
            theirs = {row.content for row in pairs.destination.values()}
            lost |= {row.digest for row in pairs.source.values() if row.crc_ok and row.content not in theirs}
            strange |= {row.digest for row in pairs.destination.values() if row.crc_ok and row.content not in ours}
        if wanted := sorted(strange - asked_source):
            places.source.update(by_content(self.looks.in_source(wanted)))
        if wanted := sorted(lost - asked_destination):
            places.destination.update(by_content(self.looks.in_destination(wanted)))
        asked_source |= strange
        asked_destination |= lost


def _is_overlaid(pairs: Pairs, places: _Found) -> bool:
    """Returns True if batches that are nowhere else overlap, and have other borders."""
    ours = {row.content for row in pairs.source.values()} | places.source.keys()
    theirs = {row.content for row in pairs.destination.values()} | places.destination.keys()
    return is_overlaid(
        [row for row in pairs.source.values() if row.crc_ok and row.content not in theirs],
        [row for row in pairs.destination.values() if row.crc_ok and row.content not in ours],
    )


_EXPLAINED = (Kind.MOVED, Kind.CLEANED, Kind.REENCODED, Kind.UNVERIFIABLE, Kind.OVERSIZE)


def _behind_audited(places: Mapping[Content, Sequence[PlacedBatch]], known: Bounds) -> dict[Content, list[PlacedBatch]]:
    """Returns the places in this partition at the destination that lie after its audited offsets."""
    tails = {
        content: [place for place in some if place.key == known.key and place.row.base_offset >= known.audited.end]
        for content, some in places.items()
    }
    return {content: some for content, some in tails.items() if some}
