"""What waits behind a hole keeps no frame: a little is copied out, the rest is fetched again as if never fetched."""

from typing import cast
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.net.buffers import Frame, FramePool
from mirror.records.admit import Terms
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity
from mirror.relay.holes.parking import LEAST_ASKED, MOST_BYTES, park, set_aside, worth_asking
from mirror.relay.hot.forward import forward
from mirror.relay.hot.plain import NEVER_MS, InnerLoop
from mirror.relay.mapped.copied import CopiedRuns, OpenMap
from mirror.relay.partition.cursor import Ahead
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Hole
from tests.records.builders import raw_batch

START = Identity(1 << 62, 4, 7)
LOOP = InnerLoop(9)


class Pool(FramePool):
    """One that has so much room for a copy, by decree."""

    room = MOST_BYTES

    def __init__(self) -> None:
        super().__init__(budget=1 << 20, frame_size=1 << 16)

    @property
    def copy_room(self) -> int:
        return self.room


def record_set(first: int, sizes: list[int]) -> bytes:
    """Batches of five offsets with so many bytes; where the size is 0, a gap of three offsets instead."""
    out, offset = b"", first
    for size in sizes:
        if size:
            out += raw_batch(b"x" * size, base_offset=offset, last_offset_delta=4, record_count=5)
            offset += 5
        else:
            offset += 3
    # A gap is believed when it is seen where the next batch begins.
    return out + offset.to_bytes(8)


def receive(pool: FramePool, data: bytes, partition: Partition) -> Frame:
    """As the fetcher does: forwarded, and the fetcher's own hold released."""
    frame = pool.take(len(data))
    frame.body[:] = data
    partition.cursor.ahead = Ahead(partition.cursor.due, int.from_bytes(data[:8]), proven=False)
    assert forward(frame, 0, len(data), partition, LOOP) is None
    frame.release()
    return frame


def empty(partition: Partition) -> None:
    while partition.queue.outbox:
        partition.queue.let_go(partition.queue.outbox.popleft())


def compacted(due: int = 0) -> Partition:
    partition = Partition("t", 0)
    partition.terms = Terms(compacted=True)
    partition.cursor.due = partition.queue.acknowledged = due
    partition.cursor.identity = START
    return partition


def what_waits(partition: Partition) -> list[tuple[bytes, bytes | Identity, int]]:
    return [
        (item[0], item.before if isinstance(item, Hole) else bytes(item[1]), item[2]) for item in partition.queue.outbox
    ]


@given(
    st.lists(st.sampled_from([0, 60, 100, 900]), min_size=1, max_size=8).map(lambda sizes: [0, *sizes, 60]),
    st.integers(0, 3_000),
)
def test_parked_and_fetched_again_is_as_if_it_had_waited(sizes: list[int], most: int) -> None:
    """Nothing is lost, doubled or sent under another identity, wherever the bound falls; and no frame is held."""
    pool = Pool()
    data = record_set(0, sizes)
    waited = compacted()
    receive(pool, data, waited)
    partition = compacted()
    receive(pool, data, partition)
    pool.room = most
    frames = [frame for *_, frame in partition.queue.outbox if frame is not None]
    park(partition, pool)
    assert not any(frame in [item[3] for item in partition.queue.outbox] for frame in frames)
    assert partition.queue.frames == (pool.copied > 0)
    assert partition.queue.parked > 0
    kept = what_waits(partition)
    assert kept == what_waits(waited)[: len(kept)]
    assert sum(len(payload) for head, payload, _ in kept if head and isinstance(payload, bytes)) <= most
    assert partition.cursor.due == sum(records for _, _, records in kept)
    if partition.cursor.due < waited.cursor.due:
        at = _at(data, partition.cursor.due)
        receive(pool, data[at:], partition)
    assert partition.cursor.identity == waited.cursor.identity
    assert partition.cursor.due == waited.cursor.due
    for each in (partition, waited):
        each.queue.freshness.appended(0, NEVER_MS)
    assert partition.queue.freshness.least_ms(0) == waited.queue.freshness.least_ms(0)
    assert _joined(what_waits(partition)) == _joined(what_waits(waited))


def _at(data: bytes, offset: int) -> int:
    """Where the first batch at or behind the offset begins."""
    at = 0
    while BatchHeader.read(data, at).base_offset < offset:
        at += BatchHeader.read(data, at).size
    return at


def _joined(items: list[tuple[bytes, bytes | Identity, int]]) -> list[tuple[bytes, bytes | Identity, int]]:
    """As they are sent."""
    return [(head[-HEADER_SIZE:], payload, records) for head, payload, records in items]


def test_it_counts_as_replicated_only_once() -> None:
    pool = Pool()
    partition = compacted()
    receive(pool, record_set(0, [0, 100, 100]), partition)
    before = (partition.queue.tally.put_batches, partition.queue.tally.put_bytes)
    pool.room = 100
    park(partition, pool)
    assert partition.queue.tally.put_batches == before[0] - 1
    assert partition.queue.tally.put_bytes == before[1] - 161


