"""Waiting for conditions, never for a fixed time."""

import time
from collections.abc import Callable
from typing import TypeVar

from chaos.errors import ChaosError

__all__ = ["PATIENCE_S", "until"]

PATIENCE_S = 150.0
"""Longer than anything takes on a loaded machine: a wait that reaches it is in vain."""

_LOOK_EVERY_S = 0.05
T = TypeVar("T")


def until(condition: Callable[[], T], what: str | Callable[[], str], *, timeout_s: float = PATIENCE_S) -> T:
    """Look until the condition holds; its value.

    Args:
        condition: holds when it is true.
        what: is waited for, in words; a function is asked only when the time is over.
        timeout_s: how long to wait.

    Raises:
        ChaosError: the time is over.
    """
    deadline_at = time.monotonic() + timeout_s
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline_at:
            said = what if isinstance(what, str) else what()
            raise ChaosError(f"waited {timeout_s:.0f} s in vain for {said}")
        time.sleep(_LOOK_EVERY_S)
