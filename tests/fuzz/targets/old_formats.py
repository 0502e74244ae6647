"""Record sets of any format, converted up and down (``mirror/legacy``)."""

from collections.abc import Iterator

from mirror.legacy import BatchSpan, Converted, ConvertedChunk, LegacySpan, cut, down_convert, messages, up_convert
from mirror.legacy.downward import OldMagic
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.header import HEADER_SIZE, BatchHeader, CorruptBatch
from mirror.records.intact import is_intact
from tests.fuzz.dressing import dressed
from tests.fuzz.source import Source

MOST = 64 << 10
_READ = 4 * MOST
"""Limit for what was made: a message is larger in another magic, and a wrapper takes its first one in any case."""
_DRESSED, _PACKING, _ALL = 1, 2, 4


def up(data: bytes) -> None:
    """Up-conversion: the same records, in dense batches that are intact; batches of magic 2 as they are."""
    record_set, due = _input(data)
    view = memoryview(record_set)
    found: list[Record | BatchSpan] = []
    try:
        for made in up_convert(view, cut(view), most=MOST, due=due):
            if isinstance(made, Converted):
                assert is_intact(made.batch)
                assert made.header == BatchHeader.read(made.batch)
                assert made.header.is_dense
                assert made.header.size == len(made.batch)
                found += opened(made.header, made.batch[HEADER_SIZE:])
            else:
                found.append(made)
    except (NotOpened, CorruptBatch):
        return
    expected: list[Record | BatchSpan] = []
    for span in cut(view):
        if isinstance(span, BatchSpan):
            expected += [span] if span.last_offset >= due else []
        elif span.last_offset >= due:
            expected += (record for record in messages(view, span, most=MOST) if record.offset >= due)
    assert found == expected


def down(data: bytes) -> None:
    """Down-conversion to each magic: the same records, without what has no place there."""
    record_set, due = _input(data)
    view = memoryview(record_set)
    for magic in (0, 1):
        chunks: list[ConvertedChunk] = []
        try:
            chunks += down_convert(view, cut(view), magic=magic, most=MOST, due=due, chunk_bytes=300)
        except (NotOpened, CorruptBatch):
            continue
        expected = [_as_old(record, magic) for record in _records(view, due)]
        assert [record for chunk in chunks for record in _read(chunk)] == expected


def _input(data: bytes) -> tuple[bytes, int]:
    source = Source(data)
    flags, due = source.number(1), source.number(2)
    record_set = source.rest()
    if flags & _DRESSED:
        record_set = dressed(record_set, packing=bool(flags & _PACKING))
    return record_set, 0 if flags & _ALL else due


def _records(view: memoryview, due: int) -> Iterator[Record]:
    """All records of the record set from ``due`` on."""
    for span in cut(view):
        if span.last_offset >= due:
            yield from (record for record in _of_span(view, span) if record.offset >= due)


def _of_span(view: memoryview, span: BatchSpan | LegacySpan) -> Iterator[Record]:
    if isinstance(span, LegacySpan):
        yield from messages(view, span, most=MOST)
    elif not span.header.is_control:
        yield from opened(span.header, bytes(view[span.at + HEADER_SIZE : span.at + span.size]), MOST)


def _as_old(record: Record, magic: OldMagic) -> Record:
    return record._replace(headers=(), timestamp=record.timestamp if magic else -1)


def _read(chunk: ConvertedChunk) -> Iterator[Record]:
    """The records of a chunk, whose runs have to say the same."""
    view = memoryview(chunk.messages)
    offsets = []
    for span in cut(view):
        assert isinstance(span, LegacySpan)
        for record in messages(view, span, most=_READ):
            offsets.append(record.offset)
            yield record
    assert offsets == [at for run in chunk.runs for at in range(run.first_offset, run.first_offset + run.records)]
