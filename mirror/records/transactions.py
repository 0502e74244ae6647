"""Finds the batches that a read_committed consumer skips. Whole batches only: no batch mixes transactions.

A Fetch response lists the aborted transactions within its offsets, as (producer id, first offset). A batch is aborted
if it has such a producer id and lies between the first offset and that producer's ABORT marker. The list in each
response is complete for the offsets in it, so nothing is carried from one fetch to the next (KIP-98).
"""

import struct
from collections.abc import Iterable

from mirror.records.header import HEADER_SIZE, BatchHeader

ABORT = 0
COMMIT = 1
NOT_A_MARKER = -1

_KEY = struct.Struct(">hh")
"""Key of a control record: version, type."""
_VARINT_MAX = 5
"""Bytes of the longest 32-bit varint."""
_VARLONG_MAX = 10


class Aborted:
    """The aborted transactions of one fetched piece of a log, followed batch by batch, in order."""

    __slots__ = ("_active", "_coming")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry[1], reverse=True)
        self._active: set[int] = set()

    def drops(self, header: BatchHeader) -> bool:
        """Returns True if the data batch belongs to an aborted transaction. To be called for every transactional batch,
        in order."""
        coming = self._coming
        while coming and coming[-1][1] <= header.last_offset:
            self._active.add(coming.pop()[0])
        return header.is_transactional and header.producer_id in self._active

    def follow(self, header: BatchHeader, batch: bytes | memoryview) -> bool:
        """Returns True if the batch is data of an aborted transaction; takes note of it if it is a marker. To be called
        for every batch of magic 2, in order; a second call for the same batch changes nothing."""
        if not header.is_transactional:
            return False
        if header.is_control:
            self.ends(header, marker_kind(batch))
            return False
        return self.drops(header)

    def ends(self, header: BatchHeader, kind: int) -> None:
        """Takes note of a marker. ``kind``: ABORT or COMMIT. An ABORT ends its producer's aborted transaction: that
        producer's next batches belong to another one."""
        self.drops(header)
        if kind == ABORT:
            self._active.discard(header.producer_id)


def marker_kind(batch: bytes | memoryview) -> int:
    """Returns ABORT or COMMIT for a control batch, NOT_A_MARKER for one that the cleaner emptied or that is cut off.

    A control batch holds one record, never compressed: length, attributes, timestamp delta, offset delta and key
    length, all but the attributes as varints, then the key.
    """
    at = _after_varint(batch, HEADER_SIZE, _VARINT_MAX) + 1
    at = _after_varint(batch, at, _VARLONG_MAX)
    at = _after_varint(batch, at, _VARINT_MAX)
    at = _after_varint(batch, at, _VARINT_MAX)
    if at + _KEY.size > len(batch):
        return NOT_A_MARKER
    return int(_KEY.unpack_from(batch, at)[1])


def _after_varint(batch: bytes | memoryview, at: int, most: int) -> int:
    """Returns the position behind the varint at ``at``; past the end of the batch if it is cut."""
    for end in range(at, min(at + most, len(batch))):
        if batch[end] < 0x80:
            return end + 1
    return len(batch) + 1
