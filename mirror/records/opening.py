"""Reads a batch's records one by one.

Batches go through the mirror unopened. But a batch that a log cleaner has rewritten has other bytes than were written,
and only its records can still be compared. This is the only place where batches of a flow are opened.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import zstandard
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch

from mirror.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader, Codec

MOST_OPENED = 16 << 20
"""Limit for a batch's decompressed records in bytes: a megabyte of compressed zeros can grow a thousandfold."""
_GZIP = 31
"""zlib's way to ask for gzip framing with the largest window."""
_XERIAL = b"\x82SNAPPY\x00"
"""How snappy begins as Java clients frame it. Two i32 of versions follow, then blocks, each behind its size as i32."""
_XERIAL_HEADER_SIZE = 16
_BLOCK_SIZE = struct.Struct(">i")


class NotOpened(ValueError):
    """The records cannot be read. The message says why, and never holds payload."""


class Record(NamedTuple):
    """One record. ``timestamp``: ms since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def opened(header: BatchHeader, records: bytes) -> Iterator[Record]:
    """Yields the records of a batch, in order.

    Args:
        header: the header of the batch.
        records: the bytes behind the header, compressed with its codec.

    Raises:
        NotOpened: damaged, larger than ``MOST_OPENED``, or no library for its codec; also while iterating.
    """
    plain = header._replace(attributes=header.attributes & ~CODEC_MASK).pack() + _decompressed(header, records)
    try:
        for record in DefaultRecordBatch(plain):
            yield Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
    except CorruptRecordError as error:
        raise NotOpened(f"the batch at offset {header.base_offset} is damaged: {error}") from None


def _decompressed(header: BatchHeader, records: bytes) -> bytes:
    if not header.record_count:
        return b""
    try:
        codec = Codec(header.codec_bits)
        plain: bytes = _DECOMPRESS[codec](records)
    except ImportError as error:
        raise NotOpened(f"no library for {codec.name.lower()}: {error}") from None
    except _DAMAGED as error:
        raise NotOpened(f"the batch at offset {header.base_offset} cannot be decompressed: {error}") from None
    except Exception as error:
        # The errors of the snappy library, which cannot be named here: it is imported only where it is needed.
        if type(error).__module__.partition(".")[0] not in ("snappy", "cramjam"):
            raise
        raise NotOpened(f"the batch at offset {header.base_offset} cannot be decompressed: {error}") from None
    if len(plain) > MOST_OPENED:
        raise NotOpened(f"the batch at offset {header.base_offset} has more than {MOST_OPENED} bytes of records")
    return plain


_DAMAGED = (zlib.error, zstandard.ZstdError, RuntimeError, ValueError, struct.error)


def _gunzipped(records: bytes) -> bytes:
    return zlib.decompressobj(_GZIP).decompress(records, MOST_OPENED + 1)


def _from_zstd(records: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor().stream_reader(records, read_across_frames=True)
    plain: bytes = reader.read(MOST_OPENED + 1)
    return plain


def _from_lz4(records: bytes) -> bytes:
    import lz4.frame

    plain: bytes = lz4.frame.LZ4FrameDecompressor().decompress(records, max_length=MOST_OPENED + 1)
    return plain


def _from_snappy(records: bytes) -> bytes:
    import snappy

    out, size = [], 0
    for block in _snappy_blocks(records):
        size += _snappy_size(block)
        if size > MOST_OPENED:
            raise ValueError(f"more than {MOST_OPENED} bytes")
        out.append(snappy.uncompress(block))
    return b"".join(out)


def _snappy_blocks(records: bytes) -> Iterator[bytes]:
    """Yields the blocks of a framed stream. A stream that is not framed is one block."""
    if not records.startswith(_XERIAL):
        yield records
        return
    at = _XERIAL_HEADER_SIZE
    while at < len(records):
        (size,) = _BLOCK_SIZE.unpack_from(records, at)
        at += _BLOCK_SIZE.size
        if not 0 < size <= len(records) - at:
            raise ValueError(f"a block of {size} bytes")
        yield records[at : at + size]
        at += size


def _snappy_size(block: bytes) -> int:
    """Returns the decompressed size that a block declares: a 32-bit varint at its beginning."""
    size = 0
    for at, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return size
    raise ValueError("no size before a block")


_DECOMPRESS: dict[Codec, Any] = {
    Codec.NONE: bytes,
    Codec.GZIP: _gunzipped,
    Codec.SNAPPY: _from_snappy,
    Codec.LZ4: _from_lz4,
    Codec.ZSTD: _from_zstd,
}
assert DefaultRecordBatch.HEADER_STRUCT.size == HEADER_SIZE
