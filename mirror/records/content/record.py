"""One record inside of a batch of magic 2: read, and written (Kafka's message format, "Record").

A header's name is text, but need not be valid UTF-8: librdkafka and Go clients write the bytes that they are given.
Such a name is kept: bytes that do not decode become surrogates (PEP 383), and the same bytes are written again.
"""

from typing import NamedTuple

from mirror.records.content.varint import as_i64, read_varint, write_varint
from mirror.records.header import LOG_APPEND_TIME, BatchHeader

_NULL = write_varint(-1)
_NO_ATTRIBUTES = b"\0"


class Record(NamedTuple):
    """One record. ``timestamp``: ms since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_record(plain: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    """Returns the record at byte ``at`` of a batch's decompressed records, and the byte behind it.

    Raises:
        ValueError: the sizes in it contradict each other, or are negative where that has no meaning.
        IndexError: the bytes end inside the record.
    """
    length, at = read_varint(plain, at)
    end = at + length
    if length < 0 or end > len(plain):
        raise ValueError(f"a record of {length} bytes, where {len(plain) - at} are left")
    delta, at = read_varint(plain, at + 1)  # behind the attributes, which are not in use
    timestamp = header.max_timestamp if header.attributes & LOG_APPEND_TIME else as_i64(header.base_timestamp + delta)
    offset_delta, at = read_varint(plain, at)
    key, at = _read_sized(plain, at)
    value, at = _read_sized(plain, at)
    count, at = read_varint(plain, at)
    if count < 0:
        raise ValueError(f"{count} headers")
    headers: list[tuple[str, bytes | None]] = []
    while count and at < end:
        name, at = _read_sized(plain, at)
        if name is None:
            raise ValueError("a header without a name")
        content, at = _read_sized(plain, at)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
        count -= 1
    if count or at != end:
        raise ValueError(f"a record's fields do not fill its {length} bytes")
    return Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers)), end


def _read_sized(plain: bytes, at: int) -> tuple[bytes | None, int]:
    """Returns the bytes whose size stands at ``at`` (None if the size is negative), and the position behind them. For a
    size that reaches past the end, raises ``ValueError`` before anything is copied."""
    size, at = read_varint(plain, at)
    if size < 0:
        return None, at
    if size > len(plain) - at:
        raise ValueError(f"{size} bytes, where {len(plain) - at} are left")
    return plain[at : at + size], at + size


def write_record(record: Record, *, offset_delta: int, timestamp_delta: int) -> bytes:
    """Returns the record as it stands in a batch. The deltas are to the batch's base offset and base timestamp."""
    parts = [_NO_ATTRIBUTES, write_varint(timestamp_delta), write_varint(offset_delta)]
    _put_sized(parts, record.key)
    _put_sized(parts, record.value)
    parts.append(write_varint(len(record.headers)))
    for name, content in record.headers:
        _put_sized(parts, name.encode("utf-8", "surrogateescape"))
        _put_sized(parts, content)
    return b"".join([write_varint(sum(map(len, parts))), *parts])


def _put_sized(parts: list[bytes], content: bytes | None) -> None:
    if content is None:
        parts.append(_NULL)
    else:
        parts += (write_varint(len(content)), content)
