"""What brokers answer to requests other than Produce: docs/BROKERS.md, from real ones of three generations."""

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.protocol.admin import CreateTopicsRequest, DescribeGroupsRequest, DescribeProducersRequest
from kafka.protocol.consumer import FetchRequest, LeaveGroupRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)

from mirror.net.cluster import Cluster
from mirror.net.coordinator import Coordinator, Ownership
from mirror.net.errors import Refused
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.identity import MIRROR_BIT
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes.loop import until
from tests.net.stage.real import create, log_of, opened, records
from tests.patience import KEEPING
from tests.records.builders import Record, kafka_batch

pytestmark = pytest.mark.broker

MIB = 1 << 20
SESSION_MS = 60_000
LONGEST_TRANSACTION_MS = 15 * 60_000
NOW_MS = 1_700_000_000_000
LENGTH_AT = 9
"""Of the length in a batch's header, the second byte: its bit 4 is 1 MiB."""


def consumer(sandbox: SandboxCluster, group: str, **settings: Any) -> Consumer:
    named = {name if name == "stats_cb" else name.replace("_", "."): value for name, value in settings.items()}
    return Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": group, "log_level": 0, **named})


def admin_of(sandbox: SandboxCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})


def delete(sandbox: SandboxCluster, topic: str) -> None:
    admin = admin_of(sandbox)
    admin.delete_topics([topic])[topic].result()


# Requests to leaders.


async def test_a_partition_that_is_named_twice(sandbox: SandboxCluster, topic_name: str) -> None:
    """ListOffsets refuses it. DescribeProducers and OffsetForLeaderEpoch answer each time."""
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        await log_of(cluster, topic_name)
        wanted = ListOffsetsRequest.ListOffsetsTopic
        row = partial(wanted.ListOffsetsPartition, partition_index=0, current_leader_epoch=-1)
        topics = [wanted(name=topic_name, partitions=[row(timestamp=-1), row(timestamp=-2)])]
        ends = await cluster.call(ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics))
        assert {row.error_code for row in ends.topics[0].partitions} == {ErrorCode.INVALID_REQUEST}
        named = DescribeProducersRequest.TopicRequest(name=topic_name, partition_indexes=[0, 0])
        producers = await cluster.call(DescribeProducersRequest(topics=[named]))
        assert [row.error_code for row in producers.topics[0].partitions] == [0, 0]
        of_epoch = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        asked = [of_epoch.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)] * 2
        epochs = await cluster.call(
            OffsetForLeaderEpochRequest(replica_id=-1, topics=[of_epoch(topic=topic_name, partitions=asked)])
        )
        assert [row.error_code for row in epochs.topics[0].partitions] == [0, 0]


