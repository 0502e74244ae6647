"""Handles logs whose beginning is deleted while they are read, by retention or DeleteRecords.

What is gone cannot be compared, so the audited offsets then begin later, on both sides. Ranges before the new start are
dropped. The range that contains it is read again from there, on both sides. What only the destination has deleted is
missing there. Pure, except for the methods of ``Scope`` that ask a cluster.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mirror.audit.errors import AuditError
from mirror.audit.judge.coverage import CoverageKey, key_of
from mirror.audit.judge.mapped import MappedPartition
from mirror.audit.judge.spans import overlapping
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.prepare.bounds import Frozen, cluster_options
from mirror.audit.prepare.offsets import EARLIEST, LATEST, list_offsets
from mirror.audit.prepare.patience import patiently
from mirror.audit.prepare.plan import Range
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.spark.compare import Compared
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.offsetmap.runs import OffsetMap

MOST_ROUNDS = 20
"""Maximum number of times in a row that moved log starts are followed. Each time, one range of each such partition is
read again."""

Starts = Mapping[TopicPartition, int]
"""The start of each log, in the log's own offsets."""


class LogsMoved(Exception):
    """Logs begin later now, so some of the differences can no longer be examined. ``starts``: the new log starts."""

    def __init__(self, starts: Mapping[Side, Starts]) -> None:
        super().__init__(starts)
        self.starts = starts


