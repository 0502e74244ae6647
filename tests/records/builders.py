"""Batches from an encoder that is not ours (kafka-python's), and batches of arbitrary bytes for the checksum tests."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from mirror.records.header import CRC_AT, CRC_FROM, HEADER_SIZE, BatchHeader


class Record(NamedTuple):
    """One record; ``offset`` is relative to its batch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


RECORDS = (
    Record(0, 1_700_000_000_000, b"key", b"value " * 20, [("trace", b"abc"), ("empty", None)]),
    Record(1, 1_700_000_000_007, None, b"value " * 20),
    Record(2, 1_700_000_000_003, b"tombstone", None),
)


def kafka_batch(
    records: Sequence[Record] = RECORDS,
    *,
    codec: int = 0,
    base_offset: int = 0,
    leader_epoch: int = 0,
    transactional: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A whole batch as kafka-python encodes it, at an offset and with a leader epoch as a broker would store it."""
    builder = DefaultRecordBatchBuilder(
        2, codec, transactional, producer_id, producer_epoch, base_sequence, batch_size=1 << 30
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, leader_epoch)
    return bytes(batch)


def legacy_message(magic: int, *, offset: int = 0, codec: int = 0, count: int = 1) -> bytes:
    """A message set of magic 0 or 1 with ``count`` messages; compressed, it is one wrapper message."""
    builder = LegacyRecordBatchBuilder(magic, codec, batch_size=1 << 20)
    for index in range(count):
        builder.append(offset + index, 1_700_000_000_000 if magic else None, b"key", b"value " * 20)
    return bytes(builder.build())


def raw_batch(
    payload: bytes,
    *,
    base_offset: int = 1_000,
    leader_epoch: int = 3,
    attributes: int = 0,
    last_offset_delta: int = 4,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int = 1_700_000_000_050,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    record_count: int = 5,
) -> bytes:
    """A batch with any bytes for records and the checksum that belongs to them."""
    header = BatchHeader(
        base_offset=base_offset,
        length=HEADER_SIZE - 12 + len(payload),
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )
    return sealed(header.pack() + payload)


def sealed(batch: bytes) -> bytes:
    """The same batch with its checksum recomputed."""
    crc = crc32c(batch[CRC_FROM:])
    return batch[:CRC_AT] + struct.pack(">I", crc) + batch[CRC_FROM:]


def header_of(**changes: int) -> BatchHeader:
    """The header of an ordinary batch of five records at offset 1000, with some fields changed."""
    return BatchHeader.read(raw_batch(b"")[:HEADER_SIZE])._replace(**changes)
