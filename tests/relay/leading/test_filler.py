"""The offsets before a source's first record, on real brokers: filled, deleted, back after a kill -9, deleted again."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, RequestTimedOut, Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.internal.batches import Row
from mirror.offsetmap.internal.memory import Memory
from mirror.records.filler import filler_batch, filler_id
from mirror.records.header import NO_LEADER_EPOCH, BatchHeader
from mirror.records.identity import producer_id
from mirror.relay.halts import PartitionHalted
from mirror.relay.leading.cleanup import Cleanup, Cleanups
from mirror.relay.leading.filler import Begun, Lead, lead
from mirror.relay.topics.syncing import FOR_EVER
from mirror.sandbox import Cluster as Sandbox
from tests.fakes.loop import some_turns, until
from tests.fakes.state import MemoryState
from tests.net.real import create, log_of, opened, records
from tests.patience import KEEPING, PATIENT
from tests.records.builders import Record, kafka_batch
from tests.relay.flows import Log

pytestmark = pytest.mark.broker

FIFTY_MILLION = 50_000_000
SETTLE_S = 1.0
OLD = 1_700_000_000_000
SYNCED = ("cleanup.policy", "retention.ms")


class Source:
    """A source's log, as far as leading looks at it."""

    def __init__(self, start: int, timestamp: int = OLD) -> None:
        self.begin = start
        self.timestamp = timestamp

    async def start(self) -> int:
        return self.begin

    async def batch_at(self, offset: int) -> Any:
        batch = kafka_batch([Record(0, self.timestamp, b"k", b"v")], base_offset=offset)
        return BatchHeader.read(batch), batch


class Leading:
    """One partition to lead."""

    def __init__(
        self,
        sandbox: Sandbox,
        cluster: Cluster,
        topic: str,
        source: Source,
        partition: int = 0,
        state: Memory | None = None,
    ) -> None:
        self.sandbox = sandbox
        self.cluster = cluster
        self.topic = topic
        self.partition = partition
        self.source = source
        self.log = Log()
        parts: dict[str, Any] = {"flow": "a->b", "cluster_id": "c", "topic": topic, "partition": partition}
        self.rules = Lead(
            name=f"{topic}-{partition}", owner=producer_id(**parts), filler=filler_id(**parts), most=10**9
        )
        self.cleanup = Cleanup(cluster, cluster, topic, SYNCED, MemoryState([]) if state is None else state)
        self.begun = Begun()
        self.owned = True
        self.sent = 0

    async def there(self) -> PartitionLog:
        return await log_of(self.cluster, self.topic, self.partition)

    async def lead(self) -> None:
        """One pass, as at a start."""
        there = await self.there()

        async def settled() -> int:
            end = -1
            while (again := await barrier()) != end:
                end = again
                await asyncio.sleep(SETTLE_S)
            return end

        async def barrier() -> int:
            while (end := await there.true_end()) != await there.visible_end():
                await some_turns()
            return end

        async def owns() -> bool:
            self.sent += 1
            return self.owned

        await lead(
            self.source,
            there,
            self.rules,
            self.begun,
            settled=settled,
            owns=owns,
            cleanup=self.cleanup,
            log=self.log,
        )

    async def led(self) -> None:
        """Again until it is not in doubt."""
        while True:
            try:
                await self.lead()
                return
            except NetworkError as error:
                self.log.info("doubt", error=error)
                await asyncio.sleep(0.05)

    async def bounds(self) -> tuple[int, int]:
        there = await self.there()
        return await there.start(), await there.visible_end()

    async def append(self, offset: int, *, sequence: int = 0, timestamp: int = OLD) -> None:
        """A batch of three records of the flow's own, where it has to land."""
        batch = kafka_batch(
            [Record(number, timestamp, b"k", b"data") for number in range(3)],
            leader_epoch=NO_LEADER_EPOCH,
            producer_id=self.rules.owner,
            producer_epoch=0,
            base_sequence=sequence,
        )
        assert await (await self.there()).produce(batch) == offset


@asynccontextmanager
async def leading(sandbox: Sandbox, topic: str, start: int, **configs: str) -> AsyncIterator[Leading]:
    """A new topic at the destination, and a source that begins at ``start``."""
    create(sandbox, topic, 1, replicas=1, **configs)
    async with opened(sandbox) as cluster:
        yield Leading(sandbox, cluster, topic, Source(start))


