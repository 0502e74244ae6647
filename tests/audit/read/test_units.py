"""Messages of formats from before Kafka 0.11 as the audit's reader takes them: record by record, none missed, none
twice, and nothing damaged is taken for anything else."""

from collections.abc import Sequence

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.model.places import Side
from mirror.audit.model.rows import OLD_FORMAT, UNREAD, What
from mirror.audit.prepare.plan import Range
from mirror.audit.read import units
from mirror.audit.read.holes import PLAIN, Rules
from mirror.audit.read.ranges import MOST_CHANGES, OldSpan, RangeCoverage, RangePiece, StoredInstead, cut_records
from mirror.audit.read.rows import Block, digester, make_block
from mirror.records.content.opening import Record
from mirror.records.header import MAGIC_AT, Codec
from tests.legacy.samples import WRAPPING, messages_of, patched, records_from, wrapper_of
from tests.records.builders import kafka_batch

END = 40
AT_DESTINATION = Rules(side=Side.DESTINATION)


def wanted(start: int, end: int, *, first: bool = False) -> Range:
    return Range("t", 0, start, end, first, 1_000)


def cut(record_set: bytes, of: Range, due: int | None = None, rules: Rules = PLAIN) -> RangePiece:
    """In a frame that has other bytes around the records."""
    body = memoryview(b"xx" + record_set + b"yyy")
    return cut_records(body, 2, 2 + len(record_set), of, of.start if due is None else due, rules)


def block_of(record_set: bytes, of: Range, due: int | None = None, rules: Rules = PLAIN) -> Block:
    body = memoryview(record_set)
    piece = cut_records(body, 0, len(body), of, of.start if due is None else due, rules)
    return make_block(body, piece.places, piece.headers, digester("xxh3_128"), holes=piece.holes, rules=rules)


def rows(block: Block) -> list[tuple[object, ...]]:
    """All that is compared."""
    headers = block.headers
    names = ("base_offset", "attributes", "base_timestamp", "max_timestamp", "length", "record_count")
    return list(
        zip(*(headers[name].tolist() for name in names), block.crc_ok.tolist(), list(block.digests), strict=True)
    )


def log(magic: int, codec: Codec = Codec.GZIP) -> list[tuple[bytes, Sequence[Record]]]:
    """Messages alone, wrappers with holes inside and between, and a batch of today."""
    alone = records_from(0, 4, magic=magic)
    dense = records_from(4, 4, magic=magic)
    sparse = records_from(10, 4, magic=magic, step=2)
    last = records_from(20, 1, magic=magic)
    return [
        *((messages_of(magic, [one]), [one]) for one in alone),
        (wrapper_of(magic, codec, dense), dense),
        (wrapper_of(magic, codec, sparse), sparse),
        (messages_of(magic, last), last),
    ]


LOGS = [(magic, codec) for magic in (0, 1) for codec in WRAPPING]


def raw(entries: list[tuple[bytes, Sequence[Record]]]) -> bytes:
    return b"".join(data for data, _ in entries)


@pytest.mark.parametrize(("magic", "codec"), LOGS)
def test_each_record_is_a_row(magic: int, codec: Codec) -> None:
    """The same row as that of the same record in a batch of today."""
    entries = log(magic, codec)
    piece = cut(raw(entries), wanted(0, END, first=True))
    records = [one for _, some in entries for one in some]
    found = [place for place in piece.places if isinstance(place, units.Unit)]
    assert [(one.offset, one.timestamp) for one in found] == [(one.offset, one.timestamp) for one in records]
    assert {one.flags for one in found} == {0, codec}
    assert piece.holes.tolist() == [
        [8, 10, What.GAP], [11, 12, What.INSIDE], [13, 14, What.INSIDE], [15, 16, What.INSIDE], [17, 20, What.GAP],
    ]  # fmt: skip
    assert (piece.offsets, piece.next_offset, piece.broken) == (13, 21, None)
    assert piece.stored == StoredInstead(7, len(raw(entries)))
    assert list(piece.old) == [OldSpan(0, 21, 7, 13, len(raw(entries)))]
    coverage = RangeCoverage()
    coverage.take(piece)
    assert (coverage.batches, coverage.bytes, coverage.rows, coverage.records) == (7, len(raw(entries)), 13, 13)
    assert (coverage.gap_offsets, coverage.inside, coverage.accounted) == (5, 3, 21)


