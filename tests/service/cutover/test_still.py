"""Whether the source's ends stand still, by two looks."""

from mirror.service.cutover.still import ends_of, moved, unstable, written
from tests.service.cutover.worlds import row


def test_written() -> None:
    """Rates by the time in between; a partition that is new counts from its log start."""
    before = [row(0), row(1)]
    after = [row(0), row(1, end=14), row(2, end=9, source_start=3)]
    assert [each.told() for each in written(before, after, 2.0)] == [
        "orders-2: 6 records, 3.0 a second",
        "orders-1: 4 records, 2.0 a second",
    ]
    assert written(before, [row(0), row(1), row(2, end=0)], 1.0) == []


def test_unstable() -> None:
    assert unstable([row(0), row(1, source_stable=9)]) == [row(1, source_stable=9)]


def test_moved() -> None:
    """Partitions that grew, came and went, in the order of their numbers."""
    was, now = ends_of([row(2), row(10), row(3)]), ends_of([row(2, end=11), row(10), row(4)])
    assert moved(was, was) == []
    assert moved(was, now) == [
        "orders-2: from 10 to 11", "orders-3: from 10 to nothing", "orders-4: from nothing to 10",
    ]  # fmt: skip