def first_record(sandbox: Sandbox, topic: str) -> tuple[int, bytes | None]:
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


def configs_of(sandbox: Sandbox, topic: str) -> dict[str, str | None]:
    """The topic's own values of what is suspended."""
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entries = future.result()
    names = ("cleanup.policy", "retention.ms", "retention.bytes")
    return {name: entries[name].value for name in names if entries[name].source == 1}


FORGETFUL = {**PATIENT, "producer.id.expiration.check.interval.ms": "500"}
"""Producers are forgotten as soon as they may be: when their records are a day old."""
EAGER = {"log.retention.ms": "604800000", "log.retention.check.interval.ms": "700", "log.initial.task.delay.ms": "100"}
"""Records are deleted as soon as they may be: when they are a week old."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A broker that forgets."""
    with Sandbox(name="destination", quick=True, properties=FORGETFUL) as cluster:
        yield cluster


async def test_fifty_million(sandbox: Sandbox, topic_name: str) -> None:
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


async def test_killed_right_after(topic_name: str) -> None:
    """
    1. Filled to 1,500,000, trimmed, three records copied; the broker is killed at once: the filler is back.
    2. The next start finds where it ends and trims again; the records are what the log begins with.
    """
    with Sandbox(name="killed", properties=KEEPING, quick=True) as sandbox:
        async with leading(sandbox, topic_name, 1_500_000) as at:
            await at.led()
            await at.append(1_500_000)
            assert await at.bounds() == (1_500_000, 1_500_003)
            _restart(sandbox)
            assert await at.bounds() == (0, 1_500_003)
            await at.led()
            assert at.log.of("leading_offsets_trimmed")
            assert await at.bounds() == (1_500_000, 1_500_003)
            assert first_record(sandbox, topic_name) == (1_500_000, b"data")
            await at.append(1_500_003, sequence=3)


async def test_killed_in_the_middle(topic_name: str) -> None:
    """The broker is killed while it is filled: it goes on where the log ends."""
    with Sandbox(name="killed", properties=KEEPING, quick=True) as sandbox:
        async with leading(sandbox, topic_name, 8_000_000) as at:
            filling = asyncio.get_running_loop().create_task(at.lead())
            while (await at.bounds())[1] < 1_000_000:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0)
            _restart(sandbox)
            # What was answered before the kill is read after it, and the next request finds a new connection: then the
            # fill has not noticed, and ends like any other.
            with suppress(NetworkError):
                await filling
            await at.led()
            assert await at.bounds() == (8_000_000, 8_000_000)


def _restart(sandbox: Sandbox) -> None:
    (broker,) = sandbox.brokers
    broker.kill()
    broker.start()


async def test_two_at_once(sandbox: Sandbox, topic_name: str) -> None:
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


async def test_taken_over_midway(sandbox: Sandbox, topic_name: str) -> None:
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


async def test_resumed(sandbox: Sandbox, topic_name: str) -> None:
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


async def test_displaced(sandbox: Sandbox, topic_name: str) -> None:
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


async def test_left_alone(sandbox: Sandbox, topic_name: str) -> None:
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


async def test_too_many(sandbox: Sandbox, topic_name: str) -> None:
    async with leading(sandbox, topic_name, 2_000_001) as at:
        at.rules = replace(at.rules, most=2_000_000)
        with pytest.raises(PartitionHalted, match=r"leading_offsets: .* begins at offset 2000001 at the source"):
            await at.lead()
        assert await at.bounds() == (0, 0)


async def test_taken_over(sandbox: Sandbox, topic_name: str) -> None:
    async with leading(sandbox, topic_name, 10) as at:
        at.owned = False
        with pytest.raises(NetworkError, match="another worker has taken the partition over"):
            await at.lead()
        assert await at.bounds() == (0, 0)


async def test_small_batches(sandbox: Sandbox, topic_name: str) -> None:
    """A topic that takes small batches gets small ones."""
    async with leading(sandbox, topic_name, 250_000, max_message_bytes="10000") as at:
        at.rules = replace(at.rules, most_bytes=10_000)
        await at.led()
        assert at.sent == 25
        assert await at.bounds() == (250_000, 250_000)


