"""What is asked of the source, in which order, within which memory, and what each kind of answer leads to."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.buffers import FramePool
from mirror.net.health.histogram import RequestDurations
from mirror.relay.fetch import sizes
from mirror.relay.fetch.backlog import LEAST_SHARE
from mirror.relay.fetch.fetcher import Fetcher
from mirror.relay.fetch.limits import Limits
from mirror.relay.fetch.link import Asked, share_of
from mirror.relay.fetch.sizes import LEAST_FETCH
from mirror.relay.holes.parking import MOST_BYTES
from mirror.relay.hot.deep import Rewriter
from mirror.relay.hot.plain import InnerLoop
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.stats import Stats
from mirror.relay.watch.tracing import Tracer
from tests.fakes import faults
from tests.fakes.broker import FakeCluster, Seen
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import batch, batches, clusters, fill, mirroring, settings
from tests.wire.frames import fetch_frame

MIB = 1 << 20
NEVER_S = 1e9


@pytest.fixture(autouse=True)
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker is far away, however busy the machine is."""
    monkeypatch.setattr(sizes, "LONG_S", NEVER_S)


def asked(source: FakeCluster, seen: Seen) -> list[tuple[str, int, int, int]]:
    """The partitions of a Fetch, in its order: topic, partition, offset, most bytes."""
    out = []
    for wanted in seen.request.topics:
        topic = source.find(wanted.topic, wanted.topic_id)
        assert topic is not None
        out += [(topic.name, one.partition, one.fetch_offset, one.partition_max_bytes) for one in wanted.partitions]
    return out


def fetches(source: FakeCluster) -> list[Seen]:
    """Those of the data path: the locator asks for one byte."""
    return [seen for seen in source.seen("Fetch") if seen.request.max_bytes > 1]


def for_backlog(request: Any) -> bool:
    """Whether it is for partitions that are behind: of the data path, and outside any fetch session."""
    return bool(request.session_epoch == -1 and request.max_bytes > 1)


def backlog(source: FakeCluster) -> list[Seen]:
    """Those for partitions that are behind."""
    return [seen for seen in source.seen("Fetch") if for_backlog(seen.request)]


# Rotation, shares and progress.


@pytest.mark.parametrize("slices", [False, True])
async def test_every_partition_gets_its_turn(slices: bool) -> None:
    """
    1. Partitions with six batches each, and answers that hold two batches and a part of a third.
    2. Those that gave data go to the end (KIP-74): no partition gets far ahead of another. So also with brokers that
       fill an answer up with partial batches.
    """
    partitions, count = 39, 6
    async with clusters() as (source, destination):
        source.slices = slices
        fill(source, partitions, count, size=40_000)
        held = source.next("Fetch", faults.held())
        async with mirroring(source, destination, fetch_max_bytes=100_000, buffer_memory=MIB) as flow:
            await until(lambda: flow.relay.states == {"active": partitions})
            held.open()
            await flow.copied()
        given = dict.fromkeys(range(partitions), 0)
        for seen in destination.seen("Produce"):
            for topic in seen.request.topic_data:
                for data in topic.partition_data:
                    given[data.index] += 1
            # The last 64 KiB are no backlog any more, and are not in the rotation.
            assert min(count - 2, max(given.values())) - min(given.values()) <= 3
        assert set(given.values()) == {count}


async def test_an_answer_says_where_the_source_ends_now() -> None:
    """By it, lag is 0 and not unknown: the moment counts as well as the end."""
    async with clusters() as (source, destination):
        fill(source, 1, 2)
        held = source.next("Fetch", faults.held())
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.relay.states == {"active": 1})
            (partition,) = flow.relay.partitions.values()
            partition.cursor.heard(-1, -1.0)
            held.open()
            await flow.copied()
            assert partition.cursor.high_watermark == partition.cursor.due > 0
            assert partition.cursor.heard_at > 0


