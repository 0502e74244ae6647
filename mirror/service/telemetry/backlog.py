"""For how long records have waited to be copied, by what was seen of both ends. Pure.

Timestamps of records do not tell: producers choose them, and behind a quiet hour the first new record would look an
hour late. What is seen tells: the source ended at E at a time T, and the copy has not reached E yet.
"""

from collections import deque

MOST_ENDS = 120
"""Ends remembered of a partition; beyond that, every second one is forgotten, and the answer is right to 2 %."""


class Backlog:
    """Of one partition, whoever copies it."""

    __slots__ = ("_apart_s", "_ends")

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()
        """When the source was first seen to end there, for the ends that the copy has not reached; oldest first."""
        self._apart_s = 0.0
        """Between two of them, at least; the newest is kept in any case."""

    def seen(self, source_end: int, position: int, at_s: float) -> None:
        """Both ends, at this time; -1: not known."""
        ends = self._ends
        while ends and ends[-1][1] > source_end >= 0:
            # The source has lost records, or is another log: those will never come.
            ends.pop()
        if source_end > max(position, ends[-1][1] if ends else -1):
            if len(ends) >= MOST_ENDS:
                self._ends = ends = deque(list(ends)[::2])
                self._apart_s = 2 * (at_s - ends[0][0]) / MOST_ENDS
            if len(ends) > 1 and ends[-1][0] - ends[-2][0] < self._apart_s:
                ends.pop()
            ends.append((at_s, source_end))
        while ends and ends[0][1] <= position:
            ends.popleft()
        if not ends:
            self._apart_s = 0.0

    def seconds(self, now_s: float) -> float:
        """How long the oldest of what is not copied is known to wait; 0 if nothing is."""
        return max(0.0, now_s - self._ends[0][0]) if self._ends else 0.0