@pytest.mark.parametrize("border", range(1, 21))
@pytest.mark.parametrize("magic", [0, 1])
def test_ranges_that_meet_anywhere(magic: int, border: int) -> None:
    """Also inside of a wrapper: each record and each hole is in one range, each message is counted once."""
    whole = raw(log(magic))
    left, right = cut(whole, wanted(0, border, first=True)), cut(whole, wanted(border, 21))
    offsets = [*left.headers["base_offset"].tolist(), *right.headers["base_offset"].tolist()]
    assert offsets == cut(whole, wanted(0, 21, first=True)).headers["base_offset"].tolist()
    holes = [at for piece in (left, right) for start, end, _ in piece.holes.tolist() for at in range(start, end)]
    assert sorted([*offsets, *holes]) == list(range(21))
    coverage = [RangeCoverage(), RangeCoverage()]
    for each, piece in zip(coverage, (left, right), strict=True):
        each.take(piece)
    assert [one.accounted for one in coverage] == [border, 21 - border]
    assert sum(one.batches for one in coverage) == 7
    assert sum(one.bytes for one in coverage) == len(whole)


@pytest.mark.parametrize("room", [1, 2, 3, 5])
def test_what_there_is_no_room_for_is_fetched_again(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    whole = raw(log(1))
    wanted_rows = rows(block_of(whole, wanted(0, 21, first=True)))
    monkeypatch.setattr(units, "MOST_UNITS", room)
    found, coverage, due = [], RangeCoverage(), 0
    while due < 21:
        piece = cut(whole, wanted(0, 21, first=True), due)
        assert piece.broken is None
        assert len(piece.places) <= room
        found += rows(block_of(whole, wanted(0, 21, first=True), due))
        coverage.take(piece)
        due = piece.next_offset
    assert found == wanted_rows
    assert coverage.accounted == 21
    assert (coverage.batches, coverage.inside) == (7, 3)
    assert OldSpan(*coverage.old[0])[:1] == (0,)
    assert coverage.old[-1][1] == 21
    assert sum(span[3] for span in coverage.old) == 13


def test_batches_of_today_between_them() -> None:
    """One row each, as ever, and what is old is told apart from them."""
    whole = (
        messages_of(0, records_from(0, 2, magic=0))
        + kafka_batch(base_offset=2)
        + wrapper_of(1, Codec.LZ4, records_from(5, 3))
        + kafka_batch(base_offset=8)
    )
    piece = cut(whole, wanted(0, 11, first=True))
    assert piece.headers["base_offset"].tolist() == [0, 1, 2, 5, 6, 7, 8]
    assert piece.headers["record_count"].tolist() == [1, 1, 3, 1, 1, 1, 3]
    assert [span[:4] for span in piece.old] == [(0, 2, 2, 2), (5, 8, 1, 3)]
    assert piece.stored == StoredInstead(5, len(whole))
    assert block_of(whole, wanted(0, 11, first=True)).crc_ok.all()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("which", ["alone", "wrapper"])
def test_no_flipped_bit_passes(magic: int, which: str) -> None:
    """Each bit of a message, also of its offset, which no checksum covers: what is read is never what it was."""
    entries = log(magic)
    at = {"alone": 1, "wrapper": 4}[which]
    clean = rows(block_of(raw(entries), wanted(0, 21, first=True)))
    before = raw(entries[:at])
    behind = raw(entries[at + 1 :])
    for bit in range(8 * len(entries[at][0])):
        hit = bytearray(entries[at][0])
        hit[bit >> 3] ^= 1 << (bit & 7)
        whole = before + bytes(hit) + behind
        piece = cut(whole, wanted(0, 21, first=True))
        found = rows(block_of(whole, wanted(0, 21, first=True)))
        assert piece.broken or found != clean, (bit >> 3, bit & 7)
        if bit >> 3 == MAGIC_AT:
            assert piece.broken or not all(row[6] for row in found)
        elif bit >> 3 >= 12:
            told = [row for row in found if not row[6]]
            first, last = (1, 1) if which == "alone" else (4, 7)
            assert told, (bit >> 3, bit & 7)
            assert told[0][0] == first
            (unit, *_) = [place for place in piece.places if isinstance(place, units.Unit) and place.why]
            assert (unit.offset, unit.last_offset) == (first, last)
            assert unit.flags & OLD_FORMAT
            assert "does not match its checksum" in unit.why


def test_what_is_damaged_reaches_from_the_message_before_it() -> None:
    """Inside of a range only. What is behind it goes on."""
    entries = log(1)
    hit = bytearray(entries[5][0])
    hit[40] ^= 1
    whole = raw(entries[:5]) + bytes(hit) + raw(entries[6:])
    for start, end, due, spoiled in ((0, 21, 0, (8, 16)), (12, 21, 12, (12, 16)), (0, 14, 0, (8, 13))):
        piece = cut(whole, wanted(start, end, first=not start), due)
        (unit,) = [place for place in piece.places if isinstance(place, units.Unit) and place.why]
        assert (unit.offset, unit.last_offset) == spoiled
        assert piece.next_offset == end
        coverage = RangeCoverage()
        coverage.take(piece)
        assert coverage.accounted == end - start
        assert coverage.spoiled == [unit.why]


def test_what_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum is right, and it holds more than is ever opened."""
    monkeypatch.setattr(units, "MOST_WRAPPED", 100)
    entries = log(1)
    piece = cut(raw(entries), wanted(0, 21, first=True))
    found = [place for place in piece.places if isinstance(place, units.Unit) and place.why]
    assert [(one.offset, one.last_offset) for one in found] == [(4, 7), (8, 16)]
    assert {one.flags & (OLD_FORMAT | UNREAD) for one in found} == {OLD_FORMAT | UNREAD}
    assert all("more than 100 bytes" in one.why for one in found)
    assert not block_of(raw(entries), wanted(0, 21, first=True)).crc_ok.all()


def test_offsets_that_fall_back() -> None:
    """Either neighbour may be wrong: reading stops before both, all of a wrapper's records included."""
    entries = log(1)
    whole = raw(entries[:5]) + patched(entries[6][0], 5)
    piece = cut(whole, wanted(0, 21, first=True))
    assert piece.headers["base_offset"].tolist() == [0, 1, 2, 3]
    assert (piece.next_offset, piece.broken) == (4, "offsets 5 to 5 in a batch where 8 is due")
    damaged = bytearray(patched(entries[6][0], 5))
    damaged[-1] ^= 1
    piece = cut(raw(entries[:5]) + bytes(damaged), wanted(0, 21, first=True))
    assert piece.next_offset == 8
    assert piece.broken is not None
    assert "behind offset 7" in piece.broken


def test_at_a_destination_they_are_marked() -> None:
    """The mirror writes none."""
    block = block_of(raw(log(1)), wanted(0, 21, first=True), rules=AT_DESTINATION)
    assert all(flags & OLD_FORMAT for flags in block.headers["attributes"].tolist())
    assert not any(flags & OLD_FORMAT for flags in block_of(raw(log(1)), wanted(0, 21)).headers["attributes"].tolist())


def test_a_format_that_changes_all_the_time_is_refused() -> None:
    coverage = RangeCoverage(old=[(2 * at, 2 * at + 1, 1, 1, 40) for at in range(MOST_CHANGES)])
    piece = cut(messages_of(1, records_from(9 * MOST_CHANGES, 1)), wanted(8 * MOST_CHANGES, 10 * MOST_CHANGES))
    with pytest.raises(AuditError, match="format of messages changes"):
        coverage.take(piece)