async def test_a_slice_without_a_whole_batch_costs_no_turn() -> None:
    """
    1. An answer has two whole batches of the first two partitions and a part of one of the third.
    2. The first two go to the end; the third keeps its place, is first next time, and gets its batch whole. The fourth
       has nothing, and leaves the rotation.
    """
    owner: Any = SimpleNamespace(
        settings=settings(),
        stats=Stats(),
        tracer=Tracer(),
        source=SimpleNamespace(name="source", durations=RequestDurations()),
        pool=FramePool(budget=1 << 20, frame_size=1 << 12),
        inner_loop=InnerLoop(9),
        rewriter=Rewriter(),
        pump_sinks=lambda: None,
        forgets_before_ms=lambda: 0.0,
        limits=Limits(0, None),
    )
    fetcher = Fetcher(owner, 1)
    partitions = [Partition("t", index) for index in range(4)]
    for partition in partitions:
        partition.phase, partition.queue.confirmed_at = Phase.ACTIVE, float("inf")
        partition.queue.lane = SimpleNamespace(offer=lambda _: None, detach=lambda _: None)
        partition.cursor.heard(1 << 20, 0.0)
        fetcher.attach(partition)
    whole = batch(0)
    rows = [whole, whole, whole[:70], b""]
    answered = [
        {
            "partition_index": index,
            "error_code": 0,
            "high_watermark": end,
            "last_stable_offset": end,
            "records": records,
        }
        for index, records, end in zip(range(4), rows, [1 << 20, 1 << 20, 1 << 20, 0], strict=True)
    ]
    answer = fetch_frame(
        4, {"throttle_time_ms": 0, "responses": [("t", [{"aborted_transactions": None} | row for row in answered])]}
    )
    frame = owner.pool.take(len(answer))
    frame.body[:] = answer
    (link,) = fetcher._backlog
    link._asked = {("t", partition.index): Asked(partition, partition.cursor.generation) for partition in partitions}
    link._asked_version = 4
    fetcher._closed = True  # nothing more is asked for
    link.receive(frame)
    assert [partition.index for partition in fetcher.behind] == [2, 0, 1]
    assert [partition.cursor.due for partition in partitions] == [3, 3, 0, 0]


@pytest.mark.parametrize("slices", [False, True])
async def test_a_busy_partition_does_not_starve_the_others(slices: bool) -> None:
    """
    1. Partition 0 has a batch of 900 kB for every answer of 256 kB, without end. Partition 1 has a few large ones too.
    2. Partition 1 is copied while 0 still has most of its batches to give: its batches come whole when it is first.
    """
    async with clusters() as (source, destination):
        source.slices = slices
        source.add_topic("t", partitions=2)
        source.store("t", 0, *batches(40, size=900_000))
        source.store("t", 1, *batches(4, size=700_000))
        async with mirroring(source, destination, fetch_max_bytes=256 * 1024) as flow:
            await flow.copied(("t", 1))
            assert flow.partition("t", 0).queue.acknowledged <= 3 * 20
            await flow.copied()


async def test_shares() -> None:
    """
    1. Each partition with backlog is asked for its share of the response, at least 64 KiB and at most
       max.partition.fetch.bytes.
    2. One whose batches are large is asked for sixteen of them, within that most.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=20)
        source.store("t", 0, *batches(200, size=20_000))
        for index in range(1, 20):
            source.store("t", index, *batches(2_000, size=1_000))
        held = source.next("Fetch", faults.held())
        async with mirroring(
            source, destination, fetch_max_bytes=MIB, max_partition_fetch_bytes=300_000, buffer_memory=4 * MIB
        ) as flow:
            await until(lambda: flow.relay.states == {"active": 20})
            held.open()
            await flow.copied()
        requests = [asked(source, seen) for seen in backlog(source)]
        assert {most for request in requests for _, index, offset, most in request if index == 0 and offset} == {
            300_000
        }
        crowds = [request for request in requests if len(request) > 16]
        assert {most for request in crowds for _, index, _, most in request if index > 0} == {LEAST_SHARE}


def test_a_crowded_partition_is_asked_for_little() -> None:
    """What would be fetched again is not asked for, whatever the partition's share."""
    partition = Partition("t", 0)
    partition.cursor.crowd(MOST_BYTES)
    assert share_of(partition, MIB, MIB) == MOST_BYTES
    partition.cursor.measured(100, holes=False)
    assert share_of(partition, MIB, MIB) == MIB


