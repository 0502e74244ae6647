"""Which chunks are looked at again, where damage cuts them, and when a difference is wholesale."""

from mirror.audit.drill import CHUNKS_IN_ALL, CHUNKS_PER_PARTITION, by_content, drill_down, unexplained
from mirror.audit.model import BatchRow, Finding, Kind, Pairs, Span, TopicPartition
from mirror.audit.plan import Range

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


def test_chunks_of_both_sides_are_looked_at() -> None:
    ranges = {KEY: [whole(30), whole(55, start=30)]}
    drill = drill_down({KEY: Pairs({0: row(0), 30: row(30)}, {30: row(30), 50: row(50)})}, ranges, [])
    assert [(chunk.start, chunk.end, chunk.first) for chunk in drill.chunks] == [
        (0, 10, True), (30, 40, False), (50, 55, False),
    ]  # fmt: skip
    assert drill.wholesale == ()


def test_damage_cuts_the_chunk_it_lies_in_and_drops_those_behind() -> None:
    pairs = Pairs({start: row(start) for start in (0, 10, 20)})
    drill = drill_down({KEY: pairs}, {KEY: [whole(30)]}, [damaged(13, 30)])
    assert [(chunk.start, chunk.end) for chunk in drill.chunks] == [(0, 10), (10, 13)]
    assert list(drill.clipped) == [drill.chunks[1]]
    assert list(unexplained(drill, {})) == [drill.chunks[0]]
    assert list(unexplained(drill, {KEY: Pairs({4: row(4)})})) == []


def test_beyond_the_bounds_a_difference_is_wholesale() -> None:
    starts = range(0, 10 * (CHUNKS_PER_PARTITION + 2), 10)
    drill = drill_down({KEY: Pairs({start: row(start) for start in starts})}, {KEY: [whole()]}, [])
    assert len(drill.chunks) == CHUNKS_PER_PARTITION
    (found,) = drill.wholesale
    assert (found.kind, found.topic, found.partition, found.batches) == (Kind.WHOLESALE, "t", 0, 6)
    assert found.source == found.destination == Span(10 * CHUNKS_PER_PARTITION, 10 * CHUNKS_PER_PARTITION + 20)
    assert found.detail.startswith("2 chunks")


def test_all_partitions_together_are_bounded() -> None:
    keys = [TopicPartition("t", partition) for partition in range(20)]
    pairs = {key: Pairs({10 * index: row(10 * index) for index in range(64)}) for key in keys}
    drill = drill_down(pairs, {key: [whole()._replace(partition=key.partition)] for key in keys}, [])
    assert len(drill.chunks) == CHUNKS_IN_ALL
    assert [found.partition for found in drill.wholesale] == list(range(8, 20))


def test_the_first_chunk_explains_a_batch_that_begins_before_it() -> None:
    drill = drill_down({KEY: Pairs({0: row(0)})}, {KEY: [whole(30)._replace(start=0)]}, [])
    assert list(unexplained(drill, {KEY: Pairs({-3: row(-3)})})) == []


def test_places_by_content() -> None:
    other = TopicPartition("t", 1)
    places = by_content([(other, row(5)), (KEY, row(9)), (KEY, row(2)), (KEY, row(4, records=8))])
    assert [[(place.key, place.row.base_offset) for place in found] for found in places.values()] == [
        [(KEY, 2), (KEY, 9), (other, 5)],
        [(KEY, 4)],
    ]
