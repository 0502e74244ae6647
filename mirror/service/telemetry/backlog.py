"""Measures how long records have waited to be copied, by the observed ends of source and copy. Pure.

Record timestamps do not show it: producers choose them, and after a quiet hour the first new record would look an hour
late. Observations do: at time T the source ended at E, and the copy has not reached E yet.
"""

from collections import deque

MOST_ENDS = 120
"""Most ends that are kept per partition. Beyond that, every second one is dropped; the result is then accurate to 2
%."""


class Backlog:
    """The backlog of one partition, whichever worker copies it."""

    __slots__ = ("_apart_s", "_ends")

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()
        """(time, end): when the source was first seen to end there; only ends that the copy has not reached, oldest
        first."""
        self._apart_s = 0.0
        """Least number of seconds between two of them; the newest is kept in any case."""

    def seen(self, source_end: int, position: int, at_s: float) -> None:
        """Notes both ends as seen at this time; -1: not known."""
        ends = self._ends
        while ends and ends[-1][1] > source_end >= 0:
            # The source has lost records, or was recreated: the copy will never reach that end.
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
        """Returns how long the oldest record that is not copied is known to wait, in seconds; 0 if none waits."""
        return max(0.0, now_s - self._ends[0][0]) if self._ends else 0.0
