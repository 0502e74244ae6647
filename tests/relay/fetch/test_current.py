"""Partitions that are up to date: the fetch session in which they wait for data (KIP-227)."""

import time
from typing import Any

import pytest

from mirror.relay.fetch.current import SMALL
from mirror.relay.partition.phases import Phase
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster, Seen
from tests.fakes.loop import some_turns, until
from tests.relay.fetch.test_backlog import asked, backlog, for_backlog
from tests.relay.stage.flows import Flow, batch, batches, clusters, mirroring

PARTITIONS = 40


def of_sessions(source: FakeCluster) -> list[Seen]:
    """The requests in a session, or that begin one."""
    return [seen for seen in source.seen("Fetch") if seen.request.session_epoch >= 0]


def in_a_session() -> faults.Fault:
    """The answer to a request in a session is held back."""
    held = faults.held()
    held.when = lambda request: request.session_epoch > 0
    return held


def in_backlog() -> faults.Fault:
    """The answer to a request for partitions that are behind is held back."""
    held = faults.held()
    held.when = for_backlog
    return held


def session_of(source: FakeCluster) -> Any:
    (session,) = source.brokers[1].sessions.kept.values()
    return session


async def until_quiet(flow: Flow) -> None:
    fetchers = flow.relay.brokers.fetchers
    await until(lambda: sum(each.quiet for each in fetchers.values()) == len(flow.relay.partitions) > 0)


async def test_only_what_is_new_is_named() -> None:
    """
    1. Forty partitions are up to date: requests name none of them.
    2. One gets a batch: the next requests name that one only, and it is quiet again afterwards.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=PARTITIONS)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            begun = len(of_sessions(source))
            await until(lambda: len(of_sessions(source)) > begun + 3)
            assert all(asked(source, seen) == [] for seen in of_sessions(source)[begun:])
            source.store("t", 7, *batches(2))
            await flow.copied()
            await until_quiet(flow)
            named = [entry[:3] for seen in of_sessions(source)[begun:] for entry in asked(source, seen)]
            assert named == [("t", 7, 6)]
            assert len(session_of(source).members) == PARTITIONS


async def test_a_quiet_partition_is_heard_of() -> None:
    """That nothing has changed is news as well: its lag stays known, without a question of its own."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=3)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            since = time.monotonic()
            for partition in flow.relay.partitions.values():
                await until(lambda: partition.cursor.heard_at > since)  # noqa: B023
                assert partition.lag == 0


@pytest.mark.parametrize("code", [70, 71, 106])
async def test_a_session_that_the_broker_has_lost(code: int) -> None:
    """It is begun again, and no partition comes into doubt."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=3)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            if code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                source.brokers[1].sessions.kept.clear()
            elif code == ErrorCode.INVALID_FETCH_SESSION_EPOCH:
                session_of(source).epoch += 1
            else:

                def lost(answer: Any) -> None:
                    answer.error_code, answer.session_id, answer.responses = code, 0, []

                source.next("Fetch", faults.alter(lost))
            source.store("t", 1, *batches(3))
            await flow.copied()
            await until_quiet(flow)
            assert not flow.relay.stats.resyncs
            assert flow.relay.source.errors["Fetch", ErrorCode(code).name.lower()] == 1


async def test_a_broker_without_room_for_sessions() -> None:
    """Each request names everything; all is copied."""
    async with clusters() as (source, destination):
        source.brokers[1].sessions.slots = 0
        source.add_topic("t", partitions=3)
        async with mirroring(source, destination) as flow:
            await until(lambda: len(of_sessions(source)) > 3 and len(asked(source, of_sessions(source)[-1])) == 3)
            source.store("t", 2, *batches(3))
            await flow.copied()
            assert len(asked(source, of_sessions(source)[-1])) == 3
            assert not flow.relay.stats.resyncs


async def test_before_sessions() -> None:
    """Fetch 6 knows none."""
    async with clusters(versions={"Fetch": (4, 6)}) as (source, destination):
        source.add_topic("t", partitions=3)
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.relay.states == {"active": 3})
            source.store("t", 2, *batches(3))
            await flow.copied()


async def test_without_topic_ids() -> None:
    """Fetch 12 names topics, also those that it forgets."""
    async with clusters(versions={"Metadata": (0, 9), "Fetch": (4, 12), "Produce": (3, 9)}) as (source, destination):
        source.add_topic("t", partitions=3)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            flow.relay.release(flow.partition("t", 1))
            source.store("t", 2, *batches(3))
            await flow.copied(("t", 2))
            await until(lambda: len(session_of(source).members) == 2)


async def test_a_partition_that_goes_is_forgotten() -> None:
    """
    1. It is released while a request is under way, and gets data: what comes of it is dropped.
    2. The broker forgets it with the next request.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=3)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            gone = flow.partition("t", 1)
            flow.relay.release(gone)
            source.store("t", 1, *batches(1))
            await until(lambda: len(session_of(source).members) == 2)
            assert gone.phase is Phase.STOPPED
            assert destination.log("t", 1).end == 0
            source.store("t", 2, *batches(1))
            await flow.copied(("t", 0), ("t", 2))


