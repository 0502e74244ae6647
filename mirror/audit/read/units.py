"""Records that are compared one by one, whatever batch or message holds them.

Formats from before Kafka 0.11 (magic 0 and 1) cannot be copied as they are, and the copy has other borders. So each
record of theirs is a unit of its own: at the source, wherever such a message stands; at the destination, in the offsets
where the source has such messages (``splitting``). The messages are read by ``mirror.legacy``; docs/AUDIT.md says why
that hides nothing. Pure.
"""

from collections.abc import Iterator
from typing import NamedTuple

from mirror.audit.model.rows import OLD_FORMAT, UNREAD
from mirror.legacy.entries import LegacySpan, named, span_at
from mirror.legacy.reading import messages
from mirror.legacy.upward import MOST_WRAPPED
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.opening import Record
from mirror.records.content.varint import write_varint
from mirror.records.header import CorruptBatch
from mirror.records.intact import is_intact
from mirror.records.scan import BatchPlace

MOST_UNITS = 100_000
MOST_BYTES = 16 << 20
"""Most records, and most bytes of them, that are held at a time. What is behind them is fetched again: a megabyte of a
wrapper may hold a million messages."""
MOST_DELTA = (1 << 31) - 1
"""Offsets of one row: a batch's last offset delta has 32 bits."""
_NULL = write_varint(-1)
_NO_HEADERS = write_varint(0)


class Unit(NamedTuple):
    """One record, or offsets whose records cannot be read (then ``why`` says so).

    Attributes:
        offset: its offset, or the first one that cannot be read.
        last_offset: the same, or the last one that cannot be read.
        flags: the attributes of its batch, of which an old format has only the codec.
        timestamp: as consumers see it.
        attributes: the record's own byte.
        content: key, value and headers as a batch stores them.
        at: the byte at which its batch or message begins.
        inner: records of the same batch or message stand before it, so that what is missing in between was taken out of
            the inside.
        stored: bytes of its batch or message; 0 for all of its records but one.
        why: why there is no record.
    """

    offset: int
    last_offset: int
    flags: int
    timestamp: int
    attributes: int
    content: bytes
    at: int
    inner: bool
    stored: int
    why: str = ""


Row = BatchPlace | Unit
"""What becomes a row: a whole batch, or a record."""


class Room:
    """How much may still be held of one response."""

    def __init__(self, most_units: int | None = None, most_bytes: int | None = None) -> None:
        self._units = MOST_UNITS if most_units is None else most_units
        self._bytes = MOST_BYTES if most_bytes is None else most_bytes

    def take(self, unit: Unit) -> None:
        """Counts a unit."""
        self._units -= 1
        self._bytes -= len(unit.content)

    @property
    def full(self) -> bool:
        """True if nothing more is to be taken."""
        return self._units <= 0 or self._bytes <= 0


def unreadable(offset: int, last_offset: int, flags: int, at: int, stored: int, why: str) -> Unit:
    """Returns the unit for offsets whose records cannot be read."""
    return Unit(offset, last_offset, flags, -1, 0, b"", at, inner=False, stored=stored, why=why)


def units_of(body: memoryview, place: BatchPlace, before: int, due: int, end: int, *, flags: int = 0) -> Iterator[Unit]:
    """Yields the records of one message of magic 0 or 1, alone or a wrapper, from offset ``due`` on.

    A message whose checksum is wrong, or that cannot be opened, is one unit. What it holds is not known, so this
    reaches from the message before it to its own offset, which no checksum covers. It is one also before ``due``: a
    damaged batch may look like it.

    Args:
        body: a Fetch response.
        place: the message's place there.
        before: the offset behind which it stands.
        due: what is before this offset is left out.
        end: what cannot be read behind this offset is left out.
        flags: added to those of each unit.

    Raises:
        CorruptBatch: it cannot be read, and its offset cannot be right.
    """
    span = span_at(body, *place)
    assert isinstance(span, LegacySpan)
    intact = is_intact(body[place.at : place.at + place.size])
    if span.last_offset < due:
        if not intact:
            why = f"{named(span)} does not match its checksum"
            yield unreadable(span.last_offset, span.last_offset, flags | OLD_FORMAT, place.at, place.size, why)
        return
    try:
        if not intact:
            raise NotOpened(f"{named(span)} does not match its checksum")
        records = messages(body, span, most=MOST_WRAPPED)
    except NotOpened as error:
        first, last = max(before + 1, due), min(span.last_offset, end - 1)
        if not 0 <= last - first < MOST_DELTA:
            raise CorruptBatch(f"{error}, behind offset {before}") from None
        told = flags | OLD_FORMAT | (UNREAD if intact else 0)
        yield unreadable(first, last, told, place.at, place.size, str(error))
        return
    flags |= span.codec_bits
    inner = False
    for record in records:
        if record.offset >= due:
            stored = place.size if record.offset == span.last_offset else 0
            yield Unit(
                record.offset, record.offset, flags, record.timestamp, 0, _content(record), place.at, inner, stored
            )  # fmt: skip
        inner = True


def _content(record: Record) -> bytes:
    """Returns what a batch stores of it behind its deltas. Old formats have no headers."""
    return b"".join((*_sized(record.key), *_sized(record.value), _NO_HEADERS))


def _sized(part: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if part is None else (write_varint(len(part)), part)
