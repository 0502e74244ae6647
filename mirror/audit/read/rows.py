"""Turns batches into rows, whole columns at a time. Only checksum and digest take a Python call per batch.

With batches of 1 KB, a gigabyte has a million rows, so the loop in ``make_block`` is most of the cost of an audit.
"""

import hashlib
import itertools
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from crc32c import crc32c
from numpy.typing import NDArray

from mirror.audit.model.places import Side
from mirror.audit.model.rows import Hole, RecordRow, What
from mirror.audit.read.holes import NO_HOLES, PLAIN, Holes, Rules, coalesced
from mirror.audit.read.units import Row, Unit
from mirror.audit.spark.options import BATCH, COVERAGE, HOLES, ODD
from mirror.records.header import (
    CODEC_MASK,
    CRC_FROM,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    PREFIX_SIZE,
    Codec,
)
from mirror.records.scan import BatchPlace

Digester = Callable[[memoryview], bytes]

MIN_ROWS = 4096
"""Least rows in an Arrow batch, except the last one: each Arrow batch costs Spark as much as a few thousand rows."""

HEADERS = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
assert HEADERS.itemsize == HEADER_SIZE

SCHEMA = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("part", pa.string()),
        ("base_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("count", pa.int32()),
        ("codec", pa.string()),
        ("flags", pa.int16()),
        ("base_timestamp", pa.int64()),
        ("max_timestamp", pa.int64()),
        ("size", pa.int64()),
        ("crc_ok", pa.bool_()),
        ("digest", pa.binary()),
        ("note", pa.string()),
    ]
)
"""``part`` is the kind of a row: a batch of records (BATCH); consecutive offsets at which no record is due (HOLES: at
the source all of them, at the destination those that markers fill); offsets that are wrong at a destination whatever
the source has (ODD); or the end of a range (COVERAGE), with JSON in ``note`` that says what the reader actually read.
The note of HOLES and ODD is [[start, end, What], …].

A row may also be a record that is compared by itself (``units.Unit``), as if it were a batch of one.

If rows are records (RECORD), ``size`` is that of key, value and headers, ``digest`` covers these and the timestamp,
``note`` is the key's digest in hex, and ``flags`` is 1 for a tombstone, plus 2 for the last record of a batch whose
max timestamp is not that of its records. UNOPENED: a batch that cannot be opened.

If rows are chunks, ``base_offset`` and ``last_offset`` are the chunk's, ``count`` is its number of batches, ``size``
their bytes, the timestamps their least and greatest, ``digest`` covers all of them, and codec and flags are null."""

MOST_UNSOUND = 1_000
"""Most chunks that one run of odd offsets marks as unsound; beyond these, the offsets are only counted."""

_CODECS = pa.array([Codec(bits).name.lower() if bits in set(Codec) else f"unknown {bits}" for bits in range(8)])
_PLACE = struct.Struct(">qq")
_HEADER_BYTES = np.arange(HEADER_SIZE)


def digester(name: str) -> Digester:
    """Returns the function that digests a batch's payload (byte 61 to the end)."""
    if name == "xxh3_128":
        return xxhash.xxh3_128_digest
    if name == "sha256":
        return lambda data: hashlib.sha256(data).digest()
    raise ValueError(f"digest {name!r} is not known")


def hasher(name: str) -> Callable[[], Any]:
    """Returns the constructor of hash objects that digest several pieces together."""
    return xxhash.xxh3_128 if name == "xxh3_128" else hashlib.sha256


class Block(NamedTuple):
    """The part of one Fetch response that a range owns, in order, without references to its frame. ``records``: those
    of its batches, if batches are opened."""

    headers: NDArray[np.void]
    crc_ok: NDArray[np.bool_]
    digests: Sequence[bytes]
    holes: Holes = NO_HOLES
    records: Sequence[RecordRow] = ()

    @property
    def last_offsets(self) -> NDArray[np.int64]:
        """The last offset of each batch."""
        last: NDArray[np.int64] = self.headers["base_offset"].astype(np.int64) + self.headers["last_offset_delta"]
        return last

    def moved_by(self, offsets: int) -> "Block":
        """Returns the same block with all offsets increased by this much."""
        headers, holes = self.headers.copy(), self.holes.copy()
        headers["base_offset"] += offsets
        holes[:, :2] += offsets
        records = tuple(record._replace(offset=record.offset + offsets) for record in self.records)
        return self._replace(headers=headers, holes=holes, records=records)


