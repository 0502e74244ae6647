"""Real brokers for the tests of ``net``: topics and records by clients that are not ours, and PartitionLogs."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.protocol.admin import AlterClientQuotasRequest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.logs.log import PartitionLog
from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import addresses, create
from tests.audit.exact import log_ends
from tests.fakes.loop import until

__all__ = ["consumed", "create", "limited", "log_of", "opened", "records", "transaction"]
MARKER_S = 60
LINGER_MS = 30_000
"""Nothing is sent before it is flushed. For that the producer has to know the topic: what waits for the topic goes to
the partition one by one, and a flush meanwhile sends what is there as a batch of its own."""


@asynccontextmanager
async def opened(sandbox: SandboxCluster, *, request_timeout_s: float = 30.0) -> AsyncIterator[Cluster]:
    """The sandbox as ``net`` sees it."""
    connection = ConnectionOptions(request_timeout_s=request_timeout_s)
    options = ClusterOptions(bootstrap=addresses(sandbox), connection=connection)
    async with await Cluster.open(sandbox.name, options) as cluster:
        yield cluster


@asynccontextmanager
async def limited(
    cluster: Cluster, rate: int, *, of: str = "producer_byte_rate", client_id: str = ""
) -> AsyncIterator[None]:
    """A quota in bytes per second on what a client produces (or ``of``: fetches); by default on this one."""
    client_id = client_id or cluster.options.connection.client_id

    async def limit(*, remove: bool) -> None:
        kind = AlterClientQuotasRequest.EntryData
        entity = [kind.EntityData(entity_type="client-id", entity_name=client_id)]
        ops = [kind.OpData(key=of, value=rate, remove=remove)]
        request = AlterClientQuotasRequest(entries=[kind(entity=entity, ops=ops)], validate_only=False)
        (row,) = (await cluster.call(request)).entries
        assert row.error_code == 0, row

    await limit(remove=False)
    try:
        yield
    finally:
        await limit(remove=True)


async def log_of(cluster: Cluster, topic: str, partition: int = 0) -> PartitionLog:
    """A partition, once it has a leader that knows it: metadata of a new topic may be ahead of its brokers."""
    while True:
        with suppress(NetworkError):
            await cluster.refresh([topic])
            leader = cluster.leader(topic, partition)
            if leader is not None:
                log = PartitionLog(cluster, cluster.topics[topic], partition, leader)
                await log.visible_end()
                return log
        await asyncio.sleep(0.02)


def records(
    sandbox: SandboxCluster, topic: str, values: Sequence[str], *, partition: int = 0, key: str | None = None
) -> None:
    """Plain records, a batch."""
    producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers, "linger.ms": LINGER_MS, "log_level": 0})
    producer.list_topics(topic)
    for value in values:
        producer.produce(topic, value, key=key, partition=partition)
    producer.flush()


def transaction(
    sandbox: SandboxCluster, topic: str, values: Sequence[str], *, commit: bool | None, transactional_id: str
) -> None:
    """Records in a transaction of their own, a batch; ``commit=None`` leaves it open."""
    producer = Producer(
        {
            "bootstrap.servers": sandbox.bootstrap_servers,
            "transactional.id": transactional_id,
            "linger.ms": LINGER_MS,
            "log_level": 0,
        }
    )
    producer.list_topics(topic)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush()
    if commit is not None:
        with marked(sandbox, topic):
            producer.commit_transaction() if commit else producer.abort_transaction()


def alter(sandbox: SandboxCluster, topic: str, name: str, value: str) -> None:
    """One config of a topic, which the broker has when this returns."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    while True:  # a broker hears of it a moment after the controller
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        found = described.result()[name].value
        with suppress(TypeError, ValueError):  # a broker writes 0.0001 as 1.0E-4
            if found == value or float(found) == float(value):
                return
        time.sleep(0.02)


@contextmanager
def marked(sandbox: SandboxCluster, topic: str) -> Iterator[None]:
    """Waits until partition 0 has one more marker: a coordinator answers before it has written it, and what comes next
    shall come behind it."""
    before = log_ends(sandbox, [topic])
    yield
    deadline = time.monotonic() + MARKER_S
    while log_ends(sandbox, [topic]) == before:
        assert time.monotonic() < deadline, "no marker"
        time.sleep(0.01)


async def consumed(
    sandbox: SandboxCluster, topic: str, end: int, *, isolation: str, start: int = 0
) -> list[tuple[int, str]]:
    """(offset, value) of all that a plain consumer reads from ``start`` until its position is ``end``."""
    consumer = Consumer(
        {
            "bootstrap.servers": sandbox.bootstrap_servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[tuple[int, str]] = []

    def at_end() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        error = message.error()
        if error is None:
            offset, value = message.offset(), message.value()
            assert offset is not None
            found.append((offset, value.decode() if isinstance(value, bytes) else ""))
            return False
        return bool(error.name() == "_PARTITION_EOF" and message.offset() == end)

    try:
        await until(at_end, what=f"{topic} to {end}")
    finally:
        consumer.close()
    return found
