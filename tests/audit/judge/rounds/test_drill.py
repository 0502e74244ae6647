"""Which chunks are looked at again, and where damage cuts them."""

from mirror.audit.judge.rounds.drill import by_content, drill_down
from mirror.audit.judge.rounds.regions import DifferingChunk
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Span, TopicPartition
from mirror.audit.model.rows import BatchRow
from mirror.audit.prepare.plan import Range

KEY = TopicPartition("t", 0)


def row(base: int, records: int = 3) -> BatchRow:
    """A chunk or a batch; ``records`` of a chunk are its batches."""
    return BatchRow(base, base + 9, records, 0, 0, 0, 100, True, b"")


def whole(end: int = 10_000, start: int = 0) -> Range:
    """A range with chunks of ten offsets."""
    return Range("t", 0, start, end, start == 0, 10)


def damaged(start: int, end: int) -> Finding:
    """A log that cannot be read from here on."""
    return Finding(
        kind=Kind.CORRUPT, topic="t", partition=0, source=None, destination=Span(start, end), batches=0, records=0,
        detail="",
    )  # fmt: skip


def told(found: dict[TopicPartition, list[DifferingChunk]]) -> list[tuple[int, int, bool, bool]]:
    """Start, end, whether it is the first, whether it is certain that something differs."""
    (chunks,) = found.values()
    return [(chunk.where.start, chunk.where.end, chunk.where.first, chunk.certain) for chunk in chunks]


def test_chunks_of_both_sides_are_looked_at() -> None:
    ranges = {KEY: [whole(30), whole(55, start=30)]}
    found = drill_down({KEY: Pairs({0: row(0), 30: row(30)}, {30: row(30), 50: row(50, 7)})}, ranges, [])
    assert told(found) == [(0, 10, True, True), (30, 40, False, True), (50, 55, False, True)]
    assert [chunk.batches for chunk in found[KEY]] == [3, 3, 7]


def test_damage_cuts_the_chunk_it_lies_in_and_drops_those_behind() -> None:
    pairs = Pairs({start: row(start) for start in (0, 10, 20)})
    found = drill_down({KEY: pairs}, {KEY: [whole(30)]}, [damaged(13, 30)])
    assert told(found) == [(0, 10, True, True), (10, 13, False, False)]


def test_there_is_no_limit() -> None:
    starts = range(0, 10_000, 10)
    found = drill_down({KEY: Pairs({start: row(start) for start in starts})}, {KEY: [whole()]}, [])
    assert len(told(found)) == 1_000


def test_places_by_content() -> None:
    other = TopicPartition("t", 1)
    places = by_content([(other, row(5)), (KEY, row(9)), (KEY, row(2)), (KEY, row(4, records=8))])
    assert [[(place.key, place.row.base_offset) for place in found] for found in places.values()] == [
        [(KEY, 2), (KEY, 9), (other, 5)],
        [(KEY, 4)],
    ]
