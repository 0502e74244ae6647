"""The header checksum of lz4 frames, which Kafka got wrong at first (KAFKA-3160).

The last byte of a frame's header is a checksum of its descriptor, the bytes behind the frame's magic number. Kafka
before 0.10 took the magic number along, and everybody else refused its frames. So messages of magic 0 have the wrong
checksum for ever: their readers look for it, or look at none. Magic 1 came with the right one.
"""

from mirror.records.content.opening import NotOpened

FRAME_MAGIC = b"\x04\x22\x4d\x18"
_FLAGS_AT = 4
_HAS_CONTENT_SIZE = 0x08
_SHORT, _LONG = 6, 14
"""Position of the checksum: behind flags and block size, and behind the content's size if there is one."""

_FULL = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1


def with_right_checksum(frame: bytes, where: str) -> bytes:
    """Returns the frame as an lz4 library reads it, whatever header checksum it has.

    Args:
        frame: the value of a wrapper of magic 0. The wrapper's own checksum has been verified.
        where: what it belongs to, with which error messages begin ("the wrapper of magic 0 at offset 7").

    Raises:
        NotOpened: the bytes are no lz4 frame.
    """
    at = _checksum_at(frame)
    if not at:
        raise NotOpened(f"{where} cannot be decompressed: no lz4 frame")
    return _with(frame, at, xxh32(frame[_FLAGS_AT:at]))


def with_old_checksum(frame: bytes) -> bytes:
    """Returns the frame as messages of magic 0 hold it, with the checksum that covers too much."""
    at = _checksum_at(frame)
    return _with(frame, at, xxh32(frame[:at]))


def _checksum_at(frame: bytes) -> int:
    """Returns the position of the header's checksum, or 0 if the bytes are no lz4 frame."""
    if len(frame) <= _SHORT or not frame.startswith(FRAME_MAGIC):
        return 0
    at = _LONG if frame[_FLAGS_AT] & _HAS_CONTENT_SIZE else _SHORT
    return at if at < len(frame) else 0


def _with(frame: bytes, at: int, hashed: int) -> bytes:
    return b"".join([frame[:at], bytes([hashed >> 8 & 0xFF]), frame[at + 1 :]])


def xxh32(data: bytes) -> int:
    """Returns the xxHash (32 bits, seed 0) of less than 16 bytes: a header has no more. The xxhash library is installed
    only with the audit, not with the daemon."""
    assert len(data) < 16, len(data)
    state = _PRIME_5 + len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state += int.from_bytes(data[at : at + 4], "little") * _PRIME_3
        state = _rotated(state, 17) * _PRIME_4
    for byte in data[whole:]:
        state += byte * _PRIME_5
        state = _rotated(state, 11) * _PRIME_1
    state &= _FULL
    state = (state ^ state >> 15) * _PRIME_2 & _FULL
    state = (state ^ state >> 13) * _PRIME_3 & _FULL
    return state ^ state >> 16


def _rotated(state: int, bits: int) -> int:
    state &= _FULL
    return state << bits & _FULL | state >> 32 - bits
