"""Variable-length integers inside records: zigzag, seven bits a byte, the lowest first (Protocol Buffers' ``sint``).

Sizes and offset deltas are varints (32 bits), timestamp deltas varlongs (64 bits).
"""

MOST_VARINT = 5
"""Most bytes of a varint."""
_MOST_SHIFT = 63
_FULL = (1 << 64) - 1
"""The tenth byte has room for six bits more than these."""


def read_varint(buf: bytes, at: int) -> tuple[int, int]:
    """Returns the integer at byte ``at`` (a varint or a varlong), and the byte behind it.

    Raises:
        IndexError: the bytes end inside the integer.
        ValueError: the integer has more than 64 bits.
    """
    byte = buf[at]
    at += 1
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), at
    value, shift = byte & 0x7F, 7
    while True:
        byte = buf[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _MOST_SHIFT:
            raise ValueError("an integer of more than 64 bits")
    if value > _FULL:
        raise ValueError("an integer of more than 64 bits")
    return value >> 1 ^ -(value & 1), at


def as_i64(value: int) -> int:
    """Returns the integer wrapped to 64 bits with a sign, as sums wrap in Kafka's clients."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def write_varint(value: int) -> bytes:
    """Returns the integer as a varint, or as a varlong if it needs more bits."""
    rest = value << 1 ^ value >> _MOST_SHIFT
    return _SHORT[rest] if 0 <= rest < _MOST_SHORT else _long(rest)


def _long(rest: int) -> bytes:
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class _Known(dict[int, bytes]):
    """Encodings by zigzag value, each made at its first use: most processes need none."""

    def __missing__(self, rest: int) -> bytes:
        self[rest] = made = _long(rest)
        return made


_MOST_SHORT = 1 << 14
_SHORT = _Known()
"""The encodings of one or two bytes, which nearly all integers have."""
