"""Opens batches and returns a row for each record.

A log cleaner rewrites batches, and from then on their bytes prove nothing. The remaining records can only be compared
one by one, and removed ones can only be excused, for example by a later record of their key
(``audit.spark.by_record``). Batches of other topics are opened only where they cannot be matched as a whole
(``OPENED``).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mirror.audit.model.places import Span
from mirror.audit.model.rows import RecordRow
from mirror.audit.read.rows import HEADERS, SCHEMA, Block, Digester
from mirror.audit.read.units import Row, Unit
from mirror.audit.spark.options import RECORD, UNOPENED
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.raw import PlacedRecord, parts, placed_records
from mirror.records.header import HEADER_SIZE, PREFIX_SIZE, BatchHeader
from mirror.records.intact import is_intact

_FRONT = struct.Struct(">qB")
NO_TIMESTAMP = -1
"""The max timestamp of a batch whose records have no timestamps."""
TOMBSTONE, MISTIMED, SEALED = 1, 2, 4
"""Flags of a record's row: ``RecordRow.tombstone``, ``mistimed`` and ``sealed``."""


def opened_rows(
    body: memoryview, places: Sequence[Row], headers: NDArray[np.void], digest: Digester, *, timed: bool = True
) -> Iterator[RecordRow]:
    """Yields the records of these batches, and the units among them, in order. A batch that cannot be opened is one row
    that is not ``whole``.

    Args:
        body: a Fetch response.
        places: the batches and units.
        headers: their headers. Offsets are taken from here: with ``offsets: mapped``, they are not those in ``body``.
        digest: digests keys and records.
        timed: False if the times of the records are not compared.
    """
    for place, base in zip(places, headers["base_offset"].tolist(), strict=True):
        if isinstance(place, Unit):
            record = PlacedRecord(base, place.timestamp if timed else 0, place.attributes, place.content)
            yield RecordRow(base, whole=False) if place.why else _row(record, digest)
            continue
        at, size = place
        batch = body[at : at + size]
        header = BatchHeader.read(batch)._replace(base_offset=base)
        if not is_intact(batch):
            yield RecordRow(base, whole=False)
            continue
        rows: list[RecordRow] = []
        newest = NO_TIMESTAMP
        try:
            for record in placed_records(header, bytes(batch[HEADER_SIZE:])):
                newest = max(newest, record.timestamp)
                rows.append(_row(record if timed else record._replace(timestamp=0), digest))
        except NotOpened:
            rows.append(RecordRow(base, whole=False, sealed=True))
        else:
            if rows and newest != header.max_timestamp:
                # Not the first one: that may stand before the audited offsets, of which alone anything is told.
                rows[-1] = rows[-1]._replace(mistimed=True)
        yield from rows


def _row(record: PlacedRecord, digest: Digester) -> RecordRow:
    """Returns the row of a record. Its digest covers timestamp, attributes, key, value and headers as stored."""
    found = parts(record.content, f"the record at offset {record.offset}")
    key = None if found.key is None else digest(memoryview(found.key)).hex()
    whole = _FRONT.pack(record.timestamp, record.attributes) + record.content
    return RecordRow(record.offset, key, found.tombstone, found.size, digest(memoryview(whole)))


def unopened_within(rows: Iterable[RecordRow], start: int) -> list[RecordRow]:
    """Returns these rows. Those of batches that cannot be opened, and begin before ``start``, are put there: nothing is
    told of what lies before it, and none of their records may seem to be gone."""
    return [row if row.whole else row._replace(offset=max(row.offset, start)) for row in rows]


def as_units(block: Block, wanted: Span) -> Block:
    """Returns the block's records at these offsets, each as a batch of one record, so that batch borders do not matter.

    A batch that cannot be opened becomes one row with a wrong checksum, so that it is equal to nothing.
    """
    records = [record for record in block.records if wanted.start <= record.offset < wanted.end]
    headers = np.zeros(len(records), HEADERS)
    headers["base_offset"] = [record.offset for record in records]
    headers["length"] = np.array([record.size for record in records], np.int64) - PREFIX_SIZE
    headers["record_count"] = 1
    sound = np.array([record.whole for record in records], np.bool_)
    width = max((len(record.digest) for record in records), default=0)
    digests = [record.digest.ljust(width, b"\0") for record in records]
    return Block(headers, sound, digests, block.holes)


def record_rows(cluster: str, topic: str, partition: int, rows: Sequence[RecordRow]) -> Any:
    """Returns these rows as an Arrow record batch. The column ``note`` is the key's digest; ``flags`` has
    ``TOMBSTONE``, ``MISTIMED`` and ``SEALED``."""
    count = len(rows)
    offsets = pa.array([row.offset for row in rows], pa.int64())
    columns = {
        "cluster": pa.repeat(cluster, count),
        "topic": pa.repeat(topic, count),
        "partition": pa.repeat(pa.scalar(partition, pa.int32()), count),
        "part": pa.array([RECORD if row.whole else UNOPENED for row in rows], pa.string()),
        "base_offset": offsets,
        "last_offset": offsets,
        "flags": pa.array(
            [TOMBSTONE * row.tombstone | MISTIMED * row.mistimed | SEALED * row.sealed for row in rows], pa.int16()
        ),
        "size": pa.array([row.size for row in rows], pa.int64()),
        "digest": pa.array([row.digest for row in rows], pa.binary()),
        "note": pa.array([row.key for row in rows], pa.string()),
    }
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(count, field.type)) for field in SCHEMA], schema=SCHEMA
    )
