"""Cuts a batch into its records, without reading keys, values and headers.

Only the bytes in front of a record's key depend on the batch around it: its size, and the deltas of its timestamp and
offset. So a record goes into another batch with new deltas, and its key, value and headers stay as they are.

A record (KIP-98)::

    size            varint     of all behind it
    attributes      i8         unused so far
    timestamp delta varlong    from base_timestamp
    offset delta    varint     from base_offset
    key, value      varint size (-1: null) and bytes
    headers         varint count, each with key and value
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from mirror.records.content.decompressing import NotOpened, plain_chunks
from mirror.records.content.varint import MOST_VARINT, as_i64, read_varint, write_varint
from mirror.records.header import LOG_APPEND_TIME, MOST_OFFSET, BatchHeader

MOST_RECORD = 64 << 20
"""Limit for a record in bytes. Nothing else bounds it: a megabyte of compressed zeros can be one of a gigabyte."""


_ATTRIBUTES = [bytes([value]) for value in range(256)]


class RawRecord(NamedTuple):
    """One record as it stands in its batch.

    ``attributes``: its byte, unused so far. ``timestamp_delta``: in ms. ``content``: key, value and headers as stored.
    """

    offset_delta: int
    timestamp_delta: int
    attributes: int
    content: bytes

    def stored(self, offset_delta: int, timestamp_delta: int) -> bytes:
        """Returns the record's bytes for a batch in which it has these deltas. ``timestamp_delta``: in ms."""
        front = _ATTRIBUTES[self.attributes] + write_varint(timestamp_delta) + write_varint(offset_delta)
        return write_varint(len(front) + len(self.content)) + front + self.content


def record_digest(header: BatchHeader, record: RawRecord) -> str:
    """Returns a digest of the record's timestamp, key, value and headers: 16 characters. It does not depend on the
    record's offset."""
    digest = blake2b(b"%d;" % (header.base_timestamp + record.timestamp_delta), digest_size=8)
    digest.update(record.content)
    return digest.hexdigest()


def raw_records(header: BatchHeader, records: bytes, *, most: int = MOST_RECORD) -> Iterator[RawRecord]:
    """Yields the records of a batch in order. Only about one record and a chunk of others is decompressed at a time.

    Args:
        header: the header of the batch, whose checksum was verified.
        records: the bytes behind the header, compressed with its codec.
        most: limit for a record in bytes, and for a block of snappy.

    Raises:
        NotOpened: damaged (another number of records than the header has, offsets that do not ascend or leave the
            batch), a larger record, or no library for its codec; also while iterating.
    """
    where = f"the batch at offset {header.base_offset}"
    if header.last_offset >= MOST_OFFSET:
        raise NotOpened(f"{where} is damaged: it ends at offset {header.last_offset}, behind which there is none")
    last, at = -1, 0
    buf = b""
    chunks = plain_chunks(header.codec_bits, records, where=where, most_block=max(most, len(records)))
    for _ in range(header.record_count):
        if len(buf) - at < MOST_VARINT:
            buf, at = _more(chunks, buf, at, MOST_VARINT), 0
        try:
            size, at = read_varint(buf, at)
            if size > most:
                raise NotOpened(f"{where} has a record of {size} bytes; {most} is the limit")
            if size < 0:
                raise NotOpened(f"{where} is damaged: a record of {size} bytes")
            if len(buf) - at < size:
                buf, at = _more(chunks, buf, at, size), 0
            end = at + size
            timestamp_delta, front = read_varint(buf, at + 1)
            offset_delta, front = read_varint(buf, front)
        except (IndexError, ValueError) as error:
            if isinstance(error, NotOpened):
                raise
            raise NotOpened(f"{where} is damaged: behind its record at {header.base_offset + last}") from None
        if front > end or end > len(buf) or not last < offset_delta <= header.last_offset_delta:
            raise NotOpened(f"{where} is damaged: behind its record at {header.base_offset + last}")
        yield RawRecord(offset_delta, timestamp_delta, buf[at], buf[front:end])
        last, at = offset_delta, end
    if at < len(buf) or next(chunks, b""):
        raise NotOpened(f"{where} is damaged: bytes behind its {header.record_count} records")


class PlacedRecord(NamedTuple):
    """One record at its place in the log. ``timestamp``: as consumers see it, in ms since 1970. ``attributes`` and
    ``content``: see ``RawRecord``."""

    offset: int
    timestamp: int
    attributes: int
    content: bytes


def placed_records(header: BatchHeader, records: bytes) -> Iterator[PlacedRecord]:
    """Yields the records of a batch as ``raw_records`` does, with absolute offsets and timestamps.

    Raises:
        NotOpened: as ``raw_records``.
    """
    appended = bool(header.attributes & LOG_APPEND_TIME)
    for record in raw_records(header, records):
        timestamp = header.max_timestamp if appended else as_i64(header.base_timestamp + record.timestamp_delta)
        yield PlacedRecord(header.base_offset + record.offset_delta, timestamp, record.attributes, record.content)


class Parts(NamedTuple):
    """The parts of a record's content that an audit needs. ``size``: bytes of key, value, and names and values of
    headers."""

    key: bytes | None
    tombstone: bool
    size: int


def parts(content: bytes, where: str) -> Parts:
    """Reads a record's content. ``where``: what it belongs to, with which error messages begin.

    Raises:
        NotOpened: sizes that contradict each other.
    """
    try:
        key_size, at = read_varint(content, 0)
        key = content[at : at + key_size] if key_size >= 0 else None
        value_size, at = read_varint(content, at + max(0, key_size))
        size, at = max(0, key_size) + max(0, value_size), at + max(0, value_size)
        count, at = read_varint(content, at)
        for _ in range(2 * count):
            part, at = read_varint(content, at)
            size, at = size + max(0, part), at + max(0, part)
    except (IndexError, ValueError):
        at = -1
    if at != len(content):
        raise NotOpened(f"{where} is damaged: sizes inside of a record do not fit")
    return Parts(key, value_size < 0, size)


def _more(chunks: Iterator[bytes], buf: bytes, at: int, least: int) -> bytes:
    """Returns the bytes of ``buf`` from ``at`` on, with chunks appended until there are ``least`` bytes, or no chunks
    are left."""
    pieces, have = [buf[at:]], len(buf) - at
    while have < least and (chunk := next(chunks, b"")):
        pieces.append(chunk)
        have += len(chunk)
    return b"".join(pieces)
