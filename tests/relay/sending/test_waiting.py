"""What happens at the destination while a batch waits to be sent: in a lane that is throttled, before a position is
used, or because there is none for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mirror.net.connection import MOST_POSTPONED_S, Connection
from mirror.records.header import BatchHeader
from mirror.relay import settings
from mirror.relay.partition.claim import Claim
from mirror.relay.partition.location import Location
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Queue
from mirror.relay.sink import Lane
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batches, clusters, copies, fill, mirroring
from tests.simulation.model.broker import marker_batch


@asynccontextmanager
async def forgetful() -> AsyncIterator[tuple[FakeCluster, FakeCluster]]:
    """Two clusters. The destination remembers producers for a second, so that every batch here is old."""
    async with clusters() as (source, destination):
        destination.producer_id_expiration_ms = 1000
        fill(source, count=2)
        yield source, destination


def appended(source: FakeCluster, destination: FakeCluster, count: int, first: int) -> None:
    """Another worker of the flow appends what is due; then the broker forgets the producer."""
    for one in copies(batches(count, first=first), cluster_id=source.cluster_id, sequence=first):
        assert destination.log("t").produce(one)[0] == 0
    destination.log("t").producers.clear()
    destination.changed()


def bases(destination: FakeCluster) -> list[int]:
    """Of each batch there, what it is of, by its sequence."""
    return [BatchHeader.read(each).base_sequence for each in destination.log("t").batches]


async def end(flow: Flow, upto: int) -> None:
    await until(lambda: flow.partition().queue.acknowledged == upto)


@pytest.mark.parametrize("rule", [True, False])
async def test_an_old_batch_that_waits_for_a_throttle(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A batch waits while the broker throttles the lane. Another worker appends it meanwhile, and the broker forgets
       the producer: the log's end is looked at again before it is sent.
    2. Without that look, it is there twice.
    """
    if not rule:
        monkeypatch.setattr(Lane, "_look_again", lambda _: None)
    async with forgetful() as (source, destination), mirroring(source, destination) as flow:
        await end(flow, 6)
        destination.next("Produce", faults.throttle(500))
        source.store("t", 0, *batches(2, first=6))
        await end(flow, 9)
        await until(lambda: bool(flow.partition().queue.outbox))
        await asyncio.sleep(0.1)  # for longer than a look counts
        appended(source, destination, 1, first=9)
        if rule:
            await end(flow, 12)
            assert bases(destination) == [0, 3, 6, 9]
        else:
            await until(lambda: destination.log("t").end == 15)
            assert bases(destination) == [0, 3, 6, 9, 9]


@pytest.mark.parametrize("rule", [True, False])
async def test_a_position_that_is_used_late(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. It takes long until the position that was found is used; another worker writes meanwhile, and the broker forgets
       the producer. The position is as old as the look at the log's end, and looked at again.
    2. If it counted from when it was used, all would be there twice.
    """
    monkeypatch.setattr(settings, "FRESH_FOR_SETTLES", 160)  # 0.8 s, however slow this machine is
    if not rule:
        usual = Queue.start
        monkeypatch.setattr(
            Queue, "start", lambda self, found, topic_head: usual(self, _just_found(found), topic_head=topic_head)
        )
    async with forgetful() as (source, destination), mirroring(source, destination, start=False) as flow:
        go = asyncio.Event()

        async def slow(_: object) -> None:
            await go.wait()

        monkeypatch.setattr(flow.relay.loops, "behind", slow)
        await flow.relay.start()
        await until(lambda: ("t", 0) in flow.relay.partitions)
        await asyncio.sleep(1.2)
        appended(source, destination, 2, first=0)
        go.set()
        if rule:
            await end(flow, 6)
            assert bases(destination) == [0, 3]
        else:
            await until(lambda: destination.log("t").end > 6)
            assert bases(destination)[:3] == [0, 3, 0]


def _just_found(location: Location) -> Location:
    return location._replace(ended_at=float("inf"))


@pytest.mark.parametrize("rule", [True, False])
async def test_a_destination_that_lost_its_end_while_nothing_was_sent(
    rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. All brokers lose power, and with it the last offsets, data and a marker. The same broker leads again, before
       anything is sent. The lost connection is reason enough to look at the log's end first: it goes on from there.
    2. Without that, the batch behind the marker, the first of its epoch, lands in the place of what was lost.
    """
    if not rule:
        monkeypatch.setattr(Queue, "lose_connection", lambda _: None)
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination) as flow:
            source.store("t", 0, marker_batch(6, 77, 0))
            await end(flow, 7)
            log = destination.log("t")
            log.truncate(3)
            log.epoch -= 1  # whatever the epoch: a produce request names none
            for state in log.producers.values():
                state.epoch = 0
            destination.drop(1)
            await asyncio.sleep(0.1)
            source.store("t", 0, *batches(2, first=7))
            if rule:
                await end(flow, 13)
                assert not flow.log.of("halted")
            else:
                assert await flow.halted()


@pytest.mark.parametrize("rule", [True, False])
async def test_what_a_throttled_broker_has_not_read(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. The broker throttles a connection for long, with a request in front of it. The connection is lost; the broker
       reads the request afterwards all the same. By then it has forgotten the producer. Nothing is sent again before.
    2. Otherwise the batch is there twice.
    """
    if not rule:
        monkeypatch.setattr(Claim, "leave_late", lambda *_: None)
    async with forgetful() as (source, destination), mirroring(source, destination) as flow:
        await end(flow, 6)
        late = destination.next("Produce", faults.late(0.7))
        source.store("t", 0, *batches(1, first=6))
        await late.came.wait()
        connection = flow.relay.lanes[0]._connection
        assert connection is not None
        connection.throttle(1_000)
        destination.drop(1)
        await until(lambda: flow.partition().phase is Phase.LOCATING)
        if not rule:
            await end(flow, 9)
            destination.log("t").producers.clear()
        await until(lambda: destination.log("t").end >= (9 if rule else 12))
        if rule:
            await end(flow, 9)
            assert bases(destination) == [0, 3, 6]
        else:
            assert bases(destination) == [0, 3, 6, 6]


async def test_answers_that_are_due_come_later_by_a_throttle() -> None:
    """The broker reads nothing while it throttles: the request behind is not given up for that."""
    async with forgetful() as (source, destination), mirroring(source, destination) as flow:
        await end(flow, 6)
        held = destination.next("Produce", faults.held())
        source.store("t", 0, *batches(1, first=6))
        await held.came.wait()
        connection = flow.relay.lanes[0]._connection
        assert isinstance(connection, Connection)
        (_, _, before), *_ = connection._in_flight
        connection.throttle(5_000)
        assert connection._in_flight[0][2] == before + 5
        connection.throttle(1 << 30)  # of a broker that does not know what it says
        assert connection._in_flight[0][2] == before + 5 + MOST_POSTPONED_S
        held.open()
        await end(flow, 9)
