"""How long the suite waits for something: without a move, and in all."""

import pytest

from chaos.errors import ChaosError
from chaos.waiting import LONGEST_S, Patience, until


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("chaos.waiting.time", clock)
    return clock


def test_the_time_starts_over_with_each_move(clock: Clock) -> None:
    """1. Two moves, each just in time. 2. None any more."""
    patience = Patience(10)
    for _ in range(2):
        clock.sleep(9)
        assert not patience.over
        patience.moved()
    clock.sleep(11)
    assert patience.over
    assert patience.waited_s == 29


def test_it_ends_however_often_it_moves(clock: Clock) -> None:
    patience = Patience(10)
    for _ in range(int(LONGEST_S) + 1):
        assert not patience.over
        clock.sleep(1)
        patience.moved()
    assert patience.over


def test_what_was_waited_for_is_told(clock: Clock) -> None:
    with pytest.raises(ChaosError, match="waited 11 s in vain for a leader"):
        until(lambda: False, "a leader", timeout_s=10, every_s=1)


def test_what_comes_late_but_moves_is_waited_for(clock: Clock) -> None:
    def arrived() -> bool:
        return clock.now_s >= 1_100

    assert until(arrived, "records", timeout_s=10, every_s=1, moving=lambda: clock.now_s // 8)
    with pytest.raises(ChaosError, match="waited 11 s in vain for records"):
        until(lambda: False, "records", timeout_s=10, every_s=1, moving=lambda: "the same")
