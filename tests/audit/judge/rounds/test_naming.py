"""Which batches are opened before they are named, what is asked of them, and what it costs to name many."""

from collections.abc import Callable, Sequence, Set
from typing import Any

import pytest

from mirror.audit.judge.rounds import differences, naming
from mirror.audit.judge.rounds.regions import Window, of_bounds
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side
from mirror.audit.model.rows import Hole, What
from mirror.audit.prepare.plan import Range
from tests.audit.logs import Batch, Logs, bytecodes_of, plain


@pytest.mark.parametrize("cleaners", [frozenset(), frozenset({Side.DESTINATION})])
def test_what_cleaners_have_taken_is_opened_without_digests(cleaners: Set[Side]) -> None:
    """It may be very much. Elsewhere, they say which record stands where."""
    asked: list[bool] = []

    class Asked(Logs):
        def records(self, *args: Any, digests: bool) -> Any:
            asked.append(digests)
            return super().records(*args, digests=digests)

    source = plain(40, 5)
    in_pieces = [*source[:10], source[10][:2], source[10][2:], *source[11:]]
    Asked(source, in_pieces, width=1_000, cleaners=cleaners).audit()
    assert asked
    assert set(asked) == {not cleaners}


APART = 8
"""Batches from one window to the next: so many that they are regions of their own."""


def changed(batch: Batch, _: Batch) -> list[Batch]:
    return [(f"not {batch[0]}", batch[1])]


def in_pieces(batch: Batch, _: Batch) -> list[Batch]:
    return [batch[:1], batch[1:]]


def in_pieces_and_changed(batch: Batch, _: Batch) -> list[Batch]:
    return [(f"not {batch[0]}",), batch[1:]]


def elsewhere(_: Batch, batch_of_the_next: Batch) -> list[Batch]:
    return [batch_of_the_next]


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (changed, Kind.VALUE_CHANGED),
        (in_pieces, Kind.REENCODED),
        (in_pieces_and_changed, Kind.VALUE_CHANGED),
        (elsewhere, Kind.MOVED),
    ],
)
def test_many_windows_cost_no_more_each_than_few(edit: Callable[[Batch, Batch], list[Batch]], kind: Kind) -> None:
    """Four times as many windows of one round take about four times as many steps (sixteen times, were each held
    against what all others have)."""

    def steps(windows: int) -> int:
        source = plain(windows * APART, 2)
        places = range(1, len(source), APART)
        there = [[batch] for batch in source]
        for at in places:
            there[at] = edit(source[at], source[(at + APART) % len(source)])
        logs = Logs(source, [batch for some in there for batch in some], width=1)
        found: list[Finding] = []
        taken = bytecodes_of(lambda: found.extend(logs.audit()))
        assert {one.kind for one in found} == {kind}
        assert sum(one.batches for one in found) == windows
        return taken

    few = steps(110)
    assert steps(440) < 4.5 * few


@pytest.mark.parametrize("cleaners", [frozenset(), frozenset(Side)])
def test_no_more_records_are_compared_at_a_time_than_fit(
    monkeypatch: pytest.MonkeyPatch, cleaners: frozenset[Side]
) -> None:
    """However many records a batch has: rounds are bounded by batches, and what is found by records is held for some
    windows at a time. Of each window all is told."""
    monkeypatch.setattr(naming, "MOST_RECORDS", 100)
    asked: list[int] = []

    class Asked(Logs):
        def records(self, differing: Any, *args: Any, digests: bool) -> Any:
            asked.append(sum(row.records for pairs in differing.values() for row in pairs.source.values()))
            return super().records(differing, *args, digests=digests)

    source = plain(40 * APART, 20)
    there = [piece for at, one in enumerate(source) for piece in ([one[:7], one[7:]] if at % APART == 1 else [one])]
    found = Asked(source, there, width=1, cleaners=cleaners).audit()
    assert sum(one.batches for one in found) == 40
    assert {one.kind for one in found} == {Kind.REENCODED}
    assert max(asked) <= 100
    assert sum(asked) == 40 * 20


def test_more_records_than_can_be_held_are_not_tried_as_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches with other borders, of which none has a counterpart. That their records were not compared is told."""
    source = plain(20, 1_000)
    records = [record for batch in source for record in batch]
    again = [tuple(records[at : at + 800]) for at in range(0, len(records), 800)]
    opened: list[bool] = []

    class Asked(Logs):
        def rows(self, *args: Any, by_record: bool) -> Any:
            opened.append(by_record)
            return super().rows(*args, by_record=by_record)

    monkeypatch.setattr(naming, "MOST_OPENED", 1_000)
    monkeypatch.setattr(differences, "MOST_RECORDS", 10_000)
    found = Asked(source, again, width=20_000).audit()
    assert not any(opened)
    assert {one.kind for one in found} == {Kind.RESEGMENTED}
    assert all(one.detail.endswith("; their records were not compared") for one in found)
    monkeypatch.setattr(differences, "MOST_RECORDS", 20_000)
    found = Asked(source, again, width=20_000).audit()
    assert [one.detail for one in found] == ["the records are in other batches; they were compared one by one"]


def test_rounds_that_wait_hold_no_chunks_but_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many chunks differ behind each. Mutation: each keeps all of them."""
    held: list[int] = []
    name = naming.Namer.findings

    def findings(self: naming.Namer, rounds: Sequence[naming.Round]) -> list[Finding]:
        windows = [window for one in rounds for window in one.windows]
        held.extend(len({*window.rest, *window.region.chunks} - {*window.chunks}) for window in windows)
        return name(self, rounds)

    monkeypatch.setattr(naming.Namer, "findings", findings)
    source = plain(3_000, 2)
    left = [batch for at, batch in enumerate(source) if at % 100 != 50]
    Logs(source, left, width=20).audit()
    assert len(held) >= 30
    assert max(held) == 1


def test_what_is_held_of_holes_counts() -> None:
    """A round of a compacted partition may have nothing else."""
    holes = [Hole(at, at + 1, What.GAP) for at in range(7)]
    pairs = Pairs(holes=holes[:1], markers=holes[:2], odd=holes[:3], equal=holes[:4])
    region = of_bounds(Logs(plain(1), plain(1)).bounds())
    window = Window(region, (), (), Range("t", 0, 0, 1, True, 10), pairs)
    assert naming.Round([window], set()).rows == 1 + 2 + 3 + 4
