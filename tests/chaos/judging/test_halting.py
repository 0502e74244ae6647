"""What was copied of a partition that halted is the source's up to the halt: everything else is seen."""

import pytest

from chaos.judging.halting import Halting, judge, judge_order

NAME = ("t", 0)
SOURCE = {0: b"a", 1: b"b", 3: b"c", 4: b"d"}
RIGHT = Halting(reason="corrupt", ends=(4, 4))


@pytest.mark.parametrize(
    ("there", "end", "right"),
    [
        ({0: b"a", 1: b"b", 3: b"c"}, 4, True),
        ({}, 0, False),  # nothing was ever copied
        ({}, 4, False),  # as long as it should be, and empty
        ({0: b"x", 1: b"y", 3: b"z"}, 4, False),  # somebody else's
        ({0: b"a", 1: b"b"}, 3, False),  # halted too early
        ({0: b"a", 1: b"b", 3: b"c", 4: b"d"}, 5, False),  # went on beyond the halt
        ({0: b"a", 1: b"b", 2: b"x", 3: b"c"}, 4, False),  # one too many
        ({0: b"a", 3: b"c"}, 4, False),
    ],
)
def test_every_damage_is_seen(there: dict[int, bytes], end: int, right: bool) -> None:
    assert (judge(NAME, RIGHT, SOURCE, there, end) == []) is right


def test_what_the_act_wrote_behind_the_copy_is_no_part_of_it() -> None:
    halting = Halting(reason="foreign_writer", ends=(4, 4), strangers=2)
    assert judge(NAME, halting, SOURCE, {0: b"a", 1: b"b", 3: b"c", 4: b"x", 5: b"y"}, 6) == []
    assert judge(NAME, halting, SOURCE, {0: b"a", 1: b"b", 3: b"c", 4: b"x", 5: b"y", 6: b"d"}, 7)


@pytest.mark.parametrize(
    ("behind", "end", "right"),
    [
        ({}, 6, True),
        ({6: b"d"}, 7, True),
        ({6: b"d", 7: b"e"}, 8, True),
        ({6: b"d", 7: b"e", 8: b"f"}, 9, False),  # too much of it
        ({6: b"e"}, 7, False),
        ({6: b"x"}, 7, False),
    ],
)
def test_what_was_under_way_stands_behind_the_strangers(behind: dict[int, bytes], end: int, right: bool) -> None:
    """It is the source's next, and no more than may be under way."""
    halting = Halting(reason="foreign_writer", ends=(4, 4), strangers=2, under_way=2)
    here = SOURCE | {5: b"e", 6: b"f"}
    there = {0: b"a", 1: b"b", 3: b"c", 4: b"x", 5: b"y"} | behind
    assert (judge(NAME, halting, here, there, end) == []) is right


def test_a_source_that_is_not_known_compares_nothing() -> None:
    assert judge(NAME, RIGHT, {}, {}, 4) == ["t-0 halted, and nothing of the source was known to compare it with"]


def test_nothing_was_to_be_copied() -> None:
    assert judge(NAME, Halting(reason="destination_rewrites", ends=(0, 0)), SOURCE, {}, 0) == []


@pytest.mark.parametrize(
    ("behind", "end", "right"),
    [
        ({}, 5, True),
        ({4: b"d"}, 5, False),  # a record in the marker's place
        ({5: b"d"}, 6, False),  # moved by one
        ({}, 6, False),  # more than one marker
    ],
)
def test_what_consumers_are_not_given_behind_the_copy(behind: dict[int, bytes], end: int, right: bool) -> None:
    """Of markers, nothing is seen: whatever a consumer gets there is no part of the copy."""
    halting = Halting(reason="overfilled", ends=(4, 4), strangers=1, unseen=True)
    there = {0: b"a", 1: b"b", 3: b"c"} | behind
    assert (judge(NAME, halting, SOURCE, there, end) == []) is right


@pytest.mark.parametrize(
    ("there", "right"),
    [
        ({7: b"a", 9: b"b"}, True),
        ({0: b"a", 1: b"b", 2: b"c"}, True),
        ({0: b"a"}, False),  # less than had been copied
        ({}, False),
        ({0: b"a", 1: b"c"}, False),  # lacks one in the middle
        ({0: b"b", 1: b"a"}, False),  # in another order
        ({0: b"a", 1: b"a"}, False),  # one twice
        ({0: b"a", 1: b"b", 2: b"c", 3: b"d"}, False),  # went on beyond the halt
        ({0: b"a", 1: b"b", 2: b"x"}, False),  # another topic's behind it
    ],
)
def test_a_copy_at_offsets_of_its_own_is_the_sources_beginning(there: dict[int, bytes], right: bool) -> None:
    halting = Halting(reason="recreated", ends=(2, 3))
    assert (judge_order(NAME, halting, {0: b"a", 4: b"b", 5: b"c", 6: b"d"}, there) == []) is right
