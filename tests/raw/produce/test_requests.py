"""Batches that are given up while their request waits for a connection: what was called "not sent" is never sent."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from mirror.net.cluster import Cluster
from mirror.net.connection import Connection
from mirror.net.options import Use
from mirror.raw import TopicPartition
from mirror.raw.errors import NotDelivered, NotSent, OutcomeUnknown
from mirror.raw.leaders import Leaders
from mirror.raw.model import RecordMetadata
from mirror.raw.produce import sending as module
from mirror.raw.produce.requests import Item, NotAsked, Stamped, exchange
from mirror.raw.produce.sending import Sending
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity
from mirror.wire.errors import ErrorCode
from mirror.wire.produce import Produced
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import Fault, doubtful, held, refuse, silence, throttle
from tests.fakes.loop import some_turns, until
from tests.records.builders import Record, kafka_batch

PATIENCE_S = 60.0
SOON_S = 0.05
AT = TopicPartition("t", 0)
NODE = 1


class Site(NamedTuple):
    """A broker, and what sends to it."""

    fake: FakeCluster
    cluster: Cluster
    sending: Sending

    def put(self, number: int, *, within_s: float = PATIENCE_S, at: TopicPartition = AT) -> "Future[RecordMetadata]":
        """Sends batch ``number``."""
        item = made(number, within_s=within_s)
        self.sending.put(at, item)
        return item.future

    async def connection(self) -> Connection:
        """The connection on which batches are sent."""
        return await self.cluster.control(NODE, use=Use.WRITING)

    def numbers(self, at: TopicPartition = AT) -> list[int]:
        """Which of ``made`` are in the log, in order."""
        return [BatchHeader.read(each).max_timestamp for each in self.fake.log(*at).batches]


def made(number: int, *, within_s: float = PATIENCE_S) -> Item:
    """A batch of three records that can be told by its timestamp, as ``RawProducer.send`` puts it."""
    batch = kafka_batch([Record(each, number, b"k", b"v") for each in range(3)])
    future: Future[RecordMetadata] = Future()
    future.set_running_or_notify_cancel()
    return Item(BatchHeader.read(batch), batch, future, asyncio.get_running_loop().time() + within_s)


@asynccontextmanager
async def writing(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """The records are of 1970: the leader is not asked whether it has forgotten their producer."""
    ids = iter(range(1, 1_000))

    async def identity(_: Sending, __: float) -> Identity:
        return Identity(next(ids), 0, 0)

    monkeypatch.setattr(Sending, "_new_identity", identity)
    monkeypatch.setattr(module, "OLD_MS", 1 << 60)
    async with FakeCluster() as fake:
        fake.add_topic("t", partitions=2)
        async with await Cluster.open("here", fake.options()) as cluster:
            sending = Sending(cluster, Leaders(cluster), max_request_size=1 << 20)
            await cluster.refresh(["t"])
            try:
                yield Site(fake, cluster, sending)
            finally:
                await sending.close()


async def failure(future: "Future[RecordMetadata]") -> BaseException | None:
    """The error with which it ends."""
    await until(future.done)
    return future.exception()


async def test_given_up_while_the_broker_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. A broker takes the connection and says nothing until the batch's delivery.timeout.ms is over: it was not sent.
    2. The broker goes on. The batch is not sent after all: the next one has its sequence, and as many records, and
       would be taken for a repeat.
    """
    async with writing(monkeypatch) as site:
        hanging = site.fake.next("ApiVersions", held())
        first = site.put(1, within_s=SOON_S)
        assert type(await failure(first)) is NotDelivered
        hanging.open()
        assert (await asyncio.wrap_future(site.put(2))).base_offset == 0
        assert site.numbers() == [2]
        assert len(site.fake.seen("Produce")) == 1


async def test_given_up_under_a_throttle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a broker that hangs."""
    monkeypatch.setattr("mirror.net.connection.THROTTLE_POLL_S", 0.01)
    async with writing(monkeypatch) as site:
        site.fake.next("Produce", throttle(3_600_000))
        await asyncio.wrap_future(site.put(1))
        assert type(await failure(site.put(2, within_s=SOON_S))) is NotDelivered
        (await site.connection()).throttled_until = 0.0
        assert (await asyncio.wrap_future(site.put(3))).base_offset == 3
        assert site.numbers() == [1, 3]


async def test_one_of_a_request_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is sent, and each is told of its own."""
    async with writing(monkeypatch) as site:
        connection = await site.connection()
        connection.hold()
        other = TopicPartition("t", 1)
        first, second = site.put(1, within_s=SOON_S), site.put(2, at=other)
        assert type(await failure(first)) is NotDelivered
        connection.go_on()
        assert (await asyncio.wrap_future(second)).partition == 1
        assert (await asyncio.wrap_future(site.put(3))).base_offset == 0
        assert (site.numbers(), site.numbers(other)) == ([3], [2])


