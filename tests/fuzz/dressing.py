"""Makes inputs pass what would keep nearly all of them from the code behind: checksums and codecs."""

import struct
import zlib

from mirror.legacy.lz4_header import with_old_checksum
from mirror.records.content.building import compressed
from mirror.records.header import CODEC_MASK, HEADER_SIZE, MAGIC, MAGIC_AT, PREFIX_SIZE, Codec, CorruptBatch
from mirror.records.scan import scan
from tests.records.builders import sealed

_OLD_HEADER_SIZES = (18, 26)
_NO_KEY = b"\xff\xff\xff\xff"
_ATTRIBUTES_AT, _OLD_ATTRIBUTES_AT = 22, 17
_OLD_CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def dressed(record_set: bytes, *, packing: bool) -> bytes:
    """The record set with right checksums in all of its whole entries.

    Args:
        record_set: entries of any magic, and whatever behind them.
        packing: what stands in a compressed entry is not compressed so far.
    """
    out, at = [], 0
    try:
        for place in scan(memoryview(record_set)):
            at = place.at + place.size
            entry = record_set[place.at : at]
            out.append(_batch(entry, packing) if entry[MAGIC_AT] == MAGIC else _message(entry, packing))
    except CorruptBatch:
        pass
    return b"".join([*out, record_set[at:]])


def _batch(batch: bytes, packing: bool) -> bytes:
    codec, records = batch[_ATTRIBUTES_AT] & CODEC_MASK, batch[HEADER_SIZE:]
    if packing and 0 < codec < len(Codec):
        records = compressed(Codec(codec), records)
    size = struct.pack(">i", HEADER_SIZE - PREFIX_SIZE + len(records))
    return sealed(batch[:8] + size + batch[PREFIX_SIZE:HEADER_SIZE] + records)


def _message(message: bytes, packing: bool) -> bytes:
    magic, codec = message[MAGIC_AT], message[_OLD_ATTRIBUTES_AT] & CODEC_MASK
    at = _OLD_HEADER_SIZES[magic]
    if packing and codec in _OLD_CODECS and message[at : at + 4] == _NO_KEY:
        packed = compressed(Codec(codec), dressed(message[at + 8 :], packing=False))
        if magic == 0 and codec == Codec.LZ4:
            packed = with_old_checksum(packed)
        message = message[:at] + _NO_KEY + struct.pack(">i", len(packed)) + packed
    size, crc = struct.pack(">i", len(message) - PREFIX_SIZE), struct.pack(">I", zlib.crc32(message[MAGIC_AT:]))
    return message[:8] + size + crc + message[MAGIC_AT:]
