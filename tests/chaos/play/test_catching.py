"""Waiting for a copy: what is slow is waited for, what stands still is told by name."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos import waiting
from chaos.errors import ChaosError
from chaos.play.catching import reach

SLOW, HALTED = ("slow", 0), ("halted", 0)


class Clock:
    """Time that passes only while somebody sleeps, a minute each time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 60.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "time", Clock())


def stage(*ends: int) -> Any:
    """A stage whose slow partition has these ends, one at each look, and then the last one."""
    coming = iter(ends)
    at = {SLOW: 0, HALTED: 5}

    def look() -> None:
        at[SLOW] = next(coming, at[SLOW])

    return SimpleNamespace(look=look, told=lambda: "", destination=SimpleNamespace(ends=lambda names: dict(at)))


def test_what_moves_is_waited_for() -> None:
    """Seven minutes in all, while a wait for what stands still is over after three."""
    reach(stage(1, 2, 3, 4, 5, 6, 7), {SLOW: 7})


def test_what_stands_still_is_told() -> None:
    with pytest.raises(ChaosError, match=r"in vain for the destination to reach slow-0 7 \(is 2\)"):
        reach(stage(1, 2), {SLOW: 7})


def test_what_has_halted_is_not_waited_for() -> None:
    reach(stage(7), {SLOW: 7, HALTED: 9}, but=lambda name: name == HALTED)
