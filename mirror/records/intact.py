"""Verifies the checksum of every batch that the mirror acts on without forwarding it.

A forwarded batch carries its checksum, and the destination broker verifies it. A batch that becomes a hole, is skipped
or compared is verified only here. Otherwise a flipped bit on the source's disk (the control attribute, or a record
count of 0) would turn records into markers.

The checksum does not cover base offset, length, leader epoch and magic. A wrong length or magic shows as a wrong
checksum all the same. For base offsets see ``relay.holes.gaps``.
"""

import struct
import zlib

from mirror.records.header import CRC_AT, MAGIC, MAGIC_AT
from mirror.records.restamp import checksum

_CRC = struct.Struct(">I")
_OLD_CRC_AT = 12
"""Position of the checksum in magic 0 and 1: the CRC-32 of all bytes from the magic on."""


def is_intact(batch: bytes | memoryview) -> bool:
    """Returns True if the checksum of a whole batch (or message of magic 0 or 1) matches its bytes."""
    if batch[MAGIC_AT] != MAGIC:
        return bool(_CRC.unpack_from(batch, _OLD_CRC_AT)[0] == zlib.crc32(batch[MAGIC_AT:]))
    return bool(_CRC.unpack_from(batch, CRC_AT)[0] == checksum(batch))
