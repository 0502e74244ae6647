"""Batches as they were written, and as a log cleaner leaves them."""

from collections.abc import Collection
from typing import Any

from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, BatchHeader, Codec
from tests.records.builders import Record, kafka_batch, sealed

TIME = 1_700_000_000_000
SIZE = 3
"""Records of a batch."""


def record(offset: int, **changes: Any) -> Record:
    """As it is written at this offset."""
    return Record(offset, TIME + offset, b"key %d" % offset, b"value %d" % offset)._replace(**changes)


def written(base: int, codec: int = Codec.ZSTD) -> bytes:
    """A batch as a producer wrote it."""
    return kafka_batch([_inside(base, record(base + at)) for at in range(SIZE)], codec=codec, base_offset=base)


def _inside(base: int, one: Record) -> Record:
    return one._replace(offset=one.offset - base)


def cleaned(batch: bytes, left: Collection[Record], *, horizon: bool = False, codec: int = Codec.ZSTD) -> bytes:
    """The same batch when a cleaner has rewritten it: it keeps its place, who wrote it and its last offset."""
    before = BatchHeader.read(batch)
    base = before.base_offset
    rewritten = kafka_batch([_inside(base, one) for one in left] or [record(0)], codec=codec, base_offset=base)
    header = BatchHeader.read(rewritten)._replace(
        leader_epoch=before.leader_epoch,
        last_offset_delta=before.last_offset_delta,
        producer_id=before.producer_id,
        producer_epoch=before.producer_epoch,
        base_sequence=before.base_sequence,
        record_count=len(left),
    )
    if horizon:
        header = header._replace(attributes=header.attributes | DELETE_HORIZON)
    records = rewritten[HEADER_SIZE:] if left else b""
    return sealed(header._replace(length=HEADER_SIZE - 12 + len(records)).pack() + records)
