"""Two logs in memory, and what an audit says of them: everything behind the first look, without brokers or Spark."""

import hashlib
import itertools
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from mirror.audit.judge.consequences import told_once
from mirror.audit.judge.kinds import joined
from mirror.audit.judge.rounds.differences import Differences
from mirror.audit.judge.rounds.looks import ChunkComparison, Located, Tails, Within
from mirror.audit.judge.rounds.regions import DifferingChunk, of_bounds, regions
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow
from mirror.audit.prepare.bounds import outside
from mirror.audit.prepare.plan import Range

KEY = TopicPartition("t", 0)
Batch = tuple[str, ...]
"""The records' names."""
Log = Sequence[Batch]


def plain(count: int, records: int = 1) -> list[Batch]:
    """So many batches, no two records alike."""
    return [tuple(f"{batch}.{record}" for record in range(records)) for batch in range(count)]


def _digest(names: Iterable[str]) -> bytes:
    return hashlib.sha256("\0".join(names).encode()).digest()[:16]


def units(log: Log, *, by_record: bool = False, start: int = 0) -> list[BatchRow]:
    """As a reader sees them, one behind the other."""
    found, base = [], start
    for batch in log:
        for names in [(name,) for name in batch] if by_record else [batch]:
            last = base + len(names) - 1
            found.append(BatchRow(base, last, len(names), 0, 0, 0, 100, True, _digest(names)))
            base = last + 1
    return found


