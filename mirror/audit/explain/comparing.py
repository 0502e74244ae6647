"""Compares two batches field by field and record by record. Pure."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import xxhash

from mirror.audit.explain.looking import Looked, is_cut_off
from mirror.audit.model.places import Side
from mirror.audit.read.holes import Rules
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.raw import PlacedRecord, RawRecord, placed_records
from mirror.records.content.record import read_record
from mirror.records.header import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
)
from mirror.records.intact import is_intact

SAME, DIFFERS, OWN, ABSENT = "", "differs", "the writer's own", "not there"
"""Remarks on a row. ``OWN``: every writer has its own value there, so it does not count that the two differ."""
_OWN = ("leader_epoch", "crc", "producer_id", "producer_epoch", "base_sequence")
_KEPT, _KEPT_THERE = (Rules(side=side).kept_attributes for side in Side)
"""The attribute bits that are compared, of a batch at the source and at the destination."""
HIDES = (
    "the batch is transactional, and a mirror's is not: it may hide records from consumers. Only where the audit notes "
    "that the partition was adopted, this is no difference"
)
_FLAGS = {
    LOG_APPEND_TIME: "LogAppendTime",
    TRANSACTIONAL: "transactional",
    CONTROL: "control",
    DELETE_HORIZON: "delete horizon",
}
_NO_HEADER = BatchHeader(0, 0, 0, MAGIC, 0, 0, 0, 0, 0, -1, -1, -1, 1)
_MOST_TEXT = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """One line of the comparison: what is compared, each side's value as text, and a remark (``SAME``, ``DIFFERS``,
    ``OWN`` or ``ABSENT``)."""

    what: str
    source: str
    destination: str
    remark: str


class Explained(NamedTuple):
    """The comparison of two batches. ``fields``: rows on the headers and on the bytes behind them. ``records``: rows on
    the records that differ, or with ``show_records`` on all records. ``same``: the number of records that are the same.
    ``notes``: what could not be compared, and why."""

    fields: list[Row]
    records: list[Row]
    same: int
    notes: list[str]

    @property
    def differs(self) -> bool:
        """True if anything differs that a copy has to keep."""
        return any(row.remark in (DIFFERS, ABSENT) for row in (*self.fields, *self.records))


class _Opened(NamedTuple):
    header: BatchHeader
    records: list[PlacedRecord]


def explained(source: Looked, destination: Looked, *, show_records: bool = False) -> Explained:
    """Compares the batches of both sides. If the two were looked up at different offsets (``offsets: mapped``), base
    offsets are not compared, and records are paired by their order.

    Args:
        source: what the source has at the offset.
        destination: what the destination has.
        show_records: keys, values and headers may be shown.
    """
    ours, theirs = source.batch, destination.batch
    notes = [note for side in (source, destination) if (note := _absent(side))]
    if ours is None or theirs is None:
        return Explained([Row("batch", _size(ours), _size(theirs), SAME if ours is theirs else ABSENT)], [], 0, notes)
    if any(is_cut_off(batch) or batch[MAGIC_AT] != MAGIC for batch in (ours, theirs)):
        notes.append("one of them is of magic 0 or 1, or cut off: only the bytes as a whole are compared")
        rows = [_payload_row(ours, theirs), _row("magic", _magic(ours), _magic(theirs)), _intact_row(ours, theirs)]
        return Explained(rows, [], 0, notes)
    shifted = source.offset != destination.offset
    fields = [*_fields(ours, theirs, shifted=shifted), _payload_row(ours[HEADER_SIZE:], theirs[HEADER_SIZE:])]
    if _is_hiding(theirs):
        notes.append(f"{destination.alias}: {HIDES}")
    opened = [_opened(side, notes) for side in (source, destination)]
    if opened[0] is None or opened[1] is None:
        return Explained(fields, [], 0, notes)
    rows, same = [], 0
    for row in _records(opened[0], opened[1], shifted=shifted, show=show_records):
        same += row.remark == SAME
        if show_records or row.remark != SAME:
            rows.append(row)
    return Explained(fields, rows, same, notes)


def _absent(side: Looked) -> str:
    if side.batch is not None:
        return ""
    if not side.start <= side.offset < side.end:
        return f"{side.alias}: offset {side.offset} is outside of the log, which has {side.start} to {side.end - 1}"
    behind = "" if side.behind is None else f"; the next batch begins at {side.behind}"
    return f"{side.alias}: no batch holds offset {side.offset}{behind}"


def _size(batch: bytes | None) -> str:
    return "none" if batch is None else f"{len(batch):,} bytes"


def _row(what: str, source: object, destination: object, *, own: bool = False) -> Row:
    remark = SAME if source == destination else OWN if own else DIFFERS
    return Row(what, str(source), str(destination), remark)


def _magic(batch: bytes) -> str:
    return str(batch[MAGIC_AT]) if len(batch) > MAGIC_AT else "cut off"


def _fields(ours: bytes, theirs: bytes, *, shifted: bool) -> Iterator[Row]:
    first, second = BatchHeader.read(ours), BatchHeader.read(theirs)
    for name, one, other in zip(BatchHeader._fields, first, second, strict=True):
        what = name.replace("_", " ")
        if name == "attributes":
            # All markers have the transactional bit, those of a mirror too.
            kept = (one & _KEPT) == (other & (_KEPT if other & CONTROL else _KEPT_THERE))
            remark = DIFFERS if not kept else SAME if one == other else OWN
            yield Row(what, _attributes(one), _attributes(other), remark)
        elif name.endswith("timestamp"):
            yield Row(what, time_text(one), time_text(other), SAME if one == other else DIFFERS)
        else:
            yield _row(what, one, other, own=name in _OWN or (shifted and name == "base_offset"))
    yield _intact_row(ours, theirs)


def _is_hiding(batch: bytes) -> bool:
    """Returns True for a batch with the transactional bit that is not a marker."""
    return BatchHeader.read(batch).attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL


def _intact_row(ours: bytes, theirs: bytes) -> Row:
    """Returns the row on the checksums. It differs unless both are right: a batch with the same damage on both sides is
    damaged twice."""
    one, other = (not is_cut_off(batch) and is_intact(batch) for batch in (ours, theirs))
    return Row("crc matches", _yes(one), _yes(other), SAME if one and other else DIFFERS)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _attributes(bits: int) -> str:
    codec = bits & CODEC_MASK
    name = Codec(codec).name.lower() if codec in set(Codec) else f"codec {codec}"
    known = [text for bit, text in _FLAGS.items() if bits & bit]
    rest = bits & ~(CODEC_MASK | sum(_FLAGS))
    return ", ".join([name, *known, *([f"unknown {rest:#x}"] if rest else [])])


def time_text(at_ms: int) -> str:
    """Returns a timestamp (ms since 1970) as UTC text followed by the number; only the number if it is out of the range
    of dates."""
    try:
        return f"{_EPOCH + timedelta(milliseconds=at_ms):%Y-%m-%d %H:%M:%S.%f}"[:-3] + f" ({at_ms})"
    except OverflowError:
        return str(at_ms)


def _payload_row(ours: bytes, theirs: bytes) -> Row:
    one, other = (f"{len(part):,} bytes, xxh3_128 {xxhash.xxh3_128_hexdigest(part)}" for part in (ours, theirs))
    return Row("bytes behind the header", one, other, SAME if ours == theirs else DIFFERS)


def _opened(side: Looked, notes: list[str]) -> _Opened | None:
    """Opens a side's batch. Returns None and adds the reason to ``notes`` if that is not possible."""
    assert side.batch is not None
    header = BatchHeader.read(side.batch)
    if header.attributes & CONTROL:
        notes.append(f"{side.alias}: a control batch, which has no records")
        return None
    try:
        return _Opened(header, list(placed_records(header, side.batch[HEADER_SIZE:])))
    except NotOpened as error:
        notes.append(f"{side.alias}: its records cannot be read: {error}")
        return None