async def test_timestamps(sandbox: Sandbox, topic_name: str) -> None:
    """Look-ups by time find the first record, not the filler before it."""
    async with leading(sandbox, topic_name, 1_000_000) as at:
        await at.led()
        await at.append(1_000_000, timestamp=OLD)
        consumer = Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": "x", "log_level": 0})
        for timestamp in (0, OLD - 1, OLD):
            (found,) = consumer.offsets_for_times([TopicPartition(topic_name, 0, timestamp)], timeout=30)
            assert found.offset == 1_000_000
        consumer.close()


async def test_older_brokers(topic_name: str) -> None:
    """Kafka 3.9, and 2.0, which has no zstd and no IncrementalAlterConfigs: filled, trimmed, and left alone then."""
    for version, policy in (("3.9.2", "compact"), ("2.0.1", "delete")):
        with Sandbox(name="older", version=version, properties=PATIENT, quick=True) as sandbox:
            async with leading(sandbox, topic_name, 1_234_567, cleanup_policy=policy) as at:
                at.rules = replace(at.rules, most_bytes=1_000_012)
                await at.led()
                assert await at.bounds() == (1_234_567, 1_234_567)
                await at.append(1_234_567)
                assert first_record(sandbox, topic_name) == (1_234_567, b"data")
                await at.led()
                assert configs_of(sandbox, topic_name)["cleanup.policy"] == policy


# Compacted topics.


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_compacted(sandbox: Sandbox, topic_name: str, policy: str) -> None:
    """Suspended while it is filled and trimmed, and as it was afterwards."""
    async with leading(sandbox, topic_name, 1_500_000, cleanup_policy=policy, retention_ms="777") as at:
        before = configs_of(sandbox, topic_name)
        assert before == {"cleanup.policy": policy, "retention.ms": "777"}
        await at.led()
        assert await at.bounds() == (1_500_000, 1_500_000)
        assert configs_of(sandbox, topic_name) == before
        await at.append(1_500_000)
        await at.led()


async def test_compacted_and_left_suspended(sandbox: Sandbox, topic_name: str) -> None:
    """
    1. A predecessor died before it restored the topic, and wrote nothing down: the next process finishes it, as the
       source has it.
    2. While somebody in the process still leads, it stays suspended.
    """
    suspended = {"cleanup.policy": "delete", "retention.ms": FOR_EVER, "retention.bytes": FOR_EVER}
    source = f"{topic_name}-source"
    create(sandbox, source, cleanup_policy="compact,delete", retention_ms="12345")
    async with leading(
        sandbox, topic_name, 0, cleanup_policy="delete", retention_ms=FOR_EVER, retention_bytes=FOR_EVER
    ) as at:
        cleanups = Cleanups(at.cluster, at.cluster, SYNCED, MemoryState([]))
        at.cleanup = cleanups.of(topic_name)
        assert cleanups.of(topic_name) is at.cleanup
        assert configs_of(sandbox, topic_name) == suspended
        async with at.cleanup.suspended():
            await at.cleanup.finish()
            assert configs_of(sandbox, topic_name) == suspended
        # The source of this one is itself, and is suspended, too: that it compacts is sure, the rest is not.
        assert configs_of(sandbox, topic_name) == {"cleanup.policy": "compact"}


async def test_left_suspended_it_gets_back_what_it_had(sandbox: Sandbox, topic_name: str) -> None:
    """
    1. A process dies before it restores the topic: the next one finishes it, by what was written down.
    2. What was written of another topic of that name says nothing.
    """
    rows: list[Row] = []
    had = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "5000000000"}
    wanted = {name.replace(".", "_"): value for name, value in had.items()}
    async with leading(sandbox, topic_name, 0, **wanted) as at:
        await at.cluster.refresh([topic_name])

        async def die() -> None:
            async with Cleanup(at.cluster, at.cluster, topic_name, SYNCED, MemoryState(rows)).suspended():
                raise Unreachable("killed")

        with pytest.raises(Unreachable):
            await die()
        assert configs_of(sandbox, topic_name)["retention.ms"] == FOR_EVER
        await Cleanup(at.cluster, at.cluster, topic_name, SYNCED, MemoryState(rows)).finish()
        assert configs_of(sandbox, topic_name) == had
        with pytest.raises(Unreachable):
            await die()
        (*_, (key, value)) = rows
        assert value is not None
        mine = at.cluster.topics[topic_name].topic_id
        assert mine is not None
        other = value.replace(mine.hex().encode(), bytes(16).hex().encode())
        assert other != value
        await Cleanup(at.cluster, at.cluster, topic_name, SYNCED, MemoryState([(key, other)])).finish()
        assert configs_of(sandbox, topic_name) == {"cleanup.policy": "compact"}


