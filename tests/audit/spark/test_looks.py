"""What a closer look reads and counts, and that the logs still have all that was looked at."""

from collections.abc import Sequence
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from mirror.audit.model.differences import Pairs
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.prepare.plan import Range, ReadingEstimate
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.spark import looking as module
from mirror.audit.spark.looking import Looking
from mirror.audit.spark.options import BATCHES, CHUNKS, OPENED, WHOLE
from mirror.audit.spark.progress import JobProgress
from tests.audit.spark.test_looking import KEY, OTHER, row

Asked = list[tuple[list[Range], str, str]]


@pytest.fixture
def asked() -> Asked:
    """What is read: ranges, rows and units."""
    return []


@pytest.fixture
def differing() -> dict[TopicPartition, Pairs]:
    """What differs."""
    return {}


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch, asked: Asked, differing: dict[TopicPartition, Pairs]) -> Looking:
    """Of two partitions, in which five rows of each piece are read."""
    scope = Mock(ranges={key: [Range(*key, 0, 100, True, 5)] for key in (KEY, OTHER)}, check=AsyncMock())
    estimates = [ReadingEstimate(key, Span(0, 100), 100) for key in (KEY, OTHER)]
    found = Looking(Mock(), scope, estimates, Mock(), 1, JobProgress())

    def compare(tasks: Sequence[Sequence[Range]], rows: str, units: str = WHOLE) -> Any:
        ranges = [where for task in tasks for where in task]
        asked.append((ranges, rows, units))
        parts = {(*one.key, one.start, one.end): RangeCoverage(rows=5, next_offset=one.end) for one in ranges}
        return Mock(differing=differing, coverage=dict.fromkeys(Side, parts))

    monkeypatch.setattr(found, "compare", compare)
    return found


def where(start: int, end: int, key: TopicPartition = KEY, *, first: bool = False, shift: int = 0) -> Range:
    return Range(*key, start, end, first, 5, shift=shift)


def test_all_that_was_looked_at_must_still_be_there(looking: Looking) -> None:
    """
    1. Each look asks where the logs begin by now, of all partitions, and of the first offset that was looked at.
    2. A new start of the comparison forgets that: what lies before is not compared any more.
    3. Mutations: the last offset, or the last look, counts; nobody asks.
    """

    def checked() -> dict[TopicPartition, int]:
        (ranges,) = looking.scope.check.await_args.args  # type: ignore[attr-defined]
        return {one.key: one.start for one in ranges}

    looking.begin({KEY: 0, OTHER: 0})
    looking.rows([where(40, 60)], by_record=False)
    assert checked() == {KEY: 40}
    looking.chunks([where(20, 30), where(50, 60, OTHER)], by_record=False)
    assert checked() == {KEY: 20, OTHER: 50}
    looking.rows([where(70, 80)], by_record=True)
    assert checked() == {KEY: 20, OTHER: 50}
    assert looking.scope.check.await_count == 3  # type: ignore[attr-defined]
    looking.begin({KEY: 30})
    looking.rows([where(70, 80)], by_record=False)
    assert checked() == {KEY: 70}


def test_batches_are_opened_where_records_are_compared(looking: Looking, asked: Asked) -> None:
    for by_record, units in ((False, WHOLE), (True, OPENED)):
        looking.rows([where(20, 30)], by_record=by_record)
        looking.chunks([where(20, 30)], by_record=by_record)
        assert [one[1:] for one in asked] == [(BATCHES, units), (CHUNKS, units)]
        asked.clear()


def test_ranges_are_compared_by_chunks_in_pieces(
    monkeypatch: pytest.MonkeyPatch, looking: Looking, asked: Asked, differing: dict[TopicPartition, Pairs]
) -> None:
    """
    1. Each range is cut into pieces, by its size: their chunks are as wide, and at the same shift, and only the first
       piece of a range that is the first one has what begins before it.
    2. The batches are those of the source's chunks that are equal, in both pieces. A range of which one side could not
       be read to the end is not whole.
    """
    monkeypatch.setattr(
        module, "cut", lambda size, most: [(where(*span, size.key, first=at == 0), 0) for at, span in _halves(size)]
    )
    differing[KEY] = Pairs({20: row(20)._replace(records=3)})
    ranges = [where(20, 40, first=True, shift=7)._replace(width=4), where(50, 70, OTHER)]
    found = looking.chunks(ranges, by_record=False)
    assert sorted(asked[0][0]) == [
        where(20, 30, first=True, shift=7)._replace(width=4), where(30, 40, shift=7)._replace(width=4),
        where(50, 60, OTHER), where(60, 70, OTHER),
    ]  # fmt: skip
    assert [(one.batches, one.whole, [*one.differing.source]) for one in found] == [(7, True, [20]), (10, True, [])]
    for side in Side:
        parts = {each: {(*KEY, 20, 30): RangeCoverage(rows=5, next_offset=30)} for each in Side}
        parts[side] = {(*KEY, 20, 30): RangeCoverage(rows=5, next_offset=25, broken="torn")}
        monkeypatch.setattr(looking, "compare", lambda *_, parts=parts: Mock(differing={}, coverage=parts))
        monkeypatch.setattr(module, "cut", lambda size, most: [(where(*size.span), 0)])
        (part,) = looking.chunks([where(20, 30)], by_record=False)
        assert not part.whole


def _halves(size: ReadingEstimate) -> list[tuple[int, Span]]:
    middle = (size.span.start + size.span.end) // 2
    return [(0, Span(size.span.start, middle)), (1, Span(middle, size.span.end))]


def test_a_border_is_where_it_was_pinned(looking: Looking) -> None:
    """Until it is pinned elsewhere, or not any more; and a new start of the comparison forgets it."""
    looking.old = {KEY: [Span(10, 20)]}
    assert looking.borders(KEY) == [10, 20]
    assert looking.borders(OTHER) == []
    looking.pin(KEY, 10, 13)
    looking.pin(KEY, 20, 24)
    looking.pin(KEY, 20, None)
    assert looking._opens(KEY) == [(10, 20, 13, None)]
    looking.begin({KEY: 0})
    assert looking._opens(KEY) == [(10, 20, None, None)]
