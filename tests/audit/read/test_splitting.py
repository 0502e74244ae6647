"""The destination's batches, opened where the source has messages of old formats: whatever their borders, the records
are those of the source, and what is not due there is no match."""

from collections.abc import Sequence

import pytest

from mirror.audit.model.places import Side, Span
from mirror.audit.model.rows import STRADDLES, UNREAD, What
from mirror.audit.prepare.plan import CopiedRange, Range
from mirror.audit.read import units
from mirror.audit.read.holes import Rules
from mirror.audit.read.ranges import RangeCoverage, RangePiece, StoredInstead, cut_records
from mirror.audit.read.rows import Chunks, digester, make_block
from mirror.audit.read.selecting import Selector
from mirror.audit.read.splitting import Splitter
from mirror.offsetmap.runs import Run
from mirror.records.content.opening import Record
from mirror.records.header import HEADER_SIZE, BatchHeader
from tests.audit.read.test_units import block_of, rows, wanted
from tests.legacy.samples import messages_of, records_from
from tests.records.builders import Record as Written
from tests.records.builders import kafka_batch, sealed

RULES = Rules(side=Side.DESTINATION)
COUNT = 12
RECORDS = records_from(0, COUNT)
OLD = [Span(0, COUNT)]


def batch(records: Sequence[Record]) -> bytes:
    base = records[0].offset
    return kafka_batch([Written(one.offset - base, *one[1:]) for one in records], base_offset=base)


def copy(*sizes: int) -> bytes:
    """The records in batches of so many."""
    found, at = [], 0
    for size in sizes:
        found.append(batch(RECORDS[at : at + size]))
        at += size
    assert at == COUNT
    return b"".join(found)


def split(record_set: bytes, start: int, end: int, *, old: Sequence[Span] = OLD) -> RangePiece:
    return split_by(Splitter(old, Span(start, end), first=start == 0), record_set, start, end, start)


def split_by(splitter: Splitter, record_set: bytes, start: int, end: int, due: int) -> RangePiece:
    """As the reader does."""
    body = memoryview(record_set)
    of = wanted(start if splitter.stopped is None else splitter.stopped, end, first=True)
    return splitter(cut_records(body, 0, len(body), of, due, RULES), body, due)


def seen(record_set: bytes, piece: RangePiece) -> list[tuple[object, ...]]:
    body = memoryview(record_set)
    return rows(make_block(body, piece.places, piece.headers, digester("xxh3_128"), rules=RULES))


@pytest.mark.parametrize("sizes", [(12,), (1,) * 12, (5, 7), (3, 3, 3, 3), (11, 1)])
@pytest.mark.parametrize("border", range(1, 12))
def test_the_same_rows_as_at_the_source(sizes: tuple[int, ...], border: int) -> None:
    source = messages_of(1, RECORDS)
    there = copy(*sizes)
    found: list[tuple[object, ...]] = []
    stored = StoredInstead(0, 0)
    for start, end in ((0, border), (border, COUNT)):
        piece = split(there, start, end)
        assert (piece.next_offset, piece.offsets, piece.broken) == (end, end - start, None)
        assert len(piece.holes) == 0
        assert seen(there, piece) == rows(block_of(source, wanted(start, end)))
        found += seen(there, piece)
        assert piece.stored is not None
        stored = stored.plus(piece.stored)
    assert found == rows(block_of(source, wanted(0, COUNT)))
    assert stored == StoredInstead(len(sizes), len(there))