async def test_closed_while_a_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is still open: the request could go out."""
    async with writing(monkeypatch) as site:
        connection = await site.connection()
        connection.hold()
        first, second = site.put(1), site.put(2)
        await some_turns()
        await site.sending.close()
        assert {type(await failure(each)) for each in (first, second)} == {NotSent}
        connection.go_on()
        await some_turns()
        assert site.numbers() == []


@pytest.mark.parametrize("turns", range(8))
async def test_closed_at_any_moment(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """Closed so many turns of the loop after the request may go: what is told of the batch is true."""
    async with writing(monkeypatch) as site:
        connection = await site.connection()
        connection.hold()
        future = site.put(1)
        await some_turns()
        connection.go_on()
        for _ in range(turns):
            await asyncio.sleep(0)
        await site.sending.close()
        if not isinstance(await failure(future), NotSent):
            await until(site.numbers)
        await some_turns()
        assert site.numbers() == ([] if isinstance(future.exception(), NotSent) else [1])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("turns", range(5))
async def test_given_up_at_the_moment_at_which_it_may_go(
    monkeypatch: pytest.MonkeyPatch, turns: int, late: bool
) -> None:
    """A loop that was held up finds both the end of delivery.timeout.ms and a connection that is free again, in either
    order: what is told of the batch is true, and the next one is in the log, too."""
    async with writing(monkeypatch) as site:
        connection = await site.connection()
        connection.hold()
        future = site.put(1, within_s=SOON_S)
        await some_turns()
        if not late:
            connection.go_on()
        time.sleep(SOON_S)  # noqa: ASYNC251 - it is the loop that is held up
        for _ in range(turns):
            await asyncio.sleep(0)
        connection.go_on()
        error = await failure(future)
        landed = await asyncio.wrap_future(site.put(2))
        assert site.numbers() in ([[2]] if type(error) is NotDelivered else [[1, 2], [2, 1], [2]])
        assert landed.base_offset == 3 * site.numbers().index(2)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.Timeout]:
    """The timer of each try: ``reschedule(0.0)`` ends its batch's delivery.timeout.ms."""
    made: list[asyncio.Timeout] = []

    def timeout_at(when: float | None) -> asyncio.Timeout:
        made.append(asyncio.Timeout(when))
        return made[-1]

    monkeypatch.setattr(asyncio, "timeout_at", timeout_at)
    return made


async def test_sent_before_it_was_given_up(monkeypatch: pytest.MonkeyPatch, timers: list[asyncio.Timeout]) -> None:
    """Nobody knows, and the next batch goes under another producer id."""
    async with writing(monkeypatch) as site:
        unanswered = site.fake.next("Produce", silence())
        first = site.put(1)
        await unanswered.came.wait()
        timers[-1].reschedule(0.0)
        assert type(await failure(first)) is OutcomeUnknown
        (await site.connection()).close()  # otherwise the next one waits behind it
        assert (await asyncio.wrap_future(site.put(2))).base_offset == 3
        assert site.numbers() == [1, 2]


@pytest.mark.parametrize(
    ("refusal", "there"),
    [
        (doubtful(ErrorCode.NOT_LEADER_OR_FOLLOWER), True),
        (refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER), False),
        (doubtful(ErrorCode.REQUEST_TIMED_OUT), True),
        (doubtful(ErrorCode.KAFKA_STORAGE_ERROR), True),
        (refuse(ErrorCode.KAFKA_STORAGE_ERROR), None),
        (refuse(ErrorCode.UNKNOWN_SERVER_ERROR), None),
        (refuse(ErrorCode.NOT_ENOUGH_REPLICAS), False),
    ],
)
async def test_given_up_after_an_error(
    monkeypatch: pytest.MonkeyPatch, timers: list[asyncio.Timeout], refusal: Fault, there: bool | None
) -> None:
    """
    1. A leader answers with an error: before the append, or after it (while it waits for its followers, another broker
       comes to lead), or nobody knows (``there``: None).
    2. The batch is given up before it is sent again. It is "not sent" only if it cannot be in the log.
    3. The next batch is not taken for it.
    """
    async with writing(monkeypatch) as site:
        site.fake.next("Produce", refusal)
        connection = await site.connection()
        first = site.put(1)
        await refusal.came.wait()
        connection.hold()
        await until(lambda: len(timers) == 2)
        timers[-1].reschedule(0.0)
        assert type(await failure(first)) is (NotDelivered if there is False else OutcomeUnknown)
        connection.go_on()
        assert (await asyncio.wrap_future(site.put(2))).base_offset == (3 if there else 0)
        assert site.numbers() == ([1, 2] if there else [2])
        ids = {BatchHeader.read(each).producer_id for each in site.fake.log(*AT).batches}
        assert ids == ({1} if there is False else {1, 2} if there else {2})


async def test_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose lane has not been told yet that its time is over is not sent in its last moment."""
    async with writing(monkeypatch) as site:
        over, other = made(1, within_s=0.0), made(2)
        asked = [Stamped(TopicPartition("t", index), each.value, each) for index, each in enumerate((over, other))]
        left_out, landed = await exchange(site.cluster, NODE, asked)
        assert isinstance(left_out, NotAsked)
        assert isinstance(landed, Produced)
        assert (over.unsure, other.unsure, site.numbers()) == (False, True, [])
        (nothing,) = await exchange(site.cluster, NODE, asked[:1])
        assert isinstance(nothing, NotAsked)
        assert len(site.fake.seen("Produce")) == 1


async def test_the_connection_is_lost_while_a_request_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was sent, so the batch is not unsure."""
    async with writing(monkeypatch) as site:
        connection = await site.connection()
        connection.hold()
        item = made(1)
        asking = asyncio.create_task(exchange(site.cluster, NODE, [Stamped(AT, item.value, item)]))
        await some_turns()
        connection.close()
        with pytest.raises(NotAsked):
            await asking
        assert not item.unsure


async def test_a_bug_when_the_answer_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is in the log. The next one goes under another producer id, and is not taken for it."""
    async with writing(monkeypatch) as site:

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr("mirror.raw.produce.requests.read_produce_response", broken)
            assert isinstance(await failure(site.put(1)), ZeroDivisionError)
        assert (await asyncio.wrap_future(site.put(2))).base_offset == 3
        assert site.numbers() == [1, 2]
