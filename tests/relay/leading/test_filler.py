"""The offsets before a source's first record, on real brokers: filled, deleted, back after a kill -9, deleted again."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition

from mirror.net.errors import NetworkError, Unreachable
from mirror.records.filler import filler_batch
from mirror.relay.halts import PartitionHalted
from mirror.relay.leading.filler import Begun
from mirror.sandbox import SandboxCluster
from tests.fakes.loop import until
from tests.net.stage.real import create, opened, records
from tests.patience import KEEPING, PATIENT
from tests.relay.leading.leads import OLD, Leading, Source, configs_of, leading

pytestmark = pytest.mark.broker

FIFTY_MILLION = 50_000_000


def first_record(sandbox: SandboxCluster, topic: str) -> tuple[int, bytes | None]:
    """(offset, value) that a plain consumer reads first, from the earliest offset."""
    consumer = Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": "x", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, -2)])
    try:
        deadline = time.monotonic() + 60
        while (message := consumer.poll(1)) is None or message.error():
            assert time.monotonic() < deadline, message and message.error()
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is None or isinstance(value, bytes)
        return offset, value
    finally:
        consumer.close()


async def test_fifty_million(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. A source that begins at 50,000,000: the destination's log begins and ends there (a broker's 5 s of work).
    2. Data goes on from there, and a consumer's first offset is the source's first.
    3. Another look does nothing.
    """
    async with leading(sandbox, topic_name, FIFTY_MILLION) as at:
        await at.led()
        assert await at.bounds() == (FIFTY_MILLION, FIFTY_MILLION)
        assert at.sent == 50
        await at.append(FIFTY_MILLION)
        assert first_record(sandbox, topic_name) == (FIFTY_MILLION, b"data")
        await at.led()
        assert at.sent == 50


@pytest.fixture(scope="module")
def killed() -> Iterator[SandboxCluster]:
    """A broker that is killed: before it has written down where logs begin."""
    properties = {**KEEPING, "log.initial.task.delay.ms": "3600000"}
    with SandboxCluster(name="killed", properties=properties, quick=True) as cluster:
        yield cluster


async def test_killed_right_after(killed: SandboxCluster, topic_name: str) -> None:
    """
    1. Filled to 1,500,000, trimmed, three records copied; the broker is killed at once: the filler is back.
    2. The next start finds where it ends and trims again; the records are what the log begins with.
    """
    async with leading(killed, topic_name, 1_500_000) as at:
        await at.led()
        await at.append(1_500_000)
        assert await at.bounds() == (1_500_000, 1_500_003)
        _restart(killed)
        assert await at.bounds() == (0, 1_500_003)
        await at.led()
        assert at.log.of("leading_offsets_trimmed")
        assert await at.bounds() == (1_500_000, 1_500_003)
        assert first_record(killed, topic_name) == (1_500_000, b"data")
        await at.append(1_500_003, sequence=3)


async def test_killed_in_the_middle(killed: SandboxCluster, topic_name: str) -> None:
    """The broker is killed while it is filled: it goes on where the log ends."""
    async with leading(killed, topic_name, 8_000_000) as at:
        filling = asyncio.get_running_loop().create_task(at.lead())
        while (await at.bounds())[1] < 1_000_000:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0)
        _restart(killed)
        # What was answered before the kill is read after it, and the next request finds a new connection: then the
        # fill has not noticed, and ends like any other.
        with suppress(NetworkError):
            await filling
        await at.led()
        assert await at.bounds() == (8_000_000, 8_000_000)


def _restart(sandbox: SandboxCluster) -> None:
    (broker,) = sandbox.brokers
    broker.kill()
    broker.start()


async def test_two_at_once(sandbox: SandboxCluster, topic_name: str) -> None:
    """Two workers that both believe the partition theirs; the broker remembers what they send, since it is of today."""
    create(sandbox, topic_name)
    async with opened(sandbox) as one, opened(sandbox) as two:
        source = Source(2_345_678, round(time.time() * 1000))
        workers = [Leading(sandbox, cluster, topic_name, source) for cluster in (one, two)]
        await asyncio.gather(*(worker.led() for worker in workers))
        for worker in workers:
            assert await worker.bounds() == (2_345_678, 2_345_678)
            await worker.led()
        await workers[0].append(2_345_678, timestamp=source.timestamp)


async def test_taken_over_midway(sandbox: SandboxCluster, topic_name: str) -> None:
    """Old records, which the broker forgets at once: the second owner waits until what the first has sent is there."""
    create(sandbox, topic_name)
    async with opened(sandbox) as one, opened(sandbox) as two:
        first, second = (Leading(sandbox, cluster, topic_name, Source(4_000_000)) for cluster in (one, two))
        filling = asyncio.get_running_loop().create_task(first.lead())
        await until(lambda: first.sent)
        first.owned = False
        await second.led()
        with pytest.raises(Unreachable, match="another worker"):
            await filling
        assert await second.bounds() == (4_000_000, 4_000_000)
        assert first.sent == 2


