"""Records that are compared one by one, whatever batch or message holds them.

Messages of formats from before Kafka 0.11 (magic 0 and 1) cannot be copied unchanged, and the copy's batches have other
borders. So each of their records is a unit of its own: at the source, wherever there is such a message; at the
destination, at the offsets where the source has such messages (``splitting``). ``mirror.legacy`` reads the messages;
docs/AUDIT.md says why a fault in it would hide no difference. Pure.
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
"""Maximum number of records, and of their bytes, that are held at a time. The records behind them are fetched again: a
megabyte of a wrapper may hold a million messages."""
MOST_DELTA = (1 << 31) - 1
"""Maximum number of offsets of one row: a batch's last offset delta has 32 bits."""
_NULL = write_varint(-1)
_NO_HEADERS = write_varint(0)


class Unit(NamedTuple):
    """One record, or offsets whose records cannot be read (then ``why`` says so).

    Attributes:
        offset: the record's offset, or the first one that cannot be read.
        last_offset: the same, or the last offset that cannot be read.
        flags: the attributes of its batch (an old format has only the codec), and flags of ``model.rows``.
        timestamp: in ms since 1970, as consumers see it; -1: none.
        attributes: the record's own attributes byte.
        content: key, value and headers as a batch stores them.
        at: the byte of the response at which its batch or message begins.
        inner: there are earlier records in the same message, so a gap right before this one is inside of it.
        stored: bytes of its batch or message in the log; 0 for all of its records but one, so that they count once.
        why: the reason why its offsets cannot be read; empty for a record.
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
"""One row to be: a whole batch, or a record."""


class Room:
    """The room that is left for units of one response. The defaults are ``MOST_UNITS`` and ``MOST_BYTES``."""

    def __init__(self, most_units: int | None = None, most_bytes: int | None = None) -> None:
        self._units = MOST_UNITS if most_units is None else most_units
        self._bytes = MOST_BYTES if most_bytes is None else most_bytes

    def take(self, unit: Unit) -> None:
        """Subtracts a unit from the room."""
        self._units -= 1
        self._bytes -= len(unit.content)

    @property
    def full(self) -> bool:
        """True if no room is left."""
        return self._units <= 0 or self._bytes <= 0


def unreadable(offset: int, last_offset: int, flags: int, at: int, stored: int, why: str) -> Unit:
    """Returns the unit for offsets whose records cannot be read."""
    return Unit(offset, last_offset, flags, -1, 0, b"", at, inner=False, stored=stored, why=why)


def units_of(body: memoryview, place: BatchPlace, before: int, due: int, end: int, *, flags: int = 0) -> Iterator[Unit]:
    """Yields the records of one message of magic 0 or 1 (a single message or a wrapper) from offset ``due`` on.

    A message with a wrong checksum, or that cannot be opened, becomes one unit. The offsets of its records are not
    known, so the unit reaches from the message before it to its own offset, which no checksum covers. A message with a
    wrong checksum is yielded even if it ends before ``due``: a damaged batch may look like one.

    Args:
        body: a Fetch response.
        place: the message's place in the response.
        before: the last offset before the message.
        due: records before this offset are left out.
        end: a unit that cannot be read ends before this offset.
        flags: added to the flags of each unit.

    Raises:
        CorruptBatch: the message cannot be read, and its offset cannot be right.
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
    """Returns the record's key, value and headers as a batch stores them. Old formats have no headers."""
    return b"".join((*_sized(record.key), *_sized(record.value), _NO_HEADERS))


def _sized(part: bytes | None) -> tuple[bytes, ...]:
    return (_NULL,) if part is None else (write_varint(len(part)), part)
