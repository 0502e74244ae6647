"""Cuts a record set into entries. It may hold several formats: magic 0, 1 and 2.

A partition's log keeps everything in the format in which it was written. So after upgrades of
``message.format.version``, messages of magic 0 are followed by those of magic 1, and these by batches of magic 2. An
entry of magic 0 or 1 is a message on its own, or a *wrapper*: a message whose value is a compressed set of messages.

Layout of a message (KIP-31, KIP-32; magic 0 has no timestamp), big-endian::

     0  offset      i64   8  size        i32  12  crc         u32  16  magic       i8   17  attributes  i8
    18  timestamp   i64  (magic 1)  then key and value, each behind its size as i32; -1 is null

``size`` counts the bytes after itself; the CRC-32 (zlib's, not CRC-32C) covers byte 16 to the end. Attributes: three
bits of codec, and in magic 1 the timestamp type (0x08).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from mirror.records.header import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MOST_OFFSET,
    BatchHeader,
    CorruptBatch,
    StoredMessages,
)
from mirror.records.intact import is_intact
from mirror.records.scan import NOT_SEEN, base_offset_at, scan

HEADER_0 = struct.Struct(">qiIbB")
HEADER_1 = struct.Struct(">qiIbBq")
assert (HEADER_0.size, HEADER_1.size) == (18, 26)
NO_TIMESTAMP = -1
"""Timestamp of a record that has none, as consumers see those of magic 0."""
_ATTRIBUTES_AT = 17


class BatchSpan(NamedTuple):
    """One whole batch of magic 2 within a record set. ``at``, ``size``: where, in bytes."""

    at: int
    size: int
    header: BatchHeader

    @property
    def last_offset(self) -> int:
        """Offset of the batch's last record."""
        return self.header.last_offset


class LegacySpan(NamedTuple):
    """One whole message of magic 0 or 1 within a record set, alone or a wrapper.

    Attributes:
        at: its first byte.
        size: its bytes.
        magic: 0 or 1.
        attributes: codec and timestamp type.
        last_offset: its own offset, which for a wrapper is that of the last message inside.
        timestamp: ms since 1970; of a wrapper, the latest one inside, or that of the append. -1 in magic 0.
        crc: its checksum, as stored.
    """

    at: int
    size: int
    magic: int
    attributes: int
    last_offset: int
    timestamp: int
    crc: int

    @property
    def stored(self) -> StoredMessages:
        """The description of this message that its stand-in carries."""
        return StoredMessages(self.crc, self.magic, self.size)

    @property
    def codec_bits(self) -> int:
        """The codec of a wrapper as a number; 0 for a message on its own."""
        return self.attributes & CODEC_MASK

    @property
    def is_wrapper(self) -> bool:
        """True if messages are inside: their first offset shows only when they are opened."""
        return bool(self.codec_bits)

    @property
    def first_offset(self) -> int | None:
        """Offset of its first record; None for a wrapper, whose header does not say."""
        return None if self.is_wrapper else self.last_offset

    @property
    def has_append_time(self) -> bool:
        """True if its timestamp is that of the append (LogAppendTime), and holds for every message inside."""
        return bool(self.magic and self.attributes & LOG_APPEND_TIME)


Span = BatchSpan | LegacySpan


def cut(record_set: memoryview, at: int = 0, end: int | None = None) -> Iterator[Span]:
    """Yields every whole entry of ``record_set[at:end]``, in order, its checksum verified.

    A partial entry at the end, and KIP-283's filler, are left out, as ``records.scan`` does.

    The checksum does not cover an entry's offset (nor, in magic 2, its length and leader epoch). Here it is verified
    only that offsets ascend; whether a gap between two entries has a cause is for the caller to find out.

    Raises:
        CorruptBatch: an impossible size or magic, a checksum that does not match, or offsets that do not ascend. It
            names the offset, and is raised after the entries before it were yielded.
    """
    before = NOT_SEEN
    for place in scan(record_set, at, end):
        view = record_set[place.at : place.at + place.size]
        span = span_at(record_set, place.at, place.size)
        if not is_intact(view):
            raise CorruptBatch(f"{named(span)} ({span.size} bytes at byte {span.at}) does not match its checksum")
        if isinstance(span, BatchSpan):
            first = span.header.base_offset
            if span.header.last_offset_delta < 0:
                raise CorruptBatch(f"{named(span)} has last offset delta {span.header.last_offset_delta}")
        else:
            first = span.last_offset
        if first <= before:
            raise CorruptBatch(f"{named(span)} (at byte {span.at}) stands behind offset {before}")
        if span.last_offset >= MOST_OFFSET:
            raise CorruptBatch(f"{named(span)} ends at offset {span.last_offset}, behind which there is none")
        before = span.last_offset
        yield span


def named(span: Span) -> str:
    """Returns the entry's name for error messages, such as "the batch at offset 7"."""
    if isinstance(span, BatchSpan):
        return f"the batch at offset {span.header.base_offset}"
    return f"the {'wrapper' if span.is_wrapper else 'message'} of magic {span.magic} at offset {span.last_offset}"


def span_at(record_set: memoryview, at: int, size: int) -> Span:
    """Returns the entry at byte ``at``. Its size and magic must have been checked by ``records.scan``; nothing else is
    verified."""
    magic = record_set[at + MAGIC_AT]
    if magic == MAGIC:
        return BatchSpan(at, size, BatchHeader.read(record_set, at))
    if magic:
        offset, _, crc, _, attributes, timestamp = HEADER_1.unpack_from(record_set, at)
    else:
        offset, _, crc, _, attributes = HEADER_0.unpack_from(record_set, at)
        timestamp = NO_TIMESTAMP
    return LegacySpan(at, size, magic, attributes, offset, timestamp, crc)


def first_offset_at(record_set: memoryview, at: int, end: int, *, old: bool) -> int:
    """Returns the first offset of the entry at byte ``at``, of any format, whole or cut off. ``NOT_SEEN`` if it cannot
    be read: a wrapper's header does not have it, and KIP-283's filler has none.

    Args:
        record_set: the record set.
        at: where the entry begins.
        end: where the record set ends.
        old: True if the entry before it is of magic 0 or 1. This one may then be a wrapper if its magic is cut off.
    """
    if end - at > _ATTRIBUTES_AT:
        if record_set[at + MAGIC_AT] != MAGIC and record_set[at + _ATTRIBUTES_AT] & CODEC_MASK:
            return NOT_SEEN
    elif old:
        return NOT_SEEN
    return base_offset_at(record_set, at, end)
