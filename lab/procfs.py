"""CPU (to the nanosecond), memory and descriptors of a process and its descendants, read from outside. Linux."""

import contextlib
import os
import time
from collections import Counter
from pathlib import Path

__all__ = ["cpu_s", "descendants", "descriptors", "peak_rss_bytes", "rss_bytes"]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Returns user and system CPU of a process and all its descendants since they began, in seconds.

    A process's own time comes from its CPU clock (nanoseconds; /proc/PID/stat has hundredths of a second).
    The time of children that have ended comes from /proc/PID/stat (cutime and cstime).

    Raises:
        ProcessLookupError: there is no such process.
    """
    total = _own_cpu_s(pid) + _ended_children_cpu_s(pid)
    for child in descendants(pid):
        with contextlib.suppress(ProcessLookupError):  # ended between the two looks
            total += _own_cpu_s(child) + _ended_children_cpu_s(child)
    return total


def peak_rss_bytes(pid: int) -> int:
    """Returns the peak memory of a process and its descendants that run now: the sum of each one's peak (VmHWM).
    Shared memory counts in each.

    Raises:
        ProcessLookupError: there is no such process.
    """
    total = _status_kb(pid, "VmHWM")
    for child in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            total += _status_kb(child, "VmHWM")
    return total * 1024


def rss_bytes(pid: int) -> int:
    """Returns the memory of a process as it is now (VmRSS), without its descendants'.

    Raises:
        ProcessLookupError: there is no such process.
    """
    return _status_kb(pid, "VmRSS") * 1024


def descriptors(pid: int) -> Counter[str]:
    """Returns how many descriptors a process has open now, by what they are: ``socket``, ``pipe``, ``anon_inode``, or
    ``file``.

    Raises:
        ProcessLookupError: there is no such process.
    """
    found: Counter[str] = Counter()
    try:
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed between the two looks
                kind, colon, _ = os.readlink(each).partition(":")  # "socket:[4711]"; of a file, its path
                found[kind if colon and "/" not in kind else "file"] += 1
    except OSError as error:
        raise ProcessLookupError(pid) from error
    return found


def descendants(pid: int) -> list[int]:
    """Returns the ids of a process's children, their children and so on, as they are now."""
    found: list[int] = []
    for task in _listing(Path(f"/proc/{pid}/task")):
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def _listing(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _own_cpu_s(pid: int) -> float:
    # The kernel's clock id of another process's CPU clock: clock_getcpuclockid(3), <linux/posix-timers.h>.
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError as error:
        raise ProcessLookupError(pid) from error


def _ended_children_cpu_s(pid: int) -> float:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError as error:
        raise ProcessLookupError(pid) from error
    fields = stat[stat.rindex(")") + 2 :].split()  # from field 3, the state; proc(5)
    return (int(fields[13]) + int(fields[14])) * _TICK_S


def _status_kb(pid: int, key: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1])
    except OSError as error:
        raise ProcessLookupError(pid) from error
    return 0  # a zombie has none
