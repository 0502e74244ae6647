"""What the sandbox's tests share: clients of a cluster, waiting, and looking at the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_S = 60.0


def eventually(condition: Callable[[], bool], *, timeout_s: float = DEADLINE_S) -> bool:
    """Whether a condition comes true before the deadline."""
    deadline_at = time.monotonic() + timeout_s
    while not (met := condition()) and time.monotonic() < deadline_at:
        time.sleep(0.02)
    return met


def create_topic(servers: str, topic: str, *, partitions: int = 1, replicas: int = 1) -> None:
    """Create a topic and wait until its creation is acknowledged."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    made = admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=replicas)])
    made[topic].result(DEADLINE_S)


def produce(servers: str, topic: str, *values: bytes) -> None:
    """Send records to partition 0 and wait until all of them are acknowledged by all replicas."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert errors == [None] * len(values)


def consume(servers: str, topic: str, count: int) -> list[bytes | None]:
    """The first ``count`` values of partition 0, or as many as come before the deadline."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "sandbox-test", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes | None] = []
        deadline_at = time.monotonic() + DEADLINE_S
        while len(values) < count and time.monotonic() < deadline_at:
            message = consumer.poll(0.1)
            if message is not None:
                if message.error():
                    raise KafkaException(message.error())
                values.append(message.value())
        return values
    finally:
        consumer.close()


def alive(pid: int) -> bool:
    """Whether a process runs (a dead one that nobody has reaped does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int) -> list[int]:
    """Process ids of all that a process started, directly or not."""
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def listening_addresses(pid: int) -> set[str]:
    """Addresses on which a process takes TCP connections."""
    found = psutil.Process(pid).net_connections(kind="tcp")
    return {connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN}


def environment(**changes: str | Path) -> dict[str, str]:
    """This process's environment with some variables set."""
    return {**os.environ, **{name: str(value) for name, value in changes.items()}}
