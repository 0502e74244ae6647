"""Tests of the fake cluster itself: if it did not refuse what brokers refuse, and fail on demand, its users would prove
nothing."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.producer import ProduceRequest

from mirror.records.header import BatchHeader
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster, Unscripted
from tests.fakes.log import FakeLog
from tests.fakes.loop import until
from tests.records.builders import raw_batch


def batch(*, base: int = 0, count: int = 1, sequence: int = -1, producer: int = -1, epoch: int = -1) -> bytes:
    return raw_batch(
        b"x" * 30,
        base_offset=base,
        last_offset_delta=count - 1,
        record_count=count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def ours(sequence: int, count: int = 1, *, epoch: int = 0) -> bytes:
    return batch(count=count, sequence=sequence, producer=7, epoch=epoch)


class Client:
    """A simple client: kafka-python's frames over a stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: Any, version: int) -> Any:
        request.API_VERSION = version
        request.with_header(correlation_id=3, client_id="c")
        self.writer.write(bytes(request.encode(header=True, framed=True)))
        return request.header.get_response_class().decode(await self.frame(), version=version, header=True)

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)


@asynccontextmanager
async def client_of(cluster: FakeCluster, node_id: int = 1) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.brokers[node_id].port)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def produce(*entries: tuple[str, int, bytes]) -> Any:
    topic = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            topic(name=name, partition_data=[topic.PartitionProduceData(index=index, records=records)])
            for name, index, records in entries
        ],
    )


def fetch(offset: int, *, max_bytes: int = 1 << 20, max_wait_ms: int = 1, last_epoch: int = -1) -> Any:
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=last_epoch, log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )  # fmt: skip
    return FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[topic(topic="t", partitions=[partition])], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip


