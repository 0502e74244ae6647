"""Batches that expand a thousandfold, opened in a process of its own: ``python -m tests.records.bombs WAY CODEC``.

It prints how large the batch is compressed and not, and how much memory opening it took at its peak. How far a codec
can go is in its format: gzip 1,030 times, zstd some 10,000 times; lz4 no more than 255 times, snappy 21 times.
"""

import io
import json
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import zstandard

from mirror.legacy import LegacySpan, cut, down_convert, messages, up_convert
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.opening import MOST_OPENED, opened
from mirror.records.content.rewriting import rewrite
from mirror.records.content.varint import write_varint
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from tests.legacy.samples import sealed as sealed_message
from tests.memory import Peak
from tests.records.builders import raw_batch

RECORD = 1 << 20
RECORDS = 128
"""So a batch holds 128 MiB."""
WINDOW, LARGEST_WINDOW = 23, 27
"""Binary logarithms of zstd's window: of one that a producer's highest levels use, and of the largest that a reader
takes without being asked to."""
_FIT = 15
"""Records that fit into what is opened at once."""


class Opened(NamedTuple):
    """What became of a bomb.

    Attributes:
        packed: bytes as stored.
        plain: bytes of its records.
        grown: bytes of memory at the peak, beyond those before.
        told: why it was not opened; empty: it was.
        records: how many were seen, or batches, or chunks.
    """

    packed: int
    plain: int
    grown: int
    told: str
    records: int


def bomb(way: str, codec: Codec) -> Opened:
    """Opens a bomb in a process of its own."""
    command = [sys.executable, "-m", "tests.records.bombs", way, codec.name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=500)
    return Opened(**json.loads(done.stdout))


# -- how it is made: never whole in memory -----------------------------------------------------------------------------


def _zeros(count: int = RECORDS) -> Iterator[bytes]:
    """Records of a MiB of zeros."""
    for number in range(count):
        yield _record(number, bytes(RECORD))


def _one() -> Iterator[bytes]:
    """A single record of 128 MiB."""
    size = RECORDS * RECORD
    front = b"\0\0\0" + write_varint(-1) + write_varint(size)
    yield write_varint(len(front) + size + 1) + front
    for _ in range(RECORDS):
        yield bytes(RECORD)
    yield b"\0"


def _repeated() -> Iterator[bytes]:
    """Records of 3 MiB that nothing shrinks but a window over the one before: zstd has one, if it is asked to."""
    value = random.Random(1).randbytes(3 * RECORD)
    for number in range(RECORDS // 3):
        yield _record(number, value)


def _record(number: int, value: bytes) -> bytes:
    body = b"".join([b"\0\0", write_varint(number), b"\1", write_varint(len(value)), value, b"\0"])
    return write_varint(len(body)) + body


def _message() -> Iterator[bytes]:
    """A message of magic 1 with 128 MiB of zeros."""
    size = RECORDS * RECORD
    yield struct.pack(">qiIbBqii", 0, size + 22, 0, 1, 0, 0, -1, size)
    for _ in range(RECORDS):
        yield bytes(RECORD)


def packed_by(codec: Codec, pieces: Iterator[bytes], window: int = WINDOW) -> tuple[bytes, int]:
    """Compresses piece by piece. Returns the whole, and how large it was."""
    out, size = io.BytesIO(), 0
    write, end = _compressor(codec, out, window)
    for piece in pieces:
        size += len(piece)
        write(piece)
    end()
    return out.getvalue(), size


def _compressor(codec: Codec, out: io.BytesIO, window: int) -> tuple[Callable[[bytes], Any], Callable[[], Any]]:
    if codec is Codec.GZIP:
        gzip = zlib.compressobj(9, wbits=31)
        return lambda piece: out.write(gzip.compress(piece)), lambda: out.write(gzip.flush())
    if codec is Codec.ZSTD:
        how = zstandard.ZstdCompressionParameters.from_level(3, window_log=window)
        zstd = zstandard.ZstdCompressor(compression_params=how).compressobj()
        return lambda piece: out.write(zstd.compress(piece)), lambda: out.write(zstd.flush())
    if codec is Codec.LZ4:
        import lz4.frame

        frame = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
        out.write(frame.begin())
        return lambda piece: out.write(frame.compress(piece)), lambda: out.write(frame.flush())
    import snappy

    out.write(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))

    def write(piece: bytes) -> None:
        block = snappy.compress(piece)
        out.write(struct.pack(">i", len(block)) + block)

    return write, lambda: None


# -- how it is opened --------------------------------------------------------------------------------------------------


def _batch(codec: Codec, pieces: Iterator[bytes], count: int, window: int = WINDOW) -> tuple[bytes, int]:
    packed, size = packed_by(codec, pieces, window)
    return raw_batch(packed, attributes=codec, record_count=count, last_offset_delta=count - 1, base_offset=0), size


def _wrapper(codec: Codec, pieces: Iterator[bytes]) -> tuple[bytes, int]:
    packed, size = packed_by(codec, pieces)
    return sealed_message(struct.pack(">qiIbBqii", 0, 0, 0, 1, codec, 0, -1, len(packed)) + packed), size


def _header(batch: bytes) -> tuple[BatchHeader, bytes]:
    return BatchHeader.read(batch), batch[HEADER_SIZE:]


def _play_rewrite(batch: bytes) -> Iterator[object]:
    """The pieces are kept, as the relay keeps them until they are sent."""
    pieces = []
    for piece in rewrite(*_header(batch)):
        pieces.append(piece)
        yield piece


def _play_down(batch: bytes) -> Iterator[object]:
    view = memoryview(batch)
    yield from down_convert(view, cut(view), magic=1, most=MOST_OPENED)


def _play_up(wrapper: bytes) -> Iterator[object]:
    view = memoryview(wrapper)
    yield from up_convert(view, cut(view), most=MOST_OPENED)


def _play_messages(wrapper: bytes) -> Iterator[object]:
    view = memoryview(wrapper)
    for span in cut(view):
        assert isinstance(span, LegacySpan)
        yield from messages(view, span, most=MOST_OPENED)


Made = Callable[[Codec], tuple[bytes, int]]
WAYS: dict[str, tuple[Made, Callable[[bytes], Iterator[object]]]] = {
    "rewrite": (lambda codec: _batch(codec, _zeros(), RECORDS), _play_rewrite),
    "rewrite-one": (lambda codec: _batch(codec, _one(), 1), _play_rewrite),
    "rewrite-repeated": (lambda codec: _batch(codec, _repeated(), RECORDS // 3), _play_rewrite),
    "rewrite-window": (lambda codec: _batch(codec, _zeros(), RECORDS, LARGEST_WINDOW), _play_rewrite),
    "opened": (lambda codec: _batch(codec, _zeros(), RECORDS), lambda batch: opened(*_header(batch))),
    "down": (lambda codec: _batch(codec, _zeros(), RECORDS), _play_down),
    "down-fitting": (lambda codec: _batch(codec, _zeros(_FIT), _FIT), _play_down),
    "messages": (lambda codec: _wrapper(codec, _message()), _play_messages),
    "up": (lambda codec: _wrapper(codec, _message()), _play_up),
}


def main(way: str, name: str) -> None:
    """Makes a bomb, and opens it."""
    made, play = WAYS[way]
    packed, plain = made(Codec[name])
    peak = Peak()
    told, count = "", 0
    try:
        for _ in play(packed):
            count += 1
    except NotOpened as error:
        told = str(error)
    print(json.dumps(Opened(len(packed), plain, peak.grown(), told, count)._asdict()))


if __name__ == "__main__":
    main(*sys.argv[1:])