def test_no_more_is_asked_than_is_kept() -> None:
    """From when something had to be let go until no hole is met any more."""
    pool = Pool()
    partition = compacted()
    receive(pool, record_set(0, [0, 100, 100]), partition)
    park(partition, pool)
    assert worth_asking(partition, 1 << 20) == 1 << 20
    pool.room = 100
    park(partition, pool)
    assert worth_asking(partition, 1 << 20) == LEAST_ASKED
    assert worth_asking(partition, 100) == 100
    empty(partition)
    receive(pool, record_set(partition.cursor.due, [100, 0, 100]), partition)
    assert worth_asking(partition, 1 << 20) == LEAST_ASKED
    empty(partition)
    receive(pool, record_set(partition.cursor.due, [100]), partition)
    assert worth_asking(partition, 1 << 20) == 1 << 20


def test_nothing_may_be_under_way() -> None:
    pool = Pool()
    partition = compacted()
    receive(pool, record_set(0, [100, 0, 100]), partition)
    partition.queue.in_flight.append(partition.queue.outbox.popleft())
    with pytest.raises(AssertionError):
        park(partition, pool)


def test_what_is_copied_counts_until_it_is_acknowledged() -> None:
    """
    1. What waits behind a hole is copied into a frame of its own, of its own size.
    2. It goes back with the last batch of it, and its memory with it.
    """
    pool = Pool()
    partition = compacted()
    receive(pool, record_set(0, [0, 100, 100, 0]), partition)
    park(partition, pool)
    assert pool.used == pool.copied == 200
    hole = partition.queue.pop_hole()
    assert hole.records == 3
    partition.queue.let_go(partition.queue.outbox.popleft())
    assert pool.used == pool.copied == 200
    partition.queue.let_go(partition.queue.outbox.popleft())
    assert pool.used == pool.copied == 0


def crowd(pool: FramePool, count: int, size: int) -> list[Partition]:
    """So many partitions, each with a hole and this much behind it."""
    found = []
    for _ in range(count):
        partition = compacted()
        receive(pool, record_set(0, [0, *[1_000] * (size // 1_000)]), partition)
        park(partition, pool)
        found.append(partition)
    return found


def test_a_thousand_partitions_take_no_more_than_a_share() -> None:
    """
    1. Each has a hole and 100 KB behind it: together they copy a quarter of the budget at the most, and all of it is
       told. The last of them copies nothing, and has its hole.
    2. With what the first gives back, the next one copies again.
    """
    pool = FramePool(budget=16 << 20, frame_size=1 << 20)
    crowded = crowd(pool, 1_000, 100_000)
    assert pool.used == pool.copied <= 4 << 20
    assert pool.copied > 3 << 20
    assert isinstance(crowded[-1].queue.outbox[0], Hole)
    assert len(crowded[-1].queue.outbox) == 1
    for partition in crowded:
        empty(partition)
    assert pool.used == pool.copied == 0
    (again,) = crowd(pool, 1, 100_000)
    assert len(again.queue.outbox) == 101


def test_without_a_share_they_take_many_times_the_budget() -> None:
    """The mutation: each copies as much as it likes."""
    pool = FramePool(budget=16 << 20, frame_size=1 << 20)
    with patch.object(FramePool, "copy_room", MOST_BYTES):
        crowd(pool, 1_000, 100_000)
    assert pool.copied > 5 * pool.budget


def test_set_aside() -> None:
    """
    1. Of four batches two are under way. All frames go back; the two are remembered by their sizes.
    2. The two others are fetched again, as if never fetched: under the same identities.
    """
    pool = Pool()
    data = record_set(0, [100] * 4)
    waited, partition = compacted(), compacted()
    for each in (waited, partition):
        receive(pool, data, each)
        each.phase = Phase.ACTIVE
        for _ in range(2):
            each.queue.in_flight.append(each.queue.outbox.popleft())
    before = pool.used
    set_aside(partition)
    assert pool.used == before - len(data)
    assert (partition.queue.frames, partition.cursor.due, len(partition.queue.outbox)) == (0, 10, 0)
    assert partition.queue.in_flight.sizes() == waited.queue.in_flight.sizes()
    assert partition.queue.parked
    receive(pool, data[_at(data, 10) :], partition)
    assert what_waits(partition) == what_waits(waited)
    assert partition.queue.tally.put_batches == waited.queue.tally.put_batches
    assert partition.queue.tally.put_bytes == waited.queue.tally.put_bytes


def test_set_aside_with_offsets_that_are_not_copied() -> None:
    """``offsets: mapped``: what was passed over behind the last batch under way is passed over again."""
    pool = Pool()
    partition = compacted()
    partition.phase = Phase.ACTIVE
    partition.queue.copied = copied = CopiedRuns(
        open_map=cast(OpenMap, None), source=0, source_epoch=0, destination=0, identity=START, own=frozenset()
    )
    data = record_set(0, [100, 0, 100, 0, 100])
    receive(pool, data, partition)
    for _ in range(2):
        partition.queue.in_flight.append(partition.queue.outbox.popleft())
    jumps = list(copied.jumps)
    assert [(jump.start, jump.end) for jump in jumps] == [(5, 8), (13, 16)]
    set_aside(partition)
    assert partition.cursor.due == 13
    assert list(copied.jumps) == jumps[:1]
    receive(pool, data[_at(data, 13) :], partition)
    assert list(copied.jumps) == jumps
