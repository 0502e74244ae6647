"""Resources that this process uses, from the kernel. If a value needs a file of /proc that cannot be opened (because
too many files are open), it is not known, and reports are made without it.
"""

import os
import resource
from contextlib import suppress

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int | None:
    """Returns the resident memory of this process, in bytes; None: not known."""
    with suppress(OSError), open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE_SIZE
    return None


def open_files() -> int | None:
    """Returns the number of open file descriptors of this process; None: not known."""
    with suppress(OSError):
        # Without the descriptor that listing them needs.
        return len(os.listdir("/proc/self/fd")) - 1
    return None


def most_files() -> int:
    """Returns the number of file descriptors that this process may have open (RLIMIT_NOFILE)."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
