"""Both ends of the proxy for its tests: a broker that answers whatever comes, a client that sends what it is told."""

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from lab.proxy.answers import refusal
from lab.proxy.frames import request_frame

PATIENCE_S = 60.0


def exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes; EOFError if the other side ends before."""
    out = bytearray()
    while len(out) < size:
        chunk = sock.recv(size - len(out))
        if not chunk:
            raise EOFError(bytes(out))
        out += chunk
    return bytes(out)


def read_frame(sock: socket.socket) -> bytes:
    """A whole frame, its size in front."""
    head = exactly(sock, 4)
    return head + exactly(sock, struct.unpack(">i", head)[0])


class FarBroker:
    """Answers every request it knows with code 0, as real schemas have it, and remembers what it got."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ended = threading.Semaphore(0)
        """Released at the end of each connection."""
        self._came = threading.Condition()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                try:
                    while True:
                        data = read_frame(self.request)
                        with outer._came:
                            outer.got.append(data)
                            outer._came.notify_all()
                        self.request.sendall(refusal(request_frame(data, link=0, node_id=0), 0))
                except (EOFError, OSError):
                    outer.ended.release()

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> "FarBroker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def await_got(self, count: int) -> None:
        """Until so many requests came."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.got) >= count, PATIENCE_S), self.got


def list_offsets(number: int, *partitions: int) -> bytes:
    """A ListOffsets request with this correlation id."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    wanted = [
        topic.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
        for index in partitions or (0,)
    ]
    return _framed(number, [topic(name="t", partitions=wanted)])


def list_nothing(number: int) -> bytes:
    """A ListOffsets request for no partition."""
    return _framed(number, [])


def _framed(number: int, topics: list[Any]) -> bytes:
    request: Any = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)
    request.API_VERSION = 5
    request.with_header(correlation_id=number, client_id="test")
    return bytes(request.encode(header=True, framed=True))


def number_of(answer: bytes) -> int:
    """The correlation id of an answer."""
    return int(struct.unpack_from(">i", answer, 4)[0])


class Client:
    """A connection that sends and reads frames."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.sock.sendall(list_offsets(number))

    def read(self) -> int:
        """The correlation id of the next answer."""
        return number_of(read_frame(self.sock))

    def broken(self) -> bytes:
        """What still comes until the connection ends."""
        out = bytearray()
        try:
            while chunk := self.sock.recv(1 << 16):
                out += chunk
        except ConnectionError:
            pass
        return bytes(out)

    def close(self) -> None:
        self.sock.close()


@contextmanager
def client(port: int) -> Iterator[Client]:
    """A client, closed in the end."""
    made = Client(port)
    try:
        yield made
    finally:
        made.close()
