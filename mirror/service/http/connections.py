"""What serves the HTTP connections: uvicorn, without its signals and its log, and with bounds on what clients hold.

Load it only where a server runs: uvicorn brings its own command line with it.
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
"""A request that is not whole after this long, or an answer of which nothing is taken for as long, ends its
connection."""
MOST_CONNECTIONS = 256
"""Connections at a time. Those above are closed at once: the supervisor needs descriptors for its workers."""
HEADERS = [
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Server", "mirror"),
]
"""Of every answer."""
_WHOLE = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)
"""States of a client that owes no part of a request."""


class Connection(H11Protocol):
    """A connection of a client that may be slow, or ill-willed."""

    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called once, at the beginning."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._await_request()

    def data_received(self, data: bytes) -> None:
        """Called with each part of a request."""
        super().data_received(data)
        self._await_request()

    def pause_writing(self) -> None:
        """Called when the client takes an answer more slowly than it is made."""
        super().pause_writing()
        self._await_taken(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Called when it has taken most of it."""
        super().resume_writing()
        self._stuck = _cancel(self._stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called once, at the end."""
        self._late, self._stuck = _cancel(self._late), _cancel(self._stuck)
        super().connection_lost(exc)

    def _await_request(self) -> None:
        """Bounds the time for the whole of a request: also one that comes byte by byte, or whose body never ends."""
        if self.conn.their_state in _WHOLE:
            self._late = _cancel(self._late)
        elif self._late is None:
            self._late = self.loop.call_later(SILENCE_S, self.transport.abort)

    def _await_taken(self, unsent: int) -> None:
        """Ends the connection if nothing is taken for a while. ``unsent``: bytes that wait now."""

        def look() -> None:
            now = self.transport.get_write_buffer_size()
            if now >= unsent:
                self.transport.abort()
            else:
                self._await_taken(now)

        self._stuck = self.loop.call_later(SILENCE_S, look)


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancels a timer, if there is one. Returns None: what is left of it."""
    if timer is not None:
        timer.cancel()
    return None


class Serving(uvicorn.Server):
    """Uvicorn as a part of a program that has its own signals and its own log."""

    def __init__(self, app: ASGIApp) -> None:
        """``app``: answers the requests."""
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                interface="asgi3",
                lifespan="off",
                # The log is about mirroring, neither about requests nor about clients that go wrong.
                log_config=None,
                log_level=logging.CRITICAL,
                access_log=False,
                # Headers that a client can write do not say where it is.
                proxy_headers=False,
                server_header=False,
                headers=HEADERS,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals to the supervisor."""
        yield

    def stop(self) -> None:
        """Stops listening, and closes all connections."""
        self.should_exit = self.force_exit = True
        for server in getattr(self, "servers", ()):
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.close()
