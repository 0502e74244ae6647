"""Waits for conditions, never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

from chaos.errors import ChaosError

__all__ = ["LONGEST_S", "NOW_AND_THEN_S", "PATIENCE_S", "until"]

PATIENCE_S = 150.0
"""Longer than anything takes on a loaded machine: a wait that reaches it is in vain."""

LONGEST_S = 600.0
"""No wait takes longer, even while something moves."""

NOW_AND_THEN_S = 0.15
"""Pause between looks that need no exact moment: each look asks all brokers, on a machine that is busy."""

_LOOK_EVERY_S = 0.05
T = TypeVar("T")


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
    began_at = time.monotonic()
    deadline_at, last_at = began_at + timeout_s, began_at + max(timeout_s, LONGEST_S)
    seen = moving() if moving else None
    while True:
        if value := condition():
            return value
        now = time.monotonic()
        if moving and (state := moving()) != seen:
            seen, deadline_at = state, now + timeout_s
        if now > min(deadline_at, last_at):
            said = what if isinstance(what, str) else what()
            raise ChaosError(f"waited {now - began_at:.0f} s in vain for {said}")
        time.sleep(every_s)
