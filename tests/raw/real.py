"""Real topics for the tests of the raw clients: what other clients wrote, and what they read."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from mirror.raw import ConsumerRecord, RawConsumer
from mirror.records.content.opening import opened
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.sandbox import SandboxCluster

PATIENCE_S = 90.0
"""Longer than anything takes on a busy machine."""


class Read(NamedTuple):
    """A record as a consumer reads it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def content(self) -> tuple[object, ...]:
        """Without its offset."""
        return self[:1] + self[2:]


def consumed(sandbox: SandboxCluster, topic: str, *, isolation: str = "read_committed") -> list[Read]:
    """All records of a topic, as librdkafka's consumer reads them, in the order of partitions and offsets."""
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
    try:
        partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        found: list[Read] = []
        ended: set[int] = set()
        until = time.monotonic() + PATIENCE_S
        while len(ended) < len(partitions):
            assert time.monotonic() < until, f"{topic}: {ended} of {sorted(partitions)} have ended"
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            index = message.partition()
            assert index is not None
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(index)
                continue
            ended.discard(index)
            offset = message.offset()
            assert offset is not None
            headers = tuple((name, _bytes(value)) for name, value in message.headers() or ())
            found.append(
                Read(index, offset, message.timestamp()[1], _bytes(message.key()), _bytes(message.value()), headers)
            )
        return sorted(found, key=lambda each: each[:2])
    finally:
        consumer.close()


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def records_in(record: ConsumerRecord) -> list[Read]:
    """The records of a batch that a raw consumer returned."""
    header = BatchHeader.read(record.value)
    return [
        Read(record.partition, each.offset, each.timestamp, each.key, each.value, each.headers)
        for each in opened(header, record.value[HEADER_SIZE:])
    ]


def polled(
    consumer: RawConsumer, enough: Callable[[list[ConsumerRecord]], bool], *, timeout_ms: int = 500
) -> list[ConsumerRecord]:
    """What poll() returns until that is enough."""
    found: list[ConsumerRecord] = []
    until = time.monotonic() + PATIENCE_S
    while not enough(found):
        assert time.monotonic() < until, f"{len(found)} batches so far"
        found += consumer.poll(timeout_ms)
    return found


def to_the_end(consumer: RawConsumer, *, timeout_ms: int = 500) -> list[ConsumerRecord]:
    """What poll() returns until each partition is where it ended when this was called."""
    ends = consumer.end_offsets(consumer.assignment())
    return polled(consumer, lambda _: all(consumer.position(at) >= ends[at] for at in ends), timeout_ms=timeout_ms)


@contextmanager
def raw_consumer(sandbox: SandboxCluster, **settings: Any) -> Iterator[RawConsumer]:
    """A consumer; names of settings with underscores."""
    config = {name.replace("_", "."): value for name, value in settings.items()}
    with RawConsumer(
        {"bootstrap.servers": sandbox.bootstrap_servers, "auto.offset.reset": "earliest", **config}
    ) as made:
        yield made


def batch(
    sandbox: SandboxCluster, topic: str, *values: str | bytes, partition: int = 0, codec: str = "none", **settings: Any
) -> None:
    """One batch of these values, written by librdkafka."""
    producer = Producer(
        {
            "bootstrap.servers": sandbox.bootstrap_servers,
            "linger.ms": 30_000,
            "compression.type": codec,
            "message.max.bytes": 20_000_000,
            "batch.size": 20_000_000,
            "log_level": 0,
            **settings,
        }
    )
    producer.list_topics(topic)  # what waits for the topic would be sent one by one
    for number, value in enumerate(values):
        producer.produce(topic, value, key=f"k{number}", partition=partition, headers=[("n", str(number).encode())])
    assert producer.flush(PATIENCE_S) == 0
