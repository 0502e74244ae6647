"""The clock that decides whether knowledge of a log is still fresh enough to act on.

``time.monotonic`` stands still while the machine is suspended, but other workers go on meanwhile.
"""

import time


def since_boot() -> float:
    """Returns the seconds since boot, including time for which the machine was suspended. Only Linux has such a clock;
    elsewhere, this is ``time.monotonic``. Results must only be compared with each other."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
