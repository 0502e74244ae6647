"""Fresh data beside a backlog, and a backlog over a long link."""

from collections import Counter
from typing import Any

import pytest

from mirror.net.buffers import Frame
from mirror.net.errors import Unreachable
from mirror.offsetmap.internal.memory import PREFIX
from mirror.records.header import NO_LEADER_EPOCH
from mirror.relay.fetch.sizes import LONG_S, MOST_DEPTH
from mirror.relay.partition.cursor import CAUGHT_UP_BYTES, Cursor
from mirror.relay.partition.phases import Phase
from tests.fakes import faults
from tests.fakes.loop import until
from tests.relay.fetch.test_backlog import MIB, asked, backlog, for_backlog
from tests.relay.fetch.test_current import until_quiet
from tests.relay.stage.flows import batch, batches, clusters, fill, mirroring


async def test_fresh_data_does_not_wait_for_a_backlog() -> None:
    """
    1. The answer for a partition with backlog is on its way, for as long as the test takes.
    2. Another partition gets a batch: it is copied meanwhile.
    """
    async with clusters() as (source, destination):
        source.add_topic("old", partitions=1)
        source.add_topic("fresh", partitions=1)
        source.store("old", 0, *batches(20, size=100_000))
        held = faults.held()
        held.when = for_backlog
        source.next("Fetch", held)
        async with mirroring(source, destination) as flow:
            await held.came.wait()
            source.store("fresh", 0, *batches(2))
            await flow.copied(("fresh", 0))
            assert flow.partition("old", 0).queue.acknowledged == 0
            held.open()
            await flow.copied()


async def test_it_does_not_wait_for_memory_either() -> None:
    """
    1. The destination takes nothing of the backlog, which uses all the memory that it may.
    2. Answers with fresh data were large before. There is room for a smaller one, and that is asked for.
    """
    async with clusters() as (source, destination):
        source.add_topic("fresh", partitions=1)
        fill(source, partitions=40, count=12, size=100_000)
        async with mirroring(source, destination, fetch_max_bytes=MIB, buffer_memory=4 * MIB) as flow:
            stuck = [destination.next("Produce", faults.held()) for _ in range(5)]
            await stuck[0].came.wait()
            await until(lambda: flow.relay.pool.waited_for)
            flow.relay.brokers.fetchers[1]._current._most = MIB
            source.store("fresh", 0, *batches(1))
            await until(lambda: flow.partition("fresh", 0).cursor.due == 3)
            assert flow.relay.pool.used <= 4 * MIB
            for held in stuck:
                held.open()
            await flow.copied()


def for_data(request: Any) -> bool:
    """Whether a Produce request is not for the internal topic."""
    return all(not topic.name.startswith(PREFIX) for topic in request.topic_data)


async def test_a_partition_that_comes_later_does_not_wait_for_memory() -> None:
    """Nothing was up to date when the backlog took what memory it may; none of that has come back."""
    async with clusters() as (source, destination):
        fill(source, partitions=40, count=12, size=100_000)
        async with mirroring(
            source, destination, fetch_max_bytes=MIB, buffer_memory=4 * MIB, refresh_topics_interval_ms=20
        ) as flow:
            stuck = [destination.next("Produce", faults.held()) for _ in range(5)]
            for held in stuck:
                held.when = for_data
            await stuck[0].came.wait()
            await until(lambda: flow.relay.pool.waited_for)
            source.add_topic("fresh", partitions=1)
            destination.add_topic("fresh", partitions=1)
            await until(lambda: sum(each.phase is Phase.ACTIVE for each in flow.relay.partitions.values()) == 41)
            source.store("fresh", 0, *batches(1))
            await until(lambda: flow.partition("fresh", 0).cursor.due == 3)
            assert flow.relay.pool.waited_for
            assert {flow.partition("t", index).queue.acknowledged for index in range(40)} == {0}
            assert not flow.log.of("destination_connection_lost")
            assert not flow.relay.stats.resyncs
            for held in stuck:
                held.open()
            await flow.copied()


async def test_room_for_fresh_data_is_left_between_two_answers() -> None:
    """When an answer has come, what was reserved for it is free: backlog that waits must not get all of it."""
    async with clusters() as (source, destination):
        source.add_topic("fresh", partitions=1)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            (fetcher,) = flow.relay.brokers.fetchers.values()
            pool, spared = flow.relay.pool, list[int]()
            take = pool.take

            def took(size: int, *, reserved: int = 0) -> Frame:
                spared.append(fetcher.spare)
                return take(size, reserved=reserved)

            pool.take = took  # type: ignore[method-assign]
            await until(lambda: fetcher._current.reserves)
            assert fetcher.spare == 0
            source.store("fresh", 0, *batches(1))
            await flow.copied()
            assert spared
            assert min(spared) > 0


async def test_fresh_data_is_content_with_the_room_there_is() -> None:
    """Answers were large before, and all else is in use now."""
    async with clusters() as (source, destination):
        source.add_topic("fresh", partitions=1)
        async with mirroring(source, destination, fetch_max_bytes=MIB, buffer_memory=4 * MIB) as flow:
            await until_quiet(flow)
            (fetcher,) = flow.relay.brokers.fetchers.values()
            await until(lambda: fetcher._current.reserves)
            pool = flow.relay.pool
            others = pool.room
            assert pool.reserve(others)
            setattr(fetcher._current, "_adapt", lambda _: None)  # noqa: B010 (a method)
            for batch in batches(3):
                fetcher._current._most = MIB
                source.store("fresh", 0, batch)
                await flow.copied()
            pool.cancel(others)


