"""How long something is missing, as far as this process was there to see it."""

from collections.abc import Callable


class Overdue:
    """Seconds for which something was missing at every look.

    A process that is stopped (SIGSTOP, a suspended machine, a debugger) waits for nothing meanwhile, though the clock
    goes on: a worker that was frozen for longer than it waits for a seat gave up in the moment that it woke.

    Args:
        clock: seconds, of any origin.
        most_step_s: what one look adds at the most. Looks are expected more often than that.
    """

    def __init__(self, clock: Callable[[], float], *, most_step_s: float) -> None:
        self._clock = clock
        self._most_step_s = most_step_s
        self._looked_at = clock()
        self.seconds = 0.0

    def look(self, *, missing: bool) -> float:
        """The seconds until now; 0 if it is there."""
        now = self._clock()
        step_s = min(now - self._looked_at, self._most_step_s)
        self._looked_at = now
        self.seconds = self.seconds + step_s if missing else 0.0
        return self.seconds
