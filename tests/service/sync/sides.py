"""Groups and their offsets on both sides, by librdkafka."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.sandbox import SandboxCluster
from tests.service.stage.running import PATIENCE_S

NOT_READY = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR,
)  # fmt: skip
SYNC = {"sync.group.offsets.enabled": True, "sync.group.offsets.interval.ms": 200, "refresh.topics.interval.ms": 500}


def consumer(cluster: SandboxCluster, group: str, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "isolation.level": "read_committed",
            "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0,
        } | more
    )  # fmt: skip


def patiently(ask: Callable[[], Any]) -> Any:
    """Asks again while the coordinator is only being made."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in NOT_READY or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def commit(cluster: SandboxCluster, group: str, topic: str, *offsets: int, metadata: str = "") -> None:
    """Commits an offset for each partition from 0 on; nobody is in the group."""
    reader = consumer(cluster, group)
    noted = [metadata] if metadata else []
    wanted = [TopicPartition(topic, at, offset, *noted) for at, offset in enumerate(offsets)]
    for each in patiently(lambda: reader.commit(offsets=wanted, asynchronous=False)) or ():
        assert each.error is None, each.error
    reader.close()


def committed(cluster: SandboxCluster, group: str, topic: str, partitions: int = 1) -> list[int]:
    """What the group has committed of each partition; below 0: nothing."""
    reader = consumer(cluster, group)
    wanted = [TopicPartition(topic, at) for at in range(partitions)]
    found: list[TopicPartition] = patiently(lambda: reader.committed(wanted, timeout=60))
    reader.close()
    return [each.offset for each in found]


def wait_committed(cluster: SandboxCluster, group: str, topic: str, *wanted: int) -> None:
    """Until the group has committed exactly this."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := committed(cluster, group, topic, len(wanted))) != list(wanted):
        assert time.monotonic() < deadline, f"waited in vain for {wanted}: {found}"
        time.sleep(0.1)


@contextmanager
def member(cluster: SandboxCluster, group: str, topic: str, **more: Any) -> Iterator[Consumer]:
    """A member of the group that has its partitions."""
    reader = consumer(cluster, group, **more)
    try:
        reader.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while not reader.assignment():
            reader.poll(0.1)
            assert time.monotonic() < deadline, "waited in vain for an assignment"
        yield reader
    finally:
        reader.close()


def groups_of(cluster: SandboxCluster) -> list[str]:
    """The names of its groups."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return sorted(each.group_id for each in admin.list_consumer_groups().result(60).valid)


def flat(rows: Iterable[Iterable[Any]]) -> list[Any]:
    return [each for row in rows for each in row]
