"""What grows is seen, and what comes and goes is not taken for it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chaos.soak.samples import MOST_GROWTH, SPARE, Sample, figures, halves, problems

PHASES = 6
STEADY = Sample(
    minute=0, phase=0, at_s=0.0, total_bytes=200_000_000, supervisor_bytes=50_000_000, worker_bytes=75_000_000,
    supervisor_descriptors={"socket": 8, "pipe": 4}, worker_descriptors={"socket": 20, "anon_inode": 3},
)  # fmt: skip


def run(minutes: int, grown: Callable[[Sample], Sample] = lambda one: one) -> list[Sample]:
    """A run in which nothing changes but what ``grown`` does."""
    steps = [divmod(number, PHASES) for number in range(minutes * PHASES)]
    return [grown(replace(STEADY, minute=at, phase=phase, at_s=10.0 * (6 * at + phase))) for at, phase in steps]


def test_a_steady_run() -> None:
    found = figures(run(5))
    assert [one.problem for one in found] == [""] * 5
    assert [(one.first, one.last) for one in found] == [(200.0,) * 2, (50.0,) * 2, (75.0,) * 2, (12,) * 2, (23,) * 2]


@pytest.mark.parametrize("minutes", [2, 5, 6, 61])
def test_both_halves_have_whole_minutes(minutes: int) -> None:
    first, last = halves(run(minutes))
    assert len(first) == len(last) == minutes // 2 * PHASES
    assert first[0].minute == 0
    assert last[-1].minute == minutes - 1
    assert first[-1].minute < last[0].minute


def test_one_minute_has_no_halves() -> None:
    with pytest.raises(ValueError, match="two minutes"):
        figures(run(1))
    with pytest.raises(ValueError, match="two minutes"):
        figures([])


@pytest.mark.parametrize("what", ["total_bytes", "supervisor_bytes", "worker_bytes"])
def test_memory_that_grows_is_seen(what: str) -> None:
    """Of each, by itself: a supervisor is a small part of the whole."""

    def steps(part: float) -> list[str]:
        grown: Any = {what: round(getattr(STEADY, what) * (1 + part))}
        return problems(run(6, lambda one: replace(one, **grown) if one.minute >= 3 else one))

    assert steps(MOST_GROWTH - 0.001) == []
    assert len(steps(MOST_GROWTH + 0.001)) == 1
    assert "grew by 10.1%" in steps(MOST_GROWTH + 0.001)[0]
    assert steps(-0.5) == [], "what shrinks leaks nothing"


def test_memory_that_leaks_slowly_is_seen() -> None:
    (problem,) = problems(run(60, lambda one: replace(one, supervisor_bytes=50_000_000 + round(one.at_s * 4_000))))
    assert problem.startswith("the memory of its supervisor grew")


def test_a_peak_is_no_growth() -> None:
    found = run(6, lambda one: replace(one, total_bytes=10**9) if one.minute == 5 and one.phase < 3 else one)
    assert problems(found) == []


@pytest.mark.parametrize(
    ("what", "whose"), [("supervisor_descriptors", "its supervisor"), ("worker_descriptors", "the worker that lives")]
)
@pytest.mark.parametrize("each", [1, PHASES], ids=["one a reload", "one a minute"])
def test_a_descriptor_that_leaks_is_seen(what: str, whose: str, each: int) -> None:
    def leaking(one: Sample) -> Sample:
        lost = (one.minute * PHASES + one.phase) // each
        held: Any = {what: getattr(STEADY, what) | {"file": lost}}
        return replace(one, **held)

    (problem,) = problems(run(5, leaking))
    assert problem.startswith(f"the descriptors of {whose} grew: ")
    assert "(file " in problem
    assert "socket" not in problem


def test_connections_that_come_and_go_are_no_leak() -> None:
    """
    1. Each minute has the same, whatever it is at the minute's beginning and end.
    2. Now and then there are more of them, in the last half as well.
    3. A few more are there at each look of the last half.
    """

    def going(one: Sample) -> Sample:
        more = one.phase + SPARE * (one.minute >= 3) + (5 if one.minute >= 3 and (one.minute + one.phase) % 2 else 0)
        return replace(one, worker_descriptors={"socket": 20 + more})

    assert problems(run(6, going)) == []
