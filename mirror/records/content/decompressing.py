"""Decompresses a batch's records, never more than the caller's limit.

``decompressed`` gives all of them at once. ``plain_chunks`` gives a part at a time, for batches whose records are cut
as they come: a megabyte of compressed zeros can grow a thousandfold.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import zstandard

from mirror.records.header import Codec

SLICE = 16 << 10
"""How many compressed bytes the readers of gzip and lz4 are given at a time. They copy the bytes that they do not use:
otherwise that would be all the rest, for each member of a gzip stream and for each chunk."""
CHUNK = 256 << 10
"""About how many bytes ``plain_chunks`` gives at a time. A snappy block comes whole."""
GZIP_FRAMING = 31
"""zlib's way to ask for gzip framing with the largest window."""
_XERIAL = b"\x82SNAPPY\x00"
"""First bytes of snappy data as Java clients frame it. Two version numbers (i32) follow, then blocks, each behind its
size (i32)."""
_XERIAL_HEADER_SIZE = 16
_BLOCK_SIZE = struct.Struct(">i")


class NotOpened(ValueError):
    """The records cannot be read. The message says why, and never holds payload."""


def decompressed(codec_bits: int, packed: bytes, *, most: int, where: str, whole: bool = False) -> bytes:
    """Returns decompressed bytes; no more than ``most`` of them are ever made.

    Args:
        codec_bits: the codec as a number, as attributes have it.
        packed: the compressed bytes.
        most: limit for the result in bytes.
        where: what they belong to, with which error messages begin ("the batch at offset 7").
        whole: True if the stream must be complete. A batch's header counts its records, so a missing end shows there;
            the messages in a wrapper are not counted anywhere.

    Raises:
        NotOpened: damaged, not whole, more than ``most`` bytes, or no library for the codec.
    """
    with _named(codec_bits, where):
        codec = Codec(codec_bits)
        plain: bytes
        plain, ended = _DECOMPRESS[codec](packed, most)
    if len(plain) > most:
        raise NotOpened(f"{where} has more than {most} bytes of records")
    if whole and not ended:
        raise NotOpened(f"{where} cannot be decompressed: its {codec.name.lower()} stream has no end")
    return plain


def plain_chunks(codec_bits: int, packed: bytes, *, where: str, most_block: int) -> Iterator[bytes]:
    """Yields decompressed bytes, about ``CHUNK`` at a time, however many there are in all.

    Args:
        codec_bits: the codec as a number, as attributes have it.
        packed: the compressed bytes.
        where: what they belong to, with which error messages begin ("the batch at offset 7").
        most_block: limit for a block of snappy in bytes; it cannot be decompressed in parts.

    Raises:
        NotOpened: damaged, a larger block, or no library for the codec; also while iterating.
    """
    with _named(codec_bits, where):
        # An empty chunk (of an empty member, or block) would be taken for the end.
        yield from filter(None, _CHUNKS[Codec(codec_bits)](packed, most_block))


@contextmanager
def _named(codec_bits: int, where: str) -> Iterator[None]:
    """Turns the errors of the compression libraries into ``NotOpened``. ``where``: see ``decompressed``."""
    try:
        yield
    except ImportError as error:
        raise NotOpened(f"no library for {Codec(codec_bits).name.lower()}: {error}") from None
    except NotOpened:
        raise
    except _DAMAGED as error:
        raise NotOpened(f"{where} cannot be decompressed: {error}") from None
    except Exception as error:
        # The errors of the snappy library, which cannot be named here: it is imported only where it is needed.
        if type(error).__module__.partition(".")[0] not in ("snappy", "cramjam"):
            raise
        raise NotOpened(f"{where} cannot be decompressed: {error}") from None


_DAMAGED = (zlib.error, zstandard.ZstdError, RuntimeError, ValueError, struct.error)


# -- at once -----------------------------------------------------------------------------------------------------------


def _plain(records: bytes, most: int) -> tuple[bytes, bool]:
    return records, True


class _Gunzip:
    """Reads a stream of one member or several, as Java's GZIPInputStream does."""

    def __init__(self, records: bytes) -> None:
        self._rest = memoryview(records)
        self._slice: bytes | memoryview = b""
        self._member: Any = None

    @property
    def ended(self) -> bool:
        """True if the last member has come to its end."""
        return self._member is None

    def read(self, most: int) -> bytes:
        """Returns the next bytes, at most ``most``; none at the end of the stream, or where it is cut off."""
        while True:
            if not self._slice:
                self._slice, self._rest = self._rest[:SLICE], self._rest[SLICE:]
            if self._member is None:
                if not self._slice:
                    return b""
                self._member = zlib.decompressobj(GZIP_FRAMING)
            plain: bytes = self._member.decompress(self._slice, most)
            if self._member.eof:
                self._slice, self._member = self._member.unused_data, None
            else:
                self._slice = self._member.unconsumed_tail
            if plain or (self._member is not None and not self._slice and not self._rest):
                return plain


def _gunzipped(records: bytes, most: int) -> tuple[bytes, bool]:
    reader, pieces, size = _Gunzip(records), [], 0
    while size <= most and (piece := reader.read(most + 1 - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces), reader.ended


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


_DECOMPRESS: dict[Codec, Callable[[bytes, int], tuple[Any, bool]]] = {
    Codec.NONE: _plain,
    Codec.GZIP: _gunzipped,
    Codec.SNAPPY: _from_snappy,
    Codec.LZ4: _from_lz4,
    Codec.ZSTD: _from_zstd,
}


# -- in chunks ---------------------------------------------------------------------------------------------------------


def _plain_whole(records: bytes, _: int) -> Iterator[bytes]:
    yield records


def _chunks_from_gzip(records: bytes, _: int) -> Iterator[bytes]:
    reader = _Gunzip(records)
    while chunk := reader.read(CHUNK):
        yield chunk


def _chunks_from_zstd(records: bytes, _: int) -> Iterator[bytes]:
    reader = zstandard.ZstdDecompressor().stream_reader(records, read_across_frames=True)
    while chunk := reader.read(CHUNK):
        yield chunk


def _chunks_from_lz4(records: bytes, _: int) -> Iterator[bytes]:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    for at in range(0, len(records), SLICE):
        chunk = stream.decompress(records[at : at + SLICE], max_length=CHUNK)
        while chunk:
            yield chunk
            chunk = b"" if stream.eof else stream.decompress(b"", max_length=CHUNK)
        if stream.eof:
            return


def _blocks_from_snappy(records: bytes, most: int) -> Iterator[bytes]:
    import snappy

    for block in _snappy_blocks(bytes(records)):
        if _snappy_size(block) > most:
            raise ValueError(f"more than {most} bytes")
        yield snappy.uncompress(block)


_CHUNKS: dict[Codec, Callable[[bytes, int], Iterator[bytes]]] = {
    Codec.NONE: _plain_whole,
    Codec.GZIP: _chunks_from_gzip,
    Codec.SNAPPY: _blocks_from_snappy,
    Codec.LZ4: _chunks_from_lz4,
    Codec.ZSTD: _chunks_from_zstd,
}


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
