"""Measures for how long something has been missing, without the time for which this process was stopped."""

from collections.abc import Callable


class Overdue:
    """Counts the seconds for which something was missing at every look.

    While a process is stopped (SIGSTOP, a debugger), the clock goes on. By the clock alone, a worker that was frozen
    for longer than it waits for a seat would give up as soon as it resumed. (While the machine is suspended,
    ``time.monotonic`` stops as well.)

    Args:
        clock: returns seconds, of any origin.
        most_step_s: most seconds that one look adds. The caller looks more often than that.
    """

    def __init__(self, clock: Callable[[], float], *, most_step_s: float) -> None:
        self._clock = clock
        self._most_step_s = most_step_s
        self._looked_at = clock()
        self.seconds = 0.0

    def look(self, *, missing: bool) -> float:
        """Returns for how many seconds it has been missing until now; 0 if not ``missing``."""
        now = self._clock()
        step_s = min(now - self._looked_at, self._most_step_s)
        self._looked_at = now
        self.seconds = self.seconds + step_s if missing else 0.0
        return self.seconds
