"""Chooses the folder for the brokers' data: in memory if there is enough of it.

The speed of a shared disk changes from hour to hour, and the speed of brokers with it. A copying process that has to
wait needs more CPU per byte. The benchmark is about that process, not about the disk.
"""

import os
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from bench.errors import BenchError

__all__ = ["MEMORY", "NEEDED_BYTES", "find", "kind"]

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 14_000_000_000
"""Free bytes that a run needs. It stores at most about 12 GB, since each topic is deleted after it was measured."""
_PROCESSES_BYTES = 6_000_000_000
"""Memory for two brokers, a loader and a MirrorMaker."""
_MEMINFO = Path("/proc/meminfo")


def find(environ: MutableMapping[str, str], *, memory: Path = MEMORY, meminfo: Path = _MEMINFO) -> Path:
    """Chooses the folder for temporary files of this process and of all processes that it starts, and returns it.

    Args:
        environ: the environment. If TMPDIR is set, it counts; if memory is chosen, TMPDIR is set.
        memory: folder whose files are in memory.
        meminfo: path of /proc/meminfo.

    Raises:
        BenchError: there is not enough room, neither in memory nor on disk.
    """
    if not environ.get("TMPDIR") and _available(meminfo) >= NEEDED_BYTES + _PROCESSES_BYTES and _free(memory):
        environ["TMPDIR"] = str(memory)
        tempfile.tempdir = str(memory)
    folder = Path(tempfile.gettempdir())
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise BenchError(
            f"{folder} has {free / 1e9:.1f} GB free, and a run needs {NEEDED_BYTES / 1e9:.0f} GB",
            "make room, or set TMPDIR to a folder on another disk",
        )
    return folder


def kind() -> str:
    """Returns where the folder for temporary files is: ``memory`` or ``disk``."""
    return "memory" if Path(tempfile.gettempdir()).is_relative_to(MEMORY) else "disk"


def _free(memory: Path) -> bool:
    return memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= NEEDED_BYTES


def _available(meminfo: Path) -> int:
    """Returns the bytes of memory that are available to programs; 0 if that is not known."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0
