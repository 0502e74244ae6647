"""What a raw consumer does with the answers of brokers, at a scripted cluster: each kind, and each kind of silence."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.net.logs.leader_requests import EARLIEST, LATEST
from mirror.raw import TopicPartition, errors
from mirror.raw.consume import fetching
from mirror.raw.consume.cursor import FetchedRecords
from mirror.raw.consume.fetching import UNREADABLE_TRIES, Fetching
from mirror.raw.settings import ConsumerSettings
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.net.logs.test_reading import flipped
from tests.records.builders import Record, kafka_batch, legacy_message, raw_batch

AT = TopicPartition("t", 0)
PATIENCE_S = 60.0


def batches(*bases: int, epoch: int = 0, size: int = 50) -> list[bytes]:
    """Of five records each."""
    return [raw_batch(b"p" * size, base_offset=base, leader_epoch=epoch) for base in bases]


class Site:
    def __init__(self, fake: FakeCluster, fetching: Fetching) -> None:
        self.fake = fake
        self.fetching = fetching

    async def take(self) -> list[FetchedRecords]:
        found = await self.fetching.take(PATIENCE_S)
        assert found
        return found

    async def bases(self) -> list[int]:
        """Base offsets of what comes next."""
        return [record.base_offset for chunk in await self.take() for record in chunk.records]

    async def error(self) -> errors.RawError:
        """The error that comes next."""
        (chunk,) = await self.take()
        assert chunk.error is not None
        return chunk.error


@asynccontextmanager
async def site(*stored: bytes, partitions: int = 1, brokers: int = 1, **settings: Any) -> AsyncIterator[Site]:
    async with FakeCluster(brokers=brokers) as fake:
        fake.add_topic("t", partitions=partitions)
        fake.store("t", 0, *stored)
        async with await Cluster.open("here", fake.options()) as cluster:
            config = ConsumerSettings(bootstrap_servers="a:1", fetch_max_wait_ms=50, **settings)  # type: ignore[arg-type]
            made = Fetching(cluster, config)
            try:
                yield Site(fake, made)
            finally:
                await made.close()


async def test_one_answer_at_a_time() -> None:
    """Nothing more is asked of a broker before its answer was taken, however much there is."""
    async with site(*batches(*range(0, 50, 5)), max_partition_fetch_bytes=1_024, fetch_max_bytes=1_024) as here:
        here.fetching.put({AT: 0})
        await until(lambda: here.fetching._answers)
        await asyncio.sleep(0.2)
        assert len(here.fake.seen("Fetch")) == 1
        first = await here.bases()
        assert first == list(range(0, 45, 5))[: len(first)]
        assert await here.bases() == list(range(0, 50, 5))[len(first) :]


async def test_nothing_of_other_partitions_either() -> None:
    async with site(*batches(0), partitions=2) as here:
        here.fetching.put({AT: 0, TopicPartition("t", 1): 0})
        await until(lambda: here.fetching._answers)
        here.fake.store("t", 1, *batches(0))
        await asyncio.sleep(0.2)
        assert len(here.fake.seen("Fetch")) == 1
        assert await here.bases() == await here.bases() == [0]


async def test_a_throttled_consumer_waits() -> None:
    async with site(*batches(0)) as here:
        here.fake.next("Fetch", faults.throttle(60_000))
        here.fetching.put({AT: 0})
        assert await here.bases() == [0]
        assert await here.fetching.take(0.3) == []
        assert len(here.fake.seen("Fetch")) == 1


async def test_several_brokers_and_partitions() -> None:
    """Each broker is asked for what it leads; a partition that gave data comes last the next time."""
    async with site(partitions=4, brokers=2) as here:
        for index in range(4):
            here.fake.store("t", index, *batches(0))
        here.fetching.put({TopicPartition("t", index): 0 for index in range(4)})
        found: list[int] = []
        while len(found) < 4:
            found += [chunk.cursor.at.partition for chunk in await here.take()]
        assert sorted(found) == [0, 1, 2, 3]
        here.fake.store("t", 0, *batches(5))
        assert await here.bases() == [5]
        await until(lambda: [each.partition for each in _asked(here.fake, 1)[-1]] == [2, 0])


def _asked(fake: FakeCluster, node_id: int) -> list[list[Any]]:
    return [
        [partition for topic in seen.request.topics for partition in topic.partitions]
        for seen in fake.seen("Fetch")
        if seen.node_id == node_id
    ]


async def test_put_and_dropped() -> None:
    """What was fetched for a position that was left, and what is under way for it, does not come."""
    async with site(*batches(0, 5, 10)) as here:
        here.fetching.put({AT: 0})
        await until(lambda: here.fetching._answers)
        here.fetching.put({AT: 10})
        assert await here.bases() == [10]
        held = here.fake.next("Fetch", faults.held())
        here.fetching.put({AT: 0})
        await held.came.wait()
        here.fetching.put({AT: 5})
        held.open()
        assert await here.bases() == [5, 10]
        here.fetching.put({AT: 0})
        await until(lambda: here.fetching._answers)
        here.fetching.drop([AT])
        assert await here.fetching.take(0.2) == []


@pytest.mark.parametrize(
    "fault",
    [
        faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        faults.refuse(ErrorCode.UNKNOWN_LEADER_EPOCH),
        faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR),
        faults.refuse(ErrorCode.KAFKA_STORAGE_ERROR),
        faults.refuse(4_711),
        faults.disconnect(),
        faults.disconnect(30),
        faults.malformed(b"x" * 20),
        faults.throttle(50),
    ],
)
async def test_what_passes(fault: faults.Fault) -> None:
    async with site(*batches(0)) as here:
        here.fake.next("Fetch", fault)
        here.fetching.put({AT: 0})
        assert await here.bases() == [0]


async def test_a_broker_that_comes_back() -> None:
    async with site(*batches(0)) as here:
        here.fetching.put({AT: 0})
        assert await here.bases() == [0]
        await here.fake.stop(1)
        here.fake.store("t", 0, *batches(5))
        assert await here.fetching.take(0.2) == []
        await here.fake.start(1)
        assert await here.bases() == [5]


async def test_another_leader() -> None:
    async with site(*batches(0), brokers=2) as here:
        here.fetching.put({AT: 0})
        assert await here.bases() == [0]
        here.fake.lead("t", 0, 2)
        here.fake.store("t", 0, *batches(5, epoch=1))
        assert await here.bases() == [5]


async def test_damage() -> None:
    """What is before it in one answer comes first. It is said as often as it is read, with the place; behind it,
    reading goes on."""
    good, bad, behind = batches(0, 5, 10)
    async with site(good, flipped(bad, 30), behind, max_partition_fetch_bytes=1_024) as here:
        here.fetching.put({AT: 0})
        assert await here.bases() == [0]
        for _ in range(2):
            error = await here.error()
            assert isinstance(error, errors.UnreadableLog)
            assert "t-0 at offset 5: the log is damaged (the batch of 111 bytes at byte 111" in str(error)
            assert (error.topic, error.partition, error.offset) == ("t", 0, 5)
            here.fetching.again(AT)
        here.fetching.put({AT: 10})
        assert await here.bases() == [10]


@pytest.mark.parametrize(
    ("bases", "first"),
    [((0, 5, 3), [0]), ((0, 5, 20, 15), [0, 5]), ((8, 5, 10), [])],
    ids=["lower", "one before is higher", "the first is higher"],
)
async def test_base_offsets_that_are_out_of_order(bases: tuple[int, ...], first: list[int]) -> None:
    """Either of two batches may be the wrong one. Read from behind the good ones, the damage would not be seen: a
    broker passes over what ends before the offset."""
    async with site(*batches(0, 5, 10)) as here:
        for _ in range(2):
            here.fake.next("Fetch", faults.alter(partial(_bring, batches(*bases))))
        here.fetching.put({AT: 0})
        if first:
            assert await here.bases() == first
        error = await here.error()
        assert isinstance(error, errors.UnreadableLog)
        assert "behind a batch that ends at" in str(error)


@pytest.mark.parametrize("later", [False, True], ids=["before", "meanwhile"])
async def test_damage_behind_a_batch_that_is_deleted(later: bool) -> None:
    """What the log no longer has is out of range: not asked for, or not told as if it were the offset that is due."""
    good = kafka_batch([Record(each, 1, b"k", b"v") for each in range(5)])
    async with site(good, flipped(batches(5)[0], 30)) as here:
        log = here.fake.log("t", 0)
        log.delete_before(0 if later else 2)
        here.fetching.put({AT: log.start})
        await until(lambda: here.fetching._answers)
        log.delete_before(5 if later else 2)
        (chunk,) = await here.take()
        assert (chunk.next_offset, chunk.error) == (5, None)
        error = await here.error()
        assert isinstance(error, errors.UnreadableLog)
        assert error.offset == 5


async def test_what_was_damaged_is_repaired() -> None:
    """A disk's error may be over the next time: nothing is left out, nothing comes twice."""
    good, bad, behind = batches(0, 5, 10)
    async with site(good, bad, behind, max_partition_fetch_bytes=1_024) as here:
        here.fake.next("Fetch", faults.alter(partial(_bring, _second_damaged())))
        here.fetching.put({AT: 0})
        assert await here.bases() == [0]
        assert await here.bases() == [5, 10]


