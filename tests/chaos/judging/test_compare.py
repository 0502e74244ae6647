"""The comparison finds what it is there to find: each kind of damage, and nothing in copies."""

import pytest

from chaos.judging.compare import Comparison, compare, compare_ends, compare_order
from chaos.judging.reading import Reading
from chaos.play.sides import Name

NAME: Name = ("t", 0)
SOURCE: Reading = {NAME: {0: b"a", 1: b"b", 3: b"c", 4: b"d"}}


def counts(found: Comparison) -> tuple[int, int, int]:
    return found.lost, found.doubled, found.misplaced


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({0: b"a", 1: b"b", 3: b"c", 4: b"d"}, (0, 0, 0)),
        ({0: b"a", 1: b"b", 3: b"c"}, (1, 0, 0)),
        ({}, (4, 0, 0)),
        ({0: b"a", 1: b"b", 3: b"c", 4: b"d", 5: b"d"}, (0, 1, 0)),
        ({0: b"a", 1: b"b", 2: b"c", 3: b"d"}, (0, 0, 2)),
        ({0: b"a", 1: b"b", 2: b"x", 3: b"c", 4: b"d"}, (0, 0, 1)),  # an aborted record that came along
        ({0: b"a", 1: b"x", 3: b"c", 4: b"d"}, (1, 0, 1)),  # changed: one is lost, one is not of the source
    ],
)
def test_every_damage_is_counted(there: dict[int, bytes], expected: tuple[int, int, int]) -> None:
    found = compare(SOURCE, {NAME: there})
    assert counts(found) == expected
    assert found.identical is (expected == (0, 0, 0))
    assert bool(found.examples) is not found.identical
    assert found.records == 4


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ([b"a", b"b", b"c", b"d"], (0, 0, 0)),
        ([b"a", b"c", b"d"], (1, 0, 0)),
        ([b"a", b"b", b"b", b"c", b"d"], (0, 1, 0)),
        ([b"b", b"a", b"c", b"d"], (0, 0, 2)),
        ([b"a", b"b", b"x", b"c", b"d"], (0, 0, 1)),
    ],
)
def test_order_without_offsets(there: list[bytes], expected: tuple[int, int, int]) -> None:
    found = compare_order(SOURCE, {NAME: dict(enumerate(there, start=100))})
    assert counts(found) == expected
    assert bool(found.examples) is not found.identical


def test_a_partition_that_is_not_there_is_lost() -> None:
    assert counts(compare(SOURCE, {})) == (4, 0, 0)


def test_sums() -> None:
    total = Comparison()
    total.add(compare(SOURCE, {NAME: {}}))
    total.add(compare(SOURCE, SOURCE))
    assert (total.records, total.lost) == (8, 4)


def test_ends() -> None:
    assert compare_ends("the end", [NAME], {NAME: 5}, {NAME: 5}) == []
    assert compare_ends("the end", [NAME], {NAME: 5}, {}) == [
        "the end of t-0 is 5 at the source and None at the destination"
    ]


def test_an_end_that_nobody_told_is_no_equal_end() -> None:
    for there in ({}, {NAME: 5}):
        (problem,) = compare_ends("the end", [NAME], {}, there)
        assert problem.startswith("the end of t-0 is None at the source")
