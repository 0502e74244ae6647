"""The supervisor's HTTP server: uvicorn in the supervisor's event loop. It has no TLS. By default it listens on
loopback.

It listens before workers are started, so that a port in use ends the run early. It begins to answer after they were
started, because its modules are imported while they start; earlier requests wait.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING

from mirror.net.options import address_text
from mirror.service.log import logs

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from mirror.service.http.connections import Serving


class ListenFailed(Exception):
    """The server cannot listen on the address; the message says why and what to do."""


class Server:
    """The server, from ``open`` to ``close``."""

    def __init__(self, listen: tuple[str, int], app: ASGIApp) -> None:
        """``listen``: host and port (0: any free port). ``app``: answers the requests."""
        self._listen = listen
        self._app = app
        self._socket: socket.socket | None = None
        self._serving: Serving | None = None

    def open(self) -> None:
        """Starts to listen. Requests wait until ``serve``.

        Raises:
            ListenFailed: another process has the port, or this machine has no such address.
        """
        host, port = self._listen
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # with "[::]", also IPv4 clients
        try:
            self._socket = socket.create_server((host, port), family=family, dualstack_ipv6=both)
        except (OSError, OverflowError) as error:
            # Python appends the address to the text for a port in use.
            told = str(getattr(error, "strerror", None) or error).partition(" (while attempting")[0]
            raise ListenFailed(f"cannot listen at {address_text(host, port)}: {told}; {_remedy(error)}") from error

    @property
    def address(self) -> str:
        """The host:port on which the server listens."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return address_text(str(host), port)

    async def serve(self) -> None:
        """Answers requests until ``close``, or until cancelled. A failure of the server is only logged: copying does
        not depend on it."""
        assert self._socket is not None
        await asyncio.sleep(0)  # let the workers be started first: importing takes a while
        try:
            from mirror.service.http.connections import Serving

            self._serving = Serving(self._app)
            await self._serving.serve(sockets=[self._socket])
        except Exception as error:
            logs.get_logger().error("http_failed", detail=f"the HTTP server: {error!r}")

    def close(self) -> None:
        """Stops listening. Does not wait for requests that are being answered."""
        if self._serving is not None:
            self._serving.stop()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _remedy(error: Exception) -> str:
    if getattr(error, "errno", None) == errno.EADDRINUSE:
        return "another mirror or program uses it: set http.listen to another port, or to port 0 for any that is free"
    return "set http.listen to an address of this machine and a port that it may use"