def _records(ours: _Opened, theirs: _Opened, *, shifted: bool, show: bool) -> Iterator[Row]:
    """Yields a row for each record of either batch, in order."""
    for key, one, other in _paired(ours.records, theirs.records, shifted=shifted):
        same = one is not None and other is not None and _comparable(one) == _comparable(other)
        remark = SAME if same else ABSENT if one is None or other is None else DIFFERS
        yield Row(f"record {key}", _record_text(one, show), _record_text(other, show), remark)


def _paired(
    ours: Sequence[PlacedRecord], theirs: Sequence[PlacedRecord], *, shifted: bool
) -> Iterator[tuple[str, PlacedRecord | None, PlacedRecord | None]]:
    if shifted:
        for at in range(max(len(ours), len(theirs))):
            one, other = ours[at] if at < len(ours) else None, theirs[at] if at < len(theirs) else None
            yield f"{_at(one)} / {_at(other)}", one, other
        return
    here, there = ({record.offset: record for record in records} for records in (ours, theirs))
    for offset in sorted(here | there):
        yield str(offset), here.get(offset), there.get(offset)


def _at(record: PlacedRecord | None) -> str:
    return "-" if record is None else str(record.offset)


def _comparable(record: PlacedRecord) -> tuple[int, int, bytes]:
    return record.timestamp, record.attributes, record.content


def _record_text(record: PlacedRecord | None, show: bool) -> str:
    if record is None:
        return "-"
    digest = xxhash.xxh3_64_hexdigest(record.content)
    text = f"{time_text(record.timestamp)}, {len(record.content):,} bytes, xxh3_64 {digest}"
    return f"{text}\n{_content_text(record)}" if show else text


def _content_text(record: PlacedRecord) -> str:
    """Returns key, value and headers as text: bytes as in Python's literals, long ones cut off."""
    try:
        read, _ = read_record(RawRecord(0, 0, record.attributes, record.content).stored(0, 0), 0, _NO_HEADER)
    except (ValueError, IndexError) as error:
        return f"cannot be read: {error}"
    headers = ", ".join(f"{name!r}: {_bytes(value)}" for name, value in read.headers)
    return f"key {_bytes(read.key)}, value {_bytes(read.value)}, headers {{{headers}}}"


def _bytes(content: bytes | None) -> str:
    if content is None:
        return "null"
    more = f"… ({len(content):,} bytes)" if len(content) > _MOST_TEXT else ""
    return repr(content[:_MOST_TEXT])[1:] + more
