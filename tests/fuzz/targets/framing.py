"""One connection (``mirror/net/stream``): any bytes, in any packets."""

import asyncio
import atexit
import os
from collections.abc import Sequence

from mirror.net.buffers import Frame, FramePool
from mirror.net.errors import NetworkError
from mirror.net.stream import SIZE_ONLY, Piece, Stream
from tests.fuzz.source import Source

READ_AHEADS = (SIZE_ONLY, 16, 64, 4096)
_POOLED = 4
_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)
_IDLE = os.pipe()[0]
"""A descriptor at which nothing ever comes: what is received here is called for."""


def receive(data: bytes) -> None:
    """Each waiter hears exactly once, the same for any packets, and every frame comes back."""
    source = Source(data)
    flags, waiting, step = source.number(1), source.number(1) % 8, source.number(1) or 1
    stream_of_bytes = source.rest()
    whole = [stream_of_bytes] if stream_of_bytes else []
    cut = [stream_of_bytes[at : at + step] for at in range(0, len(stream_of_bytes), step)]
    assert _heard(whole, flags, waiting) == _heard(cut, flags, waiting)


class _Sock:
    """Gives these packets, one with each call or less, then nothing."""

    def __init__(self, packets: Sequence[bytes]) -> None:
        self._packets = list(packets)

    def fileno(self) -> int:
        return _IDLE

    def recv_into(self, buffer: memoryview, /) -> int:
        if not self._packets:
            raise BlockingIOError
        piece, rest = self._packets[0][: len(buffer)], self._packets[0][len(buffer) :]
        self._packets[:1] = [rest] if rest else []
        buffer[: len(piece)] = piece
        return len(piece)

    def send(self, piece: Piece, /) -> int:
        return len(piece)

    def sendmsg(self, pieces: Sequence[Piece], /) -> int:
        return sum(map(len, pieces))

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        pass

    def close(self) -> None:
        self._packets.clear()

    @property
    def is_empty(self) -> bool:
        return not self._packets


class _Waiter:
    def __init__(self) -> None:
        self.heard: list[bytes | str] = []

    def receive(self, response: memoryview | Frame) -> None:
        if isinstance(response, Frame):
            self.heard.append(bytes(response.body))
            response.release()
        else:
            self.heard.append(bytes(response))

    def fail(self, error: NetworkError) -> None:
        self.heard.append(f"{type(error).__name__}: {error}")


def _heard(packets: Sequence[bytes], flags: int, waiting: int) -> list[bytes | str]:
    return _LOOP.run_until_complete(_play(packets, flags, waiting))


async def _play(packets: Sequence[bytes], flags: int, waiting: int) -> list[bytes | str]:
    sock, waiter = _Sock(packets), _Waiter()
    stream = Stream(sock, name="broker 1", request_timeout_s=1e6, read_ahead=READ_AHEADS[flags % len(READ_AHEADS)])
    pool = FramePool(budget=1 << 20, frame_size=128)
    if flags & _POOLED:
        stream.receive_into(lambda size: pool.take(size))
    for _ in range(waiting):
        stream.expect(stream.next_correlation_id(), waiter)
    while not sock.is_empty:
        stream._on_readable()
    stream.close()
    assert len(waiter.heard) == waiting
    assert not pool.used
    return waiter.heard
