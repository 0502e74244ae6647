"""The memory of this process: how much something takes at its peak, as the kernel counts it."""

import gc
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""proc(5): the peak becomes what is in use now."""


class Peak:
    """Measures from its making on."""

    def __init__(self) -> None:
        gc.collect()
        _CLEAR.write_text(_RESET_PEAK)
        self._before = _status("VmRSS")

    def grown(self) -> int:
        """Returns the bytes at the peak since then, beyond those before."""
        return max(0, _status("VmHWM") - self._before)


def _status(key: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024
