"""Reads a batch's records one by one, with their keys, values and headers.

Batches go through the mirror unopened. But a batch that a log cleaner has rewritten has other bytes than were written,
and only its records can still be compared. (What a destination would refuse as it is, is cut, but not read:
``records.raw``.)
"""

from collections.abc import Iterator
from typing import NamedTuple

from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch

from mirror.records.content.decompressing import NotOpened, decompressed
from mirror.records.content.varint import as_i64
from mirror.records.header import CODEC_MASK, HEADER_SIZE, BatchHeader

__all__ = ["MOST_OPENED", "NotOpened", "Record", "opened"]

MOST_OPENED = 16 << 20
"""Limit for a batch's decompressed records in bytes: a megabyte of compressed zeros can grow a thousandfold."""


class Record(NamedTuple):
    """One record. ``timestamp``: ms since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def opened(header: BatchHeader, records: bytes, most: int | None = None) -> Iterator[Record]:
    """Yields the records of a batch, in order.

    Args:
        header: the header of the batch.
        records: the bytes behind the header, compressed with its codec.
        most: limit for the decompressed records in bytes; None: ``MOST_OPENED``.

    Raises:
        NotOpened: damaged, larger than ``most``, or no library for its codec; also while iterating.
    """
    where = f"the batch at offset {header.base_offset}"
    most = MOST_OPENED if most is None else most
    plain = decompressed(header.codec_bits, records, most=most, where=where) if header.record_count else b""
    batch = DefaultRecordBatch(header._replace(attributes=header.attributes & ~CODEC_MASK).pack() + plain)
    del plain  # the batch has its own copy; one of megabytes is enough
    try:
        for record in batch:
            yield Record(record.offset, as_i64(record.timestamp), record.key, record.value, tuple(record.headers))
    except CorruptRecordError as error:
        raise NotOpened(f"{where} is damaged: {error}") from None


assert DefaultRecordBatch.HEADER_STRUCT.size == HEADER_SIZE
