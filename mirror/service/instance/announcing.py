"""How a ``mirror run`` makes itself known to ``mirror start``: by a socket with an abstract name (unix(7)).

The kernel removes the name when the process ends, for whatever reason. So it is never stale, and a reused process id
does no harm. It needs no folder and leaves no file, and every user of the machine can see it (of the network
namespace).
"""

import os
import secrets
import socket
from pathlib import Path

from mirror.service.instance.place import identity

_PREFIX = "mirror-run"
_NAMES = Path("/proc/net/unix")


def announce(config: Path) -> socket.socket | None:
    """Announces that this process runs the mirror of a configuration file. Returns the socket: the announcement lasts
    as long as it is open, also across exec. Returns None if it is not possible."""
    try:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Several processes may run the same file on purpose, and process ids are unique only within a PID namespace.
        found.bind(f"\0{_PREFIX}/{identity(config)}/{os.getpid()}/{secrets.token_hex(4)}")
    except OSError:
        return None
    found.set_inheritable(True)
    return found


def announced(config: Path) -> list[int]:
    """Returns the ids of the processes that run the mirror of this file now."""
    wanted = f"@{_PREFIX}/{identity(config)}/"
    try:
        lines = _NAMES.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    names = [line.rpartition(" ")[2] for line in lines]
    return sorted({int(name.split("/")[2]) for name in names if name.startswith(wanted) and name.count("/") == 3})
