"""A data connection: what ``net.connection.Connection`` is to a lane and to a fetcher. Produce v8, and Fetch v11 or,
by topic id, v13.

The two requests are read and answered in plain structs, of one topic: a run has thousands of them.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from mirror.net.buffers import Frame
from mirror.net.errors import ConnectionLost, NetworkError, RequestTimedOut
from mirror.net.metadata import Leader
from mirror.net.options import ConnectionOptions
from mirror.net.stream import Piece, Waiter
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import READ_COMMITTED
from mirror.wire.header import SIZE
from mirror.wire.versions import FETCH_KEY, PRODUCE_KEY
from tests.simulation.model.broker import Answer, PartitionModel
from tests.simulation.model.network import Link, Reply
from tests.simulation.model.site import Site

PRODUCE_VERSION = 8
FETCH_VERSION = 11
FETCH_BY_ID = 13
_HEADER = struct.Struct(">hhih")
_PRODUCE = struct.Struct(">hhiih1si")
"""No transactional id, acks, timeout, one topic of one letter, how many partitions."""
_BATCH = struct.Struct(">ii")
"""Partition, size of the batch."""
_PRODUCED = struct.Struct(">iih1si")
_ANSWERED = struct.Struct(">ihqqqih")
_THROTTLE = struct.Struct(">i")
_FETCH = struct.Struct(">iiiibiiih1si")
"""Replica, wait, least, most, isolation, session, epoch, one topic, how many partitions."""
_FETCH_BY_ID = struct.Struct(">xiiiibiiB16sB")
"""The same, with tags before it, numbers of topics and partitions one higher, and the topic's id."""
_ASKED = struct.Struct(">iiqqi")
"""Partition, epoch, offset, -1, most."""
_ASKED_BY_ID = struct.Struct(">iiqiqix")
"""Partition, epoch, offset, last epoch, -1, most, no tags."""
_FETCHED = struct.Struct(">iihiih1si")
_FETCHED_BY_ID = struct.Struct(">ixihiB16sB")
_FOUND = struct.Struct(">ihqqq")
"""Partition, error, high watermark, last stable offset, start."""
_ABORTED = struct.Struct(">qq")
_RECORDS = struct.Struct(">ii")
"""Preferred replica, size."""
_DIVERGES = struct.Struct(">BBBiqB")
"""One tag, which it is, its size, epoch, end offset, no tags of its own."""


class _Asked(NamedTuple):
    """Of a Fetch, one partition."""

    partition: int
    epoch: int
    offset: int
    last_epoch: int
    most: int


