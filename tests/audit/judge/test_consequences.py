"""A fault and what follows from it are one finding; what does not follow from it is another."""

from dataclasses import replace

import pytest

from mirror.audit.judge.consequences import told_once
from mirror.audit.judge.coverage import EXCUSED
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Span
from mirror.audit.model.rows import Hole, What
from tests.audit.logs import bytecodes_of

EQUAL = Bounds(topic="t", partition=0, source=Span(0, 100), destination=Span(0, 100))
SHORT = Bounds(topic="t", partition=0, source=Span(0, 100), destination=Span(0, 95))
LONG = Bounds(topic="t", partition=0, source=Span(0, 100), destination=Span(0, 105))
BEHIND = "all behind it lies by {} offsets, source offsets {} to {}"


def finding(kind: Kind, source: Span | None, destination: Span | None, detail: str = "") -> Finding:
    """Of one batch."""
    return Finding(
        kind=kind, topic="t", partition=0, source=source, destination=destination, batches=1, records=5, detail=detail
    )


def moved(start: int, end: int, by: int) -> Finding:
    """A run."""
    return finding(Kind.MOVED, Span(start, end), Span(start + by, end + by), f"by {by:+,} offsets")


@pytest.mark.parametrize("kind", [Kind.MISSING, Kind.UNFILLED])
def test_what_was_lost(kind: Kind) -> None:
    lost = finding(kind, Span(10, 15), None)
    found, shift = told_once([lost, moved(15, 100, -5)], SHORT)
    assert [(one.kind, one.detail) for one in found] == [(kind, BEHIND.format("-5", 15, 99))]
    assert shift == -5


@pytest.mark.parametrize("kind", [Kind.EXTRA, Kind.DUPLICATE, Kind.MISROUTED, Kind.OVERFILLED, Kind.FOREIGN])
def test_what_was_added(kind: Kind) -> None:
    ours = Span(5, 10) if kind is Kind.DUPLICATE else None
    found, shift = told_once([finding(kind, ours, Span(10, 15)), moved(10, 100, 5)], LONG)
    assert [(one.kind, one.detail) for one in found] == [(kind, BEHIND.format("+5", 10, 99))]
    assert shift == 5


def test_what_is_not_explained_stays() -> None:
    """Of other lengths; behind a value that changed; a record where the source has a hole, which adds nothing."""
    for cause in (
        finding(Kind.MISSING, Span(10, 14), None),
        finding(Kind.VALUE_CHANGED, Span(10, 15), Span(10, 15)),
        finding(Kind.EXTRA, None, Span(10, 15), "the source has aborted data here"),
    ):
        found, _ = told_once([cause, moved(15, 50, -5)], EQUAL)
        assert [one.kind for one in found] == [cause.kind, Kind.MOVED] or [one.kind for one in found] == [
            Kind.MOVED, cause.kind,
        ]  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind in EXCUSED])
def test_what_has_a_cause_moves_nothing(kind: Kind) -> None:
    """A partition of which anything has moved does not pass, whatever log cleaners or the mirror itself explain there:
    at a shift, not all is read that could forbid an excuse. Mutation: they explain the shift as well."""
    for lost, added in ((Span(10, 15), None), (None, Span(10, 15))):
        by = 5 if added else -5
        found, _ = told_once(
            [finding(kind, lost, added), moved(10 if added else 15, 100, by)], LONG if added else SHORT
        )
        assert Kind.MOVED in {one.kind for one in found}


def test_one_fault_undoes_another() -> None:
    found, shift = told_once(
        [finding(Kind.MISSING, Span(10, 15), None), moved(15, 60, -5), finding(Kind.EXTRA, None, Span(55, 60))], EQUAL
    )
    assert [(one.kind, one.detail) for one in found] == [(Kind.MISSING, BEHIND.format("-5", 15, 59)), (Kind.EXTRA, "")]
    assert shift == 0


def test_faults_in_what_was_moved_do_not_hide_what_moved_it() -> None:
    lost, changed = finding(Kind.MISSING, Span(10, 15), None), finding(Kind.VALUE_CHANGED, Span(40, 45), Span(35, 40))
    found, _ = told_once([lost, moved(15, 40, -5), changed, moved(45, 100, -5)], SHORT)
    assert [(one.kind, one.detail) for one in found] == [
        (Kind.MISSING, BEHIND.format("-5", 15, 99)), (Kind.VALUE_CHANGED, ""),
    ]  # fmt: skip


