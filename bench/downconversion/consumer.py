"""The consumer of the memory test, in a separate process. It fetches a topic, converts it, and sends it on.

The message sets go to standard output, each behind a head (partition, the offset behind the set, size). A head with
partition -1 is the end. The figures go to standard error. There are three ways:

streamed   the answer is converted while it is received: KIP-283's idea in full
frame      the answer is received as a whole, and converted chunk by chunk
whole      the answer is received and converted as a whole before anything is sent, as brokers did before KIP-283
"""

import json
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bench.downconversion.conversion import send
from bench.downconversion.streamed import FETCH_VERSION, Incoming, parts, request
from lab import procfs
from mirror.legacy import ConvertedChunk, cut, down_convert
from mirror.legacy.downward import OldMagic
from mirror.records.content.opening import MOST_OPENED
from mirror.wire.fetch import FetchPartition, read_fetch_response
from mirror.wire.header import SIZE

__all__ = ["END", "HEAD", "WAYS", "main"]

HEAD = struct.Struct(">iqi")
END = -1
WAYS = ("streamed", "frame", "whole")
_TIMEOUT_S = 120
_WINDOW_BYTES = 1 << 20
_Piece = tuple[int, int, Iterable[memoryview]]
"""A partition of an answer: its number, its high watermark, and its record sets."""


class _How(NamedTuple):
    """How a process converts. ``way``: one of ``WAYS``."""

    way: str
    magic: OldMagic
    chunk_bytes: int


def main(arguments: dict[str, Any]) -> None:
    """Fetches and converts a topic, and prints the figures.

    Args:
        arguments: ``port``, ``topic``, ``partitions`` (their number), ``fetch_max_bytes``,
            ``max_partition_fetch_bytes``, ``way``, ``magic``, ``chunk_bytes``; ``limit_bytes``: limit of the process's
            memory, which the kernel enforces (RLIMIT_DATA; 0: no limit); ``answers``: maximum number of Fetch answers
            (0: until the end of the topic).
    """
    before = procfs.rss_bytes(os.getpid())
    if arguments["limit_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (arguments["limit_bytes"],) * 2)
    began_cpu_s = time.process_time()
    consumer = _Consumer(arguments)
    out_of_memory = False
    try:
        consumer.run()
    except MemoryError:
        out_of_memory = True
    figures = {
        "out_of_memory": out_of_memory,
        "answers": consumer.answers,
        "largest_answer": consumer.largest_answer,
        "stored_bytes": consumer.received,
        "cpu_s": time.process_time() - began_cpu_s,
        "before_bytes": before,
        "peak_bytes": procfs.peak_rss_bytes(os.getpid()),
    }
    send(HEAD.pack(END, 0, 0))
    print(json.dumps(figures), file=sys.stderr)


class _Consumer:
    """Fetches a topic from the only broker, which leads all partitions."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._how = _How(arguments["way"], arguments["magic"], arguments["chunk_bytes"])
        self._positions = dict.fromkeys(range(arguments["partitions"]), 0)
        self._behind = list(self._positions)
        self.answers = self.largest_answer = self.received = 0

    def run(self) -> None:
        """Fetches until the end of every partition, or until ``answers`` are read."""
        with socket.create_connection(("127.0.0.1", self._arguments["port"]), timeout=_TIMEOUT_S) as connection:
            while self._behind and self.answers != (self._arguments["answers"] or -1):
                self._fetch(connection)

    def _fetch(self, connection: socket.socket) -> None:
        topic, most = self._arguments["topic"], self._arguments["max_partition_fetch_bytes"]
        asked = [FetchPartition(topic, partition, self._positions[partition], most) for partition in self._behind]
        self.answers += 1
        connection.sendall(request(self.answers, asked, max_bytes=self._arguments["fetch_max_bytes"]))
        (size,) = SIZE.unpack(_exactly(connection, SIZE.size))
        self.largest_answer = max(self.largest_answer, size)
        self.received += size
        if self._how.way == "whole":
            made = [
                (partition, list(self._converted(partition, sets)), end)
                for partition, end, sets in _received(connection, size)
            ]
            for partition, chunks, end in made:
                self._send(partition, chunks, end)
            return
        answer = _received if self._how.way == "frame" else _streamed
        for partition, end, sets in answer(connection, size):
            self._send(partition, self._converted(partition, sets), end)

    def _converted(self, partition: int, sets: Iterable[memoryview]) -> Iterator[ConvertedChunk]:
        chunk_bytes = (1 << 62) if self._how.way == "whole" else self._how.chunk_bytes
        due = self._positions[partition]
        for record_set in sets:
            for chunk in down_convert(
                record_set, cut(record_set), magic=self._how.magic, most=MOST_OPENED, due=due, chunk_bytes=chunk_bytes
            ):
                if chunk.runs and chunk.runs[0].first_offset < due:
                    raise ValueError(f"partition {partition}: offset {chunk.runs[0].first_offset} behind {due - 1}")
                due = chunk.next_offset
                yield chunk

    def _send(self, partition: int, chunks: Iterable[ConvertedChunk], end: int) -> None:
        # A partition that has returned data goes to the end of the next request (KIP-74).
        self._behind.remove(partition)
        for chunk in chunks:
            send(HEAD.pack(partition, chunk.next_offset, len(chunk.messages)))
            send(chunk.messages)
            self._positions[partition] = chunk.next_offset
        if self._positions[partition] < end:
            self._behind.append(partition)


def _streamed(connection: socket.socket, size: int) -> Iterator[_Piece]:
    incoming = Incoming(connection.recv_into, size, window_bytes=_WINDOW_BYTES)
    for part in parts(incoming, window_bytes=_WINDOW_BYTES):
        _check(part.partition, part.error)
        yield part.partition, part.high_watermark, part.record_sets


def _received(connection: socket.socket, size: int) -> Iterator[_Piece]:
    frame = memoryview(_exactly(connection, size))
    for one in read_fetch_response(FETCH_VERSION, frame).partitions:
        _check(one.partition, one.error)
        yield one.partition, one.high_watermark, [frame[one.start : one.end]]


def _check(partition: int, error: int) -> None:
    if error:
        raise ValueError(f"partition {partition}: error code {error}")


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    with memoryview(data) as view:
        at = 0
        while at < size:
            received = connection.recv_into(view[at:])
            if not received:
                raise ConnectionError(f"the broker closed the connection after {at} of {size} bytes")
            at += received
    return data


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
