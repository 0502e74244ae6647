"""Reads the records of a message of magic 0 or 1, and those inside a wrapper.

kafka-python's ``LegacyRecordBatch`` is not used: it decompresses without a limit, does not verify the checksums of
messages inside a wrapper, slices by sizes that it has not checked (a key of -5 bytes; an entry of -12 bytes is an
endless loop), and needs one more library for lz4 in magic 0.
"""

import struct
from collections.abc import Iterator

from mirror.legacy.entries import HEADER_0, HEADER_1, LegacySpan, Span, cut, named, span_at
from mirror.legacy.lz4_header import with_right_checksum
from mirror.records.content.decompressing import NotOpened, decompressed
from mirror.records.content.opening import Record
from mirror.records.header import CODEC_MASK, LOG_APPEND_TIME, Codec, CorruptBatch
from mirror.records.scan import Remainder, scan, tail

_SIZE = struct.Struct(">i")
_NULL = -1
CODECS = frozenset({Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4})
"""The codecs that messages of magic 0 and 1 can have."""
_KNOWN_ATTRIBUTES = (CODEC_MASK, CODEC_MASK | LOG_APPEND_TIME)
"""The attribute bits that are defined in magic 0 and in magic 1."""


def messages(record_set: memoryview, span: LegacySpan, *, most: int) -> Iterator[Record]:
    """Returns the records of one entry, in order, with absolute offsets.

    Every message inside a wrapper has been verified (checksum, sizes, order of the offsets) before the first record is
    returned. A wrapper's offset is that of its last message; in magic 1 the messages inside count from a base that
    follows from it (KIP-31), in magic 0 they have offsets of their own. The append time of a wrapper holds for all of
    its messages, whatever their timestamps (KIP-32).

    Args:
        record_set: the one that ``entries.cut`` was given.
        span: one of its entries.
        most: limit for the decompressed messages in bytes.

    Raises:
        NotOpened: damaged, larger than ``most``, an unknown attribute, or no library for its codec. It is raised by the
            call, not while iterating.
    """
    where = named(span)
    _check_attributes(span, where)
    key, value = _key_and_value(record_set, span, where)
    if not span.is_wrapper:
        return iter([Record(span.last_offset, span.timestamp, key, value, ())])
    if value is None:
        raise NotOpened(f"{where} holds nothing")
    if span.magic == 0 and span.codec_bits == Codec.LZ4:
        value = with_right_checksum(value, where)
    inside = memoryview(decompressed(span.codec_bits, value, most=most, where=where, whole=True))
    return _records(inside, span, _verified(inside, span, where))


def in_order(record_set: memoryview, span: LegacySpan, *, most: int, before: int) -> Iterator[Record]:
    """Returns the records of one entry, as ``messages`` does. Their offsets must all be above ``before``.

    Raises:
        NotOpened: as ``messages``.
        CorruptBatch: the first offset is not above ``before``. It is raised by the call, too.
    """
    records = messages(record_set, span, most=most)
    first = next(records)
    if first.offset <= before:
        raise CorruptBatch(f"{named(span)} begins at offset {first.offset}, and stands behind offset {before}")
    return _with(first, records)


def _with(first: Record, rest: Iterator[Record]) -> Iterator[Record]:
    yield first
    yield from rest


def _verified(inside: memoryview, span: LegacySpan, where: str) -> int:
    """Verifies the messages in a wrapper. Returns the offset to which the offsets inside are added."""
    last = None
    try:
        for inner in cut(inside):
            _check_inner(inside, inner, span, where)
            last = inner.last_offset
        rest = tail(inside)
    except CorruptBatch as error:
        raise NotOpened(f"{where} is damaged inside: {error}") from None
    if rest is not Remainder.CLEAN:
        raise NotOpened(f"{where} is damaged inside: it ends in the middle of a message")
    if last is None:
        raise NotOpened(f"{where} holds nothing")
    base = span.last_offset - last if span.magic else 0
    if base < 0 or base + last != span.last_offset:
        raise NotOpened(f"{where} is damaged: the last message inside has offset {last}")
    return base


def _check_inner(inside: memoryview, inner: Span, span: LegacySpan, where: str) -> None:
    if not isinstance(inner, LegacySpan) or inner.magic != span.magic:
        raise NotOpened(f"{where} holds another format: {named(inner)}")
    if inner.is_wrapper:
        raise NotOpened(f"{where} holds a wrapper: {named(inner)}")
    _check_attributes(inner, f"{where} is damaged inside: {named(inner)}")
    _key_and_value(inside, inner, f"{where} is damaged inside: {named(inner)}")


def _records(inside: memoryview, span: LegacySpan, base: int) -> Iterator[Record]:
    """Yields the records of messages that have been verified."""
    for at, size in scan(inside):
        inner = span_at(inside, at, size)
        assert isinstance(inner, LegacySpan)
        key, value = _key_and_value(inside, inner, "")
        timestamp = span.timestamp if span.has_append_time else inner.timestamp
        yield Record(base + inner.last_offset, timestamp, key, value, ())


def _check_attributes(span: LegacySpan, where: str) -> None:
    if span.attributes & ~_KNOWN_ATTRIBUTES[span.magic] or span.codec_bits not in CODECS:
        raise NotOpened(f"{where} has unknown attributes: {span.attributes:#04x}")


def _key_and_value(record_set: memoryview, span: LegacySpan, where: str) -> tuple[bytes | None, bytes | None]:
    """Returns the message's key and value. Nothing may stand behind them."""
    end = span.at + span.size
    key, at = _sized(record_set, span.at + (HEADER_1 if span.magic else HEADER_0).size, end, where)
    value, at = _sized(record_set, at, end, where)
    if at != end:
        raise NotOpened(f"{where} has {end - at} bytes behind its value")
    return key, value


def _sized(record_set: memoryview, at: int, end: int, where: str) -> tuple[bytes | None, int]:
    """Returns the bytes whose size stands at ``at`` (None: null), and the position behind them."""
    start = at + _SIZE.size
    if start > end:
        raise NotOpened(f"{where} ends before the size of its key or value")
    (size,) = _SIZE.unpack_from(record_set, at)
    if size == _NULL:
        return None, start
    if not 0 <= size <= end - start:
        raise NotOpened(f"{where} has a key or value of {size} bytes where {end - start} are left")
    return bytes(record_set[start : start + size]), start + size
