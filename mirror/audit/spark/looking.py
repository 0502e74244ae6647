"""Reads both clusters with Spark for ``judge.rounds.differences``."""

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar

from pyspark.sql import SparkSession

from mirror.audit.errors import AuditError
from mirror.audit.judge.coverage import broken_logs, check_none_lost, key_of
from mirror.audit.judge.mapped import placed
from mirror.audit.judge.rounds.looks import ChunkComparison, Located, Tails, Within
from mirror.audit.judge.rounds.regions import within
from mirror.audit.judge.spans import clipped, less
from mirror.audit.judge.spans import merged as merged_spans
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Finding
from mirror.audit.model.places import Adopted, OldRange, Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.rows import Hole
from mirror.audit.prepare.bounds import Frozen
from mirror.audit.prepare.moving import Scope
from mirror.audit.prepare.plan import Range, ReadingEstimate, Task, bundled, cut, plan, task_size
from mirror.audit.read.holes import Rules
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.spark import jvm
from mirror.audit.spark.by_record import LaterRecords, Limits, record_differences
from mirror.audit.spark.compare import MOST_ALIKE, Compared, compare, locate
from mirror.audit.spark.options import BATCHES, CHUNKS, OPENED, RECORDS, WHOLE, SourceOptions
from mirror.audit.spark.progress import JobProgress, watched

Result = TypeVar("Result")
_NO_END = 1 << 62
"""An offset behind the end of every log."""


def cluster_ids(frozen: Frozen) -> dict[Side, str]:
    """Returns the cluster ids of both sides."""
    return {Side.SOURCE: frozen.source_cluster_id, Side.DESTINATION: frozen.destination_cluster_id}


