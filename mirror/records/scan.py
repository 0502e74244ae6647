"""Cuts a record set into batches, by their headers alone.

Brokers cut a Fetch answer at a number of bytes, so a record set often ends with the beginning of a batch. Three things
look alike there and are told apart here:

* a partial batch: the next fetch brings it whole (Fetch v3+ always gives the first batch whole, KIP-74);
* KIP-283's filler, put in by brokers that down-convert when nothing fits: base offset -1, length past the end;
* an impossible length: corruption, never "wait for more".
"""

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from mirror.records.header import HEADER_SIZE, MAGIC_AT, PREFIX, PREFIX_SIZE, CorruptBatch

MIN_LENGTH = {0: 14, 1: 22, 2: HEADER_SIZE - PREFIX_SIZE}
"""Least ``length`` per magic. 0: crc, magic, attributes, key, value; 1: a timestamp, too; 2: the rest of its header."""

_BASE_OFFSET = struct.Struct(">q")
FILLER_OFFSET = -1
NOT_SEEN = -1


class Remainder(Enum):
    """The kind of bytes behind the last whole batch of a record set."""

    CLEAN = "nothing"
    PARTIAL = "the beginning of a batch: fetch again from its offset"
    FILLER = "KIP-283 filler: drop it"


class BatchPlace(NamedTuple):
    """One whole batch within a record set."""

    at: int
    size: int


def measure(record_set: memoryview, at: int, end: int) -> int | Remainder:
    """Returns the size in bytes of the whole batch at byte ``at``, or the kind of tail that begins there. ``end``: the
    byte at which the record set ends.

    Raises:
        CorruptBatch: a length, a base offset or a magic that no broker writes.
    """
    left = end - at
    if left < PREFIX_SIZE:
        return Remainder.PARTIAL if left > 0 else Remainder.CLEAN
    base_offset, length = PREFIX.unpack_from(record_set, at)
    if base_offset < 0:
        # KIP-283 as built in 2.0 to 3.x: offset -1 and a length that reaches past the end, or these 12 bytes alone.
        if base_offset == FILLER_OFFSET and length > left - PREFIX_SIZE:
            return Remainder.FILLER
        raise CorruptBatch(f"base offset {base_offset} with length {length} at byte {at} of {end}")
    if length < MIN_LENGTH[0]:
        raise CorruptBatch(f"batch length {length} at byte {at} of {end}, offset {base_offset}")
    if left <= MAGIC_AT:
        return Remainder.PARTIAL
    magic = record_set[at + MAGIC_AT]
    least = MIN_LENGTH.get(magic)
    if least is None:
        raise CorruptBatch(f"magic {magic} at byte {at} of {end}, offset {base_offset}")
    if length < least:
        raise CorruptBatch(f"batch length {length} below {least} for magic {magic} at byte {at}, offset {base_offset}")
    size = PREFIX_SIZE + length
    return size if size <= left else Remainder.PARTIAL


def base_offset_at(record_set: memoryview, at: int, end: int) -> int:
    """Returns the base offset of the batch at byte ``at``, also of one that is cut off. ``NOT_SEEN`` if the base offset
    itself is cut off, or if it is KIP-283's filler."""
    if end - at < _BASE_OFFSET.size:
        return NOT_SEEN
    base_offset: int = _BASE_OFFSET.unpack_from(record_set, at)[0]
    return max(base_offset, NOT_SEEN)


def scan(record_set: memoryview, at: int = 0, end: int | None = None) -> Iterator[BatchPlace]:
    """Yields every whole batch (or magic 0/1 message) of ``record_set[at:end]``, in order, up to a tail of any kind.

    Raises:
        CorruptBatch: as ``measure``, when the iteration gets there. The batches before it were good.
    """
    stop = len(record_set) if end is None else end
    while isinstance(size := measure(record_set, at, stop), int):
        yield BatchPlace(at, size)
        at += size


def tail(record_set: memoryview, at: int = 0, end: int | None = None) -> Remainder:
    """Returns the kind of bytes behind the last whole batch."""
    stop = len(record_set) if end is None else end
    while isinstance(size := measure(record_set, at, stop), int):
        at += size
    return size
