"""Which batches are opened before they are named, what is asked of them, and what it costs to name many."""

from collections.abc import Callable, Set
from typing import Any

import pytest

from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side
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