async def test_compacted_by_two(sandbox: Sandbox, topic_name: str) -> None:
    """Two processes lead a partition of the topic each; the first that is done is in the other's way for a moment."""
    create(sandbox, topic_name, partitions=2, cleanup_policy="compact")
    async with opened(sandbox) as one, opened(sandbox) as two:
        workers = [
            Leading(sandbox, cluster, topic_name, Source(start), partition)
            for partition, (cluster, start) in enumerate(((one, 1_000), (two, 4_000_000)))
        ]
        await asyncio.gather(*(worker.led() for worker in workers))
        assert [await worker.bounds() for worker in workers] == [(1_000, 1_000), (4_000_000, 4_000_000)]
        assert configs_of(sandbox, topic_name) == {"cleanup.policy": "compact"}


async def test_an_answer_is_lost(sandbox: Sandbox, topic_name: str) -> None:
    """The connection breaks with a batch under way, again and again: it ends where it should."""
    async with leading(sandbox, topic_name, 4_999_999) as at:
        await _led_unanswered(at)
        assert await at.bounds() == (4_999_999, 4_999_999)


async def test_retention_takes_filler(topic_name: str) -> None:
    """The same, at a broker whose retention takes the old filler while it is written, and that forgets at once who
    wrote it: an empty log, of which only this process knows what was in it."""
    eager = FORGETFUL | EAGER
    with Sandbox(name="eager", quick=True, properties=eager) as sandbox:
        async with leading(sandbox, topic_name, 2_999_999) as at:
            await _led_unanswered(at)
            assert await at.bounds() == (2_999_999, 2_999_999)


async def test_a_late_batch_after_the_look(sandbox: Sandbox, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the leader remembers is of after a late batch, the end of before: nothing is written on that."""
    async with leading(sandbox, topic_name, 5_000) as at:
        there = await at.there()
        early, late = (
            filler_batch(producer=at.rules.filler, offset=offset, count=1_000, timestamp=round(time.time() * 1000))
            for offset in (0, 1_000)
        )
        assert await there.produce(early) == 0
        await there.delete_before(1_000)
        looked = PartitionLog.producers

        async def producers(log: PartitionLog) -> Any:
            assert await log.produce(late) == 1_000
            return await looked(log)

        with monkeypatch.context() as patched:
            patched.setattr(PartitionLog, "producers", producers)
            with pytest.raises(Unreachable, match="ended at 1000 and has moved since"):
                await at.lead()
        assert at.sent == 0
        await at.led()
        assert await at.bounds() == (5_000, 5_000)


async def test_displaced_beyond_the_start(sandbox: Sandbox, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's filler comes just before ours, which then reaches beyond the source's first record: it halts at
    once, whatever retention leaves for the next look."""
    async with leading(sandbox, topic_name, 1_500) as at:
        appended = PartitionLog.produce
        other = filler_batch(producer=at.rules.filler + 1, offset=0, count=1_000, timestamp=OLD)

        async def produce(log: PartitionLog, batch: bytes) -> int:
            assert await appended(log, other) == 0
            return await appended(log, batch)

        monkeypatch.setattr(PartitionLog, "produce", produce)
        with pytest.raises(PartitionHalted, match="begins at offset 1500, and filler at the destination ends at 2500"):
            await at.lead()


async def test_somebody_else_writes_meanwhile(
    sandbox: Sandbox, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else appends a record between two batches of filler: it halts, and the record is not deleted."""
    async with leading(sandbox, topic_name, 2_500_000) as at:
        appended = PartitionLog.produce

        async def produce(log: PartitionLog, batch: bytes) -> int:
            if at.sent == 2 and not at.log.of("intruded"):
                at.log.info("intruded")
                await asyncio.to_thread(records, sandbox, topic_name, ["of others"])
            return await appended(log, batch)

        monkeypatch.setattr(PartitionLog, "produce", produce)
        with pytest.raises(PartitionHalted, match=r"foreign_writer: .* offset 1000000 is of producer id -1"):
            await at.led()
        assert await at.bounds() == (0, 2_000_001)


async def _led_unanswered(at: Leading) -> None:
    filling = asyncio.get_running_loop().create_task(at.led())
    while not filling.done():
        await asyncio.sleep(0.3)
        for connection in at.cluster._writing.values():
            connection.close(RequestTimedOut("as scripted"))
    await filling
