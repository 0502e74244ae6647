"""A partition's log on real brokers: every method of ``PartitionLog``, on Kafka of three generations."""

import asyncio

import pytest

from mirror.net.errors import Refused, RequestTimedOut
from mirror.net.logs.log import EpochEnd, Marker, PartitionLog, Producer
from mirror.net.metadata import Leader
from mirror.records.header import NO_LEADER_EPOCH, BatchHeader
from mirror.records.identity import MIRROR_BIT
from mirror.records.scan import NOT_SEEN
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.net.stage.real import consumed, create, log_of, opened, records, transaction
from tests.records.builders import RECORDS, kafka_batch

pytestmark = pytest.mark.broker

OURS = MIRROR_BIT | 5 << 20
ISOLATIONS = ("read_uncommitted", "read_committed")


def ours(epoch: int, sequence: int, *, codec: int = 0) -> bytes:
    """Three records of our producer id, as they are sent."""
    return kafka_batch(
        leader_epoch=NO_LEADER_EPOCH, producer_id=OURS, producer_epoch=epoch, base_sequence=sequence, codec=codec
    )


async def test_ends_and_batches(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. An empty log begins and ends at 0, and has no batch.
    2. Three batches of another client: the ends, the batch of each offset, several in one read, nothing at the end.
    3. A leader of another epoch is none.
    """
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        assert log.name == f"{topic_name}-0 at {cluster.name}"
        assert (await log.start(), await log.true_end(), await log.visible_end()) == (0, 0, 0)
        assert await log.batch_at(0) is None
        assert await log.producers() == []
        for number in range(3):
            records(sandbox, topic_name, [f"{number} {record}" for record in range(4)])
        assert (await log.start(), await log.true_end(), await log.visible_end()) == (0, 12, 12)
        for offset in range(12):
            found = await log.batch_at(offset)
            assert found is not None
            header, batch = found
            assert (header.base_offset, header.last_offset) == (offset // 4 * 4, offset // 4 * 4 + 3)
            assert header == BatchHeader.read(batch)
            assert len(batch) == header.size
        segment = await log.read(5, max_bytes=1 << 20)
        assert [header.base_offset for header, _ in segment.batches] == [4, 8]
        assert segment[1:] == ([], 12, 12, 0, NOT_SEEN)
        assert (await log.read(12)).batches == []
        with pytest.raises(Refused) as caught:
            await log.read(13)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        stale = PartitionLog(cluster, log.topic, 0, Leader(log.leader.node_id, log.leader.epoch + 1))
        for ask in (stale.start(), stale.true_end(), stale.batch_at(0)):
            with pytest.raises(Refused) as caught:
                await ask
            assert caught.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_where_an_epoch_ends(sandbox: SandboxCluster, topic_name: str) -> None:
    """That of now at the log's end, a later one nowhere; a leader of another epoch is none."""
    create(sandbox, topic_name)
    records(sandbox, topic_name, ["a", "b", "c"])
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        epoch = log.leader.epoch
        assert await log.end_of_epoch(epoch) == EpochEnd(epoch, 3)
        assert await log.end_of_epoch(epoch + 1) == EpochEnd(-1, -1)
        both = tuple(await asyncio.gather(log.end_of_epoch(epoch), log.end_of_epoch(epoch + 1)))
        assert both == (EpochEnd(epoch, 3), EpochEnd(-1, -1)), "one partition, asked about twice at once"
        stale = PartitionLog(cluster, log.topic, 0, Leader(log.leader.node_id, epoch + 1))
        with pytest.raises(Refused) as caught:
            await stale.end_of_epoch(epoch)
        assert caught.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_read_committed(sandbox: SandboxCluster, topic_name: str) -> None:
    """The aborted transaction is named with its first offset; uncommitted, it is not."""
    create(sandbox, topic_name)
    transaction(sandbox, topic_name, ["a", "b"], commit=False, transactional_id=topic_name)
    transaction(sandbox, topic_name, ["c"], commit=True, transactional_id=topic_name)
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        end = await log.true_end()
        assert end == 5
        segment = await log.read(0, max_bytes=1 << 20, committed=True)
        assert segment.last_stable_offset == end
        producer_id = segment.batches[0][0].producer_id
        assert segment.aborted == [(producer_id, 0)]
        assert [header.is_control for header, _ in segment.batches] == [False, True, False, True]
        assert (await log.read(0, max_bytes=1 << 20)).aborted == []
        assert (await log.read(3, committed=True)).aborted == []


async def test_produce(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. Two batches of our identity: each has the base offset that the log gave it, and the producer is remembered.
    2. The first again: its first offset, and nothing appended. One out of order: refused.
    """
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        assert await log.produce(ours(0, 0)) == 0
        assert await log.produce(ours(0, 3, codec=4)) == 3
        assert await log.producers() == [Producer(OURS, 0, 5)]
        assert await log.produce(ours(0, 0)) == 0
        with pytest.raises(Refused) as caught:
            await log.produce(ours(0, 9))
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await log.true_end() == 6
    values = [(record.value or b"").decode() for record in RECORDS]
    assert await consumed(sandbox, topic_name, 6, isolation="read_committed") == list(enumerate(values * 2))


async def test_markers(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. Data of epoch 0, seven markers of epoch 1, data of epoch 2: each marker takes one offset and is an ABORT.
    2. Data of the epoch before the markers are fenced from then on.
    3. Consumers of both isolation levels see the records, at their offsets, and nothing of the markers.
    """
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        assert await log.produce(ours(0, 0)) == 0
        await log.write_markers(Marker(OURS, 1), 7)
        assert (await log.true_end(), await log.visible_end()) == (10, 10)
        segment = await log.read(3, max_bytes=1 << 20)
        for offset, (header, batch) in enumerate(segment.batches, 3):
            assert header.is_control
            assert (header.base_offset, header.last_offset) == (offset, offset)
            assert (header.producer_id, header.producer_epoch) == (OURS, 1)
            assert bytes(batch[-10:]).find(b"\0\0\0\0") >= 0  # the key: version 0, type 0 (ABORT)
        assert len(segment.batches) == 7
        with pytest.raises(Refused) as caught:
            await log.produce(ours(0, 3))
        assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
        with pytest.raises(Refused) as caught:
            await log.write_markers(Marker(OURS, 0), 1)
        assert await log.produce(ours(2, 0)) == 10
        assert await log.true_end() == 13
    values = [(record.value or b"").decode() for record in RECORDS]
    expected = [*enumerate(values), *enumerate(values, 10)]
    for isolation in ISOLATIONS:
        assert await consumed(sandbox, topic_name, 13, isolation=isolation) == expected


async def test_markers_of_many_partitions(sandbox: SandboxCluster, topic_name: str) -> None:
    """Fifty partitions at once, each with a producer id and a number of its own: every end is right."""
    create(sandbox, topic_name, partitions=50)
    async with opened(sandbox) as cluster:
        logs = [await log_of(cluster, topic_name, partition) for partition in range(50)]
        await asyncio.gather(*(log.write_markers(Marker(OURS + 256 * log.index, 1), log.index + 1) for log in logs))
        assert await asyncio.gather(*(log.true_end() for log in logs)) == list(range(1, 51))
        assert await asyncio.gather(*(log.start() for log in logs)) == [0] * 50
        for log, found in zip(logs, await asyncio.gather(*(log.producers() for log in logs)), strict=True):
            assert found == [Producer(OURS + 256 * log.index, 1, -1, 0)]


async def test_markers_for_a_partition_that_is_not_there(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. Alone: refused.
    2. Beside one that is there: brokers append the other's marker, and answer neither. Both callers hear of it when the
       time is over; the next markers go over a new connection.
    """
    create(sandbox, topic_name)
    async with opened(sandbox, request_timeout_s=2) as hasty, opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        nowhere = PartitionLog(cluster, log.topic, 1, log.leader)
        with pytest.raises(Refused) as caught:
            await nowhere.write_markers(Marker(OURS, 1), 1)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        there, nowhere = (PartitionLog(hasty, log.topic, index, log.leader) for index in (0, 1))
        both = (there.write_markers(Marker(OURS, 1), 2), nowhere.write_markers(Marker(OURS + 256, 1), 1))
        for result in await asyncio.gather(*both, return_exceptions=True):
            assert isinstance(result, RequestTimedOut)
        assert await log.true_end() == 2
        await there.write_markers(Marker(OURS, 1), 1)
        assert await log.true_end() == 3


async def test_delete_before(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. The log's start moves into the middle of a batch, and to the end.
    2. Past the end: refused. On a compacted topic: refused.
    """
    create(sandbox, topic_name)
    compacted = f"{topic_name}-compacted"
    create(sandbox, compacted, cleanup_policy="compact")
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic_name)
        for sequence in (0, 3):
            await log.produce(ours(0, sequence))
        for offset in (4, 6):
            await log.delete_before(offset)
            assert await log.start() == offset
        assert await log.true_end() == 6
        with pytest.raises(Refused) as caught:
            await log.delete_before(7)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        with pytest.raises(Refused) as caught:
            await (await log_of(cluster, compacted)).delete_before(0)
        assert caught.value.code == ErrorCode.POLICY_VIOLATION