async def test_a_partition_that_comes_back_at_once() -> None:
    """
    1. A quiet partition comes into doubt while a request is under way, and is located before its answer.
    2. What the answer has of it belongs to the former position: it is dropped, and fetched once more.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            partition = flow.partition("t", 1)
            generation = partition.cursor.generation
            held, again = source.next("Fetch", in_a_session()), source.next("Fetch", in_a_session())
            once_more = source.next("Fetch", in_backlog())
            await held.came.wait()
            source.store("t", 1, *batches(2))
            flow.relay.doubt_now(partition, "test", "")
            await until(lambda: partition.phase is Phase.ACTIVE)
            assert partition.cursor.generation > generation
            held.open()
            await again.came.wait()
            assert partition.cursor.due == 0
            again.open()
            once_more.open()
            await flow.copied()
            assert flow.copied_batches == 2
            assert flow.relay.stats.resyncs == {"test": 1}


async def test_what_was_asked_for_before_a_rewind_does_not_count() -> None:
    """
    1. While a request is under way, its partition stays in the session, but at another position.
    2. What the answer has of it is dropped, data and errors alike, and fetched once more.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            cursor = flow.partition("t", 1).cursor
            for error in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                due = cursor.due
                held, again = source.next("Fetch", in_a_session()), source.next("Fetch", in_a_session())
                held.error, held.only = error, ("t", 1)
                await held.came.wait()
                source.store("t", 1, *batches(2, first=due))
                cursor.rewind(due, cursor.identity, None)
                held.open()
                await again.came.wait()
                assert cursor.due == due
                again.open()
                await flow.copied()
            assert flow.copied_batches == 4
            assert not flow.relay.stats.resyncs


async def test_no_news_of_a_former_position() -> None:
    """
    1. An answer of the session does not name a partition: nothing has changed about the position that was asked for.
    2. While it was under way, the partition got another position: that says nothing about this one. The next answer
       does.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            unacknowledged = destination.next("Produce", faults.held())
            source.store("t", 1, *batches(1))
            await unacknowledged.came.wait()
            held, again = source.next("Fetch", in_a_session()), source.next("Fetch", in_a_session())
            await held.came.wait()
            cursor = flow.partition("t", 1).cursor
            cursor.rewind(cursor.due, cursor.identity, None)
            heard_at, last_heard_at = cursor.heard_at, flow.partition("t", 0).cursor.heard_at
            held.open()
            await again.came.wait()
            assert flow.partition("t", 0).cursor.heard_at > last_heard_at
            assert cursor.heard_at == heard_at
            again.open()
            await until(lambda: cursor.heard_at > heard_at)
            unacknowledged.open()
            await flow.copied()


async def test_a_partition_that_has_to_wait_leaves_the_session() -> None:
    """
    1. The destination holds the answers for a partition back, until two frames wait for them.
    2. It is not fetched meanwhile, and the others do not wait for it; then it is.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        async with mirroring(source, destination) as flow:
            source.store("t", 0, *batches(1))
            await flow.copied()
            await until_quiet(flow)
            waits = flow.partition("t", 0)
            held = destination.next("Produce", faults.held())
            source.store("t", 0, *batches(1, first=3))
            await held.came.wait()
            source.store("t", 0, *batches(1, first=6))
            await until(lambda: waits.queue.frames == 2)
            source.store("t", 0, *batches(1, first=9))
            await until(lambda: len(session_of(source).members) == 1)
            await some_turns(50)
            assert waits.cursor.due == 9
            source.store("t", 1, *batches(1))
            await until(lambda: flow.partition("t", 1).cursor.due == 3)
            held.open()
            await flow.copied()


async def test_a_connection_that_is_lost() -> None:
    """The session is begun again on the next one, with everything."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=3)
        async with mirroring(source, destination) as flow:
            await until_quiet(flow)
            begun = len(of_sessions(source))
            source.drop(1)
            source.store("t", 1, *batches(2))
            await flow.copied()
            first = of_sessions(source)[begun]
            assert (first.request.session_id, first.request.session_epoch) == (0, 0)
            assert len(asked(source, first)) == 3
            assert not flow.relay.stats.resyncs


async def test_a_batch_that_comes_in_part_is_fetched_first() -> None:
    """
    1. A partition has a backlog, and a request for it is under way, which will be lost.
    2. Another one gets a batch larger than the answer. It comes whole only if it is the first: outside the session,
       where the order is ours. So it is the first of the next request there.
    """
    async with clusters() as (source, destination):
        source.slices = True
        source.add_topic("t", partitions=3)
        lost = in_backlog()
        lost.cut_after = 0
        async with mirroring(source, destination, fetch_max_bytes=256 * 1024) as flow:
            await until_quiet(flow)
            source.store("t", 1, *batches(1))
            await flow.copied()  # and the broker moves it to the end of the session
            await until_quiet(flow)
            source.next("Fetch", lost)
            source.store("t", 2, *batches(12, size=100_000))
            await lost.came.wait()
            source.log("t", 1).store(batch(3, payload=bytes(900_000)))
            source.store("t", 0, *batches(2, size=100_000))
            await flow.copied(("t", 0))
            lost.open()
            await flow.copied()
            first, second, *_ = [[index for _, index, _, _ in asked(source, seen)] for seen in backlog(source)]
            assert first == [2]
            assert second[0] == 1


async def test_few_fresh_records_are_waited_for() -> None:
    """After a response with a few of them, the next request waits for ``linger.ms``, and has those that came since."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination, linger_ms=3_000) as flow:
            await until_quiet(flow)
            source.store("t", 0, *batches(1))
            await flow.copied()
            lingering = len(of_sessions(source))
            for one in batches(9, first=3):
                source.store("t", 0, one)
                await some_turns()
            assert len(of_sessions(source)) == lingering
            await flow.copied()
            assert len(of_sessions(source)) == lingering + 1


async def test_much_fresh_data_is_fetched_at_once() -> None:
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination, linger_ms=1_000_000) as flow:
            await until_quiet(flow)
            for one in batches(3, size=SMALL):
                source.store("t", 0, one)
                await flow.copied()
