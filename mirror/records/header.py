"""The header of a record batch (magic 2), read and written in place.

Layout (KIP-98, unchanged since Kafka 0.11), big-endian, 61 bytes::

     0  base_offset        i64   8  length             i32  12  leader_epoch      i32  16  magic           i8
    17  crc                u32  21  attributes         i16  23  last_offset_delta i32  27  base_timestamp  i64
    35  max_timestamp      i64  43  producer_id        i64  51  producer_epoch    i16  53  base_sequence   i32
    57  record_count       i32  61  the records, compressed as one block

``length`` counts the bytes after itself; the CRC-32C covers bytes 21 to the end.
"""

import struct
from enum import IntEnum
from typing import NamedTuple, Self

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
PREFIX = struct.Struct(">qi")
PREFIX_SIZE = 12
"""Bytes of base_offset and length, which precede the bytes that ``length`` counts in every magic."""
assert HEADER.size == HEADER_SIZE
assert PREFIX.size == PREFIX_SIZE

MAGIC = 2
MAGIC_AT = 16
CRC_AT = 17
CRC_FROM = 21
"""The CRC covers the bytes from here to the batch's end."""
MAX_TIMESTAMP_AT = 35
PRODUCER_ID_AT = 43
RECORD_COUNT_AT = 57

NO_PRODUCER_ID = -1
STAND_IN = -2
"""Highest producer id of a stand-in: see ``StoredMessages``. Kafka's clients write no producer id below -1, but brokers
would store one."""
NO_LEADER_EPOCH = -1
MOST_OFFSET = (1 << 63) - 1
"""The largest offset in 64 bits. A batch's last offset is below it, since the log goes on at the next one."""
SEQUENCES = 1 << 31
"""Sequences run from 0 to 2^31 - 1 and wrap to 0 (Kafka's DefaultRecordBatch)."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""Set by the log cleaner on batches that hold tombstones (KIP-534); base_timestamp is then the horizon."""


class Codec(IntEnum):
    """Compression of a batch's records: the low three attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CorruptBatch(ValueError):
    """Bytes that no broker writes. The message names the field, its value and its place, and never holds payload."""


class StoredMessages(NamedTuple):
    """The messages of an old format (magic 0 or 1) for which a batch, their *stand-in*, was made. The stand-in carries
    this description in its producer fields, which are free: old messages have no producer.

    ``crc``, ``magic``, ``size`` (in bytes): of the message, or of the last one that the batch was made of.
    """

    crc: int
    magic: int
    size: int

    @property
    def producer(self) -> tuple[int, int, int]:
        """Producer id, epoch and sequence of the stand-in."""
        return STAND_IN - self.crc, self.magic, self.size


class BatchHeader(NamedTuple):
    """One header, fields in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def read(cls, buf: bytes | bytearray | memoryview, at: int = 0) -> Self:
        """Returns the header at byte ``at``. The 61 bytes must be there (``struct.error`` if not: the caller's bug)."""
        return cls._make(HEADER.unpack_from(buf, at))

    def pack(self) -> bytes:
        """Returns the 61 bytes."""
        return HEADER.pack(*self)

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header and records."""
        return PREFIX_SIZE + self.length

    @property
    def last_offset(self) -> int:
        """Offset of the last record. Compaction keeps it, whatever it removes."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset behind this batch, at which the log goes on."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; meaningless without a producer id."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES

    @property
    def codec_bits(self) -> int:
        """The codec as a number; 5 to 7 are not assigned."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """True for a transaction marker, which consumers never see."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """True if it was written inside a transaction (so are the transaction's markers)."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_stand_in(self) -> bool:
        """True if no log holds this batch: it was made of messages of an old format (``StoredMessages``). The leader
        epoch tells it from a stored batch: brokers store any producer id that a producer sends, but always their own
        leader epoch."""
        return self.producer_id <= STAND_IN and self.leader_epoch == NO_LEADER_EPOCH

    @property
    def stored_size(self) -> int:
        """Bytes of the batch in the log; for a stand-in, those of the last message that it was made of."""
        return self.base_sequence if self.is_stand_in else self.size

    @property
    def is_dense(self) -> bool:
        """True if every offset from the base to the last has its record: nothing was compacted away."""
        return self.record_count == self.last_offset_delta + 1
