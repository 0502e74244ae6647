"""Waits for conditions, never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

from chaos.errors import ChaosError

__all__ = ["LONGEST_S", "NOW_AND_THEN_S", "PATIENCE_S", "Patience", "until"]

PATIENCE_S = 150.0
"""Longer than anything takes on a loaded machine: a wait that reaches it is in vain."""

LONGEST_S = 600.0
"""No wait takes longer, even while something moves."""

NOW_AND_THEN_S = 0.15
"""Pause between looks that need no exact moment: each look asks all brokers, on a machine that is busy."""

_LOOK_EVERY_S = 0.05
T = TypeVar("T")


class Patience:
    """How long something is waited for: the time starts over whenever it moves, up to ``LONGEST_S`` in all. Slow is not
    stuck.

    Args:
        timeout_s: how long without a move.
    """

    def __init__(self, timeout_s: float = PATIENCE_S) -> None:
        self._timeout_s = timeout_s
        self._began_at = time.monotonic()
        self._deadline_at = self._began_at + timeout_s
        self._last_at = self._began_at + max(timeout_s, LONGEST_S)

    def moved(self) -> None:
        """It moved."""
        self._deadline_at = time.monotonic() + self._timeout_s

    @property
    def waited_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began_at

    @property
    def over(self) -> bool:
        """True if it is not waited for any longer."""
        return time.monotonic() > min(self._deadline_at, self._last_at)


def until(
    condition: Callable[[], T],
    what: str | Callable[[], str],
    *,
    timeout_s: float = PATIENCE_S,
    moving: Callable[[], object] | None = None,
    every_s: float = _LOOK_EVERY_S,
) -> T:
    """Look until the condition holds; returns its value.

    Args:
        condition: holds when it is true.
        what: the thing waited for, in words; a function is called only when the time is over.
        timeout_s: how long to wait.
        moving: whenever its value changes, the time starts over, up to ``LONGEST_S`` in all: slow is not stuck.
        every_s: pause between two looks.

    Raises:
        ChaosError: the time is over.
    """
    patience = Patience(timeout_s)
    seen = moving() if moving else None
    while True:
        if value := condition():
            return value
        if moving and (state := moving()) != seen:
            seen = state
            patience.moved()
        if patience.over:
            said = what if isinstance(what, str) else what()
            raise ChaosError(f"waited {patience.waited_s:.0f} s in vain for {said}")
        time.sleep(every_s)
