"""What waits behind a hole keeps no frame: a little is copied out, the rest is fetched again as if never fetched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.net.buffers import Frame, FramePool
from mirror.records.admit import Terms
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity
from mirror.relay.forward import forward
from mirror.relay.parking import MOST_BYTES, park, worth_asking
from mirror.relay.partition import Ahead, Hole, Partition
from mirror.relay.plain import NEVER_MS, InnerLoop
from tests.records.builders import raw_batch

START = Identity(1 << 62, 4, 7)
LOOP = InnerLoop(9)


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
    partition.ahead = Ahead(partition.due, int.from_bytes(data[:8]), proven=False)
    assert forward(frame, 0, len(data), partition, LOOP) is None
    frame.release()
    return frame


def empty(partition: Partition) -> None:
    while partition.outbox:
        partition.let_go(partition.outbox.popleft())


def compacted(due: int = 0) -> Partition:
    partition = Partition("t", 0)
    partition.terms = Terms(compacted=True)
    partition.due = partition.acknowledged = due
    partition.identity = START
    return partition


def what_waits(partition: Partition) -> list[tuple[bytes, bytes | Identity, int]]:
    return [(item[0], item.before if isinstance(item, Hole) else bytes(item[1]), item[2]) for item in partition.outbox]


@given(
    st.lists(st.sampled_from([0, 60, 100, 900]), min_size=1, max_size=8).map(lambda sizes: [0, *sizes, 60]),
    st.integers(0, 3_000),
)
def test_parked_and_fetched_again_is_as_if_it_had_waited(sizes: list[int], most: int) -> None:
    """Nothing is lost, doubled or sent under another identity, wherever the bound falls; and no frame is held."""
    pool = FramePool(budget=1 << 20, frame_size=1 << 16)
    data = record_set(0, sizes)
    waited = compacted()
    receive(pool, data, waited)
    partition = compacted()
    receive(pool, data, partition)
    used = pool.used
    park(partition, most)
    assert pool.used < used
    assert partition.frames == 0
    assert partition.parked > 0
    kept = what_waits(partition)
    assert kept == what_waits(waited)[: len(kept)]
    assert sum(len(payload) for head, payload, _ in kept if head and isinstance(payload, bytes)) <= most
    assert partition.due == sum(records for _, _, records in kept)
    if partition.due < waited.due:
        at = _at(data, partition.due)
        receive(pool, data[at:], partition)
    assert partition.identity == waited.identity
    assert partition.due == waited.due
    for each in (partition, waited):
        each.freshness.appended(0, NEVER_MS)
    assert partition.freshness.least_ms(0) == waited.freshness.least_ms(0)
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
    pool = FramePool(budget=1 << 20, frame_size=1 << 16)
    partition = compacted()
    receive(pool, record_set(0, [0, 100, 100]), partition)
    before = (partition.tally.put_batches, partition.tally.put_bytes)
    park(partition, 100)
    assert partition.tally.put_batches == before[0] - 1
    assert partition.tally.put_bytes == before[1] - 161


def test_no_more_is_asked_than_is_kept() -> None:
    """From when something had to be let go until no hole is met any more."""
    pool = FramePool(budget=1 << 20, frame_size=1 << 16)
    partition = compacted()
    receive(pool, record_set(0, [0, 100, 100]), partition)
    park(partition)
    assert worth_asking(partition, 1 << 20) == 1 << 20
    park(partition, 100)
    assert worth_asking(partition, 1 << 20) == MOST_BYTES
    assert worth_asking(partition, 100) == 100
    empty(partition)
    receive(pool, record_set(partition.due, [100, 0, 100]), partition)
    assert worth_asking(partition, 1 << 20) == MOST_BYTES
    empty(partition)
    receive(pool, record_set(partition.due, [100]), partition)
    assert worth_asking(partition, 1 << 20) == 1 << 20


def test_nothing_may_be_under_way() -> None:
    pool = FramePool(budget=1 << 20, frame_size=1 << 16)
    partition = compacted()
    receive(pool, record_set(0, [100, 0, 100]), partition)
    partition.in_flight.append(partition.outbox.popleft())
    with pytest.raises(AssertionError):
        park(partition)