def read_headers(buffer: memoryview, places: Sequence[BatchPlace]) -> NDArray[np.void]:
    """Returns the headers of these batches as one structured array. Each batch must have its 61 header bytes."""
    starts = np.fromiter((place.at for place in places), dtype=np.int64, count=len(places))
    gathered = np.frombuffer(buffer, dtype=np.uint8)[starts[:, None] + _HEADER_BYTES]
    headers: NDArray[np.void] = gathered.view(HEADERS).reshape(-1)
    return headers


def headers_of(buffer: memoryview, rows: Sequence[Row]) -> NDArray[np.void]:
    """Returns the headers of these rows. A unit's is that of a batch of its one record."""
    is_unit = np.fromiter((isinstance(row, Unit) for row in rows), bool, len(rows))
    if not is_unit.any():
        return read_headers(buffer, [row for row in rows if isinstance(row, BatchPlace)])
    headers = np.zeros(len(rows), HEADERS)
    if not is_unit.all():
        headers[~is_unit] = read_headers(buffer, [row for row in rows if isinstance(row, BatchPlace)])
    headers[is_unit] = unit_headers([row for row in rows if isinstance(row, Unit)])
    return headers


def unit_headers(units: Sequence[Unit]) -> NDArray[np.void]:
    """Returns a header for each of these units."""
    headers = np.zeros(len(units), HEADERS)
    headers["base_offset"] = [unit.offset for unit in units]
    headers["length"] = np.array([len(unit.content) for unit in units], np.int64) - PREFIX_SIZE
    headers["magic"] = MAGIC
    headers["attributes"] = [unit.flags for unit in units]
    headers["last_offset_delta"] = [unit.last_offset - unit.offset for unit in units]
    headers["base_timestamp"] = headers["max_timestamp"] = [unit.timestamp for unit in units]
    headers["producer_id"] = NO_PRODUCER_ID
    headers["record_count"] = 1
    return headers


def make_block(
    buffer: memoryview,
    places: Sequence[Row],
    headers: NDArray[np.void],
    digest: Digester,
    *,
    holes: Holes = NO_HOLES,
    rules: Rules = PLAIN,
) -> Block:
    """Returns these batches with digests, the results of their checksums, and headers that keep only the attribute bits
    that are compared. The checksum is always recomputed, over the bytes as they are. A unit's digest covers key, value,
    headers and the record's own attributes; its timestamp is in its header.
    """
    checksums: list[int] = []
    digests: list[bytes] = []
    damaged: list[int] = []
    for row in places:
        if isinstance(row, Unit):
            if row.why:
                damaged.append(len(checksums))
            checksums.append(0)  # as its header says
            digests.append(digest(memoryview(bytes((row.attributes,)) + row.content)))
            continue
        at, size = row
        end = at + size
        checksums.append(crc32c(buffer[at + CRC_FROM : end]))
        digests.append(digest(buffer[at + HEADER_SIZE : end]))
    crc_ok = np.array(checksums, dtype=np.uint32) == headers["crc"].astype(np.uint32)
    crc_ok[damaged] = False
    headers = headers.copy()
    headers["attributes"] &= rules.kept_attributes
    if rules.append_times:
        _leave_out_times(headers, rules.side)
        if any(is_unit := [isinstance(row, Unit) for row in places]):
            # A record by itself has its own time as the base: that of its append, if the destination has put it in.
            headers["base_timestamp"][is_unit] = headers["max_timestamp"][is_unit] = 0
    return Block(headers, crc_ok, digests, holes)


def _leave_out_times(headers: NDArray[np.void], side: Side) -> None:
    """Takes out what a destination's broker replaces if it puts the time of the append in: the mark, and the max
    timestamp. The latter is left out of all batches that can be the same on both sides, since the source does not say
    which of them the destination has marked. Of the others it follows from the records: brokers set it."""
    stamped = (headers["attributes"] & LOG_APPEND_TIME) != 0
    if side is Side.DESTINATION:
        headers["attributes"] &= ~LOG_APPEND_TIME
        stamped = np.zeros(len(headers), np.bool_)
    headers["max_timestamp"] = np.where(stamped, headers["max_timestamp"], headers["base_timestamp"])


