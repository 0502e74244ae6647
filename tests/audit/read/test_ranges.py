"""One response cut for one range: who owns a batch at a border, which offsets have none, what is damage."""

import pytest

from mirror.audit.prepare.plan import Range
from mirror.audit.read.ranges import LISTED_GAPS, RangeCoverage, RangePiece, cut_records
from mirror.records.header import BatchHeader
from mirror.records.scan import BatchPlace
from tests.records.builders import raw_batch


def batch(base: int, count: int = 5, size: int = 40, **header: int) -> bytes:
    """A batch with offsets from ``base`` on."""
    return raw_batch(bytes(size), base_offset=base, **{"last_offset_delta": count - 1, "record_count": count, **header})


def wanted(start: int, end: int, *, first: bool = False) -> Range:
    """A range."""
    return Range("t", 0, start, end, first, 1_000)


def cut(record_set: bytes, of: Range, due: int | None = None) -> RangePiece:
    """In a frame that has other bytes around the records."""
    body = memoryview(b"xx" + record_set + b"yyy")
    return cut_records(body, 2, 2 + len(record_set), of, of.start if due is None else due)


def bases(piece: RangePiece) -> list[int]:
    """Of the batches that are the range's."""
    found: list[int] = piece.headers["base_offset"].tolist()
    return found


LOG = b"".join(batch(base) for base in (0, 5, 10, 15))


def test_all_batches_inside() -> None:
    piece = cut(LOG, wanted(0, 20))
    assert bases(piece) == [0, 5, 10, 15]
    assert [place.size for place in piece.places if isinstance(place, BatchPlace)] == [101] * 4
    assert (piece.next_offset, list(piece.gaps), piece.broken) == (20, [], None)


@pytest.mark.parametrize("border", range(1, 20))
def test_a_border_anywhere_gives_each_batch_to_one_range(border: int) -> None:
    left, right = cut(LOG, wanted(0, border, first=True)), cut(LOG, wanted(border, 20))
    assert bases(left) + bases(right) == [0, 5, 10, 15]
    assert all(base < border for base in bases(left))
    assert left.next_offset == border
    assert right.next_offset == 20
    assert [*left.gaps, *right.gaps] == []


def test_the_first_range_owns_the_batch_that_reaches_into_it() -> None:
    assert bases(cut(LOG, wanted(7, 20, first=True))) == [5, 10, 15]
    assert bases(cut(LOG, wanted(7, 20, first=False))) == [10, 15]


@pytest.mark.parametrize(
    ("start", "end", "first", "over"),
    [
        (0, 20, True, (False, False)),
        (7, 20, True, (True, False)),
        (7, 20, False, (False, False)),
        (0, 13, True, (False, True)),
        (7, 13, True, (True, True)),
        (11, 14, False, (False, False)),
    ],
)
def test_its_batches_may_reach_over_its_borders(start: int, end: int, *, first: bool, over: tuple[bool, bool]) -> None:
    """Each of its own counts whole. A batch that belongs to a neighbour says nothing."""
    coverage = RangeCoverage()
    coverage.take(cut(LOG, wanted(start, end, first=first)))
    coverage.take(RangePiece.hole(end, end))
    assert (coverage.begins_before, coverage.ends_behind) == over


def test_batches_before_the_due_offset_are_left_out() -> None:
    piece = cut(LOG, wanted(0, 20), due=10)
    assert bases(piece) == [10, 15]
    for records in (LOG, b""):
        nothing = cut(records, wanted(0, 40), due=20)
        assert (bases(nothing), nothing.next_offset, nothing.broken) == ([], 20, None)


def test_a_partial_tail_is_fetched_again() -> None:
    piece = cut(LOG[:-1], wanted(0, 20))
    assert bases(piece) == [0, 5, 10]
    assert piece.next_offset == 15


def test_gaps_are_told_and_clipped_at_the_end() -> None:
    holes = b"".join(batch(base) for base in (3, 10, 30))
    piece = cut(holes, wanted(0, 20))
    assert bases(piece) == [3, 10]
    assert list(piece.gaps) == [(0, 3), (8, 10), (15, 20)]
    assert piece.next_offset == 20
    nothing = cut(batch(30), wanted(0, 20))
    assert (bases(nothing), list(nothing.gaps), nothing.next_offset) == ([], [(0, 20)], 20)


def test_a_compacted_batch_covers_its_offsets() -> None:
    piece = cut(batch(0, record_count=1), wanted(0, 5))
    assert (list(piece.gaps), piece.next_offset) == ([], 5)


def test_damage_keeps_what_is_before_it() -> None:
    piece = cut(LOG + bytes(8) + b"\xff\xff\xff\xff" + bytes(60), wanted(0, 40))
    assert bases(piece) == [0, 5, 10, 15]
    assert piece.next_offset == 20
    assert piece.broken is not None
    assert "length -1" in piece.broken


def test_damage_behind_the_range_is_the_neighbours() -> None:
    assert cut(LOG + b"\xff" * 70, wanted(0, 20)).broken is None


def test_a_batch_with_offsets_that_fell_back_is_damage() -> None:
    """Which of the two neighbours lies cannot be told from their offsets: reading stops before both."""
    piece = cut(batch(0) + batch(5, last_offset_delta=99) + batch(10), wanted(0, 40))
    assert bases(piece) == [0]
    assert piece.next_offset == 5
    assert piece.broken == "offsets 10 to 14 in a batch where 105 is due"


def test_a_negative_last_offset_delta_is_damage() -> None:
    piece = cut(batch(0) + batch(5, last_offset_delta=-1), wanted(0, 40))
    assert (bases(piece), piece.next_offset) == ([0], 5)
    assert piece.broken is not None
    piece = cut(batch(5, last_offset_delta=-1) + batch(10), wanted(5, 40))
    assert (bases(piece), list(piece.gaps), piece.next_offset) == ([], [], 5)
    assert piece.broken is not None, "not a gap up to offset 10"


def test_the_coverage_adds_up() -> None:
    coverage = RangeCoverage()
    coverage.take(cut(LOG[: len(batch(0))], wanted(0, 40)))
    coverage.take(cut(batch(10) + batch(15), wanted(0, 40), due=5))
    coverage.take(RangePiece.hole(20, 40))
    assert (coverage.batches, coverage.records, coverage.bytes) == (3, 15, 303)
    assert (coverage.gap_offsets, coverage.next_offset) == (25, 40)
    again = RangeCoverage.from_json(coverage.to_json())
    assert [tuple(gap) for gap in again.gaps] == coverage.gaps == [(5, 10), (20, 40)]
    assert again.to_json() == coverage.to_json()


def test_the_coverage_counts_times_of_the_append() -> None:
    coverage = RangeCoverage()
    coverage.take(cut(batch(0) + raw_batch(b"x", base_offset=5, attributes=8 | 4), wanted(0, 40)))
    assert (coverage.batches, coverage.stamped) == (2, 1)
    assert RangeCoverage.from_json(coverage.to_json()).stamped == 1


def test_the_coverage_names_the_first_gaps_only() -> None:
    coverage = RangeCoverage()
    coverage.take(cut(b"".join(batch(base, 1) for base in range(1, 80, 2)), wanted(0, 80)))
    assert len(coverage.gaps) == LISTED_GAPS
    assert coverage.gap_offsets == 40


def test_headers_are_read_as_the_struct_reads_them() -> None:
    raw = batch(7, producer_id=1 << 62, leader_epoch=9)
    (row,) = cut(raw, wanted(7, 12)).headers
    assert tuple(row.tolist()) == tuple(BatchHeader.read(raw))
