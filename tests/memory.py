"""The memory of this process: how much something takes at its peak, as the kernel counts it.

``getrusage`` would be faster, but its peak is that of the parent as well, where the process was forked or exec'd by a
larger one (as a worker of pytest is): what an input takes below that is not seen.

What was freed earlier may still be in use as the kernel counts it: malloc returns only what is at its heap's end. What
is taken from there raises no peak, so malloc gives back the rest first (malloc_trim(3)).
"""

import ctypes
import gc
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""proc(5): the peak becomes what is in use now."""

_C = ctypes.CDLL(None)


class Peak:
    """Measures from its making on. Making one and asking it takes some 60 microseconds, without what is collected.

    Args:
        collect: False: garbage that was there before may be freed meanwhile, and then hides as much.
    """

    def __init__(self, *, collect: bool = True) -> None:
        if collect:
            gc.collect()
        _C.malloc_trim(0)
        _CLEAR.write_text(_RESET_PEAK)
        self._before = _status("VmRSS")

    def grown(self) -> int:
        """Returns the bytes at the peak since then, beyond those before."""
        return max(0, _status("VmHWM") - self._before)


def _status(key: str) -> int:
    _, _, rest = _STATUS.read_text().partition(f"\n{key}:")
    return int(rest.split(maxsplit=1)[0]) * 1024
