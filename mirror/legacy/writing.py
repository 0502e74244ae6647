"""Writes messages of magic 0 and 1, and wrappers around them.

kafka-python's ``LegacyRecordBatchBuilder`` is not used: its wrappers have offset and timestamp 0, its gzip output
contains the time of day, and its lz4 in magic 0 needs one more library.
"""

import struct
import zlib

from mirror.legacy.entries import HEADER_0, HEADER_1, NO_TIMESTAMP
from mirror.legacy.lz4_header import with_old_checksum
from mirror.records.content.building import compressed
from mirror.records.content.opening import Record
from mirror.records.header import MAGIC_AT, PREFIX_SIZE, Codec

_SIZE = struct.Struct(">i")
_NULL = _SIZE.pack(-1)
_CRC_SIZE = 4


def message(magic: int, record: Record, *, offset: int | None = None) -> bytes:
    """Returns the record as a message on its own, without its headers, and in magic 0 without its timestamp.

    Args:
        magic: 0 or 1.
        record: the record, with its absolute offset.
        offset: the offset to write instead (a relative one, inside a wrapper of magic 1); None: the record's own.
    """
    return _message(
        magic, record.offset if offset is None else offset, Codec.NONE, record.timestamp, record.key, record.value
    )


class WrapperBuilder:
    """One wrapper in the making.

    Args:
        magic: 0 or 1.
        codec: GZIP, SNAPPY or LZ4.
        most_bytes: limit for the messages inside in bytes, before compression. The first one is taken in any case.
    """

    def __init__(self, magic: int, codec: Codec, *, most_bytes: int) -> None:
        assert codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4), codec
        self._magic = magic
        self._codec = codec
        self._most_bytes = most_bytes
        self._inside = bytearray()
        self._first_offset = self._last_offset = 0
        self._max_timestamp = NO_TIMESTAMP

    def add(self, record: Record) -> bool:
        """Takes a record, whose offset must be above those before it. Returns False if there is no room for it."""
        first = record.offset if not self._inside else self._first_offset
        # Magic 1 counts from the first message inside (KIP-31), magic 0 has absolute offsets.
        inner = message(self._magic, record, offset=record.offset - first if self._magic else record.offset)
        if self._inside and len(self._inside) + len(inner) > self._most_bytes:
            return False
        self._inside += inner
        self._first_offset, self._last_offset = first, record.offset
        self._max_timestamp = max(self._max_timestamp, record.timestamp)
        return True

    def build(self) -> bytes:
        """Returns the wrapper: its offset is that of its last message, its timestamp the latest. There must be one."""
        assert self._inside, "a wrapper without messages"
        packed = compressed(self._codec, bytes(self._inside))
        if self._magic == 0 and self._codec is Codec.LZ4:
            packed = with_old_checksum(packed)
        return _message(self._magic, self._last_offset, self._codec, self._max_timestamp, None, packed)


def _message(magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    parts = [_sized(key), _sized(value)]
    size = (HEADER_1 if magic else HEADER_0).size - PREFIX_SIZE + sum(map(len, parts))
    if magic:
        header = HEADER_1.pack(offset, size, 0, magic, attributes, timestamp)
    else:
        header = HEADER_0.pack(offset, size, 0, magic, attributes)
    crc = zlib.crc32(header[MAGIC_AT:])
    for part in parts:
        crc = zlib.crc32(part, crc)
    return b"".join([header[:PREFIX_SIZE], crc.to_bytes(_CRC_SIZE, "big"), header[MAGIC_AT:], *parts])


def _sized(content: bytes | None) -> bytes:
    return _NULL if content is None else _SIZE.pack(len(content)) + content
