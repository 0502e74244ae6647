"""Finds the entries of a Fetch response that belong to a range. Pure.

A batch belongs to the range that has its base offset. So of two adjacent ranges, exactly one has a batch that lies
across their border, and has it whole. A message of magic 0 or 1 belongs to the range that has its stored offset.
"""

import struct
from typing import NamedTuple

from mirror.legacy.entries import LegacySpan, Span, named, span_at
from mirror.records.header import MAGIC, MAGIC_AT, BatchHeader, CorruptBatch
from mirror.records.intact import is_intact
from mirror.records.scan import BatchPlace, scan
from mirror.records.transactions import Aborted
from mirror.spark.read.ranges import OffsetRange
from mirror.spark.read.rows import Entry
from mirror.wire.fetch import Fetched

_FRONT = struct.Struct(">q15xi")
"""A batch's base offset and last offset delta. Most batches need no other field, and there may be a million of them."""

_BASE = struct.Struct(">q")
NONE = 1 << 63
NO_END = "the batch at offset {} is damaged, and nothing shows where it ends"


class CutEntries(NamedTuple):
    """The range's entries in one response, in order.

    Attributes:
        entries: the entries.
        next_offset: where to go on: the range's end if there is nothing left to read; the offset that was due if the
            response has nothing for it.
        broken: why the log cannot be read at ``next_offset``; empty if it can.
        unproved: a damaged batch of which nothing in the response confirms the last offset that it claims.
    """

    entries: list[Entry]
    next_offset: int
    broken: str = ""
    unproved: "Unproved | None" = None


class Unproved(NamedTuple):
    """The base offset of a damaged batch, and its size in bytes."""

    base: int
    size: int


def cut_entries(
    body: memoryview, fetched: Fetched, wanted: OffsetRange, due: int, *, fresh: bool, committed: bool
) -> CutEntries:
    """Returns the entries of a response that belong to a range.

    Args:
        body: the response.
        fetched: the only partition of the response.
        wanted: the range.
        due: the offset that was asked for. Brokers begin with the batch that holds it; some begin earlier.
        fresh: True if nothing before ``due`` was read. Otherwise a batch that begins before it was returned already.
        committed: True to leave out control batches, and those of aborted transactions, which ``fetched`` lists.
    """
    aborted = Aborted(fetched.aborted)
    entries: list[Entry] = []
    following, reached, last, size, crc_ok = 0, due, -1, 0, True
    broken, behind, disproved = "", fetched.start, False
    try:
        for place in scan(body, fetched.start, fetched.end):
            first, end, old = _ends(body, place)
            view = body[place.at : place.at + place.size]
            dropped = committed and old is None and _is_dropped(view, aborted)
            behind = place.at + place.size
            if end <= due:
                disproved |= not crc_ok and first < reached  # its end is contradicted by a batch read already
                continue
            if first < following:
                raise CorruptBatch(f"{named(span_at(body, *place))} stands behind offset {following - 1}")
            if first >= wanted.end:
                return CutEntries(entries, wanted.end)
            last, size, crc_ok = first, place.size, is_intact(view)
            reached = end
            # A header with a wrong checksum may state any last offset.
            following = end if crc_ok else first + 1
            own = (first >= due or fresh) and (first >= wanted.start or wanted.first)
            if own and not (dropped and crc_ok):
                entries.append(Entry(place, crc_ok, old))
    except CorruptBatch as error:
        broken = str(error)
    new = last >= due or (fresh and last >= 0)
    if broken and not new:
        return CutEntries([], due, broken)
    if not crc_ok:
        # Only the batch that follows, in the next response, shows where it ends. Without one, it is the log's last.
        if last >= due:
            reached = last + 1
        elif disproved or reached > min(fetched.high_watermark, _base_at(body, behind, fetched.end)):
            return CutEntries(entries, due, NO_END.format(last))
        else:
            return CutEntries(entries, min(reached, wanted.end), unproved=Unproved(last, size))
    return CutEntries(entries, min(reached, wanted.end))


def two_from(body: memoryview, fetched: Fetched, offset: int) -> tuple[int | None, int | None]:
    """Returns the first offset of the entry that holds ``offset`` (or else of the next one), and that of the entry
    behind it, which may be cut off. None: there is no such entry.

    Raises:
        CorruptBatch: an earlier entry cannot be read.
    """
    at, first = fetched.start, None
    for place in scan(body, fetched.start, fetched.end):
        at = place.at + place.size
        span = span_at(body, *place)
        if span.last_offset >= offset:
            first = first_offset(span)
            break
    behind = _base_at(body, at, fetched.end)
    return first, None if first is None or behind == NONE else behind


def _base_at(body: memoryview, at: int, end: int) -> int:
    """Returns the base offset of the batch that begins at byte ``at``, cut off or not; ``NONE`` if none begins
    there."""
    return int(_BASE.unpack_from(body, at)[0]) if end - at >= _BASE.size else NONE


def first_offset(span: Span) -> int:
    """Returns the offset by which an entry belongs to a range."""
    return span.last_offset if isinstance(span, LegacySpan) else span.header.base_offset


def _ends(body: memoryview, place: BatchPlace) -> tuple[int, int, LegacySpan | None]:
    """Returns the offset by which an entry belongs to a range, the offset behind the entry, and for a message of magic
    0 or 1 its span."""
    if body[place.at + MAGIC_AT] == MAGIC:
        first, delta = _FRONT.unpack_from(body, place.at)
        return first, first + max(delta, 0) + 1, None
    message = span_at(body, *place)
    assert isinstance(message, LegacySpan)
    return message.last_offset, message.last_offset + 1, message


def _is_dropped(batch: memoryview, aborted: Aborted) -> bool:
    """Returns True for a batch that consumers do not see at read_committed."""
    header = BatchHeader.read(batch)
    return aborted.follow(header, batch) or header.is_control