async def test_an_answer_ends_with_its_segment(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. Three batches, each in a segment of its own: an answer has one, however much is asked for.
    2. The first two are deleted: nothing below the log's start is answered.
    """
    create(sandbox, topic_name, segment_bytes=str(MIB))
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        for _ in range(3):
            await log.produce(kafka_batch([Record(0, NOW_MS, b"k", bytes(600_000))]))
        for offset in range(3):
            found = await log.read(offset, max_bytes=8 * MIB)
            assert [header.base_offset for header, _ in found.batches] == [offset]
        await log.delete_before(2)
        for offset in (0, 1):
            with pytest.raises(Refused) as caught:
                await log.read(offset)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_length_that_is_too_large_hides_its_segment(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. Three batches, each in a segment of its own. On the disk, a bit of the second one's length flips: it reaches past
       the end of its file.
    2. The broker answers with the next segment, and a consumer that verifies checksums hears of no error.
    """
    create(sandbox, topic_name, segment_bytes=str(MIB))
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        for _ in range(3):
            await log.produce(kafka_batch([Record(0, NOW_MS, b"k", bytes(600_000))]))
        (path,) = (broker.data_dir / f"{topic_name}-0" / f"{1:020d}.log" for broker in sandbox.brokers)
        with path.open("r+b") as file:
            file.seek(LENGTH_AT)
            (byte,) = file.read(1)
            file.seek(LENGTH_AT)
            file.write(bytes([byte ^ 0x10]))
        found = await log.read(1, max_bytes=8 * MIB)
        assert [header.base_offset for header, _ in found.batches] == [2]
    reader = consumer(sandbox, topic_name, enable_partition_eof=True, check_crcs=True)
    reader.assign([TopicPartition(topic_name, 0, 0)])
    seen: list[tuple[int, int | None]] = []
    while not seen or seen[-1][1] is None:
        message = reader.poll(60)
        assert message is not None
        error = message.error()
        seen.append((message.offset() or 0, error.code() if error is not None else None))
    reader.close()
    assert seen == [(0, None), (2, None), (3, KafkaError._PARTITION_EOF)]


async def test_whoever_is_named_first_is_served_first(sandbox: SandboxCluster, topic_name: str) -> None:
    """An answer that is full with the first partition has nothing of the second one."""
    create(sandbox, topic_name, partitions=2)
    for partition in (0, 1):
        records(sandbox, topic_name, ["x" * 1_000] * 10, partition=partition)
    async with opened(sandbox) as cluster:
        for partition in (0, 1):
            await log_of(cluster, topic_name, partition)
        for order in ((0, 1), (1, 0)):
            sizes = {
                index: len(found) for index, found in (await fetched(cluster, topic_name, *order, most=1_000)).items()
            }
            assert sizes[order[0]] > 1_000
            assert sizes[order[1]] == 0


async def fetched(cluster: Cluster, topic: str, *partitions: int, most: int = MIB) -> dict[int, bytes]:
    """Partition -> what a Fetch by the topic's name gives of it, from offset 0."""
    wanted = FetchRequest.FetchTopic
    asked = [
        wanted.FetchPartition(
            partition=index, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
            partition_max_bytes=MIB,
        )
        for index in partitions
    ]  # fmt: skip
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=most, isolation_level=0, session_id=0, session_epoch=-1,
        topics=[wanted(topic=topic, partitions=asked)], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    answer = await cluster.call(request, version=12)
    rows = answer.responses[0].partitions
    assert [row.error_code for row in rows] == [0] * len(partitions)
    return {row.partition_index: bytes(row.records or b"") for row in rows}


async def test_a_fetch_by_name_goes_on_with_another_topic(sandbox: SandboxCluster, topic_name: str) -> None:
    """The topic is deleted and made anew under its name: the same request gets the other one's records."""
    create(sandbox, topic_name)
    records(sandbox, topic_name, ["of the first"])
    async with opened(sandbox) as cluster:
        before = (await log_of(cluster, topic_name)).topic.topic_id
        assert b"of the first" in (await fetched(cluster, topic_name, 0))[0]
        delete(sandbox, topic_name)
        while True:
            try:
                create(sandbox, topic_name)
                break
            except KafkaException:
                await asyncio.sleep(0.1)
        records(sandbox, topic_name, ["of the second"])
        after = (await log_of(cluster, topic_name)).topic.topic_id
        assert before is not None
        assert after not in (None, before)
        assert b"of the second" in (await fetched(cluster, topic_name, 0))[0]


# Markers and transactions.


def marker(producer_id: int, epoch: int, coordinator_epoch: int, topic: str) -> Any:
    wanted = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [wanted.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
    return wanted(
        producer_id=producer_id, producer_epoch=epoch, transaction_result=False, coordinator_epoch=coordinator_epoch,
        topics=topics,
    )  # fmt: skip


async def test_the_last_markers_error_hides_the_others(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. Two markers of a producer for one partition have one row in the answer.
    2. Of one that is refused (its coordinator's epoch is too low) and one that is written, the row has the last error:
       none, if the refused one was the first. Only the log's end tells.
    """
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)

        async def write(*markers: tuple[int, int]) -> list[int]:
            """Errors, by (epoch, coordinator epoch)."""
            made = [marker(MIRROR_BIT | 77, *each, topic_name) for each in markers]
            answer = await cluster.call(WriteTxnMarkersRequest(markers=made))
            return [row.error_code for one in answer.markers for topic in one.topics for row in topic.partitions]

        assert (await write((6, 3), (7, 3)), await log.true_end()) == ([0], 2)
        assert (await write((8, 1), (8, 3)), await log.true_end()) == ([0], 3)
        assert (await write((9, 3), (9, 1)), await log.true_end()) == ([ErrorCode.TRANSACTION_COORDINATOR_FENCED], 4)


async def begun(cluster: Cluster, transactional_id: str, topic: str, owner: Ownership) -> None:
    """A transaction with the topic's first partition in it."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=owner.producer_id,
        v3_and_below_producer_epoch=owner.epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    answer = await cluster.call(request, version=3)
    (row,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert row.partition_error_code == 0


@pytest.mark.parametrize("newest", [False, True])
async def test_what_ends_a_transaction_moves_the_epoch(sandbox: SandboxCluster, topic_name: str, newest: bool) -> None:
    """Only EndTxn v5 (KIP-890), where a broker speaks it; the marker has the new epoch then."""
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        log, coordinator = await log_of(cluster, topic_name), Coordinator(cluster)
        owner = await coordinator.init_producer_id(topic_name)
        await begun(cluster, topic_name, topic_name, owner)
        end = EndTxnRequest(
            transactional_id=topic_name, producer_id=owner.producer_id, producer_epoch=owner.epoch, committed=False
        )
        answer = await cluster.call(end, version=None if newest else 4)
        assert answer.error_code == 0
        assert (answer.version == 5) is (newest and sandbox.version == "4.3.0")
        while await log.visible_end() != 1:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.01)
        found = await log.batch_at(0)
        assert found is not None
        assert found[0].producer_epoch == owner.epoch + (answer.version == 5)


async def test_a_transaction_that_nobody_ends_is_aborted(sandbox: SandboxCluster, topic_name: str) -> None:
    """After its producer's timeout, which may not be longer than the brokers allow."""
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        await Coordinator(cluster).init_producer_id(topic_name)  # so that the coordinator is there

        async def take(timeout_ms: int) -> Any:
            return await cluster.call(
                InitProducerIdRequest(transactional_id=topic_name, transaction_timeout_ms=timeout_ms), version=1
            )

        too_long = await take(LONGEST_TRANSACTION_MS + 1)
        assert too_long.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        taken = await take(1)
        await begun(cluster, topic_name, topic_name, Ownership(taken.producer_id, taken.producer_epoch))
        while await log.visible_end() != 1:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0.1)
        found = await log.batch_at(0)
        assert found is not None
        assert found[0].is_control


# Configs.


async def test_how_long_producers_are_remembered_can_change(sandbox: SandboxCluster) -> None:
    """While the broker runs. 2.8 does not know that config."""
    broker = str(sandbox.brokers[0].node_id)
    admin, name = admin_of(sandbox), "producer.id.expiration.ms"

    def told() -> tuple[str, bool] | None:
        resource = ConfigResource(ResourceType.BROKER, broker)
        entry = admin.describe_configs([resource])[resource].result().get(name)
        return None if entry is None else (entry.value, entry.is_read_only)

    def alter(value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()

    if sandbox.version == "2.8.2":
        assert told() is None
    else:
        assert told() == ("86400000", False)
        alter("86300000", AlterConfigOpType.SET)
        await until(lambda: told() == ("86300000", False))
        alter(None, AlterConfigOpType.DELETE)
        await until(lambda: told() == ("86400000", False))


async def test_an_older_limit_of_timestamps(sandbox: SandboxCluster, topic_name: str) -> None:
    """message.timestamp.difference.max.ms: in both directions, up to 3.9. Brokers of 4.x have no such config."""
    if sandbox.version == "4.3.0":
        with pytest.raises(KafkaException, match="Unknown topic config name"):
            create(sandbox, topic_name, message_timestamp_difference_max_ms="60000")
        return
    create(sandbox, topic_name, message_timestamp_difference_max_ms="60000")
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        now_ms = round(time.time() * 1_000)
        assert await log.produce(kafka_batch([Record(0, now_ms, b"k", b"v")])) == 0
        for away_ms in (-600_000, 600_000):
            with pytest.raises(Refused) as caught:
                await log.produce(kafka_batch([Record(0, now_ms + away_ms, b"k", b"v")]))
            assert caught.value.code == ErrorCode.INVALID_TIMESTAMP


# Groups.


async def test_a_deleted_topic_takes_committed_offsets_along(sandbox: SandboxCluster, topic_name: str) -> None:
    create(sandbox, topic_name)
    records(sandbox, topic_name, ["a"])
    reader, partition = consumer(sandbox, topic_name), TopicPartition(topic_name, 0)
    try:
        reader.commit(offsets=[TopicPartition(topic_name, 0, 1)], asynchronous=False)
        assert reader.committed([partition], 30)[0].offset == 1
        delete(sandbox, topic_name)
        await until(lambda: reader.committed([partition], 30)[0].offset < 0)
    finally:
        reader.close()


async def test_anybody_may_take_a_member_out_of_its_group(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. A group that is not there is Dead; from DescribeGroups v6 on it is GROUP_ID_NOT_FOUND.
    2. Somebody else leaves in a member's name: it is out at once, long before its session would be over.
    """
    create(sandbox, topic_name)
    member = consumer(sandbox, topic_name, session_timeout_ms=SESSION_MS)
    try:
        member.subscribe([topic_name])
        await until(lambda: member.poll(0.1) is None and member.assignment())
        async with opened(sandbox) as cluster:

            async def described(group: str, version: int | None = None) -> Any:
                return (await cluster.call(DescribeGroupsRequest(groups=[group]), version=version)).groups[0]

            nobody, before = await described("none"), await described("none", 5)
            assert (before.error_code, before.group_state) == (0, "Dead")
            has_v6 = sandbox.version == "4.3.0"
            assert nobody.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if has_v6 else 0)
            joined = await described(topic_name)
            assert joined.group_state == "Stable"
            left = LeaveGroupRequest.MemberIdentity(member_id=joined.members[0].member_id, group_instance_id=None)
            answer = await cluster.call(LeaveGroupRequest(group_id=topic_name, members=[left]))
            assert [row.error_code for row in answer.members] == [0]
            assert ((after := await described(topic_name)).group_state, after.members) == ("Empty", [])
    finally:
        member.close()


async def test_a_consumer_that_pauses_at_once_fetches_nothing(sandbox: SandboxCluster, topic_name: str) -> None:
    """In its assignment callback. By librdkafka's own statistics, nothing has come; once it goes on, records do."""
    create(sandbox, topic_name)
    told: list[dict[str, Any]] = []

    def pause(reader: Consumer, partitions: list[TopicPartition]) -> None:
        reader.assign(partitions)
        reader.pause(partitions)

    reader = consumer(
        sandbox, topic_name, auto_offset_reset="earliest", statistics_interval_ms=100,
        stats_cb=lambda text: told.append(json.loads(text)),
    )  # fmt: skip
    try:
        reader.subscribe([topic_name], on_assign=pause)
        await until(lambda: reader.poll(0.1) is None and reader.assignment())
        since = len(told)
        await until(lambda: reader.poll(0.1) is None and len(told) > since + 10)
        records(sandbox, topic_name, ["a"] * 10)  # when no fetch from before the pause waits any more
        await until(lambda: reader.poll(0.1) is None and len(told) > since + 20)
        assert told[-1]["rxmsgs"] == 0
        reader.resume([TopicPartition(topic_name, 0)])
        await until(lambda: reader.poll(0.1) is not None)
    finally:
        reader.close()


# Brokers from before Kafka 2.4.


@pytest.fixture(scope="module")
def kafka_2_0() -> Iterator[SandboxCluster]:
    with SandboxCluster(name="kafka-2.0", version="2.0.1", properties=KEEPING, quick=True) as cluster:
        yield cluster


def ours(epoch: int, sequence: int) -> bytes:
    return kafka_batch(
        [Record(0, NOW_MS, b"k", b"v")], leader_epoch=NO_LEADER_EPOCH, producer_id=MIRROR_BIT | 5,
        producer_epoch=epoch, base_sequence=sequence,
    )  # fmt: skip


async def test_an_unknown_producer_has_to_begin_anew(kafka_2_0: SandboxCluster, topic_name: str) -> None:
    """
    1. A sequence above 0 of a producer that the leader does not remember is refused. A new epoch, from 0, helps.
    2. With its records, the producer is forgotten.
    3. Topics have no ids.
    """
    create(kafka_2_0, topic_name)
    async with opened(kafka_2_0) as cluster:
        log = await log_of(cluster, topic_name)

        async def is_unknown(batch: bytes) -> bool:
            with pytest.raises(Refused) as caught:
                await log.produce(batch)
            return caught.value.code == ErrorCode.UNKNOWN_PRODUCER_ID

        assert await is_unknown(ours(0, 5))
        assert await log.produce(ours(1, 0)) == 0
        assert await log.produce(ours(1, 1)) == 1
        await log.delete_before(2)
        assert await is_unknown(ours(1, 2))
        assert log.topic.topic_id is None


async def test_a_default_of_replicas_is_not_known_yet(kafka_2_0: SandboxCluster, topic_name: str) -> None:
    async with opened(kafka_2_0) as cluster:
        wanted = CreateTopicsRequest.CreatableTopic(
            name=topic_name, num_partitions=1, replication_factor=-1, assignments=[], configs=[]
        )
        answer = await cluster.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False))
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REPLICATION_FACTOR]
