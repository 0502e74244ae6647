"""A connection and its other end: a plain socket in the test's hand."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

from mirror.net.buffers import Frame
from mirror.net.connection import Connection
from mirror.net.errors import NetworkError
from mirror.net.options import ConnectionOptions
from mirror.net.stream import READ_AHEAD


class Peer:
    """The broker's end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)

    async def read(self, size: int) -> bytes:
        """Exactly so many bytes, fewer at the end of the stream."""
        out = bytearray()
        while len(out) < size and (chunk := await self._loop.sock_recv(self.sock, min(1 << 18, size - len(out)))):
            out += chunk
        return bytes(out)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Closes with RST, as the kernel of a killed broker may."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


@asynccontextmanager
async def connected(
    *,
    read_ahead: int = READ_AHEAD,
    allocate: Callable[[int], Frame] | None = None,
    request_timeout_s: float = 30.0,
    receive_buffer: int = 0,
) -> AsyncIterator[tuple[Connection, Peer]]:
    """Both ends over loopback TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.socket()
        if receive_buffer:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
    for sock in (ours, theirs):
        sock.setblocking(False)
    options = ConnectionOptions(client_id="test", request_timeout_s=request_timeout_s)
    connection = Connection(ours, name="broker 1", options=options, read_ahead=read_ahead)
    connection.receive_into(allocate)
    peer = Peer(theirs)
    try:
        yield connection, peer
    finally:
        connection.close()
        peer.close()


@asynccontextmanager
async def resetting(port: int) -> AsyncIterator[list[bytes]]:
    """Each connection to the port is reset once its first bytes have come: the list has them."""
    firsts: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        firsts.append(await reader.read(1_000))
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield firsts
    finally:
        server.close()


@contextmanager
def deaf() -> Iterator[int]:
    """A port that neither answers nor refuses: its queue is full, and nobody accepts."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port: int = server.getsockname()[1]
        for _ in range(3):
            other = stack.enter_context(socket.socket())
            other.setblocking(False)
            with suppress(BlockingIOError):
                other.connect(("127.0.0.1", port))
        yield port


class Waiter:
    """Remembers what it was told: bodies without the correlation id, or the error."""

    def __init__(self, log: list[object] | None = None) -> None:
        self.log: list[object] = [] if log is None else log
        self.frames: list[Frame] = []
        self.then: Callable[[], None] | None = None

    def receive(self, response: memoryview | Frame) -> None:
        body = response.body if isinstance(response, Frame) else response
        if isinstance(response, Frame):
            self.frames.append(response)
        self.log.append(bytes(body[4:]))
        if self.then is not None:
            self.then()

    def fail(self, error: NetworkError) -> None:
        self.log.append(error)
        if self.then is not None:
            self.then()


def response(correlation_id: int, body: bytes) -> bytes:
    """A response's frame, size in front."""
    return struct.pack(">ii", 4 + len(body), correlation_id) + body