async def test_damage_behind_what_one_answer_takes() -> None:
    """Only the batch before comes again: then it is read from behind that."""
    async with site(*batches(0, 5, 10, size=1_200), max_partition_fetch_bytes=1_024) as here:
        here.fake.next("Fetch", faults.alter(partial(_bring, _second_damaged())))
        here.fetching.put({AT: 0})
        assert [await here.bases() for _ in range(3)] == [[0], [5], [10]]


def _second_damaged() -> list[bytes]:
    good, bad = batches(0, 5)
    return [good, flipped(bad, 30)]


def _bring(stored: list[bytes], answer: Any) -> None:
    for topic in answer.responses:
        for partition in topic.partitions:
            partition.records = b"".join(stored)


async def test_a_base_offset_that_is_behind_the_log() -> None:
    """No checksum covers it: the log's end shows that it is wrong."""
    async with site(*batches(0)) as here:
        here.fake.next("Fetch", faults.alter(partial(_bring, batches(1_000_000))))
        here.fetching.put({AT: 0})
        error = await here.error()
        assert isinstance(error, errors.UnreadableLog)
        assert "a batch ends at offset 1000004, the log at 5" in str(error)
        here.fetching.again(AT)
        assert await here.bases() == [0]


async def test_old_formats() -> None:
    async with site() as here:
        here.fake.next("Fetch", faults.alter(partial(_bring, [legacy_message(1)])))
        here.fetching.put({AT: 0})
        error = await here.error()
        assert isinstance(error, errors.UnreadableLog)
        assert "was written before Kafka 0.11; read these records with another client" in str(error)