class Scope:
    """The bounds and ranges of each partition that are compared. They move whenever the beginning of a log is deleted.

    Attributes:
        frozen: the frozen values, with the bounds as they are now.
        ranges: the ranges of each partition, in order; together they are its audited offsets.
    """

    def __init__(self, frozen: Frozen, ranges: dict[TopicPartition, list[Range]], request: AuditRequest) -> None:
        self.frozen = frozen
        self.ranges = ranges
        self._request = request
        self._at_first = frozen
        self._frozen_first = {known.key: known for known in frozen.bounds}
        self._starts: dict[Side, dict[TopicPartition, int]] = {side: {} for side in Side}

    @property
    def bounds(self) -> dict[TopicPartition, Bounds]:
        """The bounds by partition, as they are now."""
        return {known.key: known for known in self.frozen.bounds}

    def begin_later(self, compared: Compared, starts: Mapping[Side, Starts]) -> tuple[Compared, list[Range]]:
        """Moves the bounds to these new log starts, which are in each log's own offsets. Returns the part of
        ``compared`` that remains valid, and the ranges to read again."""
        frozen = self.frozen
        there = starts.get(Side.DESTINATION, {})
        later = dict(starts.get(Side.SOURCE, {}))
        for key, start in self.at_source(there).items():
            later[key] = max(start, later.get(key, start))
        self.frozen = replace(
            frozen,
            bounds=tuple(_begun_later(known, later) for known in frozen.bounds),
            mapped={key: _read_later(place, there.get(key, 0)) for key, place in frozen.mapped.items()},
        )
        bounds = self.bounds
        again: list[Range] = []
        borders: dict[TopicPartition, int] = {}
        for key, start in later.items():
            kept, some = cut(self.ranges[key], start)
            self.ranges[key] = [*some, *kept]
            again += some
            borders[key] = kept[0].start if kept else bounds[key].audited.end
        for side, found in starts.items():
            self._starts[side].update(found)
        return without(compared, borders), again

    def at_source(self, starts: Starts) -> Starts:
        """Returns the destination's log starts as source offsets. They are the same, except with ``offsets: mapped``:
        then it is the offset after the last deleted copy, and a partition without a deleted copy is left out."""
        found = {}
        for key, start in starts.items():
            there = self.frozen.mapped.get(key)
            place = _behind_deleted(there.offsets, start) if there is not None else start
            if place is not None:
                found[key] = place
        return found

    async def check(self, looked: Iterable[Range]) -> None:
        """Checks that both logs still have the ranges that were examined.

        Raises:
            LogsMoved: a log has deleted a part of them.
            AuditError: a cluster does not answer.
        """
        first: dict[TopicPartition, int] = {}
        for wanted in looked:
            first[wanted.key] = min(wanted.start, first.get(wanted.key, wanted.start))
        later: dict[Side, dict[TopicPartition, int]] = {}
        for side in Side:
            starts = await self._starts_of(side, list(first))
            here = starts if side is Side.SOURCE else self.at_source(starts)
            # Only what was deleted since the bounds were frozen counts. What a side lacked before is a difference.
            later[side] = {
                key: starts[key]
                for key, start in here.items()
                if start > first[key] and starts[key] > self._start(side, key)
            }
        if any(later.values()):
            raise LogsMoved(later)

    def _start(self, side: Side, key: TopicPartition) -> int:
        """Returns the offset from which the log is read now, in its own offsets. The log began there or earlier when
        this bound was set."""
        known = self.bounds[key]
        there = self.frozen.mapped.get(key) if side is Side.DESTINATION else None
        return there.read.start if there else known.source.start if side is Side.SOURCE else known.destination.start

    def log_start(self, side: Side, key: TopicPartition) -> int:
        """Returns the offset, in the log's own offsets, at which the log of this side begins now, as far as is known.
        The audited offsets begin later if the other side has deleted more. At the source, it is never before the
        beginning of the copy (``BegunLater``)."""
        known = self._frozen_first[key]
        first = known.source.start if side is Side.SOURCE else known.destination.start
        return max(first, self._starts[side].get(key, first))

    async def ends_now(self, keys: Sequence[TopicPartition]) -> dict[Side, dict[TopicPartition, int]]:
        """Returns the current ends of these logs. With ``offsets: mapped``, only the source's.

        Raises:
            AuditError: a cluster does not answer.
        """
        sides = (Side.SOURCE,) if self._request.mapped else Side
        return {side: await self._asked(side, keys, LATEST) for side in sides}

    async def _starts_of(self, side: Side, keys: Sequence[TopicPartition]) -> Starts:
        return await self._asked(side, keys, EARLIEST)

    async def _asked(self, side: Side, keys: Sequence[TopicPartition], what: int) -> dict[TopicPartition, int]:
        endpoint = self._request.source if side is Side.SOURCE else self._request.destination
        there = {
            key: key if side is Side.SOURCE else TopicPartition(self._request.destination_of(key.topic), key.partition)
            for key in keys
        }

        async def ask() -> dict[TopicPartition, int]:
            async with await Cluster.open(endpoint.alias, cluster_options(endpoint)) as cluster:
                await cluster.refresh(sorted({key.topic for key in there.values()}))
                committed = side is Side.SOURCE and self._request.committed
                return await list_offsets(cluster, list(there.values()), what, committed=committed)

        try:
            offsets = await patiently(ask)
        except NetworkError as error:
            raise AuditError(
                f"cluster {endpoint.alias} cannot be asked where its logs {'begin' if what == EARLIEST else 'end'}: "
                f"{error}",
                "check that its brokers are up, then run the audit again",
            ) from error
        return {key: offsets[other] for key, other in there.items()}

    async def lost(self) -> list[Finding]:
        """Returns findings for the offsets that the destination has deleted since the bounds were frozen, and that the
        source still has. They were not compared, and that retention deleted them proves nothing. For offsets that both
        sides have deleted, there is only a note.

        Raises:
            AuditError: the source does not answer.
        """
        there = self._starts[Side.DESTINATION]
        if not there:
            return []
        left = await self._starts_of(Side.SOURCE, list(there))
        began = {known.key: known.audited for known in self._at_first.bounds}
        found = []
        for key, start in sorted(self.at_source(there).items()):
            lost = Span(max(began[key].start, left[key]), min(start, began[key].end))
            if lost.offsets:
                found.append(_lost(key, lost, self._request))
        return found

    @property
    def notes(self) -> list[str]:
        """A line for each log whose beginning was deleted during the audit."""
        began = {
            Side.SOURCE: {known.key: known.source.start for known in self._at_first.bounds},
            Side.DESTINATION: {known.key: known.destination.start for known in self._at_first.bounds}
            | {key: there.read.start for key, there in self._at_first.mapped.items()},
        }
        aliases = {Side.SOURCE: self._request.source.alias, Side.DESTINATION: self._request.destination.alias}
        return [
            f"{key.topic} partition {key.partition}: {aliases[side]} deleted offsets {began[side][key]} to {start - 1} "
            "while the audit ran; what follows was compared"
            for side, starts in self._starts.items()
            for key, start in sorted(starts.items())
        ]


def _lost(key: TopicPartition, span: Span, request: AuditRequest) -> Finding:
    return Finding(
        kind=Kind.MISSING, topic=key.topic, partition=key.partition, source=span, destination=None, batches=0,
        records=0,
        detail=f"{request.destination.alias} deleted them while the audit ran, before they were compared; "
        f"{request.source.alias} still has them",
    )  # fmt: skip


