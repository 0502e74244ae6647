"""Holes against markers: what is overfilled, unfilled or foreign, and what is only moved with the batches around it."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.audit.judge.fills import with_fills
from mirror.audit.judge.kinds import Scene
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What
from tests.audit.judge.test_kinds import classify, row
from tests.audit.logs import bytecodes_of

KEY = TopicPartition("t", 0)
Told = tuple[Kind, Span | None, Span | None]


class Log:
    """A log written as text: a letter is a batch of two records, upper case due, lower case a hole of two (aborted
    data) at the source; | is a marker of one offset, ! a foreign one, . an offset without a batch.
    """

    def __init__(self, text: str, *, source: bool) -> None:
        self.rows: dict[int, BatchRow] = {}
        self.holes: list[Hole] = []
        self.odd: list[Hole] = []
        at = 0
        for letter in text:
            size = 2 if letter.isalpha() else 1
            if letter.isalpha() and (letter.isupper() or not source):
                self.rows[at] = row(at, letter, size)
            elif letter in "!." and not source:
                self.odd.append(Hole(at, at + 1, What.FOREIGN if letter == "!" else What.GAP))
            else:
                what = What.ABORTED if letter.isalpha() else What.GAP if letter == "." else What.CONTROL
                self.holes.append(Hole(at, at + size, what))
            at += size
        self.end = at


def told(source: str, destination: str, *cleaned: Side) -> list[Told]:
    """Findings, without the words."""
    return [(finding.kind, finding.source, finding.destination) for finding in findings(source, destination, *cleaned)]


def findings(source: str, destination: str, *cleaned: Side) -> list[Finding]:
    """As the job does it, all of the logs being looked at."""
    ours, theirs = Log(source, source=True), Log(destination, source=False)
    equal = {base for base, found in ours.rows.items() if theirs.rows.get(base) == found}
    from mirror.audit.judge.rounds.drill import by_content

    end = min(ours.end, theirs.end)
    return classify(
        Scene(
            key=KEY,
            audited=Span(0, end),
            source={base: found for base, found in ours.rows.items() if base not in equal and base < end},
            destination={base: found for base, found in theirs.rows.items() if base not in equal and base < end},
            in_source=by_content((KEY, found) for found in ours.rows.values()),
            in_tail=by_content((KEY, found) for base, found in theirs.rows.items() if base >= end),
            holes=clipped(ours.holes, end),
            markers=clipped(theirs.holes, end),
            odd=clipped(theirs.odd, end),
            looked=[Span(0, end)],
            cleaned=set(cleaned),
        )
    )


def clipped(holes: Sequence[Hole], end: int) -> list[Hole]:
    """As ranges clip them."""
    return [Hole(hole.start, min(hole.end, end), hole.what) for hole in holes if hole.start < end]


def test_filled_holes() -> None:
    assert told("Aa|B|C.D", "A|||B|C|D") == []


def test_one_marker_too_many_and_what_is_behind_it() -> None:
    assert told("A|B|C|D", "A||B|C|D") == [
        (Kind.OVERFILLED, None, Span(3, 4)),
        (Kind.MOVED, Span(3, 11), Span(4, 12)),
    ]


def test_a_marker_missing_and_what_is_behind_it() -> None:
    found = told("A|B|C|D", "AB|C|D")
    assert sorted(found, key=lambda entry: entry[0].value) == [
        (Kind.MOVED, Span(3, 11), Span(2, 10)),
        (Kind.UNFILLED, Span(2, 3), None),
    ]


def test_markers_that_touch_because_what_stood_between_is_lost() -> None:
    """Each is of its own hole: one stands in its place, the other has moved with what is behind it."""
    found = told("AB|C|D|E", "AB||D|E")
    assert sorted(found, key=lambda entry: entry[0].value) == [
        (Kind.MISSING, Span(5, 7), None),
        (Kind.MOVED, Span(8, 13), Span(6, 11)),
    ]


def test_a_marker_in_place_of_records() -> None:
    assert told("AB|C", "A|||C") == [
        (Kind.MISSING, Span(2, 4), None),
        (Kind.OVERFILLED, None, Span(2, 4)),
    ]


def test_aborted_data_that_was_copied() -> None:
    (found,) = findings("Aa|B", "Aa|B")
    assert (found.kind, found.destination) == (Kind.EXTRA, Span(2, 4))
    assert found.detail == "the source has aborted data here"


def test_a_foreign_marker() -> None:
    (found,) = findings("A|B", "A!B")
    assert (found.kind, found.destination) == (Kind.FOREIGN, Span(2, 3))
    assert found.detail == "a control batch that the mirror did not write"
    found = next(found for found in findings("ABC", "A!!C") if found.kind is Kind.FOREIGN)
    assert found.detail.endswith("where the source has a record")


def test_what_stands_in_a_hole_of_what_was_moved() -> None:
    """One offset was added in front, so that all behind it lies by +1: a foreign marker and copied aborted data are in
    the holes that the source has one offset before, not among its records."""
    foreign = next(found for found in findings("AB|CD", "A|B!CD") if found.kind is Kind.FOREIGN)
    assert (foreign.destination, foreign.detail) == (Span(5, 6), "a control batch that the mirror did not write")
    copied = next(found for found in findings("ABbCD", "A|BbCD") if found.kind is Kind.EXTRA)
    assert (copied.destination, copied.detail) == (Span(5, 7), "the source has aborted data here")
    among = next(found for found in findings("ABCDE", "A|BCzDE") if found.kind is Kind.EXTRA)
    assert (among.destination, among.detail) == (Span(7, 9), "")


def test_what_stands_in_a_hole_beside_a_changed_batch_that_was_moved() -> None:
    """The changed batch tells the shift as well as an equal one."""
    assert [(found.kind, found.detail) for found in findings("ABC|DE", "A|BZ!DE") if found.kind is Kind.FOREIGN] == [
        (Kind.FOREIGN, "a control batch that the mirror did not write")
    ]


def test_offsets_that_nothing_covers() -> None:
    assert told("A|B", "A.B") == [(Kind.UNFILLED, Span(2, 3), None)]
    assert told("ABC", "A..C") == [(Kind.MISSING, Span(2, 4), None)]


def test_what_log_cleaners_have_taken_since() -> None:
    assert told("A..B", "ACB") == [(Kind.EXTRA, None, Span(2, 4))]
    assert told("A|.B", "A|.B") == [(Kind.UNFILLED, Span(3, 4), None)]
    assert told("A|.B", "A|.B", Side.DESTINATION) == [(Kind.CLEANED, None, Span(3, 4))]
    assert told("ABC", "A..C", Side.DESTINATION) == [(Kind.MISSING, Span(2, 4), None)]


@pytest.mark.parametrize(("cleaned", "kind"), [(True, Kind.CLEANED), (False, Kind.UNFILLED)])
def test_a_gap_in_what_was_gathered_in_a_larger_batch(cleaned: bool, kind: Kind) -> None:
    """The source's cleaner took a batch, the destination's the same records out of the middle of a batch."""
    anew = Finding(
        kind=Kind.REENCODED, topic="t", partition=0, source=Span(0, 12), destination=Span(0, 12), batches=3, records=9,
        detail="",
    )  # fmt: skip
    found = with_fills(KEY, [Span(0, 12)], [Hole(3, 6, What.GAP)], [], [], [anew], cleaned=cleaned)
    assert [one.kind for one in found] == [Kind.REENCODED, kind]


def test_a_marker_at_the_very_beginning() -> None:
    assert told("A|B", "|A|B")[0] == (Kind.OVERFILLED, None, Span(0, 1))


def test_of_what_was_not_looked_at_nothing_is_said() -> None:
    scene = Scene(
        key=KEY, audited=Span(0, 100), source={}, destination={}, in_source={}, in_tail={},
        holes=[Hole(5, 9, What.CONTROL)], markers=[Hole(20, 30, What.CONTROL)], looked=[Span(7, 8), Span(22, 25)],
    )  # fmt: skip
    assert [(found.kind, found.source, found.destination) for found in classify(scene)] == [
        (Kind.UNFILLED, Span(7, 8), None),
        (Kind.OVERFILLED, None, Span(22, 25)),
    ]


def test_many_holes_cost_no_more_each_than_few() -> None:
    """Markers and holes that do not agree anywhere, as behind a lost record: four times as many take about four times
    as many steps (sixteen times, were each held against all others)."""

    def steps(count: int) -> int:
        scene = Scene(
            key=KEY, audited=Span(0, 10 * count), source={}, destination={}, in_source={}, in_tail={},
            holes=[Hole(10 * at, 10 * at + 2, What.CONTROL) for at in range(count)],
            markers=[Hole(10 * at + 5, 10 * at + 6, What.CONTROL) for at in range(count)],
            looked=[Span(100 * at, 100 * at + 100) for at in range(count // 10)],
        )  # fmt: skip
        found: list[Finding] = []
        taken = bytecodes_of(lambda: found.extend(classify(scene)))
        assert len(found) == 2 * count
        return taken

    few = steps(500)
    assert steps(2_000) < 5 * few


@given(st.data())
def test_any_log_with_filled_holes_is_silent_and_one_edit_is_heard(data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.sampled_from(["A", "a", "|", "."]), min_size=2, max_size=12))
    letters = iter("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    source = "".join(
        piece if piece in "|." else next(letters) if piece == "A" else next(letters).lower() for piece in pieces
    )
    copy = "".join("||" if letter.islower() else letter.replace(".", "|") for letter in source)
    assert told(source, copy) == []
    at = data.draw(st.integers(0, len(copy) - 1))
    inserted = copy[:at] + "|" + copy[at:]
    # Within a run of markers at the end nothing but the ends tell; those are compared before.
    if copy[at:].strip("|"):
        assert Kind.OVERFILLED in {kind for kind, _, _ in told(source, inserted)}
    if copy[at] == "|" and copy[at:].strip("|"):
        assert Kind.UNFILLED in {kind for kind, _, _ in told(source, copy[:at] + copy[at + 1 :])}


def test_aborted_data_where_the_source_has_a_record() -> None:
    """The destination was there before the flow. It fills holes as markers do, and has a name where it does not."""
    holes, there = [Hole(0, 2, What.CONTROL)], [Hole(0, 4, What.ABORTED), Hole(4, 5, What.CONTROL)]
    found = with_fills(KEY, [Span(0, 5)], holes, there, [], [])
    assert [(one.kind, one.destination, one.detail) for one in found] == [
        (Kind.OVERFILLED, Span(2, 4), "aborted data where the source has a record"),
        (Kind.OVERFILLED, Span(4, 5), "a marker where the source has a record"),
    ]
    assert with_fills(KEY, [Span(0, 5)], [Hole(0, 5, What.CONTROL)], there, [], []) == []
