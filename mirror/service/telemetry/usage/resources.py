"""What this process uses, as the kernel has it."""

import os
import resource

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Returns the resident memory of this process, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_SIZE


def open_files() -> int:
    """Returns the number of open file descriptors of this process."""
    # Without the one by which they are listed.
    return len(os.listdir("/proc/self/fd")) - 1


def most_files() -> int:
    """Returns the number of file descriptors that this process may have open (RLIMIT_NOFILE)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
