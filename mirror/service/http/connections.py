"""Serves the HTTP connections with uvicorn, without its signal handlers and its log, and with limits for clients.

Import it only where a server runs: uvicorn imports its own command line, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp

SILENCE_S = 15.0
"""A connection is closed if a request is not complete after this long, or if the client reads nothing of an answer for
this long."""
MOST_CONNECTIONS = 256
"""Most connections at a time. Further ones are closed at once: the supervisor needs file descriptors for its
workers."""
HEADERS = [
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Server", "mirror"),
]
"""Headers of every answer."""
_WHOLE = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)
"""h11's states of a client that has sent its request completely."""


class Connection(H11Protocol):
    """A connection whose client may be slow, or hostile."""

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Closes the connection if there are too many; otherwise starts to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._await_request()

    def data_received(self, data: bytes) -> None:
        """Handles a part of a request."""
        super().data_received(data)
        self._await_request()

    def pause_writing(self) -> None:
        """Called when the client reads an answer more slowly than it is written."""
        super().pause_writing()
        self._await_taken(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Called when the client has read most of what was written."""
        super().resume_writing()
        self._stuck = _cancel(self._stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers."""
        self._late, self._stuck = _cancel(self._late), _cancel(self._stuck)
        super().connection_lost(exc)

    def _await_request(self) -> None:
        """Limits the time for a complete request, also if it arrives byte by byte or its body never ends."""
        if self.conn.their_state in _WHOLE:
            self._late = _cancel(self._late)
        elif self._late is None:
            self._late = self.loop.call_later(SILENCE_S, self.transport.abort)

    def _await_taken(self, unsent: int) -> None:
        """Closes the connection if the client reads nothing for ``SILENCE_S``. ``unsent``: bytes that wait to be sent
        now."""

        def look() -> None:
            now = self.transport.get_write_buffer_size()
            if now >= unsent:
                self.transport.abort()
            else:
                self._await_taken(now)

        self._stuck = self.loop.call_later(SILENCE_S, look)


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancels a timer, if there is one. Returns None, the new value of the caller's attribute."""
    if timer is not None:
        timer.cancel()
    return None


class Serving(uvicorn.Server):
    """Uvicorn inside a program that has its own signal handlers and its own log."""

    def __init__(self, app: ASGIApp) -> None:
        """``app``: answers the requests."""
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                interface="asgi3",
                lifespan="off",
                # The log is about mirroring, not about requests and misbehaving clients.
                log_config=None,
                log_level=logging.CRITICAL,
                access_log=False,
                # A client can write any headers: they must not determine its address.
                proxy_headers=False,
                server_header=False,
                headers=HEADERS,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing: the supervisor handles the signals."""
        yield

    def stop(self) -> None:
        """Stops listening, and closes all connections."""
        self.should_exit = self.force_exit = True
        for server in getattr(self, "servers", ()):
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.close()
