"""Topics filled by librdkafka, and copied to another cluster batch by batch as the mirror would, or nearly so.

The copy is the tests' own: an audit that was tried on the relay's output only would share its mistakes.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType
from kafka.protocol.producer import ProduceRequest

from mirror.audit.model.request import Endpoint
from mirror.audit.spark.options import FETCH_BYTES
from mirror.net.cluster import Cluster
from mirror.net.options import ClusterOptions
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity, producer_id
from mirror.records.restamp import checksum, restamp
from mirror.records.scan import scan
from mirror.sandbox import SandboxCluster
from tests.fakes.broker import FakeCluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KNOWN_WITHIN_S = 30.0
Batches = list[bytes]
Change = Callable[[Batches], Sequence[bytes]]


def addresses(cluster: SandboxCluster) -> tuple[tuple[str, int], ...]:
    """Where it listens."""
    return tuple(("127.0.0.1", broker.port) for broker in cluster.brokers)


def endpoint(cluster: SandboxCluster, alias: str) -> Endpoint:
    """As the audit is given it."""
    return Endpoint(alias=alias, bootstrap=addresses(cluster))


def faked(cluster: FakeCluster) -> Endpoint:
    """The same of scripted brokers."""
    return Endpoint(alias=cluster.name, bootstrap=cluster.options().bootstrap)


def create(cluster: SandboxCluster, topic: str, partitions: int = 1, *, replicas: int = 1, **config: str) -> None:
    """A topic, with the config names written with underscores. A broker hears of it a moment after the controller
    has answered: it is there once it is described."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    named = {name.replace("_", "."): value for name, value in config.items()}
    for future in admin.create_topics([NewTopic(topic, partitions, replicas, config=named)]).values():
        future.result()
    deadline = time.monotonic() + KNOWN_WITHIN_S
    while True:
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        try:
            described.result()
            break
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
                raise
        time.sleep(0.02)
    await_leaders(cluster, [TopicPartition(topic, at) for at in range(partitions)])


def await_leaders(cluster: SandboxCluster, partitions: Sequence[TopicPartition]) -> None:
    """Until each has a leader that answers: a broker knows a new topic, and answers behind a restart, a moment before
    it leads."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    deadline = time.monotonic() + KNOWN_WITHIN_S
    wanted = {one: OffsetSpec.latest() for one in partitions}
    while wanted:
        found = admin.list_offsets(wanted)
        wanted = {one: spec for one, spec in wanted.items() if found[one].exception(KNOWN_WITHIN_S) is not None}
        assert time.monotonic() < deadline, f"no leader of {list(wanted)}"


def fill(
    cluster: SandboxCluster,
    topic: str,
    *,
    codec: str = "none",
    partition: int = 0,
    batches: int = 8,
    keyed: bool = False,
    salt: str = "",
) -> None:
    """Batches of some records each: keys, headers, null values, no two records alike. ``keyed``: all have a key. Topics
    with another ``salt`` have nothing in common."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 10_000,
            "partitioner": "consistent",
        }
    )
    producer.list_topics(topic)  # a flush while the topic is still looked up could cut a batch in two
    for batch in range(batches):
        for record in range(3 + batch % 3):
            producer.produce(
                topic,
                partition=partition,
                key=f"key-{record}" if record or keyed else None,
                value=None if record == 1 else f"{codec} {batch} {record} {salt}".encode() * (20 + 5 * batch),
                headers=[("trace", f"{batch}".encode()), ("empty", None)] if record == 2 else None,
            )
        producer.flush()


def delete_before(cluster: SandboxCluster, topic: str, offset: int) -> None:
    """DeleteRecords."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()


def copy(
    source: SandboxCluster, destination: SandboxCluster, topic: str, *, partition: int = 0, change: Change = list
) -> None:
    """Every batch of the partition, restamped, in a Produce request of its own; ``change`` may tamper before."""
    asyncio.run(_copy(source, destination, topic, partition, change))


def batches_of(cluster: SandboxCluster, topic: str, partition: int = 0, *, start: int = 0) -> Batches:
    """The raw batches of a partition, from the one that holds ``start`` on."""

    async def read() -> Batches:
        async with await _open(cluster) as opened:
            return await _read(opened, topic, partition, start)

    return asyncio.run(read())


async def _open(cluster: SandboxCluster) -> Cluster:
    return await Cluster.open(cluster.name, ClusterOptions(bootstrap=addresses(cluster)))


async def _copy(
    source: SandboxCluster, destination: SandboxCluster, topic: str, partition: int, change: Change
) -> None:
    async with await _open(source) as ours, await _open(destination) as theirs:
        batches = await _read(ours, topic, partition)
        await theirs.refresh([topic])
        identity = Identity(
            producer_id(flow="test", cluster_id=ours.cluster_id, topic=topic, partition=partition), 0, 0
        )
        for batch in change(batches):
            header = BatchHeader.read(batch)
            stamped = restamp(header, identity, header.attributes).pack() + batch[HEADER_SIZE:]
            await _produce(theirs, topic, partition, stamped)
            identity = identity.after(header.last_offset_delta + 1)


async def _read(cluster: Cluster, topic: str, partition: int, offset: int = 0) -> Batches:
    """With kafka.protocol, not with the frames that the audit reads with."""
    from kafka.protocol.consumer import FetchRequest

    await cluster.refresh([topic])
    leader = cluster.leader(topic, partition)
    assert leader is not None
    batches: Batches = []
    while True:
        kind = FetchRequest.FetchTopic
        wanted = kind.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES, current_leader_epoch=-1,
            last_fetched_epoch=-1, log_start_offset=-1,
        )  # fmt: skip
        request = FetchRequest(
            replica_id=-1, max_wait_ms=10, min_bytes=0, max_bytes=FETCH_BYTES, isolation_level=0, session_id=0,
            session_epoch=-1, topics=[kind(topic=topic, partitions=[wanted])], forgotten_topics_data=[], rack_id="",
        )  # fmt: skip
        answer = await cluster.call(request, node_id=leader.node_id, version=11)
        found = answer.responses[0].partitions[0]
        assert found.error_code == 0, found.error_code
        records = memoryview(bytes(found.records or b""))
        whole = [bytes(records[at : at + size]) for at, size in scan(records)]
        if not whole:
            return batches
        batches += whole
        offset = BatchHeader.read(whole[-1]).next_offset


async def _produce(cluster: Cluster, topic: str, partition: int, batch: bytes) -> None:
    kind: Any = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[kind(name=topic, partition_data=[kind.PartitionProduceData(index=partition, records=batch)])],
    )
    leader = cluster.leader(topic, partition)
    assert leader is not None
    answer = await cluster.call(request, node_id=leader.node_id, version=8)
    response = answer.responses[0].partition_responses[0]
    assert response.error_code == 0, (response.error_code, response.error_message)


def edited(batch: bytes, *, at: int | None = None, by: int = 0x01, **header: int) -> bytes:
    """The batch with one payload byte changed (``by``: which bits), or header fields, and the right checksum."""
    changed = bytearray(BatchHeader.read(batch)._replace(**header).pack() + batch[HEADER_SIZE:])
    if at is not None:
        changed[at] ^= by
    head = BatchHeader.read(changed)._replace(crc=checksum(changed))
    return head.pack() + bytes(changed[HEADER_SIZE:])
