"""Comparisons of which a part is read again: what stands, what goes, and both together. Pure."""

from typing import Any

from mirror.audit.model.differences import Pairs
from mirror.audit.model.places import OldRange, Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What
from mirror.audit.prepare.moving import besides, together, without
from mirror.audit.prepare.plan import Range
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.spark.compare import Compared

KEY, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def rows(*bases: int) -> dict[int, BatchRow]:
    return {base: BatchRow(base, base + 4, 5, 0, 0, 0, 100, True, b"") for base in bases}


def holes(*starts: int) -> list[Hole]:
    return [Hole(start, start + 2, What.GAP) for start in starts]


def compared(differing: dict[TopicPartition, Pairs], *borders: tuple[str, int, int, int]) -> Compared:
    """``borders``: the ranges that both sides have read."""
    return Compared(
        differing=differing, coverage={side: {each: RangeCoverage() for each in borders} for side in Side}, clusters={},
        batches={}, bytes={},
    )  # fmt: skip


def pairs(*bases: int, holes_too: bool = True) -> Pairs:
    """The same offsets of everything."""
    some: list[Any] = [holes(*bases) if holes_too else [] for _ in range(4)]
    return Pairs(rows(*bases), rows(*bases), *some)


RANGES = [("t", 0, 0, 20), ("t", 0, 20, 40), ("t", 1, 0, 40)]


def test_what_lies_before_a_border_goes() -> None:
    """Of the partitions that have one."""
    found = without(compared({KEY: pairs(0, 10, 20, 30), OTHER: pairs(0)}, *RANGES), {KEY: 20})
    assert found.differing == {KEY: pairs(20, 30), OTHER: pairs(0)}
    assert [list(read) for read in found.coverage.values()] == [RANGES[1:]] * 2
    assert without(compared({KEY: pairs(0)}, *RANGES), {KEY: 20}).differing == {}


def test_ranges_that_are_taken_out() -> None:
    """With all their rows, wherever these are; holes have no part in it."""
    before = compared({KEY: pairs(0, 15, 20, 35), OTHER: pairs(0)}, *RANGES)
    found = besides(before, [Range("t", 0, 20, 40, False, 5)])
    assert found.differing == {KEY: pairs(0, 15, holes_too=False), OTHER: pairs(0, holes_too=False)}
    assert [list(read) for read in found.coverage.values()] == [[RANGES[0], RANGES[2]]] * 2
    found = besides(before, [Range("t", 0, 0, 20, True, 5), Range("t", 0, 20, 40, False, 5)])
    assert found.differing == {OTHER: pairs(0, holes_too=False)}


def test_both_together_are_in_order() -> None:
    found = together(
        compared({KEY: pairs(20, 30)}, RANGES[1]), compared({KEY: pairs(0, 10), OTHER: pairs(5)}, RANGES[0], RANGES[2])
    )
    assert found.differing == {KEY: pairs(0, 10, 20, 30), OTHER: pairs(5)}
    assert [sorted(read) for read in found.coverage.values()] == [RANGES] * 2
    each = (
        found.differing[KEY].holes,
        found.differing[KEY].markers,
        found.differing[KEY].odd,
        found.differing[KEY].equal,
    )
    assert all(some == holes(0, 10, 20, 30) for some in each)


def test_where_the_copies_of_old_formats_are() -> None:
    """Ahead of the source by so much, where it is not known better; never before they begin."""
    assert OldRange(10, 20).there(0) == Span(10, 20)
    assert OldRange(10, 20).there(3, 100) == Span(13, 23)
    assert OldRange(10, 20, 115, 130).there(3, 100) == Span(15, 30)
    assert OldRange(10, 20, None, 105).there(3, 100) == Span(13, 13)
