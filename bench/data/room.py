"""Chooses where the brokers of a run keep their data: in memory if there is enough of it.

The speed of a shared disk differs from hour to hour, and with it that of brokers; a process that copies has more to do
per byte when it is kept waiting. The benchmark compares that process, not the disk.
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
"""Free before a run; it holds about 12 GB at most, as each topic is deleted once it has been measured."""
_PROCESSES_BYTES = 6_000_000_000
"""Two brokers, a loader and a MirrorMaker."""
_MEMINFO = Path("/proc/meminfo")


def find(environ: MutableMapping[str, str], *, memory: Path = MEMORY, meminfo: Path = _MEMINFO) -> Path:
    """Choose the folder for temporary files of this process and of all that it starts; TMPDIR counts if it is set.

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
    """Returns the kind of the folder in use: ``memory`` or ``disk``."""
    return "memory" if Path(tempfile.gettempdir()).is_relative_to(MEMORY) else "disk"


def _free(memory: Path) -> bool:
    return memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= NEEDED_BYTES


def _available(meminfo: Path) -> int:
    """Returns the bytes of memory that programs can have; 0 if that is not known."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0
