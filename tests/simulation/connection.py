"""A data connection: what ``net.connection.Connection`` is to a lane and to a fetcher. Produce v8 and Fetch v11.

The two requests are read and answered in plain structs, one partition each: a run has thousands of them.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mirror.net.buffers import Frame
from mirror.net.cluster import Leader
from mirror.net.connection import ConnectionOptions, Piece, Waiter
from mirror.net.errors import ConnectionLost, NetworkError, RequestTimedOut
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import READ_COMMITTED
from mirror.wire.header import SIZE
from mirror.wire.versions import FETCH_KEY, PRODUCE_KEY
from tests.simulation.broker import Answer, PartitionModel
from tests.simulation.network import Link, Reply
from tests.simulation.site import Site

PRODUCE_VERSION = 8
FETCH_VERSION = 11
_HEADER = struct.Struct(">hhih")
_PRODUCE = struct.Struct(">hhiih1siii")
"""No transactional id, acks, timeout, one topic of one letter, one partition, its index, the size of the batch."""
_FETCH = struct.Struct(">iiiibiiih1siiiqqi")
"""Replica, wait, least, most, isolation, session, epoch, one topic, one partition, index, epoch, offset, -1, most."""
_PRODUCED = struct.Struct(">iih1siihqqqihi")
_FETCHED = struct.Struct(">iihiih1siihqqqi")
_ABORTED = struct.Struct(">qq")


class _InFlight(NamedTuple):
    correlation_id: int
    waiter: Waiter
    deadline: float


class SimulatedConnection:
    """See the module's text. ``link`` is set by who dials."""

    link: Link

    def __init__(self, site: Site, node_id: int, *, allocate: Callable[[int], Frame] | None) -> None:
        self.name = f"{site.name} broker {node_id}"
        self.options = ConnectionOptions(client_id="sim", request_timeout_s=12.0)
        self.closed: NetworkError | None = None
        self.on_close: Callable[[NetworkError], None] | None = None
        self.after_receive: Callable[[], None] | None = None
        self.throttled_s = 0.0
        self.before_write: Callable[[str], None] = lambda what: None
        """As of the cluster."""
        self._site = site
        self._node_id = node_id
        self._allocate = allocate
        self._loop = asyncio.get_running_loop()
        self._next_id = 1
        self._in_flight: deque[_InFlight] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def version_of(self, api_key: int, ours: tuple[int, int], what: str) -> int:
        """The one version of each that it speaks."""
        return PRODUCE_VERSION if api_key == PRODUCE_KEY else FETCH_VERSION

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return len(self._in_flight)

    def next_correlation_id(self, count: int = 1) -> int:
        """For the next request, or the first of so many."""
        first = self._next_id
        self._next_id += count
        return first

    def expect(self, correlation_id: int, waiter: Waiter, timeout_s: float | None = None, *, count: int = 1) -> None:
        """Announces a request, or so many."""
        if self.closed:
            for _ in range(count):
                waiter.fail(self.closed)
            return
        wait_s = self.options.request_timeout_s if timeout_s is None else timeout_s
        for number in range(correlation_id, correlation_id + count):
            self._in_flight.append(_InFlight(number, waiter, self._loop.time() + wait_s))
        if self._timer is None:
            self._timer = self._loop.call_later(wait_s, self.link.process.through, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        deadline = self._in_flight[0].deadline
        if self._loop.time() >= deadline:
            self.close(RequestTimedOut(f"{self.name}: no answer"))
        else:
            self._timer = self._loop.call_at(deadline, self.link.process.through, self._check_deadline)

    def write(self, pieces: Sequence[Piece]) -> None:
        """Sends whole frames."""
        if self.closed:
            return
        sent = b"".join(pieces)
        at = 0
        while at < len(sent):
            size = SIZE.unpack_from(sent, at)[0]
            at += SIZE.size
            self._send(sent[at : at + size])
            at += size

    def _send(self, frame: bytes) -> None:
        api_key, _, correlation_id, client = _HEADER.unpack_from(frame)
        at = _HEADER.size + client
        if api_key == PRODUCE_KEY:
            self.before_write("data")
            *_, size = _PRODUCE.unpack_from(frame, at)
            batch = frame[at + _PRODUCE.size : at + _PRODUCE.size + size]
            self._request("produce", correlation_id, self._produce(correlation_id, batch))
        else:
            assert api_key == FETCH_KEY
            self._request("fetch", correlation_id, self._fetch(correlation_id, *_FETCH.unpack_from(frame, at)))

    def _request(self, what: str, correlation_id: int, execute: Callable[[Reply], None]) -> None:
        self.link.send(what, execute, self._receive)

    # -- the broker's side -------------------------------------------------------------------------------------------

    def _produce(self, correlation_id: int, batch: bytes) -> Callable[[Reply], None]:
        site, node_id, who = self._site, self._node_id, self.link.process.name

        def execute(reply: Reply) -> None:
            def answer(answer: Answer) -> None:
                error, base = answer
                reply(_PRODUCED.pack(correlation_id, 1, 1, b"t", 1, 0, error, base, -1, 0, 0, -1, 0))

            site.produce(who, node_id, batch, answer)

        return execute

    def _fetch(self, correlation_id: int, *fields: Any) -> Callable[[Reply], None]:
        max_wait_ms, isolation = fields[1], fields[4]
        epoch, offset, most = fields[12], fields[13], fields[15]

        def execute(reply: Reply) -> None:
            def look(model: PartitionModel) -> bytes:
                if not model.start <= offset <= model.end:
                    return _fetched(correlation_id, model, ErrorCode.OFFSET_OUT_OF_RANGE)
                stored = model.read(offset, most, committed=isolation == READ_COMMITTED)
                aborted = model.aborted(offset, stored[-1].header.last_offset) if stored and isolation else []
                return _fetched(correlation_id, model, 0, aborted, b"".join(one.data for one in stored))

            def looked(result: bytes | Answer) -> None:
                if isinstance(result, Answer):
                    result = _fetched(correlation_id, self._site.model, result.error)
                if len(result) > _FETCHED.size + 8 or self._loop.time() >= answer_at:
                    reply(result)
                else:
                    self._site.when_grown(answer_at, again)

            def again() -> None:
                self._site.look(Leader(self._node_id, epoch), look, looked)

            answer_at = self._loop.time() + max_wait_ms / 1000
            again()

        return execute

    # -- back in the client ------------------------------------------------------------------------------------------

    def _receive(self, response: bytes) -> None:
        if self.closed:
            return
        waiter = self._in_flight.popleft().waiter
        if self._allocate is not None:
            frame = self._allocate(len(response))
            frame.body[:] = response
            waiter.receive(frame)
        else:
            waiter.receive(memoryview(response))
        if self.after_receive is not None and not self.closed:
            self.after_receive()

    def lost(self) -> None:
        """The connection was cut, and the client is told."""
        self.close(ConnectionLost(f"{self.name}: cut"))

    def close(self, error: NetworkError | None = None) -> None:
        """Ends it; every waiter fails."""
        if self.closed:
            return
        self.closed = error or ConnectionLost(f"{self.name}: closed")
        self.link.close()
        waiting, self._in_flight = self._in_flight, deque()
        for request in waiting:
            request.waiter.fail(self.closed)
        if self.on_close is not None:
            self.on_close(self.closed)

    def wake_at(self, size: int) -> None:
        """Nothing to gain here."""

    def throttle(self, throttle_ms: int) -> None:
        """No quotas here."""


def _fetched(
    correlation_id: int,
    model: PartitionModel,
    error: int,
    aborted: Sequence[tuple[int, int]] = (),
    records: bytes = b"",
) -> bytes:
    """A Fetch response v11 with one partition."""
    head = _FETCHED.pack(
        correlation_id, 0, 0, 0, 1, 1, b"t", 1, 0, error, model.replicated, model.last_stable, model.start, len(aborted)
    )
    transactions = b"".join(_ABORTED.pack(*one) for one in aborted)
    return head + transactions + struct.pack(">ii", -1, len(records)) + records