def _repeated(value: Any, count: int, kind: Any) -> Any:
    return pa.repeat(pa.scalar(value, type=kind), count)


def _binary(values: Sequence[bytes]) -> Any:
    """Returns a binary column of values of one size, without a Python object per value in between."""
    width = len(values[0])
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def batch_rows(cluster: str, topic: str, partition: int, block: Block) -> Any:
    """Returns the block's batches as an Arrow record batch."""
    headers = block.headers
    count = len(headers)
    flags = headers["attributes"].astype(np.int16)
    columns = [
        _repeated(cluster, count, pa.string()),
        _repeated(topic, count, pa.string()),
        _repeated(partition, count, pa.int32()),
        _repeated(BATCH, count, pa.string()),
        pa.array(headers["base_offset"].astype(np.int64)),
        pa.array(block.last_offsets),
        pa.array(headers["record_count"].astype(np.int32)),
        _CODECS.take(pa.array(flags & CODEC_MASK)),
        pa.array(flags),
        pa.array(headers["base_timestamp"].astype(np.int64)),
        pa.array(headers["max_timestamp"].astype(np.int64)),
        pa.array(headers["length"].astype(np.int64) + PREFIX_SIZE),
        pa.array(block.crc_ok),
        _binary(block.digests),
        pa.nulls(count, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


_NOT_COMPARED = ("leader_epoch", "crc", "producer_id", "producer_epoch", "base_sequence")


class Chunks:
    """Folds batches into chunks: one row for all batches whose base offsets lie in the same ``width`` offsets.

    In exact mode, the sides agree on every offset, so chunks cut by offsets are the same on both. A chunk's digest
    covers, in order, each batch's header without the destination's own fields, and its payload's digest. It does not
    cover holes: if all batches are equal, so are the offsets between them, and ``odd`` ones make their chunk unsound.

    ``content`` identifies all of them: it digests each chunk's first offset, its number of batches (8 bytes each,
    big-endian) and its digest, in order.
    """

    def __init__(self, digest: str, start: int, width: int, odd: frozenset[What] = frozenset()) -> None:
        self._new = hasher(digest)
        self._start = start
        self._width = width
        self._at = -1
        self.content = self._new()
        self._rows: list[tuple[Any, ...]] = []
        self._odd = np.array(sorted(odd), np.int64)
        self._unsound: set[int] = set()
        self._open()

    def _open(self) -> None:
        self._hash = self._new()
        self._count = self._size = 0
        self._crc_ok = True
        self._times: tuple[int, int] = (1 << 63) - 1, -(1 << 63)

    def add(self, block: Block) -> None:
        """Adds the next batches and holes, in order."""
        if len(self._odd) and len(block.holes):
            for start, end, _ in block.holes[np.isin(block.holes[:, 2], self._odd)].tolist():
                touched = range(self._index(start), self._index(end - 1) + 1)
                self._unsound.update(touched[:MOST_UNSOUND])
        if not len(block.headers):
            return
        headers = block.headers.copy()
        for name in _NOT_COMPARED:
            headers[name] = 0
        packed = np.empty((len(headers), HEADER_SIZE + len(block.digests[0])), dtype=np.uint8)
        packed[:, :HEADER_SIZE] = headers.view(np.uint8).reshape(len(headers), HEADER_SIZE)
        packed[:, HEADER_SIZE:] = np.frombuffer(b"".join(block.digests), np.uint8).reshape(len(headers), -1)
        indexes = np.maximum(0, (headers["base_offset"].astype(np.int64) - self._start) // self._width)
        borders = [0, *(np.flatnonzero(np.diff(indexes)) + 1).tolist(), len(headers)]
        for first, stop in itertools.pairwise(borders):
            if indexes[first] != self._at:
                self._close()
                self._at = int(indexes[first])
            part = headers[first:stop]
            self._hash.update(packed[first:stop].tobytes())
            self._count += stop - first
            self._size += int(part["length"].sum(dtype=np.int64)) + PREFIX_SIZE * (stop - first)
            self._crc_ok &= bool(block.crc_ok[first:stop].all())
            self._times = (
                min(self._times[0], int(part["base_timestamp"].min())),
                max(self._times[1], int(part["max_timestamp"].max())),
            )

    def _index(self, offset: int) -> int:
        return max(0, (offset - self._start) // self._width)

    def _close(self) -> None:
        if self._count:
            digest = self._hash.digest()
            self._append(self._at, self._count, *self._times, self._size, self._crc_ok, digest)
            self.content.update(_PLACE.pack(self._start + self._at * self._width, self._count) + digest)
        self._open()

    def _append(self, index: int, count: int, *fields: Any) -> None:
        base = self._start + index * self._width
        self._rows.append((base, base + self._width - 1, count, *fields))

    def _mark(self) -> None:
        """Marks chunks with odd offsets as unsound, so that they are examined whatever the other side has."""
        for at, (base, last, count, least, most, size, _, digest) in enumerate(self._rows):
            index = self._index(base)
            if index in self._unsound:
                self._unsound.remove(index)
                self._rows[at] = (base, last, count, least, most, size, False, digest)
        for index in sorted(self._unsound):
            self._append(index, 0, 0, 0, 0, False, b"")
        self._unsound.clear()

    def rows(self, cluster: str, topic: str, partition: int) -> Any:
        """Ends the range and returns its chunks as an Arrow record batch."""
        self._close()
        self._mark()
        columns = list(zip(*self._rows, strict=True)) or [()] * 8
        bases, lasts, counts, least, greatest, sizes, crc_ok, digests = columns
        count = len(self._rows)
        values = [
            _repeated(cluster, count, pa.string()),
            _repeated(topic, count, pa.string()),
            _repeated(partition, count, pa.int32()),
            _repeated(BATCH, count, pa.string()),
            *(bases, lasts, counts),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.int16()),
            *(least, greatest, sizes, crc_ok, digests),
            pa.nulls(count, pa.string()),
        ]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(column, type=kind) if isinstance(column, tuple) else column
                for column, kind in zip(values, SCHEMA.types, strict=True)
            ],
            schema=SCHEMA,
        )


def coverage_row(cluster: str, topic: str, partition: int, start: int, end: int, coverage: str) -> Any:
    """Returns the row that ends a range."""
    return _span_rows(cluster, topic, partition, [(COVERAGE, start, end, coverage)])


def _span_rows(cluster: str, topic: str, partition: int, spans: Sequence[tuple[str, int, int, str]]) -> Any:
    """Returns rows that are not batches. ``spans``: part, start, end and note of each."""
    rows = [
        {
            "cluster": cluster,
            "topic": topic,
            "partition": partition,
            "part": part,
            "base_offset": start,
            "last_offset": end - 1,
            "note": note,
        }
        for part, start, end, note in spans
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


class Runs:
    """Turns the holes of a range into rows. Holes that touch share a row, so that both sides have the same rows for the
    same offsets."""

    def __init__(self, odd: frozenset[What]) -> None:
        self._odd = odd
        self._open: list[Hole] = []

    def take(self, holes: Holes) -> Iterator[tuple[str, int, int, str]]:
        """Adds the next holes, in order. Yields the rows that are complete: part, start, end and note of each."""
        for start, end, kind in coalesced(holes).tolist():
            hole = Hole(start, end, What(kind))
            if hole.what in self._odd:
                yield ODD, start, end, json.dumps([hole])
                continue
            last = self._open[-1] if self._open else None
            if last is not None and last.end != start:
                yield from self.close()
            elif last is not None and last.what is hole.what:
                self._open[-1] = Hole(last.start, end, last.what)
                continue
            self._open.append(hole)

    def close(self) -> Iterator[tuple[str, int, int, str]]:
        """Ends the range. Yields the last row, if any."""
        if self._open:
            yield HOLES, self._open[0].start, self._open[-1].end, json.dumps(self._open)
            self._open = []

    def rows(
        self, cluster: str, topic: str, partition: int, spans: Iterable[tuple[str, int, int, str]]
    ) -> Iterator[Any]:
        """Yields these rows as one Arrow record batch, or nothing if there are none."""
        if found := list(spans):
            yield _span_rows(cluster, topic, partition, found)


def gathered(batches: Iterable[Any], least: int = MIN_ROWS) -> Iterator[Any]:
    """Yields the same rows in Arrow batches of at least ``least`` rows, except the last one."""
    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= least:
            yield pa.concat_batches(held)
            held, rows = [], 0
    if held:
        yield pa.concat_batches(held)
