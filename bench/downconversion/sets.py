"""Makes the record sets of a fetch, as a broker would return them: batches of magic 2 with a given size."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from bench.data import payload
from mirror.records.content.building import dense_batches
from mirror.records.content.opening import Record
from mirror.records.header import HEADER_SIZE, Codec

__all__ = ["record_set", "records_per_batch", "write"]

_START_MS = 1_760_000_000_000
_SAMPLE = 64
_POOL_BYTES = 8_000_000
_SEED = 20_260_102


def write(
    file: Path, *, codec: Codec, partitions: int, partition_bytes: int, batch_bytes: int, record_bytes: int
) -> list[int]:
    """Writes the record sets of a fetch into a file, one behind the other. The bytes are the same each time.

    Args:
        file: the file.
        codec: codec of the batches.
        partitions: number of record sets.
        partition_bytes: maximum size of a record set, which has whole batches only.
        batch_bytes: approximate size of a batch.
        record_bytes: size of a record's value.

    Returns:
        The size of each record set in bytes.
    """
    values = payload.pool(record_bytes, seed=_SEED, total_bytes=_POOL_BYTES)
    count = records_per_batch(values, codec=codec, batch_bytes=batch_bytes)
    cycle = itertools.cycle(values)
    sizes = []
    with file.open("wb") as out:
        for _ in range(partitions):
            sizes.append(out.write(record_set(cycle, codec=codec, count=count, most=partition_bytes)))
    return sizes


def record_set(values: Iterator[bytes], *, codec: Codec, count: int, most: int) -> bytes:
    """Returns a record set from offset 0 on: as many batches of ``count`` records each as fit into ``most`` bytes."""
    batches: list[bytes] = []
    size = 0
    for base in itertools.count(step=count):
        records = [
            Record(base + at, _START_MS + base + at, b"%d" % (base + at), next(values), ()) for at in range(count)
        ]
        (batch,) = dense_batches(records, codec)
        if size + len(batch) > most:
            return b"".join(batches)
        batches.append(batch)
        size += len(batch)
    raise AssertionError("it has no end")


def records_per_batch(values: list[bytes], *, codec: Codec, batch_bytes: int) -> int:
    """Returns the number of records that make a batch of about ``batch_bytes``; at least 1. ``values``: values of
    typical records."""
    sample = [Record(at, _START_MS, b"%d" % at, value, ()) for at, value in enumerate(values[:_SAMPLE])]
    (batch,) = dense_batches(sample, codec)
    return max(1, round(batch_bytes / ((len(batch) - HEADER_SIZE) / len(sample))))
