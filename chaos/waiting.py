"""Waits for conditions, never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

from chaos.errors import ChaosError

__all__ = ["LONGEST_S", "NOW_AND_THEN_S", "PATIENCE_S", "Patience", "until"]

PATIENCE_S = 150.0
"""Default timeout in seconds. It is longer than anything takes on a loaded machine."""

LONGEST_S = 600.0
"""Maximum time of a wait in seconds, even if something keeps moving."""

NOW_AND_THEN_S = 0.15
"""Pause in seconds between looks that need not find the exact moment: each look asks all brokers of a busy machine."""

_LOOK_EVERY_S = 0.05
T = TypeVar("T")


class Patience:
    """The timeout of a wait. It starts again whenever something has moved, since slow is not stuck; ``LONGEST_S`` is
    the limit in total.

    Args:
        timeout_s: longest time without a move.
    """

    def __init__(self, timeout_s: float = PATIENCE_S) -> None:
        self._timeout_s = timeout_s
        self._began_at = time.monotonic()
        self._deadline_at = self._began_at + timeout_s
        self._last_at = self._began_at + max(timeout_s, LONGEST_S)

    def moved(self) -> None:
        """Notes that something has moved: the timeout starts again."""
        self._deadline_at = time.monotonic() + self._timeout_s

    @property
    def waited_s(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._began_at

    @property
    def over(self) -> bool:
        """True if the timeout has expired."""
        return time.monotonic() > min(self._deadline_at, self._last_at)


def until(
    condition: Callable[[], T],
    what: str | Callable[[], str],
    *,
    timeout_s: float = PATIENCE_S,
    moving: Callable[[], object] | None = None,
    every_s: float = _LOOK_EVERY_S,
) -> T:
    """Waits until a condition holds, and returns its value.

    Args:
        condition: holds when it returns something true.
        what: what is waited for, for the message. A function is called only when the timeout has expired.
        timeout_s: the timeout.
        moving: returns a value whose change starts the timeout again, since slow is not stuck; ``LONGEST_S`` is the
            limit in total.
        every_s: pause between two looks.

    Raises:
        ChaosError: the timeout has expired.
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