async def test_a_broker_is_asked_for_what_it_has() -> None:
    """Twice as much while it has that, up to fetch.max.bytes; and little again at the end of its data."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=8)
        for index in range(8):
            source.store("t", index, *batches(30, size=100_000))
        held = source.next("Fetch", faults.held())
        async with mirroring(source, destination, fetch_max_bytes=3 * MIB, buffer_memory=8 * MIB) as flow:
            await until(lambda: flow.relay.states == {"active": 8})
            held.open()
            await flow.copied()
            await until(lambda: fetches(source)[-1].request.max_bytes == LEAST_FETCH)
        sizes = [seen.request.max_bytes for seen in backlog(source)]
        first = sizes.index(3 * MIB)
        assert sizes[:first] == sorted(sizes[:first])
        assert set(sizes[:first]) == {LEAST_FETCH, 2 * LEAST_FETCH, 4 * LEAST_FETCH}
        assert sizes.count(3 * MIB) >= 3


async def test_after_a_lost_answer_little_is_asked_for() -> None:
    """A full answer that takes longer than a request may, over a slow link, would be lost again and again."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=8)
        for index in range(8):
            source.store("t", index, *batches(40, size=100_000))
        held = source.next("Fetch", faults.held())
        async with mirroring(source, destination, fetch_max_bytes=2 * MIB, buffer_memory=8 * MIB) as flow:
            await until(lambda: flow.relay.states == {"active": 8})
            for fault in (*[faults.late(0.0) for _ in range(4)], faults.disconnect(1_500_000)):
                fault.when = for_backlog
                source.next("Fetch", fault)
            held.open()
            await flow.copied()
        sizes = [seen.request.max_bytes for seen in backlog(source)]
        full = sizes.index(2 * MIB)
        after = sizes.index(LEAST_FETCH, full)
        assert sizes[after : after + 3] == [LEAST_FETCH, 2 * LEAST_FETCH, 4 * LEAST_FETCH]


async def test_brokers_with_nothing_to_give_keep_little_of_the_memory() -> None:
    """
    1. Seven brokers, of which six have nothing for as long as the test takes, and memory for two full answers.
    2. The one that has data is asked again and again, and for full answers too.
    """
    async with clusters(brokers=7) as (source, destination):
        source.add_topic("t", partitions=7)
        async with mirroring(
            source, destination, fetch_max_bytes=4 * MIB, buffer_memory=9 * MIB, fetch_max_wait_ms=600_000
        ) as flow:
            await until(lambda: len({seen.node_id for seen in fetches(source)}) == 7)
            source.store("t", 0, *batches(150, size=100_000))
            await flow.copied(("t", 0))
            assert flow.relay.pool.used <= 9 * MIB
        assert max(seen.request.max_bytes for seen in fetches(source)) == 4 * MIB


async def test_no_more_are_asked_than_fill_the_answer() -> None:
    """
    1. Many partitions have more data than fits the answer.
    2. Once that is known, and while each still has its share, only as many are asked as fill the answer, in their turn.
    """
    partitions, count, size, share = 40, 30, 20_000, 100_000

    def has_its_share(offset: int) -> bool:
        left = count - offset * count // source.topics["t"].logs[0].end
        return offset > 0 and left * size >= share

    async with clusters() as (source, destination):
        fill(source, partitions, count, size=size)
        held = source.next("Fetch", faults.held())
        async with mirroring(
            source, destination, fetch_max_bytes=MIB, max_partition_fetch_bytes=share, buffer_memory=8 * MIB
        ) as flow:
            await until(lambda: flow.relay.states == {"active": partitions})
            held.open()
            await flow.copied()
        requests = [asked(source, seen) for seen in backlog(source)]
        narrow = [
            request
            for request in requests
            if sum(most for *_, most in request) >= MIB and all(has_its_share(offset) for _, _, offset, _ in request)
        ]
        assert len(narrow) > 5
        assert all(len(request) <= 12 for request in narrow)


