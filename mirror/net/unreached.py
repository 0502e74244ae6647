"""Brokers to which the last connection that was tried could not be had: named once the first attempt has failed."""

import time
from collections.abc import Container
from typing import NamedTuple

FRESH_S = 45.0
"""For so long an attempt says something of now: longer than a pause before the next one and that one's timeout."""


class Failed(NamedTuple):
    """The last attempt."""

    why: str
    at_s: float
    """When it failed (monotonic)."""


class Unreached:
    """Of the clusters that share it, by the names of their brokers."""

    def __init__(self) -> None:
        self._failed: dict[str, Failed] = {}

    def failed(self, broker: str, why: str) -> None:
        """A connection could not be had."""
        self._failed[broker] = Failed(why, time.monotonic())

    def reached(self, broker: str) -> None:
        """One was."""
        self._failed.pop(broker, None)

    def keep(self, prefix: str, brokers: Container[str]) -> None:
        """Of the brokers whose names begin so, only these are still part of their cluster."""
        for broker in [each for each in self._failed if each.startswith(prefix) and each not in brokers]:
            del self._failed[broker]

    @property
    def now(self) -> dict[str, str]:
        """Broker -> why, of those whose last attempt is not long ago: where nobody tries, nobody knows."""
        fresh_from = time.monotonic() - FRESH_S
        return {broker: failed.why for broker, failed in sorted(self._failed.items()) if failed.at_s >= fresh_from}