def bytecodes_of(call: Callable[[], object]) -> int:
    """How many instructions of Python a call executes: its cost, the same on any machine."""
    count = 0

    def tracer(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@dataclass
class Logs:
    """``looks.Looks`` over a log on each side; ``others``: other partitions of the source. ``torn``: the sides whose
    log cannot be read behind the other one's end. ``said``: as of the last audit. Counts its work."""

    source: Log
    destination: Log
    width: int = 10
    others: Mapping[TopicPartition, Log] = field(default_factory=dict)
    cleaners: Set[Side] = frozenset()
    torn: Set[Side] = frozenset()
    said: Sequence[Span] = ()
    looked: int = 0
    rows_read: int = 0
    most_rows: int = 0
    passes: int = 0
    searched: int = 0
    searches: int = 0
    read_again: int = 0
    _units: dict[tuple[bool, bool], list[BatchRow]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for by_record in (False, True):
            for is_source, log in ((True, self.source), (False, self.destination)):
                self._units[is_source, by_record] = units(log, by_record=by_record)

    def _sides(self, where: Range, *, by_record: bool) -> tuple[list[BatchRow], list[BatchRow]]:
        first = where.first or by_record

        def own(rows: list[BatchRow], shift: int) -> list[BatchRow]:
            at = bisect_right(rows, where.start + shift, key=lambda row: row.last_offset + 1)
            if not (first and not by_record) and at < len(rows) and rows[at].base_offset < where.start + shift:
                at += 1
            end = bisect_left(rows, where.end + shift, key=lambda row: row.base_offset)
            if not shift:
                return rows[at:end]
            return [
                row._replace(base_offset=row.base_offset - shift, last_offset=row.last_offset - shift)
                for row in rows[at:end]
            ]

        known = self.bounds()
        assert where.end <= min(known.source.end, known.destination.end - where.shift), "read beyond a log's end"
        return own(self._units[True, by_record], 0), own(self._units[False, by_record], where.shift)

    def rows(self, ranges: Sequence[Range], *, by_record: bool) -> dict[TopicPartition, Pairs]:
        """What differs, row by row."""
        self.looked += 1
        found = Pairs()
        spans = sorted((where.start, where.end) for where in ranges)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans)), "ranges overlap"
        for where in ranges:
            ours, theirs = self._sides(where, by_record=by_record)
            here, there = ({row.base_offset: row for row in rows} for rows in (ours, theirs))
            equal = {base for base in here.keys() & there.keys() if here[base] == there[base]}
            found.source.update({base: row for base, row in here.items() if base not in equal})
            found.destination.update({base: row for base, row in there.items() if base not in equal})
        self.rows_read += len(found.rows)
        self.most_rows = max(self.most_rows, len(found.rows))
        return {KEY: found}

    def chunks(self, ranges: Sequence[Range], *, by_record: bool) -> list[ChunkComparison]:
        """By chunks."""
        self.passes += 1
        passed = []
        for where in ranges:
            sides = self._sides(where, by_record=by_record)
            folded: list[dict[int, list[BatchRow]]] = [{}, {}]
            for rows, chunks in zip(sides, folded, strict=True):
                for row in rows:
                    start = where.start + max(0, (row.base_offset - where.start) // where.width) * where.width
                    chunks.setdefault(start, []).append(row)
            ours, theirs = folded
            pairs = Pairs()
            for start in ours.keys() | theirs.keys():
                if ours.get(start) != theirs.get(start):
                    for chunks, into in ((ours, pairs.source), (theirs, pairs.destination)):
                        if start in chunks:
                            into[start] = BatchRow(
                                start, start + where.width - 1, len(chunks[start]), 0, 0, 0, 0, True, b""
                            )
            less = sum(row.records for row in pairs.source.values())
            passed.append(ChunkComparison(pairs, len(sides[0]) - less, True))
        return passed

    def in_source(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        """Everywhere, or there."""
        logs = {KEY: self._units[True, False], **{key: units(log) for key, log in self.others.items()}}
        return self._located(logs, digests, within)

    def in_destination(self, digests: Sequence[bytes], within: Within | None = None) -> Located:
        """Likewise."""
        return self._located({KEY: self._units[False, False]}, digests, within)

    def _located(
        self, logs: Mapping[TopicPartition, list[BatchRow]], digests: Sequence[bytes], within: Within | None
    ) -> Located:
        wanted = set(digests)
        self.searches += 1
        self.searched += len(digests)
        found: Located = []
        for key, rows in logs.items():
            for span in [Span(0, 1 << 62)] if within is None else within.get(key, ()):
                at = bisect_left(rows, span.start, key=lambda row: row.base_offset)
                end = bisect_left(rows, span.end, key=lambda row: row.base_offset)
                self.read_again += end - at
                found += [(key, row) for row in rows[at:end] if row.digest in wanted]
        return found

    def tails(self, side: Side, ranges: Sequence[Range], *, by_record: bool) -> Tails:
        """What one side has alone."""
        (where,) = ranges
        if side in self.torn:
            return Tails({}, set(), [self.damage(side)])
        shift = 0 if side is Side.SOURCE else where.shift
        rows = [
            row._replace(base_offset=row.base_offset - shift, last_offset=row.last_offset - shift)
            for row in self._units[side is Side.SOURCE, by_record]
            if where.start + shift <= row.base_offset < where.end + shift
        ]
        found = {row.base_offset: row for row in rows}
        return Tails({KEY: Pairs(found, {}) if side is Side.SOURCE else Pairs({}, found)}, {KEY})

    def damage(self, side: Side) -> Finding:
        """Of what one side has alone."""
        ends = {Side.SOURCE: self.bounds().source.end, Side.DESTINATION: self.bounds().destination.end}
        span = Span(min(ends.values()), ends[side])
        return Finding(
            kind=Kind.CORRUPT, topic="t", partition=0, source=span if side is Side.SOURCE else None,
            destination=None if side is Side.SOURCE else span, batches=0, records=0, detail="torn",
        )  # fmt: skip

    def borders(self, key: TopicPartition) -> Sequence[int]:
        """No old formats."""
        return ()

    def pin(self, key: TopicPartition, border: int, there: int | None) -> None:
        """Of no use."""
        raise AssertionError

    def size(self, where: Range) -> int:
        """A byte an offset."""
        return where.end - where.start

    def records(
        self, differing: Mapping[TopicPartition, Pairs], shifts: Mapping[TopicPartition, int], *, digests: bool
    ) -> dict[TopicPartition, list[RecordDifference]]:
        """Where a cleaner works, batches that differ have the same records: it has written them anew."""
        if self.cleaners:
            return {}
        shift = shifts[KEY]
        ours, theirs = (
            {row.base_offset - (0 if is_source else shift): row.digest for row in self._units[is_source, True]}
            for is_source in (True, False)
        )
        inside = {at for row in differing[KEY].rows for at in range(row.base_offset, row.last_offset + 1)}
        sides = {(True, False): Side.SOURCE, (False, True): Side.DESTINATION}
        return {
            KEY: [
                RecordDifference(
                    at,
                    sides.get((at in ours, at in theirs)),
                    excused=False,
                    size=1,
                    digests=(ours.get(at, b""), theirs.get(at, b"")) if digests else (b"", b""),
                )
                for at in sorted(inside)
                if ours.get(at) != theirs.get(at)
            ]
        }

    def renew(self, keys: Collection[TopicPartition]) -> bool:
        """Nobody writes."""
        return False

    def cleaned(self, key: TopicPartition) -> Set[Side]:
        """The sides with a cleaner."""
        return self.cleaners

    def bounds(self) -> Bounds:
        """Both logs begin at 0."""
        ends = [
            rows[-1].last_offset + 1 if (rows := self._units[is_source, False]) else 0 for is_source in (True, False)
        ]
        return Bounds(topic="t", partition=0, source=Span(0, ends[0]), destination=Span(0, ends[1]))

    def audit(self) -> list[Finding]:
        """As the job does it."""
        known = self.bounds()
        end = known.audited.end
        found: list[Finding] = []
        shift, ended = 0, set[TopicPartition]()
        if end:
            where = Range("t", 0, 0, end, True, self.width)
            (first,) = self.chunks([where], by_record=False)
            self.passes = 0
            chunks = [
                DifferingChunk(
                    where._replace(start=start, end=min(start + self.width, end), first=start == 0),
                    (first.differing.source.get(start) or first.differing.destination[start]).records,
                )
                for start in sorted({*first.differing.source, *first.differing.destination})
            ]
            looked = Differences(self, {KEY: known})
            seen = looked.run(regions(chunks, of_bounds(known)))
            found, shift = told_once(seen, known, ended=KEY in looked.ended)
            found, ended, self.said = [*found, *looked.broken], looked.ended, looked.said.get(KEY, ())
        return joined([*found, *outside(known, "a", "b", shift, ended=KEY in ended)])
