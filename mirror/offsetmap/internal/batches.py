"""Converts between the internal topic's records and record batches."""

import time
from collections.abc import Iterable, Iterator

from mirror.offsetmap.entries.entry import StateError
from mirror.records.content.building import BatchBuilder
from mirror.records.content.opening import NotOpened, opened
from mirror.records.content.record import Record
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec

BATCH_BYTES = 256 * 1024
"""Maximum size of a batch, unless a single entry is larger. It is well below any usual ``max.message.bytes``."""
KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record."""


def records_of(batch: memoryview) -> list[Record]:
    """Returns the records of a batch, which anybody may have written. A batch that expands to more than
    ``opening.MOST_OPENED`` bytes is not read.

    Raises:
        StateError: the batch cannot be read.
    """
    try:
        return list(opened(BatchHeader.read(batch), bytes(batch[HEADER_SIZE:])))
    except NotOpened as error:
        raise StateError(f"unreadable: {error}") from error


def batches_of(rows: Iterable[KeyValue]) -> Iterator[bytes]:
    """Yields the rows as record batches, in order."""
    builder = BatchBuilder(Codec.NONE, most_bytes=BATCH_BYTES)
    for key, value in rows:
        record = Record(builder.next_offset, round(time.time() * 1000), key, value, ())
        if not builder.add(record):
            yield builder.build()
            builder = BatchBuilder(Codec.NONE, most_bytes=BATCH_BYTES)
            builder.add(record._replace(offset=0))
    if builder.count:
        yield builder.build()
