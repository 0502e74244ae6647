"""What readers see of one side's log: batches, records, and offsets at which no record is due."""

from enum import IntEnum
from typing import NamedTuple

from mirror.audit.model.places import Span


class What(IntEnum):
    """The nature of a batch's offsets, or of the offsets between two batches."""

    DATA = 0
    CONTROL = 1
    """A transaction marker; at the destination, a marker that the mirror wrote."""
    ABORTED = 2
    """Data of an aborted transaction; at the destination, of one that was there before the flow (``Adopted``)."""
    EMPTY = 3
    """A batch from which compaction removed every record."""
    GAP = 4
    """No batch at all."""
    FOREIGN = 5
    """A control batch at the destination that the mirror did not write."""
    DAMAGED = 6
    """A control batch at the destination whose checksum does not match its bytes."""
    INSIDE = 7
    """Offsets without a record inside of a batch, or of a wrapper of an old format, that is compared record by
    record (compaction)."""


class Hole(NamedTuple):
    """Offsets at which no record is due; the end is not included."""

    start: int
    end: int
    what: What


class RecordRow(NamedTuple):
    """One record as a reader saw it.

    ``key``: the digest of its key in hex, or None without a key. ``size``: bytes of key, value and headers. ``whole``:
    False if the row stands for a batch that cannot be opened; then only the offset has a meaning. ``mistimed``: it is
    the last record of a batch whose header has a max timestamp that is not that of its records.
    ``sealed``: the batch that cannot be opened has a right checksum, so both sides may have the same.
    """

    offset: int
    key: str | None = None
    tombstone: bool = False
    size: int = 0
    digest: bytes = b""
    whole: bool = True
    mistimed: bool = False
    sealed: bool = False


OLD_FORMAT, UNREAD, STRADDLES = 0x4000, 0x2000, 0x1000
"""Flags of rows that no batch's attributes have. ``OLD_FORMAT``: a message from before Kafka 0.11, at the destination
or with a wrong checksum. ``UNREAD``: the checksum is right, and it cannot be opened all the same. ``STRADDLES``: a
record of a batch that begins or ends among messages of an old format, and is not one of their copies."""


class BatchRow(NamedTuple):
    """One batch as a reader saw it. Timestamps are in ms since 1970; ``size`` is in bytes and includes the header.

    A record that is compared by itself is a row, too: a batch of one record, whose ``size`` is that of its content.
    """

    base_offset: int
    last_offset: int
    records: int
    flags: int
    base_timestamp: int
    max_timestamp: int
    size: int
    crc_ok: bool
    digest: bytes

    @property
    def span(self) -> Span:
        """The batch's offsets."""
        return Span(self.base_offset, self.last_offset + 1)

    @property
    def content(self) -> tuple[object, ...]:
        """Everything that is compared except the base offset, so that equal batches can be found at any offset."""
        return (
            self.last_offset - self.base_offset,
            self.records,
            self.flags,
            self.base_timestamp,
            self.max_timestamp,
            self.size,
            self.digest,
        )