def test_an_empty_answer_does_not_show_that_nothing_is_left() -> None:
    """The batch may have been larger than what was requested of the partition, beside others that gave data."""
    for end, per_offset, empties, caught_up in [
        (36, 0.0, 0, False), (36, 0.0, 1, True), (0, 0.0, 0, True),
        (36, CAUGHT_UP_BYTES / 36, 0, False), (36, CAUGHT_UP_BYTES / 72, 0, True),
    ]:  # fmt: skip
        cursor = Cursor()
        cursor.heard(end, 0.0)
        cursor.gave(per_offset)
        for _ in range(empties):
            cursor.empty()
        assert cursor.caught_up is caught_up


async def test_a_partition_changes_over_and_comes_back() -> None:
    """It waits in the session, falls behind, is fetched outside of it, and is in it again when it has caught up."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        async with mirroring(source, destination, fetch_max_bytes=MIB) as flow:
            await until_quiet(flow)
            assert not backlog(source)
            source.store("t", 0, *batches(60, size=100_000))
            await flow.copied()
            await until_quiet(flow)
            assert {index for seen in backlog(source) for _, index, _, _ in asked(source, seen)} == {0}


async def test_a_far_broker_is_asked_several_times_at_once() -> None:
    """
    1. Answers take their time, and several partitions are behind: as many requests are under way as may be, each for
       partitions that no other asks for.
    2. When all is copied, their connections are closed.
    """
    most = Counter[int]()

    async with clusters() as (source, destination):
        source.fetch_delay_s = 5 * LONG_S
        fill(source, partitions=8, count=400, size=10_000)
        async with mirroring(
            source, destination, fetch_max_bytes=256 * 1024, buffer_memory=4 * MIB, max_partition_fetch_bytes=64 * 1024
        ) as flow:
            await until(lambda: flow.relay.brokers.fetchers)
            (fetcher,) = flow.relay.brokers.fetchers.values()

            def under_way() -> bool:
                links = [link for link in fetcher._backlog if link.under_way]
                partitions = [each.partition for link in links for each in link._asked.values()]
                assert len(partitions) == len(set(partitions))
                most[len(links)] += 1
                return len(links) == MOST_DEPTH

            await until(under_way)
            await flow.copied()
            await until(lambda: not fetcher.behind)
            assert fetcher.sizes.depth == len(fetcher._backlog) == 1
        assert max(most) == MOST_DEPTH


async def test_a_far_broker_is_asked_for_more_of_a_single_partition() -> None:
    """Up to what the settings allow, and so is the memory; when all is copied, both go back."""
    async with clusters() as (source, destination):
        source.fetch_delay_s = 5 * LONG_S
        source.add_topic("t")
        source.store("t", 0, *batches(600, size=50_000))
        async with mirroring(
            source,
            destination,
            fetch_max_bytes=MIB,
            buffer_memory=3 * MIB,
            max_partition_fetch_bytes=MIB // 4,
            most_fetch_bytes=2 * MIB,
            most_partition_fetch_bytes=2 * MIB,
            most_buffer_memory=5 * MIB,
        ) as flow:
            await flow.copied()
            await until_quiet(flow)
            assert flow.relay.pool.budget == 3 * MIB
        requests = [(seen.request.max_bytes, asked(source, seen)[0][3]) for seen in backlog(source)]
        assert max(most for most, _ in requests) == 2 * MIB
        assert max(share for _, share in requests) == 2 * MIB


async def test_a_backlog_that_moves_away_gives_its_memory_back() -> None:
    """Its partitions leave a far broker before they have caught up: nothing is left of what was grown for them."""
    async with clusters() as (source, destination):
        source.fetch_delay_s = 5 * LONG_S
        source.add_topic("t")
        source.store("t", 0, *batches(600, size=50_000))
        async with mirroring(
            source, destination, fetch_max_bytes=MIB, buffer_memory=3 * MIB, most_fetch_bytes=2 * MIB,
            most_partition_fetch_bytes=2 * MIB, most_buffer_memory=5 * MIB,
        ) as flow:  # fmt: skip
            await until(lambda: flow.relay.pool.budget > 3 * MIB)
            flow.relay.release(flow.partition())
            assert flow.relay.pool.budget == 3 * MIB


@pytest.mark.parametrize(("epoch", "told"), [(3, False), (2, True), (4, True), (NO_LEADER_EPOCH, False)])
async def test_leader_epochs_neither_fall_nor_exceed_the_leader_s(epoch: int, *, told: bool) -> None:
    """It is told, and copied on. Batches of old brokers have none."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.log("t").epoch = 3
        source.store("t", 0, batch(0, leader_epoch=3))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            source.store("t", 0, batch(3, leader_epoch=epoch))
            await flow.copied()
            assert bool(flow.log.of("leader_epoch_damaged")) is told


@pytest.mark.parametrize("behind", [False, True])
async def test_a_connection_that_nobody_needs(behind: bool) -> None:
    """A broker closes the connection for backlog, on which nothing was asked for long: that is no loss, and brings
    nothing into doubt, also where topics have no ids. Mutation: as if there were backlog."""
    async with clusters(versions={"Metadata": (0, 9), "Fetch": (4, 12), "Produce": (3, 9)}) as (source, destination):
        fill(source, count=40, size=10_000)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            (fetcher,) = flow.relay.brokers.fetchers.values()
            await until(lambda: not fetcher.behind)
            (link,) = fetcher._backlog
            assert flow.partition().claim.source_id is None
            if behind:
                fetcher.behind.append(flow.partition())
            link._lost(Unreachable("closed by the broker"))
            assert bool(flow.log.of("source_connection_lost")) is bool(flow.relay.stats.resyncs) is behind
