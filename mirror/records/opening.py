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
GZIP_FRAMING = 31
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


def opened(header: BatchHeader, records: bytes, most: int | None = None) -> Iterator[Record]:
    """Yields the records of a batch, in order.

    Args:
        header: the header of the batch.
        records: the bytes behind the header, compressed with its codec.
        most: limit for the decompressed records in bytes; None: ``MOST_OPENED``.

    Raises:
        NotOpened: damaged, larger than ``most``, or no library for its codec; also while iterating.
    """
    where = f"the batch at offset {header.base_offset}"
    most = MOST_OPENED if most is None else most
    plain = decompressed(header.codec_bits, records, most=most, where=where) if header.record_count else b""
    batch = DefaultRecordBatch(header._replace(attributes=header.attributes & ~CODEC_MASK).pack() + plain)
    del plain  # the batch has its own copy; one of megabytes is enough
    try:
        for record in batch:
            yield Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
    except CorruptRecordError as error:
        raise NotOpened(f"{where} is damaged: {error}") from None


def decompressed(codec_bits: int, packed: bytes, *, most: int, where: str, whole: bool = False) -> bytes:
    """Returns decompressed bytes; no more than ``most`` of them are ever made.

    Args:
        codec_bits: the codec as a number, as attributes have it.
        packed: the compressed bytes.
        most: limit for the result in bytes.
        where: what they belong to, as messages begin ("the batch at offset 7").
        whole: True if the stream has to come to its own end. A batch's header counts its records, so that a missing
            end shows; what stands in a wrapper message is counted nowhere.

    Raises:
        NotOpened: damaged, not whole, more than ``most`` bytes, or no library for the codec.
    """
    try:
        codec = Codec(codec_bits)
        plain: bytes
        plain, ended = _DECOMPRESS[codec](packed, most)
    except ImportError as error:
        raise NotOpened(f"no library for {codec.name.lower()}: {error}") from None
    except _DAMAGED as error:
        raise NotOpened(f"{where} cannot be decompressed: {error}") from None
    except Exception as error:
        # The errors of the snappy library, which cannot be named here: it is imported only where it is needed.
        if type(error).__module__.partition(".")[0] not in ("snappy", "cramjam"):
            raise
        raise NotOpened(f"{where} cannot be decompressed: {error}") from None
    if len(plain) > most:
        raise NotOpened(f"{where} has more than {most} bytes of records")
    if whole and not ended:
        raise NotOpened(f"{where} cannot be decompressed: its {codec.name.lower()} stream has no end")
    return plain


_DAMAGED = (zlib.error, zstandard.ZstdError, RuntimeError, ValueError, struct.error)


def _plain(records: bytes, most: int) -> tuple[bytes, bool]:
    return records, True


def _gunzipped(records: bytes, most: int) -> tuple[bytes, bool]:
    stream = zlib.decompressobj(GZIP_FRAMING)
    return stream.decompress(records, most + 1), stream.eof


def _from_zstd(records: bytes, most: int) -> tuple[bytes, bool]:
    reader = zstandard.ZstdDecompressor().stream_reader(records, read_across_frames=True)
    plain: bytes = reader.read(most + 1)
    return plain, True


def _from_lz4(records: bytes, most: int) -> tuple[bytes, bool]:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    return stream.decompress(records, max_length=most + 1), stream.eof


def _from_snappy(records: bytes, most: int) -> tuple[bytes, bool]:
    import snappy

    out, size = [], 0
    for block in _snappy_blocks(records):
        size += _snappy_size(block)
        if size > most:
            raise ValueError(f"more than {most} bytes")
        out.append(snappy.uncompress(block))
    return b"".join(out), True


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
    Codec.NONE: _plain,
    Codec.GZIP: _gunzipped,
    Codec.SNAPPY: _from_snappy,
    Codec.LZ4: _from_lz4,
    Codec.ZSTD: _from_zstd,
}
assert DefaultRecordBatch.HEADER_STRUCT.size == HEADER_SIZE