class Looking:
    """Implements ``looks.Looks``.

    Attributes:
        notes: lines on what could not be found out.
        old: the offsets at which the source has messages of old formats. ``job`` sets it once they are known; from then
            on, records are compared at these offsets.
    """

    def __init__(
        self,
        request: AuditRequest,
        scope: Scope,
        estimated: Iterable[ReadingEstimate],
        spark: SparkSession,
        slots: int,
        progress: JobProgress,
        adopted: Mapping[TopicPartition, Adopted] = MappingProxyType({}),
    ) -> None:
        """
        Args:
            request: the request of the audit.
            scope: the bounds and ranges.
            estimated: estimates of the audited offsets of each partition.
            spark: the session.
            slots: the number of tasks that the session runs at the same time.
            progress: is notified of each stage.
            adopted: the part of each destination log that was there before the flow.
        """
        self.request = request
        self.scope = scope
        self.spark = spark
        self.slots = slots
        self.progress = progress
        self.adopted = adopted
        self.estimates = {estimate.key: estimate for estimate in estimated}
        self.notes: list[str] = []
        self.old: Mapping[TopicPartition, Sequence[Span]] = {}
        self._pinned: dict[tuple[TopicPartition, int], int] = {}
        self._dirty: frozenset[str] = frozenset()
        self._looked: dict[TopicPartition, Range] = {}
        self._damaged: Mapping[tuple[Side, TopicPartition], Sequence[Span]] = {}
        self._told: Collection[TopicPartition] = ()
        self._first: Mapping[TopicPartition, int] = {}
        self._kept: LaterRecords | None = None
        self._kept_to: Mapping[Side, Mapping[TopicPartition, int]] = {}

    @property
    def frozen(self) -> Frozen:
        """The bounds, as they are now: they begin later if a log's beginning was deleted."""
        return self.scope.frozen

    def begin(
        self,
        dirty: Mapping[TopicPartition, int],
        broken: Iterable[Finding] = (),
        damaged: Collection[TopicPartition] = (),
    ) -> None:
        """Starts over, and forgets what was examined before.

        Args:
            dirty: the partitions that differ, with the first offset at which they do.
            broken: findings for the logs that could not be read to the end of a range.
            damaged: partitions with batches whose checksum was wrong when both sides were compared. There will be a
                finding for each of these.
        """
        self.end()
        self._damaged = _spans_of(broken)
        self._told = {*damaged, *(key for _, key in self._damaged)}
        self._dirty = frozenset(key.topic for key in dirty)
        self._first = dirty
        self._looked = {}
        self._pinned = {}
        self.notes = []

    def borders(self, key: TopicPartition) -> Sequence[int]:
        """See ``Looks``."""
        return [border for span in self.old.get(key, ()) for border in span]

    def pin(self, key: TopicPartition, border: int, there: int | None) -> None:
        """See ``Looks``."""
        self._pinned.pop((key, border), None)
        if there is not None:
            self._pinned[key, border] = there

    def _opens(self, key: TopicPartition) -> list[OldRange]:
        pinned = self._pinned
        return [OldRange(*span, *(pinned.get((key, border)) for border in span)) for span in self.old[key]]

    def end(self) -> None:
        """Frees the later records that Spark keeps."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.forget()

    def _still_there(self, ranges: Iterable[Range]) -> None:
        """Checks that the logs still have these ranges, and all ranges that were examined before.

        Raises:
            LogsMoved: the beginning of a log was deleted.
        """
        for where in ranges:
            known = self._looked.setdefault(where.key, where)
            if where.start < known.start:
                self._looked[where.key] = where
        asyncio.run(self.scope.check(self._looked.values()))

    # -- what differs --------------------------------------------------------------------------------------------------

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        """See ``Looks``. Ranges are read in pieces, because damage ends the reading of a piece."""
        self.progress.stage(f"looking at the {'records' if by_record else 'batches'} that differ")
        pieces = [piece for where in ranges for piece in _cut_where(where, self.scope.ranges[where.key])]
        tasks = tuple(bundled(sorted(pieces), self.slots))
        compared = self.compare(tasks, BATCHES, OPENED if by_record else WHOLE)
        self._still_there(ranges)
        differing = dict(compared.differing)
        for where in pieces:
            ends = [self._unread_from(side, where, compared.coverage[side][key_of(where)]) for side in Side]
            if where.key in differing and min(ends) < where.end:
                differing[where.key] = _without(differing[where.key], Span(min(ends), where.end))
        return differing

    def _unread_from(self, side: Side, where: Range, part: RangeCoverage) -> int:
        """Returns the offset up to which a side was read in a range: the range's end, or the place of the damage. What
        the other side has behind that cannot be compared.

        Raises:
            AuditError: the log is damaged at a place that could be read before.
        """
        if not part.broken:
            return where.end
        there = part.next_offset + (where.shift if side is Side.DESTINATION else 0)
        if not any(span.start <= there < span.end for span in self._damaged.get((side, where.key), ())):
            raise self._broke(side, f"{where.topic} partition {where.partition} at offset {there}", part.broken)
        return part.next_offset

    def _broke(self, side: Side, where: str, why: str) -> AuditError:
        alias = (self.request.source if side is Side.SOURCE else self.request.destination).alias
        return AuditError(
            f"{alias}: {where} cannot be read any more: {why}",
            "run the audit again: it finds what it cannot read",
        )

    def chunks(self, ranges: Sequence[Range], *, by_record: bool) -> list[ChunkComparison]:
        """See ``Looks``."""
        self.progress.stage("following what moved")
        sizes = [self._estimate(where.key, Span(where.start, where.end)) for where in ranges]
        most = task_size(sum(size.size for size in sizes), self.slots)
        pieces = [
            [
                piece._replace(first=where.first and piece.first, width=where.width, shift=where.shift)
                for piece, _ in cut(size, most)
            ]
            for where, size in zip(ranges, sizes, strict=True)
        ]
        tasks = tuple(bundled(sorted(piece for some in pieces for piece in some), max(self.slots, len(pieces) // 8)))
        compared = self.compare(tasks, CHUNKS, OPENED if by_record else WHOLE)
        self._still_there(ranges)
        found = []
        for where, some in zip(ranges, pieces, strict=True):
            differing = within(compared.differing.get(where.key, Pairs()), where)
            read = [compared.coverage[side][key_of(piece)] for side in Side for piece in some]
            batches = sum(part.rows for part in read[: len(some)])
            less = sum(row.records for row in differing.source.values())
            found.append(ChunkComparison(differing, batches - less, not any(part.broken for part in read)))
        return found

    def tails(self, side: Side, ranges: Sequence[Range], *, by_record: bool) -> Tails:
        """See ``Looks``. A partition is not in ``Tails.read`` if its log is damaged there, or if its beginning was
        deleted up to there."""
        tasks = tuple(bundled(sorted(ranges), self.slots))
        units = OPENED if by_record else WHOLE
        sides = [self._options(each, tasks if each is side else (), BATCHES, units) for each in Side]
        compared = self._spark(lambda: compare(self.spark, *sides))
        alias = (self.request.source if side is Side.SOURCE else self.request.destination).alias
        read, broken = set[TopicPartition](), list[Finding]()
        for where in ranges:
            part = compared.coverage[side][key_of(where)]
            if part.next_offset == where.end and not part.broken and part.log_start is None:
                read.add(where.key)
            broken += [_moved_by(where.shift, one) for one in broken_logs(side, alias, {key_of(where): part})]
        return Tails(compared.differing, read, broken)

    def size(self, where: Range) -> int:
        """See ``Looks``."""
        return self._estimate(where.key, Span(where.start, where.end)).size

    def compare(self, tasks: tuple[Task, ...], rows: str, units: str = WHOLE) -> Compared:
        """Reads and compares both sides of these tasks. ``rows``: the kind of rows. ``units``: compare batches or
        records (``audit.spark.options`` has the values).

        Raises:
            AuditError: a range cannot be read, Spark failed, or it has lost rows.
        """
        sides = [self._options(side, tasks, rows, units) for side in Side]
        compared = self._spark(lambda: compare(self.spark, *sides))
        for side in Side if units == WHOLE else ():  # where records are compared, readers count the batches
            counted = compared.batches[side], compared.bytes[side]
            check_none_lost(side, compared.coverage[side].values(), counted)
        return compared

    # -- log cleaners --------------------------------------------------------------------------------------------------

    def cleaned(self, key: TopicPartition) -> set[Side]:
        """See ``Looks``."""
        return {side for side, topics in self.frozen.compacted.items() if key.topic in topics}

    def records(
        self, differing: Mapping[TopicPartition, Pairs], shifts: Mapping[TopicPartition, int], *, digests: bool
    ) -> dict[TopicPartition, list[RecordDifference]]:
        """See ``Looks``. In compacted partitions, later records may excuse one (``by_record`` has the rules)."""
        looked = {
            key: spans
            for key, pairs in differing.items()
            if (spans := self._known(key, merged_spans(row.span for row in pairs.rows if row.crc_ok)))
        }
        if not looked:
            return {}
        self.progress.stage("comparing what was written anew, record by record")
        some = {key: _by_range(spans, self.scope.ranges[key]) for key, spans in looked.items()}
        source, destination = (self._records_of(side, some, shifts) for side in Side)
        with self._later([key for key in some if self.cleaned(key)], shifts) as later:
            found, broken = self._spark(
                lambda: record_differences(self.spark, source, destination, looked, later, digests=digests)
            )
        self._still_there(())
        for side, some_keys in broken.items():
            for key in some_keys:
                if (side, key) not in self._damaged:
                    where = f"{key.topic} partition {key.partition}"
                    raise self._broke(side, where, "its records were to be compared")
        if not self.request.committed:
            # With read_uncommitted, aborted data is copied as well. The source's cleaner removes it without a later
            # record of its key.
            for key, some_of_it in found.items():
                found[key] = [one._replace(excused=True) if one.at is Side.DESTINATION else one for one in some_of_it]
        return found

    def _known(self, key: TopicPartition, spans: Sequence[Span]) -> list[Span]:
        """Returns the parts of these spans that lie in the audited offsets or behind: a log may begin inside of a
        batch.
        """
        start = self.scope.bounds[key].audited.start
        return [Span(max(span.start, start), span.end) for span in spans if span.end > start]

    @contextmanager
    def _later(
        self, keys: Sequence[TopicPartition], shifts: Mapping[TopicPartition, int]
    ) -> Iterator[LaterRecords | None]:
        """Yields the first and last records of the keys in these compacted partitions; None if there is no partition.
        They are read once for all rounds, and kept, if no partition has a shift."""
        if not keys:
            yield None
            return
        if not any(shifts[key] for key in keys):
            if self._kept is None:
                self._kept = self._read_later([key for key in self._first if self.cleaned(key)], {})
            yield self._kept
            return
        later = self._read_later(keys, shifts)
        try:
            yield later
        finally:
            later.forget()

    def renew(self, keys: Collection[TopicPartition]) -> bool:
        """See ``Looks``."""
        if self._kept is None:
            return False
        ends = asyncio.run(self.scope.ends_now([*keys]))
        if all(end == self._kept_to[side].get(key) for side, some in ends.items() for key, end in some.items()):
            return False
        self.end()
        return True

    def _read_later(self, keys: Iterable[TopicPartition], shifts: Mapping[TopicPartition, int]) -> LaterRecords:
        keys = list(keys)
        # A cleaner may have removed an audited record because of one that was written behind the frozen end. So the
        # logs are read up to where they end now.
        ends = asyncio.run(self.scope.ends_now(keys))
        if not shifts:
            self._kept_to = ends
        source, destination = (
            self._records_of(
                side,
                {key: [Span(self._begin(side, key, shifts.get(key, 0)), _NO_END)] for key in keys},
                shifts,
                ends.get(side, {}),
            )
            for side in Side
        )
        limits = {
            key: Limits(
                self._reach(Side.DESTINATION, key, shifts.get(key, 0), ends.get(Side.DESTINATION, {})),
                # In partitions without a finding about damage, a place that cannot be read was damaged since, and may
                # hold any record. So no offset counts as one with a finding.
                self.scope.bounds[key].audited.start if key in self._told else _NO_END,
            )
            for key in keys
        }
        return self._spark(lambda: LaterRecords.read(self.spark, source, destination, limits))

    def _records_of(
        self,
        side: Side,
        spans: Mapping[TopicPartition, Sequence[Span]],
        shifts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> SourceOptions:
        """Returns the options to read these spans record by record, cut off at the ends of the side's logs. ``ends``:
        the current ends, to read up to these instead of the frozen ones."""
        known = []
        touching = set[tuple[TopicPartition, int]]()
        for key, some in spans.items():
            reach = self._reach(side, key, shifts.get(key, 0), ends)
            touching |= {(key, span.start) for before, span in pairwise(some) if before.end == span.start}
            known += [self._estimate(key, Span(start, max(start, min(end, reach)))) for start, end in some]

        def placed_at(where: Range) -> Range:
            # If two spans touch, a batch across their border is read with the first one only.
            first = where.first and (where.key, where.start) not in touching
            return where._replace(first=first, shift=shifts.get(where.key, 0))

        tasks = tuple(tuple(placed_at(where) for where in task) for task in plan(known, self.slots))
        return self._options(side, tasks, RECORDS)

    def _begin(self, side: Side, key: TopicPartition, shift: int) -> int:
        """Returns the log's start as a source offset: consumers also read what lies before the audited offsets. With
        ``offsets: mapped``, the destination starts where the map begins: it may still have copies of what the source
        has deleted."""
        if side is Side.DESTINATION and self.request.mapped:
            offsets = self.frozen.mapped[key].offsets
            return min([self.scope.bounds[key].audited.start, *(run.source for run in islice(offsets, 1))])
        return self.scope.log_start(side, key) - shift * (side is Side.DESTINATION)

    def _reach(self, side: Side, key: TopicPartition, shift: int, ends: Mapping[TopicPartition, int]) -> int:
        """Returns the source offset up to which the log is read: the later one of its frozen end and its end in
        ``ends``."""
        return max(self._end(side, key, shift), ends.get(key, 0) - shift * (side is Side.DESTINATION))

    def _end(self, side: Side, key: TopicPartition, shift: int) -> int:
        """Returns the frozen end of the log as a source offset. It may lie behind the audited offsets, as later records
        of a key may."""
        known = self.scope.bounds[key]
        if side is Side.SOURCE:
            return known.source.end
        return (known.audited.end if self.request.mapped else known.destination.end) - shift

    # -- elsewhere -----------------------------------------------------------------------------------------------------

    def in_source(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        """See ``Looks``. Without ``within``, the topics that differ are searched first, then all others for what was
        not found."""
        self.progress.stage("looking for them elsewhere")
        if within is not None:
            return self._locate(Side.SOURCE, digests, within)
        spans = {known.key: [known.source] for known in self.frozen.bounds}
        near = {key: span for key, span in spans.items() if key.topic in self._dirty}
        found = self._locate(Side.SOURCE, digests, near)
        known = {row.digest for _, row in found}
        left = [digest for digest in digests if digest not in known]
        far = {key: span for key, span in spans.items() if key not in near}
        return found + (self._locate(Side.SOURCE, left, far) if left and far else [])

    def in_destination(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        """See ``Looks``."""
        spans = {known.key: [known.destination] for known in self.frozen.bounds if known.topic in self._dirty}
        return self._locate(Side.DESTINATION, digests, spans if within is None else within)

    def _locate(self, side: Side, digests: Sequence[bytes], spans: Within) -> Located:
        some = (self._estimate(key, span) for key, several in spans.items() for span in several)
        tasks = tuple(plan(some, self.slots))
        located = self._spark(lambda: locate(self.spark, self._options(side, tasks, BATCHES), digests))
        self._still_there(())
        damaged = any((side, key) in self._damaged for key in spans)
        alike = f"of batches with the same payload, the first {MOST_ALIKE} in a partition only"
        reasons = ((not located.all, "there are too many"), (located.alike, alike), (damaged, "a log is damaged"))
        for why in (why for is_so, why in reasons if is_so):
            note = f"not every place was looked at where the {side.value} may have what differs: {why}"
            if note not in self.notes:
                self.notes.append(note)
        return located.places

    def _estimate(self, key: TopicPartition, span: Span) -> ReadingEstimate:
        """Returns an estimate for ``span``, in proportion to that of the audited offsets."""
        known = self.estimates[key]
        return ReadingEstimate(key, span, span.offsets * known.size // max(1, known.span.offsets))

    # -- Spark ---------------------------------------------------------------------------------------------------------

    def _options(self, side: Side, tasks: tuple[Task, ...], rows: str, units: str = WHOLE) -> SourceOptions:
        is_source = side is Side.SOURCE
        return SourceOptions(
            endpoint=self.request.source if is_source else self.request.destination,
            cluster_id=cluster_ids(self.frozen)[side],
            topic_ids=self.frozen.source_topic_ids if is_source else self.frozen.destination_topic_ids,
            digest=self.request.digest,
            tasks=tasks if is_source else placed(tasks, self.frozen.mapped),
            rows=rows,
            units=units,
            cleaned=self.frozen.compacted[side],
            old={} if is_source else {key: self._opens(key) for key in self.old.keys() & _partitions(tasks)},
            adopted={} if is_source else {key: self.adopted[key] for key in self.adopted.keys() & _partitions(tasks)},
            rules=Rules(
                side=side,
                committed=is_source and self.request.committed,
                strangers=self.request.fill == "transaction",
                mapped=self.request.mapped,
                append_times=self.request.append_times,
                flow_ids=() if is_source else self._flow_ids,
            ),
        )

    @cached_property
    def _flow_ids(self) -> tuple[int, ...]:
        return tuple(sorted(self.frozen.flow_ids))

    def _spark(self, action: Callable[[], Result]) -> Result:
        with jvm.failures_told(), watched(self.spark, self.progress):
            return action()


def _spans_of(broken: Iterable[Finding]) -> dict[tuple[Side, TopicPartition], list[Span]]:
    """Returns the offsets that cannot be read according to these findings, by side and partition."""
    found: dict[tuple[Side, TopicPartition], list[Span]] = defaultdict(list)
    for one in broken:
        for side, span in ((Side.SOURCE, one.source), (Side.DESTINATION, one.destination)):
            if span is not None and one.partition is not None:
                found[side, TopicPartition(one.topic, one.partition)].append(span)
    return found


def _without(pairs: Pairs, unread: Span) -> Pairs:
    """Returns the differences outside of these offsets, which one side could not read. Holes are cut."""

    def left(holes: Iterable[Hole]) -> list[Hole]:
        return [Hole(*span, hole.what) for hole in holes for span in less([Span(hole.start, hole.end)], [unread])]

    ours, theirs = (
        {base: row for base, row in rows.items() if not unread.start <= base < unread.end}
        for rows in (pairs.source, pairs.destination)
    )
    return Pairs(ours, theirs, left(pairs.holes), left(pairs.markers), left(pairs.odd), left(pairs.equal))


def _cut_where(where: Range, ranges: Sequence[Range]) -> list[Range]:
    """Cuts a range at the borders of these ranges. Damage ends the reading of a piece, and says nothing about the next
    piece."""
    borders = [where.start, *(one.start for one in ranges if where.start < one.start < where.end), where.end]
    return [
        where._replace(start=start, end=end, first=where.first and start == where.start)
        for start, end in pairwise(borders)
    ]


def _by_range(spans: Iterable[Span], ranges: Sequence[Range]) -> list[Span]:
    """Returns the offsets to read of a partition so that these spans (in order) are included: at most one run for each
    of its ranges, and none across their borders (see ``_cut_where``)."""
    borders = [Span(where.start, where.end) for where in ranges]
    found: dict[int, Span] = {}
    for span in spans:
        for part in [*clipped(span, borders), *less([span], borders)]:
            at = bisect_right(borders, part.start, key=attrgetter("start"))
            known = found.get(at, part)
            found[at] = Span(min(known.start, part.start), max(known.end, part.end))
    return sorted(found.values())


def _moved_by(shift: int, finding: Finding) -> Finding:
    """Returns the finding with its destination offsets increased by ``shift``."""
    there = finding.destination
    return replace(finding, destination=Span(there.start + shift, there.end + shift)) if there else finding


def _partitions(tasks: Iterable[Task]) -> set[TopicPartition]:
    return {wanted.key for task in tasks for wanted in task}
