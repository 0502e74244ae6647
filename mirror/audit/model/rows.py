"""The rows that readers make of one side's log: batches, records, and offsets at which no record is due."""

from enum import IntEnum
from typing import NamedTuple

from mirror.audit.model.places import Span


class What(IntEnum):
    """The nature of a batch's offsets, or of the offsets between two batches."""

    DATA = 0
    CONTROL = 1
    """A transaction marker; at the destination, a marker that the mirror wrote."""
    ABORTED = 2
    """Data of an aborted transaction; at the destination, only of one that was there before the flow (``Adopted``)."""
    EMPTY = 3
    """A batch from which compaction removed every record."""
    GAP = 4
    """No batch at all."""
    FOREIGN = 5
    """A control batch at the destination that the mirror did not write."""
    DAMAGED = 6
    """A control batch at the destination whose checksum does not match its bytes."""
    INSIDE = 7
    """Offsets without a record (compaction) inside of a batch, or of a wrapper of an old format, that is compared
    record by record."""


class Hole(NamedTuple):
    """Offsets at which no record is due; the end is not included."""

    start: int
    end: int
    what: What


class RecordRow(NamedTuple):
    """One record as a reader saw it.

    ``key``: the digest of its key in hex, or None without a key. ``size``: bytes of key, value and headers. ``whole``:
    False if the row stands for a batch that cannot be opened; then only the offset and ``sealed`` have a meaning.
    ``mistimed``: it is the last record of a batch whose max timestamp is not that of its records. ``sealed``:
    the batch cannot be opened although its checksum is right, so both sides may have the same batch.
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
"""Flags of rows that no batch's attributes have. ``OLD_FORMAT``: a message from before Kafka 0.11, if it is at the
destination or cannot be read. ``UNREAD``: the batch or message cannot be opened although its checksum is right.
``STRADDLES``: a record that is no copy of a message of an old format, in a batch that reaches into such messages."""


class BatchRow(NamedTuple):
    """One batch as a reader saw it. ``flags``: the attribute bits that are compared, and the flags above. Timestamps
    are in ms since 1970. ``size`` is in bytes and includes the header.

    A record that is compared by itself is also such a row: a batch of one record, whose ``size`` is that of its
    content.
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
        """Everything that is compared except the base offset. Equal batches at different offsets have the same."""
        return (
            self.last_offset - self.base_offset,
            self.records,
            self.flags,
            self.base_timestamp,
            self.max_timestamp,
            self.size,
            self.digest,
        )
