"""The internal topic's records in batches: read from any, and written in ours."""

import time
from collections.abc import Iterable, Iterator

from kafka.record.default_records import DefaultRecord, DefaultRecordBatch, DefaultRecordBatchBuilder

from mirror.offsetmap.entries.entry import StateError

BATCH_BYTES = 256 * 1024
"""Most bytes of keys and values in a batch, unless a single entry has more: well below any ``max.message.bytes``."""
KeyValue = tuple[bytes, bytes | None]
"""Key and value of a record."""


def records_of(batch: memoryview) -> list[DefaultRecord]:
    """Returns the records of a batch that anybody may have written.

    Raises:
        StateError: they cannot be read.
    """
    try:
        return list(DefaultRecordBatch(bytes(batch)))
    except Exception as error:  # the bytes may be a stranger's, and each codec raises errors of its own
        raise StateError(f"unreadable: {type(error).__name__}: {error}") from error


def batches_of(rows: Iterable[KeyValue]) -> Iterator[bytes]:
    """Yields the rows as record batches, in order."""
    builder, size, count = _builder(), 0, 0
    for key, value in rows:
        grown = len(key) + len(value or b"")
        if count and size + grown > BATCH_BYTES:
            yield bytes(builder.build())
            builder, size, count = _builder(), 0, 0
        builder.append(count, round(time.time() * 1000), key, value, [])
        size += grown
        count += 1
    if count:
        yield bytes(builder.build())


def _builder() -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