async def test_a_broker_that_cannot_read_its_log() -> None:
    async with site(*batches(0)) as here:
        for _ in range(UNREADABLE_TRIES + 1):
            here.fake.next("Fetch", faults.refuse(ErrorCode.CORRUPT_MESSAGE))
        here.fetching.put({AT: 0})
        error = await here.error()
        assert isinstance(error, errors.UnreadableLog)
        assert "the broker cannot read its log (CORRUPT_MESSAGE (2))" in str(error)
        here.fetching.again(AT)
        assert await here.bases() == [0]


async def test_a_right_that_is_missing() -> None:
    async with site(*batches(0)) as here:
        here.fake.next("Fetch", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        here.fetching.put({AT: 0})
        error = await here.error()
        assert isinstance(error, errors.NotAuthorized)
        assert str(error).endswith("grant the principal Read on topic t of cluster here")
        here.fetching.again(AT)
        assert await here.bases() == [0]


async def test_the_log_does_not_have_the_offset() -> None:
    async with site(*batches(0)) as here:
        here.fetching.put({AT: 9})
        assert isinstance(await here.error(), errors.OffsetOutOfRange)


async def test_a_truncated_log() -> None:
    """An unclean election: the new leader has other records where some were read."""
    async with site(*batches(0, 5)) as here:
        here.fetching.put({AT: 0})
        assert await here.bases() == [0, 5]
        here.fake.log("t").truncate(5)
        here.fake.lead("t", 0, 1)
        here.fake.store("t", 0, *batches(5, 10, epoch=1))
        error = await here.error()
        assert isinstance(error, errors.LogTruncated)
        assert "it now has records of leader epoch 0 up to offset 5 only; undo" in str(error)
        here.fetching.put({AT: 5})
        assert await here.bases() == [5, 10]


async def test_a_recreated_topic() -> None:
    async with site(*batches(0)) as here:
        here.fetching.put({AT: 0})
        assert await here.bases() == [0]
        here.fake.add_topic("t")
        here.fake.store("t", 0, *batches(0, 5))
        error = await here.error()
        assert isinstance(error, errors.TopicRecreated)
        assert "t-0 at offset 5: the topic was deleted and created again" in str(error)
        here.fetching.put({AT: 0})
        assert await here.bases() == [0, 5]


async def test_a_topic_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers may hear of a topic late, so it is unknown for a while before that is said."""
    monkeypatch.setattr("mirror.raw.leaders.UNKNOWN_FOR_S", 0.3)
    async with site(*batches(0)) as here:
        here.fetching.put({AT: 0})
        assert await here.bases() == [0]
        del here.fake.topics["t"]
        error = await here.error()
        assert isinstance(error, errors.UnknownTopic)
        assert "here has no topic t; create it" in str(error)
        here.fetching.again(AT)
        here.fake.add_topic("u")
        with pytest.raises(errors.UnknownTopic, match="u has 1 partitions, counted from 0, and no partition 4"):
            await here.fetching.offsets([TopicPartition("u", 4)], LATEST, timeout_s=PATIENCE_S)
        here.fake.topics["u"].error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(errors.NotAuthorized, match="grant the principal Describe on topic u of cluster here"):
            await here.fetching.offsets([TopicPartition("u", 4)], LATEST, timeout_s=PATIENCE_S)


async def test_offsets() -> None:
    async with site(*batches(0, 5), partitions=2) as here:
        partitions = [TopicPartition("t", index) for index in range(2)]
        here.fake.next("ListOffsets", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        ends = await here.fetching.offsets(partitions, LATEST, timeout_s=PATIENCE_S)
        assert list(ends.values()) == [10, 0]
        assert list((await here.fetching.offsets(partitions, EARLIEST, timeout_s=PATIENCE_S)).values()) == [0, 0]
        await here.fake.stop(1)
        with pytest.raises(errors.Unavailable):
            await here.fetching.offsets(partitions, LATEST, timeout_s=0.2)


async def test_a_bug_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends a task that nobody waits for: the program would wait for ever."""
    async with site(*batches(0)) as here:

        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(fetching, "records_of", broken)
        here.fetching.put({AT: 0})
        with pytest.raises(ZeroDivisionError):
            await here.take()
