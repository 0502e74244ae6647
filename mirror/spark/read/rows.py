"""Makes Arrow batches of the entries of a log. No I/O."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mirror.audit.read.rows import read_headers
from mirror.legacy.entries import LegacySpan
from mirror.records.header import CODEC_MASK, CONTROL, LOG_APPEND_TIME, PREFIX_SIZE, TRANSACTIONAL
from mirror.records.scan import BatchPlace
from mirror.spark.read.options import ARROW_BYTES
from mirror.spark.schema import ARROW_SCHEMA, CODECS, CREATE_TIME
from mirror.spark.schema import LOG_APPEND_TIME as APPEND_TIME

GATHERED_ROWS, GATHERED_BYTES = 4096, 4 << 20
"""Rows are gathered until there are this many rows or bytes: an Arrow batch by itself costs Spark as much as many
rows."""

_CODEC_NAMES = pa.array([*CODECS, *(f"unknown {bits}" for bits in range(len(CODECS), CODEC_MASK + 1))])
_TIME_TYPES = pa.array([CREATE_TIME, APPEND_TIME])


class Entry(NamedTuple):
    """One whole entry in a Fetch response. ``old``: its span if it is a message of magic 0 or 1; otherwise None."""

    place: BatchPlace
    crc_ok: bool
    old: LegacySpan | None = None


def arrow_rows(topic: str, partition: int, body: memoryview, entries: Sequence[Entry], *, include_batch: bool) -> Any:
    """Returns the rows of these entries, in order, as an Arrow record batch. Their bytes are copied.

    Args:
        topic: the topic's name.
        partition: the partition's number.
        body: the response.
        entries: at least one.
        include_batch: False: the column ``batch`` is null.
    """
    runs: list[Any] = []
    start = 0
    for index in range(1, len(entries) + 1):
        if index == len(entries) or (entries[index].old is None) != (entries[start].old is None):
            runs.append(_run(entries[start:index], body))
            start = index
    columns = runs[0] if len(runs) == 1 else {name: pa.concat_arrays([run[name] for run in runs]) for name in runs[0]}
    count = len(entries)
    columns["topic"] = pa.repeat(topic, count)
    columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), count)
    columns["crc_ok"] = pa.array([entry.crc_ok for entry in entries], pa.bool_())
    if include_batch:
        columns["batch"] = _bytes_of(body, entries)
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in ARROW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _run(entries: Sequence[Entry], body: memoryview) -> dict[str, Any]:
    """Returns the columns that follow from the headers. The entries are all batches, or all old messages."""
    old = [entry.old for entry in entries if entry.old is not None]
    return _of_messages(old) if old else _of_batches(read_headers(body, [entry.place for entry in entries]))


def _of_batches(headers: Any) -> dict[str, Any]:
    def native(name: str, kind: str) -> Any:
        return pa.array(headers[name].astype(kind))

    base = headers["base_offset"].astype(np.int64)
    attributes = headers["attributes"].astype(np.int64)
    return {
        "base_offset": pa.array(base),
        "last_offset": pa.array(base + headers["last_offset_delta"]),
        "record_count": native("record_count", "int32"),
        "magic": native("magic", "int8"),
        "codec": _CODEC_NAMES.take(pa.array(attributes & CODEC_MASK)),
        "timestamp_type": _TIME_TYPES.take(pa.array((attributes & LOG_APPEND_TIME) // LOG_APPEND_TIME)),
        "is_transactional": pa.array((attributes & TRANSACTIONAL) != 0),
        "is_control": pa.array((attributes & CONTROL) != 0),
        "leader_epoch": native("leader_epoch", "int32"),
        "producer_id": native("producer_id", "int64"),
        "producer_epoch": native("producer_epoch", "int16"),
        "base_sequence": native("base_sequence", "int32"),
        "base_timestamp": native("base_timestamp", "int64"),
        "max_timestamp": native("max_timestamp", "int64"),
        "size": pa.array((headers["length"].astype(np.int64) + PREFIX_SIZE).astype(np.int32)),
    }


def _of_messages(spans: Sequence[LegacySpan]) -> dict[str, Any]:
    """Returns the columns of messages of magic 0 and 1. Both offset columns have the stored offset, which for a wrapper
    is that of its last record. Columns that these formats do not have, or that would need the wrapper to be opened, are
    null."""
    count = len(spans)
    offsets = pa.array([span.last_offset for span in spans], pa.int64())
    times = [span.timestamp if span.magic else None for span in spans]
    columns = {
        "base_offset": offsets,
        "last_offset": offsets,
        "record_count": pa.array([None if span.is_wrapper else 1 for span in spans], pa.int32()),
        "magic": pa.array([span.magic for span in spans], pa.int8()),
        "codec": _CODEC_NAMES.take(pa.array([span.codec_bits for span in spans], pa.int64())),
        "timestamp_type": pa.array(
            [(APPEND_TIME if span.has_append_time else CREATE_TIME) if span.magic else None for span in spans],
            pa.string(),
        ),
        "is_transactional": pa.repeat(False, count),
        "is_control": pa.repeat(False, count),
        "base_timestamp": pa.array(
            [None if span.is_wrapper else time for span, time in zip(spans, times, strict=True)], pa.int64()
        ),
        "max_timestamp": pa.array(times, pa.int64()),
        "size": pa.array([span.size for span in spans], pa.int32()),
    }
    for name in ("leader_epoch", "producer_id", "producer_epoch", "base_sequence"):
        columns[name] = pa.nulls(count, ARROW_SCHEMA.field(name).type)
    return columns


def _bytes_of(body: memoryview, entries: Sequence[Entry]) -> Any:
    """Returns the entries' bytes as an Arrow array, copied once."""
    places = [entry.place for entry in entries]
    data = b"".join(body[place.at : place.at + place.size] for place in places)
    offsets = np.zeros(len(places) + 1, np.int32)
    np.cumsum([place.size for place in places], out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), len(places), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


async def gathered(batches: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """Yields the same rows in fewer Arrow batches of at most ``ARROW_BYTES``, unless a given one is larger."""
    held: list[Any] = []
    rows = size = 0
    async for batch in batches:
        if held and size + batch.nbytes > ARROW_BYTES:
            yield _joined(held)
            held, rows, size = [], 0, 0
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GATHERED_ROWS or size >= GATHERED_BYTES:
            yield _joined(held)
            held, rows, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(batches: Sequence[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(list(batches))