class _Found(NamedTuple):
    """The answer to it."""

    partition: int
    error: int
    model: PartitionModel
    aborted: Sequence[tuple[int, int]] = ()
    records: bytes = b""
    diverging: tuple[int, int] | None = None
    """The log never went on to the offset in the epoch of the batch before: up to which epoch and offset it has it."""


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
        self.bytes_received = 0
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
        return PRODUCE_VERSION if api_key == PRODUCE_KEY else self._site.fetch_version

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
        api_key, version, correlation_id, client = _HEADER.unpack_from(frame)
        at = _HEADER.size + client
        if api_key == PRODUCE_KEY:
            self.before_write("data")
            self._request("produce", correlation_id, self._produce(correlation_id, _batches(frame, at)))
            return
        assert api_key == FETCH_KEY
        by_id = version == FETCH_BY_ID
        head, each = (_FETCH_BY_ID, _ASKED_BY_ID) if by_id else (_FETCH, _ASKED)
        fields = head.unpack_from(frame, at)
        at += head.size
        wanted = each.iter_unpack(frame[at : at + (fields[-1] - by_id) * each.size])
        # Before v12 there is the log start in its place, which consumers do not know: -1.
        asked = [_Asked(one[0], one[1], one[2], one[3], one[-1]) for one in wanted]
        self._request("fetch", correlation_id, self._fetch(correlation_id, version, fields, asked))

    def _request(self, what: str, correlation_id: int, execute: Callable[[Reply], None]) -> None:
        self.link.send(what, execute, self._receive)

    # -- the broker's side -------------------------------------------------------------------------------------------

    def _produce(self, correlation_id: int, batches: dict[int, bytes]) -> Callable[[Reply], None]:
        partitions, node_id, who = self._site.partitions, self._node_id, self.link.process.name

        def execute(reply: Reply) -> None:
            """Appended one after the other; answered when all of it is replicated, or given up."""
            answers: dict[int, Answer] = {}

            def answered(index: int, answer: Answer) -> None:
                answers[index] = answer
                if len(answers) == len(batches):
                    reply(_produced(correlation_id, [(each, answers[each]) for each in batches]))

            for index, batch in batches.items():
                partitions[index].produce(who, node_id, batch, partial(answered, index))

        return execute

    def _fetch(
        self, correlation_id: int, version: int, fields: Sequence[Any], asked: list[_Asked]
    ) -> Callable[[Reply], None]:
        site, committed = self._site, fields[4] == READ_COMMITTED
        topic_id = fields[-2] if version == FETCH_BY_ID else b""

        def execute(reply: Reply) -> None:
            def again() -> None:
                room, found = fields[3], []
                for each in asked:
                    if topic_id and topic_id != site.topic_id:
                        found.append(_Found(each.partition, ErrorCode.UNKNOWN_TOPIC_ID, site.model))
                        continue
                    one = self._find(each, room, committed=committed)
                    found.append(one)
                    room -= len(one.records)
                if any(one.error or one.records or one.diverging for one in found) or self._loop.time() >= answer_at:
                    reply(_fetched(correlation_id, topic_id, found))
                else:
                    site.when_grown(answer_at, again)

            answer_at = self._loop.time() + fields[1] / 1000
            again()

        return execute

    def _find(self, asked: _Asked, room: int, *, committed: bool) -> _Found:
        """One partition's part of an answer: its first batch comes whole if it is the answer's first."""
        index, epoch, offset, last_epoch, most = asked
        site = self._site.partitions[index]

        def look(model: PartitionModel) -> _Found:
            if not model.start <= offset <= model.end:
                return _Found(index, ErrorCode.OFFSET_OUT_OF_RANGE, model)
            if last_epoch >= 0 and model.end_of_epoch(last_epoch) < (last_epoch, offset):
                return _Found(index, 0, model, diverging=model.end_of_epoch(last_epoch))
            stored = model.read(offset, min(most, room), committed=committed) if room > 0 else []
            aborted = model.aborted(offset, stored[-1].header.last_offset) if stored and committed else []
            return _Found(index, 0, model, aborted, b"".join(one.data for one in stored))

        found: list[_Found | Answer] = []
        site.look(Leader(self._node_id, epoch), look, found.append)
        return found[0] if isinstance(found[0], _Found) else _Found(index, found[0].error, site.model)

    # -- back in the client ------------------------------------------------------------------------------------------

    def _receive(self, response: bytes) -> None:
        if self.closed:
            return
        waiter = self._in_flight.popleft().waiter
        self.bytes_received += len(response)
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

    def take_over_unsent(self, copy: Callable[[Sequence[Piece]], memoryview]) -> None:
        """What is written is sent at once."""

    def wake_at(self, size: int) -> None:
        """Nothing to gain here."""

    def throttle(self, throttle_ms: int) -> None:
        """No quotas here."""


def _batches(frame: bytes, at: int) -> dict[int, bytes]:
    """Partition -> batch of a Produce request. Of a partition that is there twice a broker takes the last."""
    *_, count = _PRODUCE.unpack_from(frame, at)
    at += _PRODUCE.size
    batches = {}
    for _ in range(count):
        index, size = _BATCH.unpack_from(frame, at)
        at += _BATCH.size
        batches[index] = frame[at : at + size]
        at += size
    return batches


def _produced(correlation_id: int, answers: list[tuple[int, Answer]]) -> bytes:
    """A Produce response v8."""
    head = _PRODUCED.pack(correlation_id, 1, 1, b"t", len(answers))
    parts = [_ANSWERED.pack(index, error, base, time, 0, 0, -1) for index, (error, base, time) in answers]
    return head + b"".join(parts) + _THROTTLE.pack(0)


def _fetched(correlation_id: int, topic_id: bytes, found: list[_Found]) -> bytes:
    """A Fetch response v11, or v13 if there is a topic id."""
    parts = []
    for index, error, model, aborted, records, diverging in found:
        parts.append(_FOUND.pack(index, error, model.replicated, model.last_stable, model.start))
        if topic_id:
            parts.append(_varint(len(aborted) + 1))
            parts += [_ABORTED.pack(*one) + b"\0" for one in aborted]
            parts += [b"\xff\xff\xff\xff", _varint(len(records) + 1), records]
            parts.append(_DIVERGES.pack(1, 0, 13, *diverging, 0) if diverging is not None else b"\0")
        else:
            parts.append(struct.pack(">i", len(aborted)))
            parts += [_ABORTED.pack(*one) for one in aborted]
            parts += [_RECORDS.pack(-1, len(records)), records]
    if topic_id:
        head = _FETCHED_BY_ID.pack(correlation_id, 0, 0, 0, 2, topic_id, len(found) + 1)
        return head + b"".join(parts) + b"\0\0"
    return _FETCHED.pack(correlation_id, 0, 0, 0, 1, 1, b"t", len(found)) + b"".join(parts)


def _varint(number: int) -> bytes:
    """Unsigned."""
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])
