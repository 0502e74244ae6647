"""Reserved ports: bound for as long as the cluster lives, by a socket that never listens.

Linux lets a second socket bind and listen on such a port when both have SO_REUSEADDR, as Java's server sockets do; but
neither the kernel's search for an ephemeral port nor another program's plain bind picks it. So the port stays the
broker's before its first start and while it is stopped.
"""

from __future__ import annotations

import socket

__all__ = ["Reservation"]


class Reservation:
    """One TCP port of a loopback address.

    Args:
        host: the address, of IPv4 or IPv6.

    Attributes:
        port: its number.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((host, 0))
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        """Give the port back. May be called twice."""
        self._socket.close()
