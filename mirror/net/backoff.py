"""Waits between tries: exponential, bounded, with jitter, so that a thousand partitions do not retry at once."""

import random


class Backoff:
    """Waits that grow from ``least_ms`` to ``most_ms`` (reconnect.backoff.ms and reconnect.backoff.max.ms)."""

    __slots__ = ("_least_s", "_most_s", "_tries")

    def __init__(self, *, least_ms: int, most_ms: int) -> None:
        self._least_s = least_ms / 1000
        self._most_s = max(most_ms, least_ms) / 1000
        self._tries = 0

    @property
    def tries(self) -> int:
        """Failures in a row."""
        return self._tries

    def next_s(self) -> float:
        """Counts a failure. Returns the seconds to wait before the next try: doubled at each failure, and varied by up
        to 20 % either way."""
        wait_s: float = min(self._most_s, self._least_s * 2 ** min(self._tries, 30))
        self._tries += 1
        return wait_s * random.uniform(0.8, 1.2)

    def reset(self) -> None:
        """Begins again with the least wait, after a success."""
        self._tries = 0
