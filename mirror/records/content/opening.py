"""Reads a batch's records one by one, with their keys, values and headers.

Batches go through the mirror unopened. But a batch that a log cleaner has rewritten has other bytes than were written,
and only its records can still be compared. (Batches that a destination would refuse are cut into records, but the
records are not read: ``records.content.raw``.)
"""

from collections.abc import Iterator

from mirror.records.content.decompressing import NotOpened, decompressed
from mirror.records.content.record import Record, read_record
from mirror.records.header import BatchHeader

__all__ = ["MOST_OPENED", "NotOpened", "Record", "opened"]

MOST_OPENED = 16 << 20
"""Limit for a batch's decompressed records in bytes: a megabyte of compressed zeros can grow a thousandfold."""


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
    at = 0
    for _ in range(header.record_count):
        try:
            record, at = read_record(plain, at, header)
        except (ValueError, IndexError) as error:
            raise NotOpened(f"{where} is damaged: {error}") from None
        yield record
    if at != len(plain):
        raise NotOpened(f"{where} is damaged: {len(plain) - at} bytes behind its last record")
