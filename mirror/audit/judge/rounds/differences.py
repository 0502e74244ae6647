"""Turns chunks that differ into findings, in rounds: each examines a window of each region and follows its shift.

No Spark in here: ``Looks`` does the reading. At any time, memory holds the windows of one round, the rows that wait to
be named, the findings, and the chunks that still differ (about a thousand rows per GB). Rows that no shift explains
wait until they are named together with those of later rounds, because naming them reads and searches both clusters.
When there is too much that nothing explains, the rest is counted but not examined (``wholesale``).
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mirror.audit.judge.rounds.looks import ChunkComparison, Looks
from mirror.audit.judge.rounds.naming import Namer, Round
from mirror.audit.judge.rounds.reading import WindowReader
from mirror.audit.judge.rounds.regions import (
    MOST_RECORDS,
    DifferingChunk,
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
    most_records,
    overlaps,
    regions,
    skipped,
    united,
)
from mirror.audit.judge.rounds.runs import MovedRun, less, moved_finding, resegmented, wholesale
from mirror.audit.judge.rounds.searching import behind_windows
from mirror.audit.model.findings import Finding
from mirror.audit.model.places import Bounds, Span, TopicPartition
from mirror.audit.model.rows import Hole
from mirror.audit.prepare.plan import Range

ROUND_BATCHES = 200_000
"""Maximum number of differing batches per round, all partitions together: about 100 MB."""
MOST_WAITING = 50_000
"""Once the waiting rounds have so many rows and holes, they are named."""
MOST_UNEXPLAINED = 100_000
"""After so many batches that no shift and no log cleaner explains, no more are examined one by one."""


class Differences:
    """Examines the regions that differ, and collects findings. It queues the regions and follows their shifts;
    ``WindowReader`` reads the windows, and ``Namer`` names what is in them."""

    def __init__(
        self,
        looks: Looks,
        bounds: Mapping[TopicPartition, Bounds],
        *,
        mapped: bool = False,
        passed: Mapping[TopicPartition, Mapping[int, str]] | None = None,
        codec: int | None = None,
        rebatches: bool = False,
        append_times: bool = False,
    ) -> None:
        """
        Args:
            looks: reads both clusters.
            bounds: the bounds of each partition.
            mapped: the destination has offsets of its own.
            passed: the offsets of records that the flow has passed over according to its internal topic, each with what
                became of it.
            codec: the codec in which the flow compresses batches that it rewrites; None: the batch's own.
            rebatches: the flow makes larger batches of small ones.
            append_times: the destination's broker may have put its own times in.
        """
        self._looks = looks
        self._bounds = bounds
        self._reader = WindowReader(looks, bounds)
        self._namer = Namer(
            looks=looks,
            bounds=bounds,
            again=self._reader.again,
            mapped=mapped,
            passed={} if passed is None else passed,
            codec=codec,
            rebatches=rebatches,
            append_times=append_times,
        )
        self._waiting: list[Round] = []
        self._queues: dict[TopicPartition, deque[Region]] = defaultdict(deque)
        self._moved: dict[TopicPartition, list[MovedRun]] = defaultdict(list)
        self._opened: dict[TopicPartition, list[MovedRun]] = defaultdict(list)

    def run(self, found: Iterable[Region]) -> list[Finding]:
        """Returns findings for the differences in these regions. Runs are not joined across windows, and consequences
        are not folded yet.

        Raises:
            AuditError: a log changed while it was read.
        """
        findings: list[Finding] = []
        for region in found:
            self._queues[region.key].append(region)
        while windows := self._windows():
            self._reader.read(windows, opened=self._namer.opens)
            windows = self._apart(windows)
            self._reader.pin(windows)
            self._follow(windows)
            self._keep_opened(windows)
            for window in windows:
                # From here on, only the end of the remaining chunks is needed, and there may be very many of them.
                window.rest, window.region = window.rest[-1:], replace(window.region, chunks=())
            self._waiting.append(Round(windows, {one.region.key for one in windows} & self._reader.ended))
            if sum(one.rows for one in self._waiting) >= min(MOST_WAITING, self._room):
                findings += self._named()
        findings = self._namer.told_once([*findings, *self._named()])
        for _, queue in sorted(self._queues.items()):
            findings += wholesale(queue, MOST_UNEXPLAINED)
        for key, moved in self._moved.items():
            findings += [moved_finding(key, one) for one in moved]
        for key, opened in self._opened.items():
            findings += resegmented(key, opened)
        return findings

    def holes(self, key: TopicPartition) -> Sequence[Hole]:
        """The source's holes, from windows with unexplained differences."""
        return self._namer.holes[key]

    @property
    def said(self) -> Mapping[TopicPartition, Sequence[Span]]:
        """The chunks that had a finding before findings were folded into one, and the chunks that cleaners have made
        equal since."""
        return self._namer.said

    @property
    def ended(self) -> set[TopicPartition]:
        """The partitions of which both logs were examined to their ends."""
        return self._reader.ended

    @property
    def broken(self) -> list[Finding]:
        """Findings for logs that are damaged behind the other log's end, with destination offsets without a shift."""
        return [one for found in self._reader.broken.values() for one in found]

    @property
    def _room(self) -> int:
        """How many more unexplained batches may be examined."""
        return MOST_UNEXPLAINED - self._namer.unexplained

    def _named(self) -> list[Finding]:
        """Returns the findings of the waiting rounds, and empties the list of these."""
        waiting, self._waiting = self._waiting, []
        return self._namer.findings(waiting)

    # -- a round -------------------------------------------------------------------------------------------------------

    def _windows(self) -> list[Window]:
        """Returns the next windows. Regions of one partition share a round only if they cannot overlap."""
        found: list[Window] = []
        if self._room <= 0:
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

    def _apart(self, windows: Sequence[Window]) -> list[Window]:
        """Returns the windows whose regions overlap with no other one. A batch may be longer than the gap between two
        regions, and so widen its region into the next one. Such regions are joined and queued again."""
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

    # -- shifts --------------------------------------------------------------------------------------------------------

    def _follow(self, windows: Sequence[Window]) -> None:
        """Compares the rest of each window's region at the shift with which the window ends, and cuts the window where
        that shift begins.

        The shift is first taken from rows that match within the window. A shift may be larger than a window; then it is
        found by searching both logs for the window's rows.
        """
        steps = {id(window): followed(window.pairs) for window in windows}
        self._reader.open(
            [
                window
                for window in windows
                if not window.region.by_record
                and not self._looks.cleaned(window.region.key)
                and not self._namer.is_anew(window)
                and is_opaque(window.pairs, steps[id(window)].matched)
                and most_records(window.pairs) <= MOST_RECORDS  # otherwise their finding says that none was opened
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
        in_source, in_destination = behind_windows(self._looks, [one for one in left if not one.by_record])
        for jump in (jump_ahead, jump_back):
            jumps = ((window, jump(window, in_source, in_destination)) for window in left)
            left = self._adopted([(window, found) for window, found in jumps if found], left)
        for window in left:
            self._go_on(window)

    def _adopted(self, trials: Sequence[tuple[Window, ShiftToTry]], windows: Sequence[Window]) -> list[Window]:
        """Tries these shifts, and adopts each with which fewer offsets differ from its start on. Returns the windows
        without an adopted shift."""
        adopted: set[int] = set()
        for by_record in (False, True):
            some = []
            for window, (step, start) in trials:
                shift = window.region.shift + step
                end = min(window.region.end_at(shift), self._reader.end_of(replace(window.region, shift=shift)))
                if window.by_record == by_record and end > start:
                    some.append((window, window.where._replace(start=start, end=end, shift=shift, first=False)))
            passes = self._looks.chunks([where for _, where in some], by_record=by_record) if some else []
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
        # The offsets that a jump passes over become a region of their own.
        window.cut = min(where.start, end), min(where.start + step, end)
        window.pairs = before(window.pairs, *window.cut)
        window.where = window.where._replace(end=max(window.cut))
        whole = replace(
            region,
            source=Span(where.start, region.source.end),
            destination=Span(where.start, region.destination.end - step),
            shift=where.shift,
            by_record=window.by_record,
        )
        if whole.source.end != whole.destination.end and (not chunks or chunks[-1].where.end < where.end):
            # The shift moved something beyond the region's end, and no chunk of this pass contains it.
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
        """Queues the rest of the region of a window without a shift to follow. The next window will be larger."""
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

    def _keep_opened(self, windows: Iterable[Window]) -> None:
        """Notes the runs of these windows that were compared record by record."""
        for window in windows:
            if window.by_record:
                key = window.region.key
                end = min(window.where.end, self._bounds[key].source.end)
                span = Span(max(window.where.start, window.opened_from), end)
                self._opened[key].append(MovedRun(span, window.region.shift, 0))
