"""Reserved ports: bound for as long as the cluster lives, by a socket that never listens.

Linux lets a second socket bind and listen on such a port when both have SO_REUSEADDR, as Java's server sockets do; but
neither the kernel's search for an ephemeral port nor another program's plain bind picks it. So the port stays the
broker's before its first start and while it is stopped.
"""

from __future__ import annotations

import socket

__all__ = ["Reservation"]


class Reservation:
    """One TCP port of 127.0.0.1.

    Attributes:
        port: its number.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back. May be called twice."""
        self._socket.close()
