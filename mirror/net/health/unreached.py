"""The brokers to which the last attempt to connect failed. One failure is enough for a broker to be listed."""

import time
from collections.abc import Container
from typing import NamedTuple

FRESH_S = 45.0
"""How long a failed attempt counts: longer than the pause before the next attempt and its timeout together."""


class FailedAttempt(NamedTuple):
    """The last attempt to connect, which failed."""

    why: str
    at_s: float
    """When it failed (monotonic)."""


class Unreached:
    """The unreached brokers of all clusters that share this object. Brokers are identified by their names in
    messages."""

    def __init__(self) -> None:
        self._failed: dict[str, FailedAttempt] = {}

    def failed(self, broker: str, why: str) -> None:
        """Takes note of a failed attempt to connect."""
        self._failed[broker] = FailedAttempt(why, time.monotonic())

    def reached(self, broker: str) -> None:
        """Takes note of a successful attempt to connect."""
        self._failed.pop(broker, None)

    def keep(self, prefix: str, brokers: Container[str]) -> None:
        """Forgets the brokers whose names begin with ``prefix`` and that are not in ``brokers``: they are not part of
        their cluster any more."""
        for broker in [each for each in self._failed if each.startswith(prefix) and each not in brokers]:
            del self._failed[broker]

    @property
    def now(self) -> dict[str, str]:
        """Broker -> error of its last attempt. Attempts older than ``FRESH_S`` are left out: nobody tried since then,
        so the broker may be reachable by now."""
        fresh_from = time.monotonic() - FRESH_S
        return {broker: failed.why for broker, failed in sorted(self._failed.items()) if failed.at_s >= fresh_from}
