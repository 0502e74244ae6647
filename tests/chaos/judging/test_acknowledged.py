"""What was acknowledged and is not held is found: lost, doubled, at another place, in another order."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.judging import keeping
from chaos.judging.acknowledged import KEY_BYTES, Acknowledged, content, deletable, judge_skipped, surviving, unkept
from chaos.judging.keeping import suffix
from chaos.judging.reading import Reading
from chaos.play.sides import Name

NAME: Name = ("t", 0)


def told() -> Acknowledged:
    """Records 0, 2 and 3 of one partition; 1 was not acknowledged."""
    found = Acknowledged()
    for offset, one in ((0, b"a"), (3, b"d"), (2, b"c")):
        found.note(NAME, offset, one)
    return found


@pytest.mark.parametrize("halted", [True, False])
def test_a_partition_that_halted_is_judged_by_its_prefix(monkeypatch: pytest.MonkeyPatch, *, halted: bool) -> None:
    """Neither side is read to its end there: nothing was copied behind the halt. (`nemeses-transaction` ended
    with a KeyError where a marker was repeated.) What is copied to its end is missed if it is not there."""
    other: Name = ("u", 0)
    both = told()
    both.note(other, 0, b"of another partition")
    here: Reading = {NAME: {0: b"a", 2: b"c", 3: b"d"}}
    if not halted:
        here[other] = {}
    monkeypatch.setattr(keeping, "read_together", lambda *_, **__: (here, here))
    stage: Any = SimpleNamespace(
        outcome=SimpleNamespace(figures=[], problems=[]), scenario=SimpleNamespace(exact=True), survivors=[],
        streams=[SimpleNamespace(acknowledged=both)], pair=SimpleNamespace(sides=[]), trimmed=[], mirrors=[], gaps={},
        topics=[SimpleNamespace(name=name, writing="idempotent") for name in ("t", "u")],
    )  # fmt: skip
    keeping.keeping(stage, list(here))
    assert stage.outcome.problems == ([] if halted else ["the source itself: u-0 lacks 0", "acknowledged: u-0 lacks 0"])
    assert stage.outcome.figures == ["4 records acknowledged to the writers"]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({0: b"a", 1: b"b", 2: b"c", 3: b"d", 4: b"e"}, None),
        ({0: b"a", 2: b"c", 3: b"d"}, None),
        ({0: b"a", 1: b"b", 3: b"d"}, "t-0 lacks 2"),
        ({0: b"a", 1: b"c", 2: b"d"}, "t-0 lacks 2, 3"),
        ({}, "t-0 lacks 0, 2, 3"),
    ],
)
def test_at_the_same_offsets(held: dict[int, bytes], said: str | None) -> None:
    assert unkept(told(), {NAME: held}, exact=True) == ([said] if said else [])


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({5: b"a", 6: b"b", 8: b"c", 9: b"d"}, None),
        ({5: b"a", 8: b"c"}, "t-0 lacks what was acknowledged at 3"),
        ({5: b"a", 6: b"a", 8: b"c", 9: b"d"}, "t-0 holds more than once what was acknowledged at 0"),
        ({5: b"c", 8: b"a", 9: b"d"}, "t-0 holds what was acknowledged in another order"),
    ],
)
def test_at_offsets_of_their_own(held: dict[int, bytes], said: str | None) -> None:
    assert unkept(told(), {NAME: held}, exact=False) == ([said] if said else [])


def test_what_the_source_itself_holds_twice() -> None:
    """A producer wrote it there twice: so often the copy has it, and no more often."""
    source = {NAME: {0: b"a", 2: b"c", 3: b"d", 4: b"a"}}
    twice = {NAME: {5: b"a", 8: b"c", 9: b"d", 10: b"a"}}
    thrice = {NAME: {**twice[NAME], 11: b"a"}}
    assert unkept(told(), twice, exact=False, source=source) == []
    assert unkept(told(), thrice, exact=False, source=source) == ["t-0 holds more than once what was acknowledged at 0"]


def test_what_may_have_been_deleted() -> None:
    assert unkept(told(), {NAME: {3: b"d"}}, exact=True, starts={NAME: 3}) == []
    assert unkept(told(), {NAME: {2: b"c"}}, exact=True, starts={NAME: 2}) == ["t-0 lacks 3"]


@pytest.mark.parametrize(
    ("held", "wrong"), [(b"abc", False), (b"abcd", False), (b"ab", True), (b"acb", True), (b"abbc", True)]
)
def test_all_of_a_partition_in_its_order(held: bytes, wrong: bool) -> None:
    """More may come: a transaction that was committed, and nobody was told."""
    found = Acknowledged(ordered={NAME: [b"a", b"b", b"c"]})
    there: Reading = {NAME: {2 * at: bytes((one,)) for at, one in enumerate(held)}}
    for exact in (True, False):
        assert bool(unkept(found, there, exact=exact)) is wrong


def test_many_writers_and_a_silent_one() -> None:
    found = told()
    found.add(Acknowledged(ordered={("u", 0): [b"x"]}, deaf={"console"}))
    found.add(Acknowledged(placed={NAME: {9: b"z"}}))
    assert found.count == 5
    assert found.silent(["t", "u", "console", "v"]) == ["v"]


def test_content_is_what_the_producer_knows() -> None:
    headers = (("n", b"1"), ("empty", None))
    assert content(b"k", None, headers) == content(b"k", None, list(headers))
    assert content(None, b"v", None) == content(None, b"v", ())
    assert len({content(b"k", b"v", None), content(None, b"v", None), content(b"k", None, None)}) == 3


def test_what_the_source_has_left_is_the_end_of_the_copy() -> None:
    here: Reading = {NAME: {7: b"c", 8: b"d"}, ("u", 0): {0: b"x"}}
    there: Reading = {NAME: {1: b"a", 2: b"b", 4: b"c", 5: b"d"}, ("u", 0): {0: b"w", 1: b"x"}}
    assert suffix(here, there, [NAME]) == {NAME: {4: b"c", 5: b"d"}, ("u", 0): {0: b"w", 1: b"x"}}
    assert suffix({NAME: {}}, there, [NAME])[NAME] == {}
    assert suffix({NAME: {7: b"c", 8: b"d"}}, {NAME: {5: b"d"}}, [NAME]) == {NAME: {5: b"d"}}


DUE = {0: b"a", 1: b"b", 2: b"c", 3: b"d"}


@pytest.mark.parametrize(
    ("ranges", "gap", "held", "said"),
    [
        ([(1, 3)], (1, 3), {0: b"a", 3: b"d"}, None),
        ([(1, 2), (2, 3)], (0, 3), {0: b"a", 3: b"d"}, None),  # in two pieces
        ([(1, 3), (1, 3)], (1, 3), {0: b"a", 3: b"d"}, None),  # by two mirrors
        ([(1, 4)], (1, 3), {0: b"a"}, "t-0 tells of 3 as skipped, which the source had not deleted"),
        ([(1, 2)], None, {0: b"a", 2: b"c"}, "t-0 tells of 1 as skipped, which the source had not deleted"),
        ([(1, 3)], (1, 3), {0: b"a", 2: b"c", 3: b"d"}, "t-0 tells of 2 as skipped, which it has copied"),
    ],
)
def test_what_is_told_as_skipped(
    ranges: list[tuple[int, int]], gap: tuple[int, int] | None, held: dict[int, bytes], said: str | None
) -> None:
    for exact, there in ((True, held), (False, {7 * at: one for at, one in held.items()})):
        assert judge_skipped(NAME, ranges, gap, DUE, there, exact=exact) == ([said] if said else [])


def keyed(text: str) -> dict[int, bytes]:
    """``a1 .. b2``: a record of key a and one of key b, two offsets later."""
    ones = enumerate(text.split())
    return {at: one[0].encode() * KEY_BYTES + one.encode() for at, one in ones if one != "."}


@pytest.mark.parametrize(
    ("here", "there", "wrong"),
    [
        ("a1 b1 a2 b2", "a1 b1 a2 b2", ""),
        (". . a2 b2", "a1 . a2 b2", ""),
        ("a1 b1 a2 b2", ". . a2 b2", ""),
        (". . a2 b2 a3", "a1 . a2 b2 a3", ""),  # nobody was told that a3 was stored
        (". . a2 b2", ". . a2", "the destination lacks what survives of a key at 3"),
        (". . a2 b2", ". . . a2 b2", "the destination lacks what survives of a key at 2, 3"),
        (". . a2", ". . a2", "the source itself lacks what was acknowledged last of a key at 3"),
        (". . a2 b2", "c1 . a2 b2", "the destination holds something else at 0"),
    ],
)
def test_what_survives_compaction(here: str, there: str, wrong: str) -> None:
    said = surviving(keyed("a1 b1 a2 b2"), keyed(here), keyed(there), exact=True)
    assert said[0] == wrong if wrong else not said


def test_what_survives_compaction_at_offsets_of_its_own() -> None:
    due = keyed("a1 b1 a2 b2")
    assert surviving(due, due, keyed(". a1 . a2 b2"), exact=False) == []
    assert surviving(due, due, keyed(". a1 b2"), exact=False) == ["the destination lacks what survives of a key at 2"]
    assert surviving(due, due, keyed("c1 a2 b2"), exact=False) == [
        "the destination holds 1 keys that the source has not"
    ]


def test_brokers_go_on_deleting_for_a_while() -> None:
    assert deletable(None, 9) is None
    assert deletable((2, 5), 0) == (2, 5)
    assert deletable((2, 5), 9) == (2, 9)