async def test_resumed(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. A predecessor filled a part, and an odd one; the broker has forgotten it, or not.
    2. It goes on, in batches that end at multiples of a million.
    """
    async with leading(sandbox, topic_name, 3_000_100) as at:
        there = await at.there()
        part = filler_batch(producer=at.rules.filler, offset=0, count=1234, timestamp=OLD)
        assert await there.produce(part) == 0
        await at.led()
        assert at.sent == 4
        assert await at.bounds() == (3_000_100, 3_000_100)
        # The source's retention goes on before anything was copied.
        at.source.begin = 3_000_200
        await at.led()
        assert await at.bounds() == (3_000_200, 3_000_200)
        # To another process, an empty log may have held something else, unless the broker remembers the filler.
        at.source.begin, at.begun = 3_000_300, Begun()
        await at.led()
        assert await at.bounds() in [(3_000_300, 3_000_300), (3_000_200, 3_000_200)]
        # Not even then, where it is known that records were copied: what is missing is not filler's.
        before = await at.bounds()
        at.source.begin, at.begun, at.rules = 3_000_400, Begun(), replace(at.rules, copied=True)
        await at.lead()
        assert await at.bounds() == before


async def test_displaced(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. A predecessor's batch came twice, and the broker had forgotten the first: its sequences are not its offsets.
    2. Filling goes on under the next rotation, and ends where it should.
    3. Displaced beyond the source's first record: the partition halts.
    """
    async with leading(sandbox, topic_name, 1_500_000) as at:
        there = await at.there()
        batch = filler_batch(producer=at.rules.filler + 5, offset=0, count=1000, timestamp=OLD)
        again = filler_batch(producer=at.rules.filler + 6, offset=0, count=1000, timestamp=OLD)
        assert await there.produce(batch) == 0
        assert await there.produce(again) == 1000
        await at.led()
        assert await at.bounds() == (1_500_000, 1_500_000)
    other = f"{topic_name}-over"
    async with leading(sandbox, other, 1_500) as at:
        there = await at.there()
        for base, rotation in ((0, 0), (1000, 1)):
            batch = filler_batch(producer=at.rules.filler + rotation, offset=0, count=1000, timestamp=OLD)
            assert await there.produce(batch) == base
        with pytest.raises(PartitionHalted, match="the source begins at offset 1500, and filler at the destination"):
            await at.lead()


async def test_left_alone(sandbox: SandboxCluster, topic_name: str) -> None:
    """Logs that hold anything else: data of ours, records of others. Nothing is written, nothing deleted."""
    async with leading(sandbox, topic_name, 100) as at:
        await at.append(0)
        await at.lead()
        assert await at.bounds() == (0, 3)
    other = f"{topic_name}-other"
    async with leading(sandbox, other, 100) as at:
        records(sandbox, other, ["a", "b"])
        await at.lead()
        assert await at.bounds() == (0, 2)
    empty = f"{topic_name}-empty"
    async with leading(sandbox, empty, 0) as at:
        await at.lead()
        await at.append(0)
        await (await at.there()).delete_before(3)
        at.source.begin = 100
        # Empty, and it ends above 0: data of ours was there, or whose it was is not known any more.
        await at.lead()
        assert await at.bounds() == (3, 3)
        assert at.sent == 0


async def test_too_many(sandbox: SandboxCluster, topic_name: str) -> None:
    async with leading(sandbox, topic_name, 2_000_001) as at:
        at.rules = replace(at.rules, most=2_000_000)
        with pytest.raises(PartitionHalted, match=r"leading_offsets: .* begins at offset 2000001 at the source"):
            await at.lead()
        assert await at.bounds() == (0, 0)


async def test_taken_over(sandbox: SandboxCluster, topic_name: str) -> None:
    async with leading(sandbox, topic_name, 10) as at:
        at.owned = False
        with pytest.raises(NetworkError, match="another worker has taken the partition over"):
            await at.lead()
        assert await at.bounds() == (0, 0)


async def test_small_batches(sandbox: SandboxCluster, topic_name: str) -> None:
    """A topic that takes small batches gets small ones."""
    async with leading(sandbox, topic_name, 250_000, max_message_bytes="10000") as at:
        at.rules = replace(at.rules, most_bytes=10_000)
        await at.led()
        assert at.sent == 25
        assert await at.bounds() == (250_000, 250_000)


async def test_timestamps(sandbox: SandboxCluster, topic_name: str) -> None:
    """Look-ups by time find the first record, not the filler before it."""
    async with leading(sandbox, topic_name, 1_000_000) as at:
        await at.led()
        await at.append(1_000_000, timestamp=OLD)
        consumer = Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": "x", "log_level": 0})
        for timestamp in (0, OLD - 1, OLD):
            (found,) = consumer.offsets_for_times([TopicPartition(topic_name, 0, timestamp)], timeout=30)
            assert found.offset == 1_000_000
        consumer.close()


async def test_a_compacted_topic(sandbox: SandboxCluster, topic_name: str) -> None:
    """Filled, trimmed, and left alone then, with its own policy."""
    await _filled_and_left_alone(sandbox, topic_name, "compact")


async def test_an_older_broker(topic_name: str) -> None:
    """Kafka 2.0, which has no zstd and no IncrementalAlterConfigs: the same, but not with a compacted topic. (From 2.3
    on brokers have both, and are asked as the newest is in all other tests.)"""
    with SandboxCluster(name="older", version="2.0.1", properties=PATIENT, quick=True) as older:
        await _filled_and_left_alone(older, topic_name, "delete")


async def _filled_and_left_alone(sandbox: SandboxCluster, topic: str, policy: str) -> None:
    async with leading(sandbox, topic, 1_234_567, cleanup_policy=policy) as at:
        at.rules = replace(at.rules, most_bytes=1_000_012)
        await at.led()
        assert await at.bounds() == (1_234_567, 1_234_567)
        await at.append(1_234_567)
        assert first_record(sandbox, topic) == (1_234_567, b"data")
        await at.led()
        assert configs_of(sandbox, topic)["cleanup.policy"] == policy
