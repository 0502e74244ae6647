"""The command line's side of the control socket (``service.instance.control``)."""

import json
import os
import select
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

from mirror.service.instance.announcing import announced
from mirror.service.instance.place import Place

State = dict[str, Any]
"""The state of a mirror. ``address``: of its HTTP server. ``phase``: starting, running or stopping. ``ready``: as in
``mirror status``. ``settled``: True if it is ready, or has reported what it waits for. ``status``: one line, as systemd
shows it. ``within_s``: seconds within which it ends, if it is stopping. The last state has only ``ended``: how it
ended (see ``flows.draining.Drained``)."""
LOOK_EVERY_S = 0.05
"""How often to look whether a process still runs, if there is no pidfd for it."""
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process, user, group."""


class Asked:
    """A connection to a mirror that runs in the background. It is a context manager.

    Attributes:
        pid: the mirror's process id, from the kernel (SO_PEERCRED).
    """

    def __init__(self, connection: socket.socket, config: Path) -> None:
        """``config``: the mirror's configuration file."""
        self._connection = connection
        self._config = config
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.pid, _, _ = _CREDENTIALS.unpack(credentials)
        self._process = -1
        self._had_ended = False
        try:
            # Opened while the process is connected, the descriptor refers to it for good, even if its id is reused.
            self._process = os.pidfd_open(self.pid)
        except ProcessLookupError:
            self._had_ended = True
        except OSError:
            pass  # an old kernel, or a sandbox that forbids it: the announcement is used instead
        self._unread = b""

    @classmethod
    def of(cls, place: Place) -> Self | None:
        """Connects to the mirror of a place. Returns None if none runs in the background. (A socket file that a dead
        mirror has left behind accepts no connection.)"""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with place.control() as path:
                connection.connect(path)
        except OSError:
            connection.close()
            return None
        return cls(connection, place.config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the mirror goes on."""
        self._connection.close()
        if self._process >= 0:
            os.close(self._process)

    def ask(self, what: Literal["stop", "watch"]) -> None:
        """Asks the mirror to stop, or only to report its state. Errors are ignored: if it has just ended, ``state``
        shows it."""
        with suppress(OSError):
            self._connection.sendall(f"{what}\n".encode())

    def state(self, timeout_s: float) -> State | None:
        """Waits for the mirror's next state, after ``ask``, and returns it. None: it has closed the connection, or has
        ended.

        Raises:
            TimeoutError: there was no state within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            self._connection.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                more = self._connection.recv(1 << 16)
            except ConnectionError:
                return None
            if not more:
                return None
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        found: State = json.loads(line)
        return found

    def wait_ended(self, timeout_s: float) -> bool:
        """Waits for the end of the process. Returns False if it still runs after ``timeout_s``."""
        if self._had_ended:
            return True
        if self._process >= 0:
            found, _, _ = select.select([self._process], [], [], max(0.0, timeout_s))
            return bool(found)
        deadline = time.monotonic() + timeout_s
        while self.pid in announced(self._config):
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY_S)
        return True