# The log.


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(ours(0) + ours(1), ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(batch(base=5), ErrorCode.INVALID_RECORD, id="a base offset"),
        pytest.param(raw_batch(b"", base_offset=0, record_count=4), ErrorCode.INVALID_RECORD, id="a hole"),
        pytest.param(raw_batch(b"", base_offset=0, attributes=0x20), ErrorCode.INVALID_RECORD, id="a marker"),
        pytest.param(ours(-1), ErrorCode.INVALID_RECORD, id="no sequence"),
        pytest.param(
            raw_batch(b"", base_offset=0, attributes=0x10),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="transactional",
        ),
        pytest.param(ours(0)[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE, id="damaged"),
        pytest.param(ours(0)[:-1], ErrorCode.CORRUPT_MESSAGE, id="cut"),
        pytest.param(b"", ErrorCode.CORRUPT_MESSAGE, id="nothing"),
        pytest.param(raw_batch(bytes(2000), base_offset=0), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
    ],
)
def test_refused(records: bytes, code: int) -> None:
    log = FakeLog(max_batch_size=1000)
    assert log.produce(records) == (code, -1)
    assert log.end == 0


def test_sequences() -> None:
    """
    1. The first sequence of an unknown producer may be anything; the next ones must follow it.
    2. A repeat of one of the last five gets its old offset. Older ones, other boundaries and gaps are refused.
    3. A lower epoch is fenced, a higher one begins at 0.
    """
    log = FakeLog()
    assert [log.produce(ours(100 + 2 * n, 2)) for n in range(6)] == [(0, 2 * n) for n in range(6)]
    assert log.produce(ours(102, 2)) == (0, 2)
    for late in (ours(100, 2), ours(102, 1), ours(113, 1)):
        assert log.produce(late) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert log.produce(ours(5, epoch=1)) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert log.produce(ours(0, epoch=1)) == (0, 12)
    assert log.produce(ours(112, epoch=0)) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert log.end == 13


def test_sequences_wrap() -> None:
    log = FakeLog()
    last = (1 << 31) - 1
    assert log.produce(ours(last)) == (0, 0)
    assert log.produce(ours(0)) == (0, 1)


def test_reading() -> None:
    """
    1. A read begins with the batch that holds the offset, and is cut by bytes.
    2. An oversize first batch is complete where that is promised. Elsewhere it is left out, or cut with ``slices``.
    3. Nothing above the high watermark is read.
    """
    log = FakeLog()
    batches = [batch(base=3 * n, count=3) for n in range(3)]
    for one in batches:
        log.store(one)
    everything = b"".join(batches)
    assert log.read(4, 1 << 20, whole_first=True) == everything[len(batches[0]) :]
    assert log.read(0, 100, whole_first=True) == everything[:100]
    assert log.read(0, 10, whole_first=True) == batches[0]
    assert log.read(0, 10, whole_first=False) == b""
    assert log.read(0, 10, whole_first=False, slices=True) == batches[0][:10]
    log.hidden = 3
    assert log.read(0, 1 << 20, whole_first=True) == b"".join(batches[:2])


# The cluster.


async def test_answers_in_every_version() -> None:
    """What is produced can be fetched, in each version that the mirror speaks. Only replicas get the true end."""
    async with FakeCluster() as cluster, client_of(cluster) as client:
        topic = cluster.add_topic("t")
        for version in range(3, 13):
            answer = await client.ask(produce(("t", 0, batch())), version)
            assert answer.responses[0].partition_responses[0].base_offset == version - 3
        for version in range(4, 13):
            answer = await client.ask(fetch(5), version)
            records = bytes(answer.responses[0].partitions[0].records)
            assert records == b"".join(topic.logs[0].batches[5:])
            assert BatchHeader.read(records).base_offset == 5
        topic.logs[0].hidden = 2
        listed = ListOffsetsRequest.ListOffsetsTopic
        for replica, end in ((-1, 8), (1 << 30, 10)):
            one = listed.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
            request = ListOffsetsRequest(
                replica_id=replica, isolation_level=0, topics=[listed(name="t", partitions=[one])]
            )
            answer = await client.ask(request, 5)
            assert answer.topics[0].partitions[0].offset == end


async def test_fetch_waits_for_data() -> None:
    async with FakeCluster() as cluster, client_of(cluster) as client:
        cluster.add_topic("t")
        waiting = asyncio.create_task(client.ask(fetch(0, max_wait_ms=60_000), 11))
        await until(lambda: cluster.seen("Fetch"))
        cluster.store("t", 0, batch())
        answer = await waiting
        assert len(answer.responses[0].partitions[0].records) == len(batch())


async def test_diverging_epoch() -> None:
    """A truncated log says so to a client that has read more of the old epoch."""
    async with FakeCluster() as cluster, client_of(cluster) as client:
        cluster.add_topic("t")
        cluster.store("t", 0, *(raw_batch(b"", base_offset=5 * n, leader_epoch=0) for n in range(3)))
        cluster.log("t").truncate(5)
        answer = await client.ask(fetch(15, last_epoch=0), 12)
        diverging = answer.responses[0].partitions[0].diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (0, 5)


async def test_not_leader_with_hint() -> None:
    async with FakeCluster(brokers=2) as cluster, client_of(cluster, 2) as client:
        cluster.add_topic("t")
        answer = await client.ask(produce(("t", 0, batch())), 12)
        partition = answer.responses[0].partition_responses[0]
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (partition.current_leader.leader_id, answer.node_endpoints[0].port) == (1, cluster.brokers[1].port)


async def test_versions_told() -> None:
    """The cluster refuses ApiVersions as old brokers do, and reports the versions that it was given."""
    async with (
        FakeCluster(versions={"ApiVersions": (0, 2), "Produce": (3, 7)}) as cluster,
        client_of(cluster) as client,
    ):
        answer = await client.ask(ApiVersionsRequest(), 3)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        answer = await client.ask(ApiVersionsRequest(), 0)
        assert (0, 3, 7) in {(api.api_key, api.min_version, api.max_version) for api in answer.api_keys}


# Faults.


async def test_faults_in_order() -> None:
    """
    1. An error code without effect, an error code with effect, and a throttle: each is used once, in the given order.
    2. Then requests are answered normally again.
    """
    async with FakeCluster() as cluster, client_of(cluster) as client:
        cluster.add_topic("t")
        cluster.next("Produce", faults.refuse(ErrorCode.NOT_ENOUGH_REPLICAS))
        cluster.next("Produce", faults.doubtful(ErrorCode.REQUEST_TIMED_OUT))
        cluster.next("Produce", faults.throttle(9))
        answers = [await client.ask(produce(("t", 0, batch())), 8) for _ in range(4)]
        partitions = [answer.responses[0].partition_responses[0] for answer in answers]
        assert [partition.error_code for partition in partitions] == [19, 7, 0, 0]
        assert [partition.base_offset for partition in partitions] == [-1, 0, 1, 2]
        assert [answer.throttle_time_ms for answer in answers] == [0, 0, 9, 0]


async def test_spoilt_frames() -> None:
    async with FakeCluster() as cluster:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        cluster.next("Metadata", faults.wrong_correlation_id())
        cluster.next("Metadata", faults.malformed(b"abc"))
        cluster.next("Metadata", faults.disconnect(after_bytes=6))
        async with client_of(cluster) as client:
            for expected in (struct.pack(">i", 0x5EED), struct.pack(">i", 3) + b"abc"):
                request.API_VERSION = 5
                request.with_header(correlation_id=3, client_id="c")
                client.writer.write(bytes(request.encode(header=True, framed=True)))
                assert (await client.frame()).startswith(expected)
            client.writer.write(bytes(request.encode(header=True, framed=True)))
            assert len(await client.reader.read()) == 6


async def test_held_answer() -> None:
    async with FakeCluster() as cluster, client_of(cluster) as client:
        cluster.add_topic("t")
        held = cluster.next("Produce", faults.held())
        asking = asyncio.create_task(client.ask(produce(("t", 0, batch())), 8))
        await held.came.wait()
        assert not asking.done()
        held.open()
        await asking


async def test_unscripted_requests_raise() -> None:
    """An unknown API, an unknown version, and a partition that is named twice are errors of the sender."""

    async def send(request: bytes) -> None:
        async with FakeCluster() as cluster, client_of(cluster) as client:
            cluster.add_topic("t")
            client.writer.write(struct.pack(">i", len(request)) + request)
            assert await client.reader.read() == b""

    twice = produce(("t", 0, batch()), ("t", 0, batch()))
    twice.API_VERSION = 8
    twice.with_header(correlation_id=3, client_id="c")
    with pytest.raises(Unscripted):
        await send(struct.pack(">hhih", 999, 0, 1, -1))
    with pytest.raises(Unscripted):
        await send(struct.pack(">hhih", 0, 99, 1, -1))
    with pytest.raises(AssertionError, match="twice"):
        await send(bytes(twice.encode(header=True)))


async def test_restart_on_the_same_port() -> None:
    async with FakeCluster() as cluster:
        port = cluster.brokers[1].port
        async with client_of(cluster) as client:
            await cluster.stop(1)
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await client.frame()
        await cluster.start(1)
        assert cluster.brokers[1].port == port
        async with client_of(cluster) as client:
            await client.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 5)
