"""One TCP connection to one broker: frames out, frames in, in order, with deadlines.

It is driven by the event loop's ``add_reader`` and ``add_writer``, with no task, future or transport per request: on
the data path a request costs a tuple in a queue. It does not read the frames' content; ``net.connection`` and the
waiters do.

Ownership: a response that is passed to a waiter lies in the connection's own read-ahead buffer and is valid only during
the call. On a connection with ``allocate``, a response larger than the read-ahead is received straight into the frame
that ``allocate`` returns (no copy), and the waiter owns it.
"""

import asyncio
import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from mirror.net.buffers import Buffer, Frame
from mirror.net.errors import ConnectionLost, NetworkError, RequestTimedOut, TlsFailed
from mirror.wire.header import LAST_CORRELATION_ID, SIZE
from mirror.wire.primitives import MalformedFrame

Piece = bytes | bytearray | memoryview
MAX_PIECES = 1000
"""Most buffers in one ``sendmsg``: the kernel's limit is 1,024 (IOV_MAX)."""
READ_AHEAD = 64 * 1024
SIZE_ONLY = SIZE.size
"""Read-ahead for data connections: only the size, so that every body is received in place."""
MAX_RESPONSE = 1 << 30
"""A larger size cannot be that of a response: a broker's default fetch.max.bytes is 55 MiB, a batch has at most
2^31 - 1 bytes."""
LOW_WATER = 1 << 23
"""Most bytes that the kernel is asked to gather before it wakes us (SO_RCVLOWAT): usually a whole response. The kernel
limits it to half of the size to which its receive buffer may grow (net.ipv4.tcp_rmem)."""
WORTH_GATHERING = 32 * 1024
TLS_ALERT = 0x1503
"""The first two bytes of a TLS alert. A TLS port sends one as its answer to bytes that are not TLS."""


class Waiter(Protocol):
    """Waits for a response. Exactly one of the two methods is called, once per response."""

    def receive(self, response: memoryview | Frame) -> None:
        """Takes the response. It is a ``Frame`` only on connections with ``allocate``."""

    def fail(self, error: NetworkError) -> None:
        """Called if there will be no response. The outcome of the request is unknown."""


_InFlight = tuple[int, Waiter, float]
"""Correlation id, waiter, deadline (the event loop's time)."""


class Socket(Protocol):
    """A connected, non-blocking socket: ``socket.socket``, or one with TLS on it (``net.security.tls``)."""

    def fileno(self) -> int:
        """Returns the file descriptor."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Reads the bytes that are there. Returns their number; 0 at the end of the connection."""

    def send(self, piece: Piece, /) -> int:
        """Writes as much as the kernel takes. Returns the number of bytes."""

    def sendmsg(self, pieces: Sequence[Piece], /) -> int:
        """As ``send``, for several pieces."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Sets an option of the socket."""

    def close(self) -> None:
        """Closes the socket."""


