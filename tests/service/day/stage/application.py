"""What the mirror is for: a producer that writes all the time, and a consumer group that reads it. Both can move."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from mirror.sandbox import SandboxCluster
from tests.service.day.stage.clusters import TLS, Files
from tests.service.stage.kafka_side import end_of, repeated
from tests.service.stage.running import PATIENCE_S

Place = tuple[str, int]
"""Topic and partition."""
Seen = dict[Place, list[tuple[int, str]]]
"""Offsets and values of records, in the order in which they were acknowledged, or read."""
TOPICS = r"^(orders|payments\..*)$"
_SIZE = 200
_CURIOUS = {"topic.metadata.refresh.interval.ms": 500}
"""So that topics and partitions that are new are soon heard of."""


class Application:
    """A producer and a group by librdkafka, through TLS.

    Attributes:
        partitions: what it writes to, in turn; may grow meanwhile.
        acknowledged, read: all that was, on whichever cluster.
        failed: what else became of records.
    """

    def __init__(self, files: Files, group: str) -> None:
        self.group = group
        self.partitions: list[Place] = []
        self.acknowledged: Seen = defaultdict(list)
        self.read: Seen = defaultdict(list)
        self._tls = {"security.protocol": "SSL", "ssl.ca.location": str(files.ca), "log_level": 0}
        self._written = 0
        self.failed: list[object] = []

    def _at(self, cluster: SandboxCluster, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": cluster.servers(TLS), **self._tls, **more}

    @contextmanager
    def writing(self, cluster: SandboxCluster) -> Iterator[None]:
        """Writes some hundred records a second until the block is left; then all of them are acknowledged."""
        producer = Producer(self._at(cluster, **{"enable.idempotence": True, "linger.ms": 5} | _CURIOUS))
        with repeated(lambda _: self._write(producer)):
            yield
        assert producer.flush(PATIENCE_S) == 0
        assert self.failed == []

    def _write(self, producer: Producer) -> None:
        for topic, partition in tuple(self.partitions):
            value = f"{self._written:08}-{topic}".ljust(_SIZE, ".")
            try:
                producer.produce(topic, value=value, partition=partition, on_delivery=self._delivered)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # it has not heard of a new one yet
                    self.failed.append(error)
            self._written += 1
        producer.poll(0)
        time.sleep(0.01)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            _note(self.acknowledged, message)

    @contextmanager
    def reading(self, cluster: SandboxCluster) -> Iterator[None]:
        """A member of the group. When the block is left, it first reads all that was acknowledged, commits, leaves."""
        settings = {
            "group.id": self.group, "isolation.level": "read_committed", "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 100,
        }  # fmt: skip
        reader = Consumer(self._at(cluster, **settings, **_CURIOUS))
        reader.subscribe([TOPICS])
        try:
            with repeated(lambda _: self._read(reader)):
                yield
                wait_for(lambda: _count(self.read) >= _count(self.acknowledged), "the group to read everything")
        finally:
            reader.close()

    def _read(self, reader: Consumer) -> None:
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            _note(self.read, message)

    def more(self, records: int = 100) -> None:
        """Waits until so many more are acknowledged."""
        wanted = _count(self.acknowledged) + records
        wait_for(lambda: self.failed or _count(self.acknowledged) >= wanted, "the producer")
        assert self.failed == []

    def check(self, *clusters: SandboxCluster) -> int:
        """Nothing was missed and nothing repeated: neither by the group, nor on any of these clusters. Records."""
        assert self.read == self.acknowledged
        for cluster in clusters:
            for place, records in self.acknowledged.items():
                assert self._stored(cluster, *place) == records, (cluster.name, place)
        return _count(self.acknowledged)

    def _stored(self, cluster: SandboxCluster, topic: str, partition: int) -> list[tuple[int, str]]:
        """All that a consumer gets of a partition."""
        reader = Consumer(
            self._at(cluster, **{"group.id": "looks", "enable.auto.commit": False, "enable.partition.eof": True})
        )
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found: Seen = {(topic, partition): []}
        end, deadline = end_of(cluster.bootstrap_servers, topic, partition), time.monotonic() + PATIENCE_S
        while True:
            assert time.monotonic() < deadline, (cluster.name, topic, partition)
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                _note(found, message)
            elif message is not None and reader.position([TopicPartition(topic, partition)])[0].offset >= end:
                break
        reader.close()
        return found[topic, partition]


def wait_for(condition: Callable[[], object], what: str) -> None:
    """Until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


def _count(seen: Seen) -> int:
    return sum(map(len, tuple(seen.values())))


def _note(seen: Seen, message: Message) -> None:
    seen[message.topic(), message.partition()].append((message.offset(), message.value().decode()))
