"""How a ``mirror run`` lets ``mirror start`` know of it: by a socket with an abstract name (unix(7)).

The kernel forgets the name when the process ends, whatever that dies of: nothing can be stale, and a process id that
is used again fools nobody. It needs no folder and leaves no file, and is seen by every user of the machine (of the
network namespace).
"""

import os
import secrets
import socket
from pathlib import Path

from mirror.service.instance.place import identity

_PREFIX = "mirror-run"
_NAMES = Path("/proc/net/unix")


def announce(config: Path) -> socket.socket | None:
    """Announces that this process runs the mirror of a configuration file, for as long as it has the socket. The socket
    is inherited by the program that follows this one (exec). Returns None where that is not possible."""
    try:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Several may run the same file on purpose, and process ids are unique in one process namespace only.
        found.bind(f"\0{_PREFIX}/{identity(config)}/{os.getpid()}/{secrets.token_hex(4)}")
    except OSError:
        return None
    found.set_inheritable(True)
    return found


def announced(config: Path) -> list[int]:
    """Returns the process ids of those that run the mirror of this file now."""
    wanted = f"@{_PREFIX}/{identity(config)}/"
    try:
        lines = _NAMES.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    names = [line.rpartition(" ")[2] for line in lines]
    return sorted({int(name.split("/")[2]) for name in names if name.startswith(wanted) and name.count("/") == 3})
