"""Measures how long something is missing, without the time for which this process was stopped."""

from collections.abc import Callable


class Overdue:
    """Counts the seconds for which something was missing at every look.

    A stopped process (SIGSTOP, a debugger) waits for nothing, though the clock goes on. By the clock alone, a worker
    that was frozen for longer than it waits for a seat would give up as soon as it woke. (While the machine is
    suspended, ``time.monotonic`` stands still as well.)

    Args:
        clock: returns seconds, of any origin.
        most_step_s: most seconds that one look adds. Looks are expected more often than that.
    """

    def __init__(self, clock: Callable[[], float], *, most_step_s: float) -> None:
        self._clock = clock
        self._most_step_s = most_step_s
        self._looked_at = clock()
        self.seconds = 0.0

    def look(self, *, missing: bool) -> float:
        """Returns the seconds until now; 0 if nothing is missing."""
        now = self._clock()
        step_s = min(now - self._looked_at, self._most_step_s)
        self._looked_at = now
        self.seconds = self.seconds + step_s if missing else 0.0
        return self.seconds
