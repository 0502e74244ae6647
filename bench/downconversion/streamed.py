"""Reads a Fetch answer while it arrives. Only a window over it is in memory, not the whole answer.

The mirror receives answers as a whole (``net.stream``), because it forwards slices of them. So its memory is bounded by
how much it asks for at a time (KIP-74). A converter only reads forward, so it needs less: a window, or one batch if
that is larger.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from mirror.records.header import PREFIX, PREFIX_SIZE
from mirror.records.scan import Remainder, measure
from mirror.wire.fetch import FetchPartition, fetch_request
from mirror.wire.header import SIZE, request_header
from mirror.wire.primitives import MalformedFrame, read_i16, read_i32

__all__ = ["FETCH_VERSION", "Incoming", "Part", "parts", "request"]

FETCH_VERSION = 11
"""The last Fetch version in which all fields have fixed places (Kafka 2.3 to 4.x)."""
_FETCH_KEY = 1
_ROW_SIZE = 4 + 2 + 8 + 8 + 8 + 4
"""Size of a partition's fields: index, error code, high watermark, last stable offset, log start offset, and the number
of aborted transactions."""
_ABORTED_SIZE = 16


class Part(NamedTuple):
    """A partition of an answer.

    Attributes:
        topic, partition: the partition.
        error: its error code.
        high_watermark: its high watermark.
        record_sets: pieces of its records, each of whole entries. They must be read to the end before the next part is
            requested. Each is valid until the next one is requested.
    """

    topic: str
    partition: int
    error: int
    high_watermark: int
    record_sets: Iterator[memoryview]


class Incoming:
    """The bytes of an answer behind its size field.

    Args:
        receive_into: reads bytes into a buffer, at least one, and returns their number; 0: the connection has ended.
        size: size of the answer.
        window_bytes: maximum number of bytes that are read ahead.
    """

    def __init__(self, receive_into: Callable[[memoryview], int], size: int, *, window_bytes: int) -> None:
        self._receive_into = receive_into
        self._missing = size
        self._buffer = bytearray(window_bytes)
        self._start = self._end = 0

    @property
    def left(self) -> int:
        """Number of bytes of the answer that were not taken or skipped yet."""
        return self._end - self._start + self._missing

    def peek(self, count: int) -> memoryview:
        """Returns the next ``count`` bytes without taking them. They are valid until the next call. If they are more
        than the window, it is enlarged.

        Raises:
            MalformedFrame: fewer bytes of the answer are left.
            ConnectionError: the connection has ended before them.
        """
        if count > self.left:
            raise MalformedFrame(f"a field of {count} bytes where {self.left} of the answer are left")
        if self._start + count > len(self._buffer):
            self._move(count)
        while self._end - self._start < count:
            room = min(len(self._buffer) - self._end, self._missing)
            with memoryview(self._buffer) as view:
                received = self._receive_into(view[self._end : self._end + room])
            if not received:
                raise ConnectionError(f"the broker closed the connection with {self.left} bytes of an answer left")
            self._end += received
            self._missing -= received
        return memoryview(self._buffer).toreadonly()[self._start : self._start + count]

    def _move(self, count: int) -> None:
        """Makes room for ``count`` bytes from the start of the window on, if necessary in a larger buffer."""
        rest = bytes(memoryview(self._buffer)[self._start : self._end])
        if count > len(self._buffer):
            self._buffer = bytearray(count)
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def take(self, count: int) -> memoryview:
        """Takes the next ``count`` bytes, and returns them. They are valid until the next call. Raises: as ``peek``."""
        view = self.peek(count)
        self._start += count
        return view

    def skip(self, count: int) -> None:
        """Skips ``count`` bytes. Raises: as ``peek``."""
        while count:
            some = min(count, len(self._buffer))
            self.take(some)
            count -= some


def request(correlation_id: int, partitions: list[FetchPartition], *, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """Returns the bytes of a Fetch request, with its size in front. ``max_bytes``: maximum size of the answer's
    records."""
    head = request_header(
        api_key=_FETCH_KEY, version=FETCH_VERSION, correlation_id=correlation_id, client_id="downconversion",
        flexible=False,
    )  # fmt: skip
    body = fetch_request(
        FETCH_VERSION, partitions, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, isolation_level=0
    )
    return SIZE.pack(len(head) + len(body)) + head + body


def parts(incoming: Incoming, *, window_bytes: int) -> Iterator[Part]:
    """Yields the partitions of an answer to ``request``, in order.

    Args:
        incoming: the bytes of the answer.
        window_bytes: maximum size of the pieces of records, unless a single entry is larger.

    Raises:
        MalformedFrame: the answer does not follow the schema, or has an error code for the whole request.
        CorruptBatch: an entry has a length that no broker writes.
        ConnectionError: the connection has ended before the answer.
    """
    head = incoming.take(SIZE.size + 10)
    (error, _) = read_i16(head, 8)
    if error:
        raise MalformedFrame(f"the broker answered with error code {error}")
    for _ in range(_count(incoming)):
        (name_size, _) = read_i16(incoming.take(2), 0)
        topic = str(incoming.take(name_size), "utf-8")
        for _ in range(_count(incoming)):
            row = bytes(incoming.take(_ROW_SIZE))
            index, code = int.from_bytes(row[:4], "big"), int.from_bytes(row[4:6], "big", signed=True)
            aborted = int.from_bytes(row[-4:], "big", signed=True)
            incoming.skip(max(0, aborted) * _ABORTED_SIZE + 4)
            size = max(0, read_i32(incoming.take(4), 0)[0])
            behind = incoming.left - size
            sets = _record_sets(incoming, size, window_bytes)
            yield Part(topic, index, code, int.from_bytes(row[6:14], "big", signed=True), sets)
            if incoming.left > behind:
                raise AssertionError("the records of a part were not read to their end")
    if incoming.left:
        raise MalformedFrame(f"{incoming.left} bytes behind the answer")


def _count(incoming: Incoming) -> int:
    (count, _) = read_i32(incoming.take(4), 0)
    if not 0 <= count <= incoming.left:
        raise MalformedFrame(f"an array of {count} elements where {incoming.left} bytes of the answer are left")
    return count


def _record_sets(incoming: Incoming, size: int, window_bytes: int) -> Iterator[memoryview]:
    """Yields the entries of a record set of ``size`` bytes, as many at a time as fit into the window. A partial entry
    at the end is skipped."""
    if size > incoming.left:
        raise MalformedFrame(f"records of {size} bytes where {incoming.left} of the answer are left")
    while size:
        view = incoming.peek(min(size, window_bytes))
        used = _whole(view)
        if not used and (need := _needed(view)) <= size and need > len(view):
            used = _whole(view := incoming.peek(need))
        if not used:
            break
        yield view[:used]
        incoming.take(used)
        size -= used
    incoming.skip(size)


def _whole(view: memoryview) -> int:
    """Returns the number of bytes of the whole entries at the beginning of the view."""
    used, end = 0, len(view)
    while not isinstance(size := measure(view, used, end), Remainder):
        used += size
    return used


def _needed(view: memoryview) -> int:
    """Returns the size of the first entry in bytes; 0 if its head is not complete, or if it is KIP-283's filler."""
    if len(view) < PREFIX_SIZE:
        return 0
    offset, length = PREFIX.unpack_from(view)
    return PREFIX_SIZE + length if offset >= 0 else 0
