"""Kafka's protocol types, read from a buffer at a position: ``read_x(buf, at) -> (value, next position)``.

Nothing is trusted: a value that the buffer does not hold raises ``MalformedFrame``, a length is checked before use.
"""

import functools
import struct
from typing import NoReturn

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")

MAX_UVARINT_BYTES = 5
"""Unsigned varints of the protocol are at most 32 bits (KIP-482)."""


class MalformedFrame(ValueError):
    """A frame that does not follow the protocol. The message names the field, the value and the byte, and never holds
    payload."""


def cut_short(at: int, wanted: int, end: int) -> NoReturn:
    """Raises for a field of ``wanted`` bytes that reaches past the frame's end."""
    raise MalformedFrame(f"field of {wanted} bytes at byte {at} in a frame of {end}")


def read_i16(buf: memoryview, at: int) -> tuple[int, int]:
    """INT16."""
    if at + 2 > len(buf):
        cut_short(at, 2, len(buf))
    value: int = _I16.unpack_from(buf, at)[0]
    return value, at + 2


def read_i32(buf: memoryview, at: int) -> tuple[int, int]:
    """INT32."""
    if at + 4 > len(buf):
        cut_short(at, 4, len(buf))
    value: int = _I32.unpack_from(buf, at)[0]
    return value, at + 4


def read_uvarint(buf: memoryview, at: int) -> tuple[int, int]:
    """UNSIGNED_VARINT: seven bits a byte, least significant first, at most five bytes."""
    value = 0
    for index in range(MAX_UVARINT_BYTES):
        if at + index >= len(buf):
            cut_short(at, index + 1, len(buf))
        byte = buf[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > FULL_UVARINT:
                raise MalformedFrame(f"varint {value} at byte {at} is above 32 bits")
            return value, at + index + 1
    raise MalformedFrame(f"varint of more than {MAX_UVARINT_BYTES} bytes at byte {at}")


FULL_UVARINT = (1 << 32) - 1


def uvarint(value: int) -> bytes:
    """UNSIGNED_VARINT, shortest form."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_span(buf: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    """Returns ``size`` bytes as a view of the buffer, and the next position."""
    if size < 0:
        raise MalformedFrame(f"negative size {size} at byte {at}")
    if size > len(buf) - at:
        cut_short(at, size, len(buf))
    return buf[at : at + size], at + size


def read_size(buf: memoryview, at: int, *, compact: bool, wide: bool = True) -> tuple[int, int]:
    """Returns the length of bytes or of an array (-1: null), and the next position.

    Compact: varint of length + 1. Otherwise INT32, or INT16 when not ``wide`` (strings). A length that the rest of the
    frame cannot hold raises ``MalformedFrame`` (an element has at least one byte), so that no caller loops or allocates
    by it.
    """
    if compact:
        plus_one, after = read_uvarint(buf, at)
        size = plus_one - 1
    else:
        size, after = read_i32(buf, at) if wide else read_i16(buf, at)
    if size < -1 or size > len(buf) - after:
        raise MalformedFrame(f"length {size} at byte {at} in a frame of {len(buf)}")
    return size, after


def read_array_size(buf: memoryview, at: int, *, compact: bool) -> tuple[int, int]:
    """Returns the element count of an array that may not be null, and the next position."""
    count, after = read_size(buf, at, compact=compact)
    if count < 0:
        raise MalformedFrame(f"null array at byte {at}")
    return count, after


def read_string(buf: memoryview, at: int, *, compact: bool) -> tuple[str | None, int]:
    """STRING, NULLABLE_STRING and their compact forms."""
    size, at = read_size(buf, at, compact=compact, wide=False)
    if size < 0:
        return None, at
    span, after = read_span(buf, at, size)
    try:
        return str(span, "utf-8"), after
    except UnicodeDecodeError as error:
        raise MalformedFrame(f"string at byte {at} is not UTF-8") from error


def string(value: str | None, *, compact: bool) -> bytes:
    """STRING, NULLABLE_STRING and their compact forms."""
    if value is None:
        return b"\0" if compact else _I16.pack(-1)
    data = value.encode()
    return (uvarint(len(data) + 1) if compact else _I16.pack(len(data))) + data


@functools.lru_cache(maxsize=1024)
def array_size(count: int, *, compact: bool) -> bytes:
    """Returns the count in front of an array."""
    return uvarint(count + 1) if compact else _I32.pack(count)


def read_tags(buf: memoryview, at: int) -> tuple[dict[int, memoryview], int]:
    """TAGGED_FIELDS (KIP-482): tag -> its bytes, as a view of the buffer. The caller has to ignore unknown tags."""
    count, at = read_uvarint(buf, at)
    if count > len(buf) - at:
        raise MalformedFrame(f"{count} tagged fields at byte {at} in a frame of {len(buf)}")
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, at = read_uvarint(buf, at)
        size, at = read_uvarint(buf, at)
        tags[tag], at = read_span(buf, at, size)
    return tags, at


NO_TAGS = b"\0"
