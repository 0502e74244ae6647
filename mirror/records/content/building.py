"""Writes records into a batch: the other direction of ``opening``.

The same records give the same bytes each time: they contain no time of day.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

import zstandard
from crc32c import crc32c

from mirror.records.content.decompressing import GZIP_FRAMING
from mirror.records.content.record import Record, write_record
from mirror.records.header import (
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    PREFIX_SIZE,
    BatchHeader,
    Codec,
)

MOST_BUILT = (1 << 31) - 1 - PREFIX_SIZE
"""Limit for a batch in bytes: its length field is an i32."""
NO_PRODUCER = (NO_PRODUCER_ID, -1, -1)
"""Producer id, epoch and sequence of a batch without a producer."""
_LEAST_DELTA, _MOST_DELTA = -(1 << 63), (1 << 63) - 1
"""Timestamp deltas that a record can have: a varlong of 64 bits."""


class BatchBuilder:
    """Builds one batch of magic 2, without a leader epoch and with create times.

    Args:
        codec: the batch is compressed with it, even if that gains nothing.
        most_bytes: limit for the batch before compression. Its first record is taken in any case.
        most_records: limit for the number of records.
        sparse: True if offsets may be missing between its records. Brokers store such batches, but refuse them from
            producers.
    """

    def __init__(
        self, codec: Codec, *, most_bytes: int = MOST_BUILT, most_records: int = MOST_BUILT, sparse: bool = False
    ) -> None:
        self._codec = codec
        self._most_records = most_records
        self._sparse = sparse
        self._most_bytes = most_bytes
        self._records: list[bytes] = []
        self._size = HEADER_SIZE
        self._base_offset = self._base_timestamp = self._max_timestamp = 0
        self.next_offset = 0
        """The offset behind the batch's last record; 0 before the first record."""
        self.count = 0
        """Number of records so far."""

    def add(self, record: Record) -> bool:
        """Takes the record. Returns False, and takes nothing, if it needs another batch: its offset is not the next
        one, there is no room for it, or its timestamp is too far from the first one."""
        if not self.count:
            self._base_offset = record.offset
            self._base_timestamp = self._max_timestamp = record.timestamp
        elif (
            record.offset < self.next_offset
            or (record.offset > self.next_offset and not self._sparse)
            or self.count >= self._most_records
            or not _LEAST_DELTA <= record.timestamp - self._base_timestamp <= _MOST_DELTA
        ):
            return False
        encoded = write_record(
            record,
            offset_delta=record.offset - self._base_offset,
            timestamp_delta=record.timestamp - self._base_timestamp,
        )
        if self.count and self._size + len(encoded) > self._most_bytes:
            return False
        self._records.append(encoded)
        self._size += len(encoded)
        self._max_timestamp = max(self._max_timestamp, record.timestamp)
        self.next_offset = record.offset + 1
        self.count += 1
        return True

    def build(self, producer: tuple[int, int, int] = NO_PRODUCER) -> bytes:
        """Returns the whole batch, with its base offset. It must have a record. ``producer``: id, epoch, sequence."""
        assert self.count, "a batch without records"
        payload = compressed(self._codec, b"".join(self._records))
        header = BatchHeader(
            base_offset=self._base_offset,
            length=HEADER_SIZE - PREFIX_SIZE + len(payload),
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=self._codec,
            last_offset_delta=self.next_offset - 1 - self._base_offset,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            record_count=self.count,
        ).pack()
        crc = crc32c(payload, crc32c(header[CRC_FROM:]))
        return b"".join([header[:CRC_AT], struct.pack(">I", crc), header[CRC_FROM:], payload])


def dense_batches(records: Iterable[Record], codec: Codec) -> Iterator[bytes]:
    """Yields the records as dense batches, in order: one for each run of offsets without a gap."""
    builder = BatchBuilder(codec)
    for record in records:
        if not builder.add(record):
            yield builder.build()
            builder = BatchBuilder(codec)
            builder.add(record)
    if builder.count:
        yield builder.build()


def compressed(codec: Codec, plain: bytes) -> bytes:
    """Returns the bytes compressed so that Kafka clients of any age can read them: snappy in xerial frames, lz4 in
    independent blocks (Kafka's readers accept no others) and without the content size (the oldest do not accept it)."""
    if codec is Codec.GZIP:
        stream = zlib.compressobj(wbits=GZIP_FRAMING)
        return stream.compress(plain) + stream.flush()
    if codec is Codec.SNAPPY:
        from kafka.codec import snappy_encode  # with all of its codecs' libraries, a few MB: only where it is needed

        framed: bytes = snappy_encode(plain)
        return framed
    if codec is Codec.LZ4:
        import lz4.frame

        frame: bytes = lz4.frame.compress(plain, block_linked=False, store_size=False)
        return frame
    if codec is Codec.ZSTD:
        # The library's result keeps the memory allocated for the worst case; a copy takes only what it needs.
        return memoryview(zstandard.compress(plain)).tobytes()
    return plain
