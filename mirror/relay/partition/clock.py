"""The clock by which it is decided whether what is known of a log is still fresh enough to act on.

``time.monotonic`` stands still while the machine is suspended, but other workers go on meanwhile.
"""

import time


def since_boot() -> float:
    """Returns the seconds since boot, also those for which the machine was suspended. Only Linux has such a clock.
    Elsewhere this is ``time.monotonic``. Compare only what this function has returned."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
