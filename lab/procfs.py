"""CPU time (in nanoseconds), memory and descriptors of a process and its descendants, read by another process. Linux
only."""

import contextlib
import os
import time
from array import array
from collections import Counter
from pathlib import Path

__all__ = ["FilePages", "cpu_s", "descendants", "descriptors", "peak_rss_bytes", "rss_bytes"]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ENTRY = array("Q")
"""Type of an entry of /proc/PID/pagemap, which has one for each page."""
_PRESENT = 1 << 63
_OF_FILE = 1 << 61
"""Flag of a page that belongs to a file, or to shared memory without a file."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Returns the CPU time (user and system) of a process and all its descendants since they began, in seconds.

    A process's own time comes from its CPU clock, which counts nanoseconds (/proc/PID/stat only hundredths of a
    second). The time of children that have ended comes from /proc/PID/stat (cutime and cstime).

    Raises:
        ProcessLookupError: there is no such process.
    """
    total = _own_cpu_s(pid) + _ended_children_cpu_s(pid)
    for child in descendants(pid):
        with contextlib.suppress(ProcessLookupError):  # ended between the two looks
            total += _own_cpu_s(child) + _ended_children_cpu_s(child)
    return total


def peak_rss_bytes(pid: int) -> int:
    """Returns the peak memory of a process and those of its descendants that run now, in bytes.

    The result is the sum of their peaks (VmHWM). A page of a file that several of them map now (a program, its
    libraries) counts once, since the machine holds it once. Call this when they have done their work: a shared page
    that a process maps only after its peak is subtracted as well, although the peak does not include it.

    Raises:
        ProcessLookupError: there is no such process.
    """
    total = _status_kb(pid, "VmHWM") * 1024
    files = FilePages(pid)
    for child in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            total += _status_kb(child, "VmHWM") * 1024 - files.again(child)
    return total


class FilePages:
    """The pages of files that processes have in memory: mostly code and constants of programs and libraries.
    See proc_pid_maps(5) and proc_pid_pagemap(5).

    A page that a process has changed is a private copy, and does not count as a page of the file.

    Args:
        pid: id of the first process. If its pages may not be read, it counts as having none.
    """

    def __init__(self, pid: int) -> None:
        self._known = _file_pages(pid)

    def again(self, pid: int) -> int:
        """Adds the pages of another process. Returns the bytes of those that were known before: they would otherwise
        count twice."""
        pages = _file_pages(pid)
        twice = len(pages & self._known)
        self._known |= pages
        return twice * _PAGE


def rss_bytes(pid: int) -> int:
    """Returns the present memory of a process (VmRSS) without its descendants, in bytes.

    Raises:
        ProcessLookupError: there is no such process.
    """
    return _status_kb(pid, "VmRSS") * 1024


def descriptors(pid: int) -> Counter[str]:
    """Returns the number of descriptors that a process has open now, by kind: ``socket``, ``pipe``, ``anon_inode`` and
    so on; ``file`` for anything with a path.

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
    """Returns the ids of a process's present children, their children, and so on. Empty if there is no such process."""
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


def _file_pages(pid: int) -> set[tuple[str, int]]:
    """Returns the pages of files that a process has in memory now, each as ("device inode", number of the page in the
    file). Empty if they may not be read."""
    found: set[tuple[str, int]] = set()
    try:
        with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
            for line in maps:
                addresses, _, offset, device, inode = line.split()[:5]
                if inode == "0":
                    continue
                start, end = (int(address, 16) // _PAGE for address in addresses.split("-"))
                pagemap.seek(start * _ENTRY.itemsize)
                entries = array(_ENTRY.typecode, pagemap.read((end - start) * _ENTRY.itemsize))
                first = int(offset, 16) // _PAGE
                found.update(
                    (f"{device} {inode}", first + at)
                    for at, entry in enumerate(entries)
                    if entry & _PRESENT and entry & _OF_FILE
                )
    except OSError:
        pass  # not permitted, or the process is gone: pages that are not known count once for each process
    return found


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
    return 0  # a zombie has no memory
