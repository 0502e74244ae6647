"""Small questions about one partition: its ends, one batch of it, its producers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, NetworkError, Refused, StorageUnavailable, Unreadable
from mirror.net.logs.leader_requests import (
    EARLIEST,
    LATEST,
    TRUE_END,
    Producer,
    describe_producers,
    in_tiered_storage,
    list_offset,
)
from mirror.net.logs.log import PartitionLog
from mirror.net.metadata import Leader, Topic
from mirror.records.header import BatchHeader
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.records.builders import legacy_message, raw_batch

LED = Leader(1, 0)


async def read_batch(
    cluster: Cluster, topic: str, topic_id: bytes | None, partition: int, leader: Leader, offset: int
) -> tuple[BatchHeader, bytes] | None:
    """The batch that holds an offset."""
    found = Topic(name=topic, topic_id=topic_id, internal=False)
    return await PartitionLog(cluster, found, partition, leader).batch_at(offset)


def batches(count: int, payload: bytes = b"p" * 50) -> list[bytes]:
    """Of five records each, from offset 0."""
    return [raw_batch(payload, base_offset=5 * number, leader_epoch=0) for number in range(count)]


@pytest.mark.parametrize("version", range(1, 11))
async def test_list_offset(version: int) -> None:
    """The ends in every version; the high watermark hides what is not replicated from all but replicas."""
    async with FakeCluster(versions={"ListOffsets": (1, version)}) as fake:
        fake.add_topic("t", partitions=2)
        fake.store("t", 1, *batches(3))
        fake.log("t", 1).delete_before(5)
        fake.log("t", 1).hidden = 4
        async with await Cluster.open("source", fake.options()) as cluster:
            assert await list_offset(cluster, "t", 1, LED, EARLIEST) == 5
            assert await list_offset(cluster, "t", 1, LED, LATEST) == 11
            assert await list_offset(cluster, "t", 1, LED, LATEST, replica_id=TRUE_END) == 15


async def test_list_offset_refused() -> None:
    """A leader of another epoch is none; nor is a broker that follows."""
    async with FakeCluster(brokers=2) as fake:
        fake.add_topic("t")
        fake.log("t").epoch = 3
        async with await Cluster.open("source", fake.options()) as cluster:
            for leader, code in (
                (Leader(1, 2), ErrorCode.FENCED_LEADER_EPOCH),
                (Leader(1, 4), ErrorCode.UNKNOWN_LEADER_EPOCH),
                (Leader(2, 3), ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ):
                with pytest.raises(Refused, match="source: ListOffsets of t-0") as caught:
                    await list_offset(cluster, "t", 0, leader, LATEST)
                assert caught.value.code == code


@pytest.mark.parametrize("version", range(4, 18))
async def test_read_batch(version: int) -> None:
    """Whole and by any offset in it, in every version, by name or by id."""
    async with FakeCluster(versions={"Fetch": (4, version)}) as fake:
        topic = fake.add_topic("t")
        stored = [*batches(2), raw_batch(b"q" * 3000, base_offset=10, leader_epoch=0)]
        fake.store("t", 0, *stored)
        topic_id = topic.topic_id.bytes if topic.topic_id else None
        async with await Cluster.open("source", fake.options()) as cluster:
            for offset in range(15):
                found = await read_batch(cluster, "t", topic_id, 0, LED, offset)
                assert found is not None
                assert found[1] == stored[offset // 5]
                assert found[0].base_offset == offset // 5 * 5
            assert await read_batch(cluster, "t", topic_id, 0, LED, 15) is None


async def test_read_batch_without_topic_ids() -> None:
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(1))
        async with await Cluster.open("source", fake.options()) as cluster:
            assert await read_batch(cluster, "t", None, 0, LED, 0) is not None
        assert fake.seen("Fetch")[0].version == 12


async def test_read_batch_passes_what_lies_before() -> None:
    """A broker may answer with the batches before the one that is wanted."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        stored = batches(3)

        def change(answer: Any) -> None:
            answer.responses[0].partitions[0].records = b"".join(stored)

        fake.store("t", 0, *stored)
        fake.next("Fetch", faults.alter(change))
        async with await Cluster.open("source", fake.options()) as cluster:
            found = await read_batch(cluster, "t", None, 0, LED, 12)
            assert found is not None
            assert found[1] == stored[2]


async def test_read_batch_refused() -> None:
    async with FakeCluster() as fake:
        fake.add_topic("t")
        async with await Cluster.open("source", fake.options()) as cluster:
            with pytest.raises(Refused, match=r"source: Fetch of t-0 at 9: OFFSET_OUT_OF_RANGE \(1\)"):
                await read_batch(cluster, "t", None, 0, LED, 9)


