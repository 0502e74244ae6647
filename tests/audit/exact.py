"""Topics written by real transactional producers, and copied offset by offset as ``offsets: exact`` does, or nearly so.

What is due is read off a read_committed consumer of librdkafka: the tests ask somebody else than the audit does.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from mirror.net.cluster import Cluster
from mirror.net.logs.log import Marker, PartitionLog
from mirror.net.options import ClusterOptions
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, TRANSACTIONAL, BatchHeader
from mirror.records.identity import Identity, producer_id
from mirror.records.restamp import restamp
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import addresses, batches_of

TIMEOUT_S = 30


class Batch(NamedTuple):
    """A record batch to append, restamped; or the same as it is, with ``raw``."""

    data: bytes
    raw: bool = False


class Markers(NamedTuple):
    """So many control markers to append. By default the mirror's."""

    offsets: int
    producer_id: int | None = None
    epoch: int | None = None


Step = Batch | Markers
Change = Callable[[list[Step]], Sequence[Step]]


LAYOUT = "PPAAbbP|A|B|aa|P"
"""What ``transactions`` writes, a letter for each batch, by its producer: upper case is plain or committed, lower case
aborted, and | is a marker."""


def transactions(cluster: SandboxCluster, *topics: str, codec: str = "lz4") -> None:
    """In partition 0 of each topic: two transactional producers, interleaved, committing and aborting, and a plain one:
    ``LAYOUT``."""
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec, "linger.ms": 10_000})
    first, second = (_transactional(cluster, f"{topics[0]}-{name}", codec) for name in "ab")

    for producer in (plain, first, second):
        for topic in topics:
            producer.list_topics(topic)  # a flush while the topic is still looked up could cut a batch in two

    def write(producer: Producer, name: str, records: int) -> None:
        for topic in topics:
            for record in range(records):
                producer.produce(
                    topic, partition=0, key=f"{name}-{record}", value=f"{name} {record} {topic} ".encode() * 20
                )
        producer.flush()

    def end(decide: Callable[[], object]) -> None:
        """The coordinator answers before it has written the markers; what comes next shall come behind them."""
        wanted = [one + 1 for one in log_ends(cluster, topics)]
        decide()
        deadline = time.monotonic() + TIMEOUT_S
        while log_ends(cluster, topics) != wanted:
            assert time.monotonic() < deadline, "no marker"
            time.sleep(0.01)

    write(plain, "plain 1", 3)
    write(plain, "plain 2", 1)
    first.begin_transaction()
    second.begin_transaction()
    write(first, "committed 1", 4)
    write(first, "committed 2", 2)
    write(second, "aborted 1", 3)
    write(second, "aborted 2", 2)
    write(plain, "plain 3", 2)
    end(second.abort_transaction)
    write(first, "committed 3", 3)
    end(first.commit_transaction)
    second.begin_transaction()
    write(second, "committed 4", 1)
    end(second.commit_transaction)
    first.begin_transaction()
    write(first, "aborted 3", 2)
    write(first, "aborted 4", 1)
    end(first.abort_transaction)
    write(plain, "plain 4", 4)


def log_ends(cluster: SandboxCluster, topics: Sequence[str]) -> list[int]:
    """Where partition 0 of each topic ends."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest() for topic in topics})
    return [future.result(TIMEOUT_S).offset for future in found.values()]


def _transactional(cluster: SandboxCluster, name: str, codec: str) -> Producer:
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap_servers, "compression.type": codec, "linger.ms": 10_000,
        "transactional.id": name,
    })  # fmt: skip
    producer.init_transactions(TIMEOUT_S)
    return producer


def committed_offsets(cluster: SandboxCluster, topic: str) -> set[int]:
    """Of the records that a read_committed consumer reads in partition 0."""
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": f"test-{topic}", "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: set[int] = set()
    try:
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "the consumer stands still"
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            found.add(message.offset())
    finally:
        consumer.close()


def steps_of(cluster: SandboxCluster, topic: str, *, committed: bool = True) -> list[Step]:
    """What an exact copy of partition 0 appends."""
    due = committed_offsets(cluster, topic) if committed else None
    steps: list[Step] = []
    for raw in batches_of(cluster, topic):
        header = BatchHeader.read(raw)
        if header.is_control or (due is not None and header.base_offset not in due):
            count = header.last_offset_delta + 1
            last = steps[-1] if steps else None
            if isinstance(last, Markers):
                steps[-1] = Markers(last.offsets + count)
            else:
                steps.append(Markers(count))
        else:
            steps.append(Batch(raw))
    return steps


def copy_exact(
    source: SandboxCluster, destination: SandboxCluster, topic: str, *, change: Change = list, committed: bool = True
) -> None:
    """Partition 0, step by step; ``change`` may tamper with the steps before."""
    steps = change(steps_of(source, topic, committed=committed))
    owner = producer_id(flow="test", cluster_id=source.cluster_id, topic=topic, partition=0)
    asyncio.run(append(destination, topic, owner, steps))


async def append(cluster: SandboxCluster, topic: str, owner: int, steps: Sequence[Step]) -> None:
    """Appends the steps, with the mirror's identities: even epochs for data, odd ones for markers."""
    async with await Cluster.open(cluster.name, ClusterOptions(bootstrap=addresses(cluster))) as opened:
        await opened.refresh([topic])
        leader = opened.leader(topic, 0)
        assert leader is not None
        log = PartitionLog(opened, opened.topics[topic], 0, leader)
        identity, filled = Identity(owner, 0, 0), False
        for step in steps:
            end = await log.true_end()
            if isinstance(step, Batch):
                if filled:
                    identity, filled = Identity(owner, identity.epoch + 2, 0), False
                header = BatchHeader.read(step.data)
                stamped = step.data
                if not step.raw:
                    attributes = header.attributes & ~(TRANSACTIONAL | DELETE_HORIZON)
                    stamped = restamp(header, identity, attributes).pack() + step.data[HEADER_SIZE:]
                assert await log.produce(stamped) == end
                identity = identity.after(header.last_offset_delta + 1)
            else:
                epoch = identity.epoch + 1 if step.epoch is None else step.epoch
                filled = filled or step.producer_id is None
                await log.write_markers(
                    Marker(owner if step.producer_id is None else step.producer_id, epoch), step.offsets
                )
                async with asyncio.timeout(TIMEOUT_S):
                    while await log.true_end() < end + step.offsets:  # noqa: ASYNC110 - a broker has no event
                        await asyncio.sleep(0.01)
