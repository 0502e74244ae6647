"""A long link to a broker: bytes arrive later, at any rate, as over a line with enough capacity.

Bytes are passed on as they come, each piece after the delay. A proxy that waits for whole frames (``lab.proxy``) would
add the time that a frame takes, twice. TCP's window does not limit the bytes under way either, since both ends are
near. Over a real line it does, unless the socket buffers are large enough.
"""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

from mirror.loop_thread import LoopThread
from mirror.sandbox import SandboxCluster
from mirror.sandbox.children.ports import Reservation

__all__ = ["LongLink"]

MOST_UNDER_WAY = 256 << 20
"""Maximum number of bytes under way in one direction of a connection. Beyond that, the sender has to wait."""
_TIMEOUT_S = 60.0
_HOST = "127.0.0.1"


class LongLink:
    """A long link to one broker. A context manager: enter it before the cluster starts, then ``attach`` the cluster.

    Attributes:
        ports: the port at 127.0.0.1 that clients use, for ``SandboxCluster(proxied=...)``.
        delay_s: delay in seconds of everything that is sent from now on, in each direction.
    """

    def __init__(self) -> None:
        self.delay_s = 0.0
        self._reservation = Reservation()
        self._upstream = 0
        self._thread = LoopThread("long link", timeout_s=_TIMEOUT_S)
        self._loop = self._thread.loop
        self._server: asyncio.Server | None = None
        self._ends: set[_End] = set()
        self._all_gone = asyncio.Event()
        self._all_gone.set()
        self._dials: set[asyncio.Task[None]] = set()

    @property
    def ports(self) -> tuple[int, ...]:
        return (self._reservation.port,)

    @property
    def bootstrap_servers(self) -> str:
        """``bootstrap.servers`` for clients that use the link."""
        return f"{_HOST}:{self._reservation.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._close())
        self._thread.stop()
        self._reservation.release()

    def attach(self, cluster: SandboxCluster) -> None:
        """Connects the link to the proxied listener of a cluster that has started, with a single broker."""
        (broker,) = cluster.brokers
        assert broker.proxied_port is not None, "the cluster was not started with proxied=link.ports"
        self.attach_port(broker.proxied_port)

    def attach_port(self, port: int) -> None:
        """Connects the link to whatever listens on a port of 127.0.0.1."""
        self._upstream = port
        self._thread.run(self._listen())

    async def _listen(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, self._reservation.port))
        self._server = await self._loop.create_server(lambda: _End(self, self._join), sock=listening)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for dial in self._dials:
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        for end in list(self._ends):
            end.abort()
        await self._all_gone.wait()

    def _join(self, client: "_End") -> None:
        """Begins to connect a new client with the broker."""
        dial = self._loop.create_task(self._dial(client))
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)

    async def _dial(self, client: "_End") -> None:
        try:
            _, broker = await self._loop.create_connection(lambda: _End(self, lambda _: None), _HOST, self._upstream)
        except OSError:
            client.abort()
            return
        client.join(broker)
        broker.join(client)

    def made(self, end: "_End") -> None:
        """Notes a new connection."""
        self._ends.add(end)
        self._all_gone.clear()

    def gone(self, end: "_End") -> None:
        """Notes that a connection has ended."""
        self._ends.discard(end)
        if not self._ends:
            self._all_gone.set()


class _End(asyncio.Protocol):
    """The connection at one end of the link, and the bytes that are under way from there to the other end."""

    def __init__(self, link: LongLink, on_made: "Callable[[_End], None]") -> None:
        self._link = link
        self._on_made = on_made
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._other: _End | None = None
        self._under_way: deque[tuple[float, bytes]] = deque()
        """(time of arrival, bytes) in order. Empty bytes stand for the end of the stream."""
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._paused = False
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()
        self._link.made(self)
        self._on_made(self)

    def join(self, other: "_End") -> None:
        """Makes everything that comes from this end go to another one from now on."""
        self._other = other
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._arrive()  # Python 3.11 reads once although it was told not to

    def data_received(self, data: bytes) -> None:
        self._send(data)
        if self._size > MOST_UNDER_WAY and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._send(b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.gone(self)
        if exc is not None and self._other is not None:
            self._other.abort()
        else:
            self._send(b"")

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._other is not None:
            self._other._arrive()

    def abort(self) -> None:
        """Breaks the connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _send(self, data: bytes) -> None:
        self._under_way.append((self._loop.time() + self._link.delay_s, data))
        self._size += len(data)
        if len(self._under_way) == 1:
            self._arrive()

    def _arrive(self) -> None:
        """Passes on the bytes whose time of arrival has come, as long as the other end takes them."""
        other = self._other
        if other is None or other._transport is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._under_way and not other._full:
            at, data = self._under_way[0]
            if at > self._loop.time():
                self._timer = self._loop.call_at(at, self._arrive)
                break
            self._under_way.popleft()
            self._size -= len(data)
            if other._transport.is_closing():
                continue  # the other end is gone: drop the bytes
            if data:
                other._transport.write(data)
            else:
                with contextlib.suppress(OSError):  # the other connection has just broken
                    other._transport.write_eof()
        if self._paused and self._size <= MOST_UNDER_WAY and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