def test_what_was_lost_before_and_behind_a_hole() -> None:
    """It is one finding, of which the hole's offsets were not lost: or they were, and are a finding of their own."""
    some = [finding(Kind.MISSING, Span(10, 15), None), finding(Kind.MISSING, Span(20, 25), None)]
    hole = Hole(15, 20, What.CONTROL)
    found, _ = told_once([*some, moved(25, 100, -10)], SHORT, [hole])
    assert [(one.source, one.detail) for one in found] == [(Span(10, 25), BEHIND.format("-10", 25, 99))]
    unfilled = finding(Kind.UNFILLED, Span(15, 20), None)
    found, _ = told_once([*some, unfilled, moved(25, 100, -15)], SHORT, [hole])
    assert {(one.kind, one.source) for one in found} == {(Kind.MISSING, Span(10, 25)), (Kind.UNFILLED, Span(15, 20))}


def test_a_batch_of_another_length_in_place_of_one() -> None:
    other = finding(Kind.RESEGMENTED, Span(10, 20), Span(10, 19))
    found, _ = told_once([other, moved(20, 100, -1)], SHORT)
    assert [(one.kind, one.detail) for one in found] == [(Kind.RESEGMENTED, BEHIND.format("-1", 20, 99))]


def test_missing_here_and_doubled_there_is_moved() -> None:
    """Told by two windows that did not know of each other."""
    twice = finding(Kind.DUPLICATE, Span(10, 15), Span(70, 75), "the source has it once, at its own place")
    found, _ = told_once([finding(Kind.MISSING, Span(10, 15), None), twice], EQUAL)
    assert found == [moved(10, 15, 60)]


def test_many_moved_runs_cost_no_more_each_than_few() -> None:
    """Four times as many take about four times as many steps (sixteen times, were each held against all before it)."""

    def steps(count: int) -> int:
        some = [finding(Kind.MISSING, Span(10, 15), None)]
        for start in range(15, 10 * count, 10):
            some += [
                moved(start, start + 5, -5),
                finding(Kind.VALUE_CHANGED, Span(start + 5, start + 10), Span(start, start + 5)),
            ]
        found: list[Finding] = []
        taken = bytecodes_of(lambda: found.extend(told_once(some, EQUAL).findings))
        assert sum(one.kind is Kind.MOVED for one in found) == 0
        return taken

    few = steps(500)
    assert steps(2_000) < 5 * few


@pytest.mark.parametrize("where", [Span(90, 95), Span(85, 90)])
def test_a_run_in_front_of_what_changed_at_the_end_says_how_the_logs_end(where: Span) -> None:
    """What the destination has behind the run is told. If anything lies in between, that may be in its place."""
    changed = finding(Kind.VALUE_CHANGED, Span(95, 100), where)
    _, shift = told_once([finding(Kind.MISSING, Span(10, 14), None), moved(60, 65, -5), changed], SHORT)
    assert shift == 0
    _, shift = told_once([finding(Kind.MISSING, Span(10, 14), None), moved(60, 95, -5), changed], SHORT)
    assert shift == (-5 if where.start == 90 else 0)


@pytest.mark.parametrize("ended", [True, False])
def test_what_nobody_read_in_front_of_what_was_moved(*, ended: bool) -> None:
    """
    1. Two batches at the destination's end were found far behind that, one behind the other; a hole is between.
    2. What is in front of them is missing, unless both logs were looked at to their ends. A stray one that is not at
       the end says nothing of that.
    """
    lost, long = finding(Kind.MISSING, Span(80, 95), None), replace(SHORT, source=Span(0, 200))
    at_end = [moved(180, 185, -100), moved(186, 195, -100)]
    found, _ = told_once([lost, *at_end], long, [Hole(185, 186, What.CONTROL)], ended=ended)
    spans = [one.source for one in found if one.kind is Kind.MISSING]
    assert spans == [Span(80, 95), *([] if ended else [Span(95, 180)])]
    found, _ = told_once([finding(Kind.MISSING, Span(40, 45), None), moved(180, 185, -140)], long, ended=ended)
    assert [one.source for one in found if one.kind is Kind.MISSING] == [Span(40, 45)]