@pytest.mark.parametrize("room", [1, 3, 4])
def test_what_there_is_no_room_for_is_fetched_again(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    there = copy(5, 7)
    monkeypatch.setattr(units, "MOST_UNITS", room)
    found, coverage, due = [], RangeCoverage(), 0
    splitter = Splitter(OLD, Span(0, COUNT), first=True)
    while due < COUNT:
        piece = split_by(splitter, there, 0, COUNT, due)
        found += seen(there, piece)
        coverage.take(piece)
        assert piece.next_offset > due
        due = piece.next_offset
    monkeypatch.undo()
    assert found == seen(there, split(there, 0, COUNT))
    assert (coverage.batches, coverage.bytes, coverage.accounted) == (2, len(there), COUNT)


def test_what_a_cleaner_took_out_of_a_batch_is_a_hole() -> None:
    records = [RECORDS[at] for at in (1, 2, 5)]
    # Without its first and its last record, and with its borders.
    inner = kafka_batch([Written(one.offset, *one[1:]) for one in records], base_offset=0)

    header = BatchHeader.read(inner)._replace(last_offset_delta=7)
    piece = split(sealed(header.pack() + inner[HEADER_SIZE:]), 0, 8, old=[Span(0, 8)])
    assert piece.headers["base_offset"].tolist() == [1, 2, 5]
    assert piece.holes.tolist() == [[0, 1, What.INSIDE], [3, 5, What.INSIDE], [6, 8, What.INSIDE]]
    assert piece.offsets == 3


def test_the_same_chunk_as_at_the_source() -> None:
    """Its digest is of the very bytes of the headers."""
    sides = (messages_of(1, RECORDS) + kafka_batch(base_offset=COUNT), copy(5, 7) + kafka_batch(base_offset=COUNT))
    body = memoryview(sides[1])
    piece = split(sides[1], 0, COUNT + 3)
    there = make_block(body, piece.places, piece.headers, digester("xxh3_128"), rules=RULES)
    found = []
    for block in (block_of(sides[0], wanted(0, COUNT + 3)), there):
        chunks = Chunks("xxh3_128", 0, 10)
        chunks.add(block)
        found.append(chunks.rows("c", "t", 0).to_pylist())
    assert found[0] == found[1]


def test_batches_elsewhere_stay_whole() -> None:
    there = copy(5, 7) + kafka_batch(base_offset=COUNT) + kafka_batch(base_offset=COUNT + 3)
    piece = split(there, 0, COUNT + 6)
    assert piece.headers["record_count"].tolist() == [*[1] * COUNT, 3, 3]
    assert piece.stored == StoredInstead(4, len(there))
    behind = split(there, COUNT + 1, COUNT + 6)
    assert behind.headers["base_offset"].tolist() == [COUNT + 3], "the batch before is another range's"


def test_a_batch_that_reaches_into_both_formats() -> None:
    """What of it is not old matches nothing."""
    there = copy(12)
    piece = split(there, 0, COUNT, old=[Span(0, 9)])
    flags = piece.headers["attributes"].tolist()
    assert flags == [*[0] * 9, *[STRADDLES] * 3]
    inside = split(there, 10, COUNT, old=[Span(0, 9)])
    assert inside.headers["base_offset"].tolist() == [10, 11]


@pytest.mark.parametrize("start", [0, 3])
def test_a_damaged_batch_is_one_row(start: int) -> None:
    there = bytearray(copy(5, 7))
    there[70] ^= 1
    piece = split(bytes(there), start, COUNT)
    assert piece.headers["base_offset"].tolist() == [start, *range(5, COUNT)]
    assert piece.headers["last_offset_delta"].tolist() == [4 - start, *[0] * 7]
    assert [row[6] for row in seen(bytes(there), piece)] == [False, *[True] * 7]
    assert piece.offsets == COUNT - start


@pytest.mark.parametrize("attributes", [1, 1 | UNREAD])
def test_a_batch_that_cannot_be_opened(attributes: int) -> None:
    """Whatever bits of no meaning its attributes have."""
    whole = copy(12)
    header = BatchHeader.read(whole)._replace(attributes=attributes)
    piece = split(sealed(header.pack() + whole[61:]), 0, COUNT)
    (unit,) = piece.places
    assert isinstance(unit, units.Unit)
    assert unit.flags & UNREAD
    assert "cannot be decompressed" in unit.why


@pytest.mark.parametrize("border", range(1, 12))
def test_copies_with_offsets_of_their_own(border: int) -> None:
    """The map has two runs, and a stranger's batch stands between. Ranges meet inside of a batch."""
    first, second = batch(RECORDS[:5]), batch(RECORDS[5:])
    moved = [(100).to_bytes(8) + first[8:], kafka_batch(base_offset=105), (108).to_bytes(8) + second[8:]]
    there = b"".join(moved)
    body = memoryview(there)
    runs = (Run(0, 100, 5), Run(5, 108, 7))
    found: list[tuple[object, ...]] = []
    batches = 0
    for start, end in ((0, border), (border, COUNT)):
        begins, ends = (100 + at if at < 5 else 103 + at for at in (start, end))
        own = tuple(run for run in runs if run.source < end and run.source + run.length > start)
        where = CopiedRange("there", begins, ends, (), own)
        splitter = Splitter(OLD, Span(start, end), first=start == 0, select=Selector(where))
        piece = cut_records(
            body,
            0,
            len(body),
            Range("there", 0, begins, ends, True, 1_000),
            begins,
            Rules(side=Side.DESTINATION, mapped=True),
        )
        piece = splitter(piece, body, begins)
        found += seen(there, piece)
        assert piece.offsets == end - start
        assert piece.stored is not None
        batches += piece.stored.batches
    assert found == rows(block_of(messages_of(1, RECORDS), wanted(0, COUNT)))
    assert batches == 2