def _behind_deleted(offsets: OffsetMap, start: int) -> int | None:
    """Returns the source offset after the last copy that lies before ``start`` at the destination; None if no copy lies
    before it."""
    at = bisect_left(offsets, start, key=lambda run: run.destination)
    if not at:
        return None
    run = offsets[at - 1]
    return run.source + min(run.length, start - run.destination)


def _begun_later(known: Bounds, starts: Starts) -> Bounds:
    """Returns the bounds with both logs beginning at the partition's new start, or later if they already did."""
    start = starts.get(known.key)
    if start is None:
        return known
    ours, theirs = known.source, known.destination
    return replace(
        known,
        source=Span(max(ours.start, min(start, ours.end)), ours.end),
        destination=Span(max(theirs.start, min(start, theirs.end)), theirs.end),
    )


def _read_later(there: MappedPartition, start: int) -> MappedPartition:
    """Returns the partition with its copies read from ``start`` on, the new log start at the destination."""
    return there._replace(read=Span(max(there.read.start, min(start, there.read.end)), there.read.end))


def found_starts(read: Mapping[CoverageKey, RangeCoverage]) -> dict[TopicPartition, int]:
    """Returns the new log starts that readers found inside of their ranges, in the log's own offsets."""
    starts: dict[TopicPartition, int] = {}
    for (topic, partition, _, _), part in read.items():
        if part.log_start is not None:
            key = TopicPartition(topic, partition)
            starts[key] = max(part.log_start, starts.get(key, part.log_start))
    return starts


def cut(ranges: Sequence[Range], start: int) -> tuple[list[Range], list[Range]]:
    """Cuts a partition's ranges at its new start. Returns the ranges behind it, which remain as they are, and the range
    to read again from ``start`` on, including a batch that the log begins inside of."""
    again = [
        wanted._replace(start=max(start, wanted.start), first=True)
        for wanted in ranges if wanted.start <= start < wanted.end
    ]  # fmt: skip
    return [wanted for wanted in ranges if wanted.start > start], again


def without(compared: Compared, borders: Mapping[TopicPartition, int]) -> Compared:
    """Returns the comparison without everything that lies before these partitions' borders. Each border must be one
    between ranges. Other partitions remain unchanged."""

    def stands(key: TopicPartition, offset: int) -> bool:
        return offset >= borders.get(key, offset)

    differing = {}
    for key, pairs in compared.differing.items():
        left = Pairs(
            {base: row for base, row in pairs.source.items() if stands(key, base)},
            {base: row for base, row in pairs.destination.items() if stands(key, base)},
            *(
                [hole for hole in some if stands(key, hole.start)]
                for some in (pairs.holes, pairs.markers, pairs.odd, pairs.equal)
            ),
        )
        if left.starts:
            differing[key] = left
    coverage = {
        side: {
            (topic, partition, start, end): part
            for (topic, partition, start, end), part in read.items()
            if stands(TopicPartition(topic, partition), start)
        }
        for side, read in compared.coverage.items()
    }
    return replace(compared, differing=differing, coverage=coverage)


def besides(compared: Compared, ranges: Iterable[Range]) -> Compared:
    """Returns the comparison without these ranges, which must be complete ranges of it. Its rows must be chunks."""
    gone: dict[TopicPartition, list[Range]] = defaultdict(list)
    for wanted in sorted(ranges):
        gone[wanted.key].append(wanted)

    def stands(key: TopicPartition, base: int) -> bool:
        return next(overlapping(gone[key], Span(base, base + 1)), None) is None

    differing = {}
    for key, pairs in compared.differing.items():
        ours, theirs = (
            {base: row for base, row in rows.items() if stands(key, base)} for rows in (pairs.source, pairs.destination)
        )
        if ours or theirs:
            differing[key] = Pairs(ours, theirs)
    left = {key_of(wanted) for some in gone.values() for wanted in some}
    coverage = {
        side: {key: part for key, part in read.items() if key not in left} for side, read in compared.coverage.items()
    }
    return replace(compared, differing=differing, coverage=coverage)


def together(compared: Compared, again: Compared) -> Compared:
    """Merges two comparisons of ranges that do not overlap."""
    differing = dict(compared.differing)
    for key, pairs in again.differing.items():
        before = differing.get(key, Pairs())
        differing[key] = Pairs(
            before.source | pairs.source,
            before.destination | pairs.destination,
            sorted(before.holes + pairs.holes),
            sorted(before.markers + pairs.markers),
            sorted(before.odd + pairs.odd),
            sorted(before.equal + pairs.equal),
        )
    coverage = {side: read | again.coverage[side] for side, read in compared.coverage.items()}
    return replace(compared, differing=differing, coverage=coverage)