async def test_an_oversize_batch_makes_progress() -> None:
    """Larger than the share, the response and a frame: it comes whole, in a buffer of its own that is given back."""
    async with clusters() as (source, destination):
        destination.add_topic("t", configs={"max.message.bytes": "10000000"})
        source.add_topic("t")
        source.store("t", 0, *batches(2), batch(6, payload=bytes(3 * MIB)), batch(9))
        async with mirroring(source, destination, fetch_max_bytes=65_536, buffer_memory=200_000) as flow:
            await flow.copied()
            assert flow.relay.stats.oversize_frames == 1
            assert flow.relay.pool.used <= 200_000


async def test_an_endless_first_batch_is_corrupt() -> None:
    """The first batch of an answer comes whole. One that never does has a length that cannot be: halt, not a loop."""
    async with clusters() as (source, destination):
        fill(source, partitions=2, count=3)
        log = source.log("t")
        log.batches[2] = log.batches[2][:8] + b"\x00\x10\x00\x00" + log.batches[2][12:]
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "corrupt"
            assert "hold no whole batch" in flow.log.of("halted")[0]["detail"]
            assert destination.log("t").end == 6
            await flow.copied(("t", 1))


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x00\x00", b"\x00\x00\x00\x10"])
async def test_a_length_that_cannot_be(length: bytes) -> None:
    async with clusters() as (source, destination):
        fill(source, partitions=2, count=3)
        log = source.log("t")
        log.batches[1] = log.batches[1][:8] + length + log.batches[1][12:]
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "corrupt"
            assert destination.log("t").end == 3
            await flow.copied(("t", 1))


# Memory.


async def test_no_fetch_without_room_for_its_answer() -> None:
    """
    1. The destination holds its answers back: fetching stops when the budget is used up, or each partition has two
       frames under way.
    2. The answers come: everything is copied. The budget was never exceeded.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=8, count=60, size=5_000)
        stuck = [destination.next("Produce", faults.held()) for _ in range(40)]
        peak = 0
        async with mirroring(source, destination, fetch_max_bytes=65_536, buffer_memory=400_000) as flow:
            await stuck[0].came.wait()
            before = -1
            while before != len(fetches(source)):
                before = len(fetches(source))
                await some_turns(50)
            peak = flow.relay.pool.used
            assert 0 < peak <= 400_000
            for fault in stuck:
                fault.open()
            await flow.copied()


async def test_two_fetchers_share_the_budget() -> None:
    """Two brokers and room for one frame at a time: both make progress, in turn, and nobody takes room that is not
    there."""
    in_use, waited = list[int](), set[int]()
    async with clusters(brokers=2) as (source, destination):
        fill(source, partitions=4, count=40, size=5_000)
        async with mirroring(source, destination, start=False, fetch_max_bytes=65_536, buffer_memory=65_536) as flow:
            pool = flow.relay.pool
            reserve, when_room = pool.reserve, pool.when_room

            def reserved(size: int, *, spare: int = 0, urgent: bool = False) -> bool:
                before = pool.used
                if not reserve(size, spare=spare, urgent=urgent):
                    return False
                in_use.append(before)
                return True

            def waits(size: int, wake: Any, *, urgent: bool = False) -> None:
                waited.add(wake.__self__.node_id)
                when_room(size, wake, urgent=urgent)

            pool.reserve, pool.when_room = reserved, waits  # type: ignore[method-assign]
            await flow.relay.start()
            await flow.copied()
        asked_of = [seen.node_id for seen in backlog(source)]
        assert set(in_use) == {0}
        assert waited == {1, 2}
        assert sum(one != other for one, other in pairwise(asked_of)) > 3
