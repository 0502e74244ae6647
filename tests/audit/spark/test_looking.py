"""The records that may excuse what a log cleaner changed are read once, and are not used for what has moved."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.prepare.plan import Range, ReadingEstimate
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.spark import looking as module
from mirror.audit.spark.by_record import LaterRecords
from mirror.audit.spark.looking import Looking
from mirror.audit.spark.progress import JobProgress

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Counting(Looking):
    """Reads nothing, and keeps what it was asked to read."""

    def __init__(self) -> None:
        scope = Mock()
        scope.frozen.compacted = {Side.SOURCE: {"t"}}
        super().__init__(Mock(), scope, (), Mock(), 1, JobProgress())
        self.read: list[tuple[list[TopicPartition], dict[TopicPartition, int]]] = []
        self.kept: list[Any] = []

    def _read_later(self, keys: Iterable[TopicPartition], shifts: Mapping[TopicPartition, int]) -> LaterRecords:
        self.read.append((list(keys), dict(shifts)))
        self.kept.append(Mock())
        one: LaterRecords = self.kept[-1]
        return one

    def looked(self, *keys: TopicPartition, shift: int = 0) -> Any:
        """One look at these, at that shift; what it got."""
        with self._later(keys, dict.fromkeys(keys, shift)) as later:
            assert later is not None
            assert not later.forget.called  # type: ignore[attr-defined]
        return later


def test_read_once_for_all_rounds() -> None:
    """
    1. All partitions that differ and are compacted, for every look.
    2. Begun anew, because a log's start has moved: read again, and what was read before is let go.
    """
    looking = Counting()
    looking.begin({KEY: 10, OTHER: 5, TopicPartition("plain", 0): 3})
    assert looking.looked(KEY) is looking.looked(KEY, OTHER)
    assert looking.read == [([KEY, OTHER], {})]
    looking.begin({KEY: 20})
    assert looking.kept[0].forget.called
    looking.looked(KEY)
    assert looking.read[1:] == [([KEY], {})]
    looking.end()
    assert looking.kept[1].forget.called


def test_read_to_where_the_logs_end_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A cleaner may have taken a record for one that was written behind the frozen end: each log is read up to where it
       ends by now, from where it begins, be it before the audited offsets.
    2. What the destination has by now is as much as a tombstone at the source can have been copied.
    3. Mutation: read to the frozen end.
    """
    spans: list[tuple[int, int]] = []
    copied: list[dict[TopicPartition, int]] = []

    def read(_: object, source: Any, destination: Any, ends: dict[TopicPartition, int]) -> None:
        spans.extend(_spans((source, destination)))
        copied.append(ends)

    monkeypatch.setattr(LaterRecords, "read", read)
    for now, reach in (({Side.SOURCE: {KEY: 150}, Side.DESTINATION: {KEY: 140}}, (150, 140)), ({}, (100, 90))):
        looking = Looking(
            request := Mock(), scope := Mock(), [ReadingEstimate(KEY, Span(10, 90), 80)], Mock(), 1, Mock()
        )
        request.mapped = False
        scope.bounds = {KEY: Bounds(topic="t", partition=0, source=Span(10, 100), destination=Span(5, 90))}
        scope.ends_now = AsyncMock(return_value=now)
        monkeypatch.setattr(looking, "_options", lambda side, tasks, rows: tasks)
        monkeypatch.setattr(looking, "_spark", lambda action: action())
        looking._read_later([KEY], {})
        assert spans == [(10, reach[0]), (5, reach[1])]
        assert copied.pop() == {KEY: reach[1]}
        spans.clear()


def _spans(sides: Iterable[Iterable[Sequence[Range]]]) -> list[tuple[int, int]]:
    ranges = [[where for task in tasks for where in task] for tasks in sides]
    return [(min(where.start for where in some), max(where.end for where in some)) for some in ranges]


def test_read_for_itself() -> None:
    """What has moved is not in what is kept: it is read, and let go behind the look."""
    looking = Counting()
    looking.begin({KEY: 10})
    kept = looking.looked(KEY)
    moved = looking.looked(KEY, shift=3)
    assert looking.read[1:] == [([KEY], {KEY: 3})]
    assert moved.forget.called
    assert not kept.forget.called
    assert looking.looked(KEY) is kept


READ = RangeCoverage(next_offset=40)


@pytest.mark.parametrize(
    ("part", "is_read", "damaged"),
    [
        (READ, True, None),
        (RangeCoverage(next_offset=40, log_start=35), False, None),
        (RangeCoverage(next_offset=33, broken="length"), False, Span(36, 43)),
        (RangeCoverage(next_offset=33, broken="nothing", unreadable=True), False, Span(36, 43)),
    ],
)
def test_a_tail_counts_if_it_was_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, part: RangeCoverage, is_read: bool, damaged: Span | None
) -> None:
    """A log that begins later by now, or is damaged there, has not said everything. Damage is told at the destination's
    own offsets: it has all of this 3 further. Each rule that is left out lets a lag pass for a copy."""
    coverage = {("t", 0, 30, 40): part, ("t", 1, 30, 40): READ}
    compared = Mock(differing={OTHER: Pairs()}, coverage={Side.DESTINATION: coverage})
    monkeypatch.setattr(module, "compare", lambda *_: compared)
    looking = Looking(Mock(), Mock(), (), Mock(), 1, Mock())
    looking.request.destination.alias = "east"  # type: ignore[misc]
    monkeypatch.setattr(looking, "_options", lambda *_: None)
    monkeypatch.setattr(looking, "_spark", lambda action: action())
    ranges = [Range(*key, 30, 40, False, 5, shift=3) for key in (KEY, OTHER)]
    found = looking.tails(Side.DESTINATION, ranges, by_record=False)
    assert found.read == ({KEY, OTHER} if is_read else {OTHER})
    kinds = {part.unreadable: Kind.UNREADABLE, not part.unreadable: Kind.CORRUPT}
    assert [(one.kind, one.partition, one.source, one.destination) for one in found.broken] == (
        [(kinds[True], 0, None, damaged)] if damaged else []
    )