async def test_read_batch_of_the_old_formats() -> None:
    """Magic 0 and 1 are told from an empty log: the mirror never wrote them."""
    async with FakeCluster() as fake:
        fake.add_topic("t")

        def change(answer: Any) -> None:
            answer.responses[0].partitions[0].records = legacy_message(1)

        fake.next("Fetch", faults.alter(change))
        async with await Cluster.open("source", fake.options()) as cluster:
            with pytest.raises(Refused) as caught:
                await read_batch(cluster, "t", None, 0, LED, 0)
            assert caught.value.code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize(
    "records", [b"\x00" * 61, batches(1)[0][:8] + b"\xff" * 4 + batches(1)[0][12:], batches(1)[0][:16] + b"\x09" * 60]
)
async def test_read_batch_of_no_batch(records: bytes) -> None:
    """Bytes that are no batch: an error with the place and whose they are, never a crash."""
    async with FakeCluster() as fake:
        fake.add_topic("t")

        def change(answer: Any) -> None:
            answer.responses[0].partitions[0].records = records

        fake.next("Fetch", faults.alter(change))
        async with await Cluster.open("source", fake.options()) as cluster:
            with pytest.raises(Damaged, match="source: t-0 at 0") as caught:
                await read_batch(cluster, "t", None, 0, LED, 0)
            assert caught.value.cluster == "source"


@pytest.mark.parametrize("kind", ["ListOffsets", "Fetch", "DescribeProducers"])
async def test_answers_that_are_none(kind: str) -> None:
    """No partition in the answer, two of them, or garbage: an error that says what was asked."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(1))
        asks: dict[str, Callable[[Cluster], Awaitable[object]]] = {
            "ListOffsets": lambda cluster: list_offset(cluster, "t", 0, LED, LATEST),
            "Fetch": lambda cluster: read_batch(cluster, "t", None, 0, LED, 0),
            "DescribeProducers": lambda cluster: describe_producers(cluster, "t", 0, LED),
        }
        ask = asks[kind]

        def without_topics(answer: Any) -> None:
            if kind == "Fetch":
                answer.responses = []
            else:
                answer.topics = []

        def twice(answer: Any) -> None:
            topic = (answer.responses if kind == "Fetch" else answer.topics)[0]
            topic.partitions = [*topic.partitions, *topic.partitions]

        async with await Cluster.open("source", fake.options()) as cluster:
            for fault, match in (
                (faults.alter(without_topics), "0 partitions in the answer, asked for 1"),
                (faults.alter(twice), "2 partitions in the answer, asked for 1"),
                (faults.malformed(b"\x00\x00\x00\x00\x7f\x7f"), "source broker 1"),
            ):
                fake.next(kind, fault)
                with pytest.raises(NetworkError, match=match):
                    await ask(cluster)
            assert await asyncio.wait_for(ask(cluster), 30) is not None


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        (10, 0, True),
        (8, 0, True),
        (7, 0, False),
        (10, ErrorCode.UNSUPPORTED_VERSION, False),
        (10, ErrorCode.INVALID_REQUEST, False),
    ],
)
async def test_in_tiered_storage(version: int, code: int, expected: bool) -> None:
    """A broker that cannot tell has none."""
    async with FakeCluster(versions={"ListOffsets": (1, version)}) as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(3))
        fake.log("t").local_start = 10
        async with await Cluster.open("source", fake.options()) as cluster:
            for offset, there in ((9, expected), (10, False)):
                if code:
                    fake.next("ListOffsets", faults.refuse(code))
                assert await in_tiered_storage(cluster, "t", 0, LED, offset) is there
            fake.next("ListOffsets", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            if version >= 8:
                with pytest.raises(Refused):
                    await in_tiered_storage(cluster, "t", 0, LED, 9)


async def test_reading_what_is_in_tiered_storage() -> None:
    """
    1. Nothing at first, and the batch if it is waited for longer: a slow storage.
    2. Nothing however long, or an error: it is not there now, and nothing is said about the log.
    3. The same of what the leader's own disk has.
    """
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(3))
        fake.log("t").local_start = 10
        async with await Cluster.open("source", fake.options()) as cluster:
            log = PartitionLog(cluster, Topic(name="t", topic_id=None, internal=False), 0, LED)
            fake.next("Fetch", faults.nothing())
            assert (await log.read(5)).batches[0][0].base_offset == 5
            assert [seen.request.max_wait_ms >= 1_000 for seen in fake.seen("Fetch")] == [False, True]
            for each in (2 * [faults.nothing()], [faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)]):
                for fault in each:
                    fake.next("Fetch", fault)
                with pytest.raises(StorageUnavailable, match=r"t-0 at 5.*; the offset is in tiered storage"):
                    await log.read(5)
            fake.next("Fetch", faults.nothing())
            assert not (await log.read(10)).batches
            fake.next("Fetch", faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
            with pytest.raises(Unreadable):
                await log.read(10)


async def test_describe_producers() -> None:
    async with FakeCluster() as fake:
        fake.add_topic("t")
        log = fake.log("t")
        assert await _producers(fake) == []
        for sequence in (0, 5):
            batch = raw_batch(b"", base_offset=0, producer_id=1 << 62, producer_epoch=2, base_sequence=sequence)
            assert log.produce(batch)[0] == 0
        assert await _producers(fake) == [Producer(1 << 62, 2, 9)]


async def test_describe_producers_of_brokers_that_cannot_tell() -> None:
    """Before Kafka 2.8 there is no such request; without the right to it, it is refused. Both are 'not known'."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.next("DescribeProducers", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        assert await _producers(fake) is None
        fake.next("DescribeProducers", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(Refused, match="DescribeProducers of t-0"):
            await _producers(fake)
        del fake.versions["DescribeProducers"]
        assert await _producers(fake) is None


async def _producers(fake: FakeCluster) -> list[Producer] | None:
    async with await Cluster.open("source", fake.options()) as cluster:
        return await describe_producers(cluster, "t", 0, LED)