class Stream:
    """See the module's docstring. ``net.connection.Connection`` adds the requests."""

    def __init__(
        self,
        sock: Socket,
        *,
        name: str,
        request_timeout_s: float,
        read_ahead: int = READ_AHEAD,
    ) -> None:
        """
        Args:
            sock: a connected, non-blocking socket. The stream owns it from now on.
            name: the broker's name in messages.
            request_timeout_s: how long to wait for an answer, unless ``expect`` is called with another timeout.
            read_ahead: most bytes that are read at once; a longer response gets a buffer of its own.
        """
        self.name = name
        self.closed: NetworkError | None = None
        self.on_close: Callable[[NetworkError], None] | None = None
        """Called once at the end, when every waiter has failed."""
        self.after_receive: Callable[[], None] | None = None
        """Called after the responses of one wake-up were delivered. The place to send requests for which they made
        room."""
        self.greeted_at = 0
        """``bytes_received`` at the moment when the broker's versions were known; 0 before."""
        self.bytes_received = 0
        self._request_timeout_s = request_timeout_s
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._next_correlation_id = 1
        self._in_flight: deque[_InFlight] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._outgoing: deque[Piece] = deque()
        self._blocked = False
        self._inbox = memoryview(bytearray(read_ahead))
        self._filled = 0
        self._allocate: Callable[[int], Frame] | None = None
        self._frame: Frame | None = None
        self._body = self._inbox[:0]
        self._missing = 0
        self._low_water = 1
        self._loop.add_reader(sock.fileno(), self._on_readable)

    def receive_into(self, allocate: Callable[[int], Frame] | None) -> Callable[[int], Frame] | None:
        """From now on, responses larger than the read-ahead are received into frames from ``allocate(size)``, which
        may not fail; None: into buffers of their own. Returns the previous ``allocate``."""
        before, self._allocate = self._allocate, allocate
        return before

    # -- sending ---------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._in_flight)

    def next_correlation_id(self, count: int = 1) -> int:
        """Reserves ``count`` correlation ids for requests that the caller frames itself, and returns the first one.
        ``expect`` must follow in the same order. Ids at the end of the range may stay unused."""
        first = self._next_correlation_id
        self._next_correlation_id = (first + count) & LAST_CORRELATION_ID
        return first

    def expect(self, correlation_id: int, waiter: Waiter, timeout_s: float | None = None, *, count: int = 1) -> None:
        """Announces ``count`` requests with consecutive correlation ids, beginning with this one. The waiter is called
        for each of them. To be called before ``write``, in the order of the frames."""
        if self.closed:
            for _ in range(count):
                waiter.fail(self.closed)
            return
        deadline = self._loop.time() + (self._request_timeout_s if timeout_s is None else timeout_s)
        for number in range(correlation_id, correlation_id + count):
            self._in_flight.append((number & LAST_CORRELATION_ID, waiter, deadline))
        if self._timer is None or deadline < self._timer_at:
            # The timer may be that of an answered request, and be set for much later than this deadline.
            if self._timer is not None:
                self._timer.cancel()
            self._time_out_at(deadline)

    def postpone(self, seconds: float) -> None:
        """Extends the deadlines of all requests under way by ``seconds``: the broker does not read the connection for
        that time."""
        in_flight = self._in_flight
        for at, (number, waiter, deadline) in enumerate(in_flight):
            in_flight[at] = number, waiter, deadline + seconds

    def write(self, pieces: Sequence[Piece]) -> None:
        """Sends whole frames. The pieces are not copied: they must not change before the answer has arrived."""
        if self.closed:
            return
        outgoing = self._outgoing
        outgoing.extend(pieces)
        if self._blocked and pieces:
            return
        try:
            while outgoing:
                some = list(itertools.islice(outgoing, MAX_PIECES))
                sent = self._sock.send(some[0]) if len(some) == 1 else self._sock.sendmsg(some)
                if sent < sum(map(len, some)):
                    while sent >= len(outgoing[0]):
                        sent -= len(outgoing.popleft())
                    if sent:
                        outgoing[0] = memoryview(outgoing[0])[sent:]
                    break  # the kernel's buffer is full, so another send would only raise BlockingIOError
                if len(some) == len(outgoing):
                    # The usual case: the kernel took everything. A loop over hundreds of pieces would be slower.
                    outgoing.clear()
                    break
                for _ in some:
                    outgoing.popleft()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(self._lost(error))
            return
        if bool(outgoing) is not self._blocked:
            self._wait_for_room(blocked=not self._blocked)

    def take_over_unsent(self, copy: Callable[[Sequence[Piece]], memoryview]) -> None:
        """Replaces the bytes that are not sent yet by a copy, so that the original pieces may change. ``copy`` returns
        the copied bytes; they must not change before the answer to the last of these frames."""
        if self._outgoing:
            self._outgoing = deque([copy(list(self._outgoing))])

    def _wait_for_room(self, *, blocked: bool) -> None:
        """Starts to wait for room in the kernel's send buffer (``blocked``), or stops waiting."""
        self._blocked = blocked
        if blocked:
            self._loop.add_writer(self._sock.fileno(), self.write, ())
        else:
            self._loop.remove_writer(self._sock.fileno())

    # -- receiving -------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            if self._missing:
                self._receive_body()
            else:
                self._receive_ahead()
                if 0 < self._missing < WORTH_GATHERING:
                    # The rest of a small response is usually there already: to look costs less than to be woken.
                    self._receive_body()
        except (BlockingIOError, InterruptedError):
            return
        except MalformedFrame as error:
            self.close(ConnectionLost(f"{self.name}: malformed response, {error}"))
        except OSError as error:
            self.close(self._lost(error))

    def _receive_ahead(self) -> None:
        received = self._sock.recv_into(self._inbox[self._filled :])
        if not received:
            self.close(ConnectionLost(f"{self.name}: the broker closed the connection{self._hint()}"))
            return
        self.bytes_received += received
        self._filled += received
        inbox, filled, at = self._inbox, self._filled, 0
        in_flight = self._in_flight
        while filled - at >= SIZE.size and not self.closed:
            size: int = SIZE.unpack_from(inbox, at)[0]
            if not SIZE.size <= size <= MAX_RESPONSE:
                raise MalformedFrame(f"response size {size}")
            start = at + SIZE.size
            if start + size > filled:
                if start + size - at > len(inbox):
                    self._begin_body(size, inbox[start:filled])
                    self._filled = 0
                    if at and self.after_receive is not None:
                        self.after_receive()
                    return
                break
            at = start + size
            (number,) = SIZE.unpack_from(inbox, start)
            if not in_flight or in_flight[0][0] != number:
                raise _unexpected(number)
            in_flight.popleft()[1].receive(inbox[start:at])
        if at and not self.closed:
            rest = bytes(inbox[at:filled])
            inbox[: len(rest)] = rest
            self._filled = len(rest)
            if self.after_receive is not None:
                self.after_receive()

    def _begin_body(self, size: int, first: memoryview) -> None:
        """Begins to receive a response that does not fit the read-ahead into a buffer of its own."""
        if size >> 16 == TLS_ALERT and not self.greeted_at:
            self.close(TlsFailed(f"{self.name}: this port speaks TLS; set security.protocol to SSL or SASL_SSL"))
            return
        if self._allocate is not None:
            self._frame = self._allocate(size)
            self._body = self._frame.body
        else:
            # The broker may announce any size: such a buffer takes memory only for the bytes that were received.
            self._body = memoryview(Buffer(size).memory)[:size]
        self._body[: len(first)] = first
        self._missing = size - len(first)
        self._gather(self._missing)

    def _receive_body(self) -> None:
        body = self._body
        received = self._sock.recv_into(body[len(body) - self._missing :])
        if not received:
            self.close(ConnectionLost(f"{self.name}: the broker closed the connection in mid-frame"))
            return
        self.bytes_received += received
        self._missing -= received
        self._gather(self._missing)
        if not self._missing:
            (number,) = SIZE.unpack_from(body, 0)
            if not self._in_flight or self._in_flight[0][0] != number:
                raise _unexpected(number)
            frame, self._frame = self._frame, None
            self._body = self._inbox[:0]
            self._in_flight.popleft()[1].receive(body if frame is None else frame)
            if self.after_receive is not None and not self.closed:
                self.after_receive()

    def wake_at(self, size: int) -> None:
        """For read-ahead connections: asks the kernel not to wake us before ``size`` bytes of responses have arrived
        (0: wake at any byte).

        The caller has to be sure that so many bytes will come. The end of the connection wakes us in any case.
        """
        low_water = max(1, size - self._filled)
        if low_water != self._low_water:
            self._set_low_water(low_water)

    def _gather(self, missing: int) -> None:
        """Asks the kernel to wake us when the ``missing`` bytes have arrived, instead of at each packet."""
        low_water = min(missing, LOW_WATER) if missing >= WORTH_GATHERING else 1
        if low_water != self._low_water:
            self._set_low_water(low_water)

    def _set_low_water(self, low_water: int) -> None:
        self._low_water = low_water
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)

    def _hint(self) -> str:
        """Returns what may be wrong if the broker hangs up now, as a part of the error message; empty if unknown."""
        return ""

    def _lost(self, error: OSError) -> NetworkError:
        """Returns the error to raise for an error of the socket."""
        return ConnectionLost(f"{self.name}: {error_text(error)}")

    # -- deadlines and the end ---------------------------------------------------------------------------------------

    def _time_out_at(self, deadline: float) -> None:
        """Sets the connection's only timer: answers come in order, so only the oldest request's deadline counts."""
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        deadline = self._in_flight[0][2]
        if self._loop.time() >= deadline:
            count = len(self._in_flight)
            self.close(
                RequestTimedOut(
                    f"{self.name}: no answer within {self._request_timeout_s:g} s to "
                    f"{f'the oldest of {count} requests' if count > 1 else 'a request'}; check the broker's load, or "
                    "raise request.timeout.ms"
                )
            )
        else:
            self._time_out_at(deadline)

    def close(self, error: NetworkError | None = None) -> None:
        """Closes the connection at once. Every waiter fails with ``error``. Safe to call twice."""
        if self.closed:
            return
        self.closed = error or ConnectionLost(f"{self.name}: closed")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        fileno = self._sock.fileno()
        self._loop.remove_reader(fileno)
        self._loop.remove_writer(fileno)
        self._sock.close()
        self._outgoing.clear()
        if self._frame is not None:
            self._frame.release()
            self._frame = None
        waiting, self._in_flight = self._in_flight, deque()
        for _, waiter, _ in waiting:
            waiter.fail(self.closed)
        if self.on_close is not None:
            self.on_close(self.closed)


def _unexpected(correlation_id: int) -> MalformedFrame:
    return MalformedFrame(f"correlation id {correlation_id} was not the next one expected")


def error_text(error: OSError) -> str:
    """Returns the system's text for the error's number. (asyncio replaces it by "Connect call failed".)"""
    if error.errno is None or isinstance(error, socket.gaierror):
        return str(error.strerror or error)
    return os.strerror(error.errno)
