"""What brokers do while a follower is behind, with a request that is not for them, and as cleaners: docs/BROKERS.md."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
)
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused
from mirror.net.logs.log import PartitionLog, Producer
from mirror.net.metadata import Leader
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.identity import MIRROR_BIT
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.net.stage.real import alter, create, log_of, opened
from tests.patience import PATIENT
from tests.records.builders import Record, kafka_batch

pytestmark = pytest.mark.broker

OURS, OTHERS = MIRROR_BIT | 5 << 20, MIRROR_BIT | 6 << 20
MIB = 1 << 20
NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def three() -> Iterator[SandboxCluster]:
    """Three brokers, whose cleaners do not wait. One that stands still is in sync for a minute."""
    slow = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "60000"}
    properties = {**PATIENT, **slow, "log.cleaner.backoff.ms": "100"}
    with SandboxCluster(name="three", brokers=3, properties=properties, quick=True) as sandbox:
        yield sandbox


def batch(producer_id: int = OURS, sequence: int = 0, *, key: bytes = b"k", value: bytes = b"v") -> bytes:
    return kafka_batch(
        [Record(0, NOW_MS, key, value)], leader_epoch=NO_LEADER_EPOCH, producer_id=producer_id, producer_epoch=0,
        base_sequence=sequence,
    )  # fmt: skip


def produce(topic: str, data: bytes, timeout_ms: int) -> Any:
    wanted = ProduceRequest.TopicProduceData
    partition = wanted.PartitionProduceData(index=0, records=data)
    topics = [wanted(name=topic, partition_data=[partition])]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=timeout_ms, topic_data=topics)


@asynccontextmanager
async def behind(three: SandboxCluster, topic: str) -> AsyncIterator[PartitionLog]:
    """A log with one batch, all of whose followers stand still."""
    create(three, topic, replicas=2)
    async with opened(three) as cluster:
        log = await log_of(cluster, topic)
        await log.produce(batch())
        answer = await cluster.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)]))
        (follower,) = {*answer.topics[0].partitions[0].replica_nodes} - {log.leader.node_id}
        three.brokers[follower - 1].pause()
        try:
            yield log
        finally:
            three.brokers[follower - 1].resume()


async def test_an_error_can_follow_the_append(three: SandboxCluster, topic_name: str) -> None:
    """
    1. The follower stands still: REQUEST_TIMED_OUT with a base offset, and the batch is in the leader's log, where no
       consumer sees it.
    2. DescribeProducers tells of it all the same.
    """
    async with behind(three, topic_name) as log:
        answer = await log.cluster.call(
            produce(topic_name, batch(sequence=1), 300), node_id=log.leader.node_id, version=8
        )
        (row,) = answer.responses[0].partition_responses
        assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 1)
        assert (await log.true_end(), await log.visible_end()) == (2, 1)
        assert await log.producers() == [Producer(OURS, 0, 1)]


async def led_by(cluster: Cluster, topic: str, node_id: int) -> PartitionLog:
    """The log, once this broker leads it; all three brokers have it."""
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    order = [node_id, *({1, 2, 3} - {node_id})]
    wanted = kind(name=topic, partitions=[kind.ReassignablePartition(partition_index=0, replicas=order)])
    one = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])
    while (log := await log_of(cluster, topic)).leader.node_id != node_id:
        with suppress(NetworkError):  # the broker that stands still may have been the controller
            reassign = AlterPartitionReassignmentsRequest(timeout_ms=2_000, topics=[wanted])
            await cluster.call(reassign, node_id=node_id)
            elect = ElectLeadersRequest(election_type=0, topic_partitions=[one], timeout_ms=2_000)
            await cluster.call(elect, node_id=node_id)
    return log


async def size_at(cluster: Cluster, topic: str, node_id: int) -> int:
    """The bytes of the replica of partition 0 on this broker."""
    wanted = DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=[0])
    answer = await cluster.call(DescribeLogDirsRequest(topics=[wanted]), node_id=node_id)
    return int(sum(one.partition_size for row in answer.results for each in row.topics for one in each.partitions))


async def test_a_former_leader_may_have_appended(three: SandboxCluster, topic_name: str) -> None:
    """
    1. One follower has a batch, and the other one stands still. The first comes to lead: NOT_LEADER_OR_FOLLOWER with a
       base offset, and the batch is in the log.
    2. What comes to the former leader after that is not appended: the same error with base offset -1.
    """
    create(three, topic_name, replicas=3)
    async with opened(three, request_timeout_s=3.0) as cluster:  # of a connection to the broker that stands still
        former = await led_by(cluster, topic_name, 1)
        await former.produce(batch())
        other = await cluster.dial(1)
        three.brokers[2].pause()
        try:
            wanted = produce(topic_name, batch(sequence=1), 50_000)
            waits = asyncio.create_task(other.call(wanted, version=8, timeout_s=60.0))
            size = len(batch()) + len(batch(sequence=1))
            while not all([await size_at(cluster, topic_name, node) == size for node in (1, 2)]):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            log = await led_by(cluster, topic_name, 2)
            (row,) = (await waits).responses[0].partition_responses
            assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
            assert await log.true_end() == 2
            late = await other.call(produce(topic_name, batch(sequence=2), 300), version=8)
            (row,) = late.responses[0].partition_responses
            assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert await log.true_end() == 2
        finally:
            three.brokers[2].resume()
            other.close()
        await cluster.refresh([topic_name])
        while len(cluster.nodes) < 3:  # the controller had taken it for dead
            await asyncio.sleep(0.1)
            await cluster.refresh([topic_name])


async def test_a_slow_request_holds_up_its_connection(three: SandboxCluster, topic_name: str) -> None:
    """What is behind it on the connection waits; another connection does not."""
    async with behind(three, topic_name) as log:
        cluster, leader = log.cluster, log.leader.node_id
        slow, other = await cluster.dial(leader), await cluster.dial(leader)
        try:
            waits = asyncio.create_task(slow.call(produce(topic_name, batch(sequence=1), 15_000), version=8))
            while await log.true_end() != 2:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.01)
            metadata = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            held = asyncio.create_task(slow.call(metadata))
            await other.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
            assert not waits.done()
            assert not held.done()
            await held
            assert waits.done()
        finally:
            slow.close()
            other.close()


async def test_any_broker_passes_on_what_is_for_the_controller(three: SandboxCluster, topic_name: str) -> None:
    async with opened(three) as cluster:
        for node_id in cluster.nodes:
            wanted = CreateTopicsRequest.CreatableTopic(
                name=f"{topic_name}-{node_id}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False)
            answer = await cluster.call(request, node_id=node_id)
            assert [topic.error_code for topic in answer.topics] == [0]
        assert len(cluster.nodes) == 3


async def test_a_cleaner_leaves_the_start_the_end_and_a_producers_last_batch(
    three: SandboxCluster, topic_name: str
) -> None:
    """
    1. A record is superseded, and its segment is closed: its batch stays where it was, as an empty one, because the
       leader remembers who wrote it. Another producer's batch in between, which is not that one's last, goes.
    2. What is superseded in the newest segment stays. So do the log's start and its end.
    """
    large = bytes(700_000)
    create(three, topic_name, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0", segment_bytes=str(MIB))
    async with opened(three) as cluster:
        log = await log_of(cluster, topic_name)
        await log.produce(batch())
        for sequence, (key, value) in enumerate(
            [(b"k", b"v"), (b"k", b"w"), (b"large", large), (b"large", large), (b"k", b"x"), (b"k", b"y")]
        ):
            await log.produce(batch(OTHERS, sequence, key=key, value=value))

        async def left() -> list[tuple[int, int]]:
            """(base offset, records) of each batch."""
            found, offset = [], 0
            while segment := (await log.read(offset, max_bytes=8 * MIB)).batches:
                found += [(header.base_offset, header.record_count) for header, _ in segment]
                offset = segment[-1][0].next_offset
            return found

        assert await left() == [(at, 1) for at in range(7)]
        await asyncio.to_thread(alter, three, topic_name, "min.cleanable.dirty.ratio", "0.0001")
        while (0, 1) in await left():  # noqa: ASYNC110 - a cleaner has no event
            await asyncio.sleep(0.1)
        assert await left() == [(0, 0), *((at, 1) for at in range(2, 7))]
        assert (await log.start(), await log.true_end()) == (0, 7)


async def test_an_earlier_leader_epoch_is_refused(three: SandboxCluster, topic_name: str) -> None:
    """The leader is killed; the next one refuses who names the epoch before. (Last: a broker is gone for a while.)"""
    create(three, topic_name, replicas=3)
    async with opened(three) as cluster:
        before = (await log_of(cluster, topic_name)).leader
        broker = three.brokers[before.node_id - 1]
        broker.kill()
        try:
            while (log := await log_of(cluster, topic_name)).leader.epoch == before.epoch:  # noqa: ASYNC110 - an election has none
                await asyncio.sleep(0.1)
            stale = PartitionLog(cluster, log.topic, 0, Leader(log.leader.node_id, before.epoch))
            for ask in (stale.start(), stale.batch_at(0), stale.end_of_epoch(before.epoch)):
                with pytest.raises(Refused) as caught:
                    await ask
                assert caught.value.code == ErrorCode.FENCED_LEADER_EPOCH
        finally:
            broker.start()
