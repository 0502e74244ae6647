"""The two clusters of a run: one real broker each, and what the harness asks of them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from bench import certificates, stored
from bench.errors import BenchError
from chaos.proxy import Proxy
from mirror.sandbox import Cluster

__all__ = ["BROKER_SETTINGS", "SPARING", "Side", "pair"]

KAFKA_VERSION = "4.3.0"
HEAP_MB = 1536
BROKER_SETTINGS = {
    "log.retention.ms": "-1",
    "log.segment.bytes": "268435456",
    "log.segment.delete.delay.ms": "200",
    "log.retention.check.interval.ms": "1000",  # what is copied goes soon (SPARING)
    "message.max.bytes": "10485760",
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "60000",  # a busy machine must not cost a broker its leaderships
    "num.network.threads": "2",
    "num.io.threads": "4",
}
"""Over those of the sandbox; all else is as Kafka has it."""

SPARING = {"segment.bytes": "16777216", "retention.bytes": "16777216"}
"""For a copy that nobody reads: the destination keeps the end of each partition, so that all fits in memory."""

_TIMEOUT_S = 120.0
_LOOK_TIMEOUT_S = 5.0
_INTERNAL = "__"


class Side:
    """One cluster with its one broker.

    Attributes:
        name: of the cluster.
        bootstrap_servers: where it speaks plain text.
        tls_servers: where it speaks TLS.
        ca: whom to trust there.
        data_dir: the broker's.
    """

    def __init__(
        self, name: str, bootstrap_servers: str, data_dir: Path, tls_servers: str = "", ca: Path | None = None
    ) -> None:
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.tls_servers = tls_servers
        self.ca = ca
        self.data_dir = data_dir
        self._admin = self._client()

    @classmethod
    def of(cls, cluster: Cluster, ca: Path | None = None) -> Self:
        """That of a running cluster."""
        data_dir = cluster.brokers[0].data_dir
        return cls(cluster.name, cluster.bootstrap_servers, data_dir, cluster.tls_bootstrap_servers, ca)

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Make a topic and wait until each partition has its leader.

        Raises:
            BenchError: the broker refused.
        """
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        try:
            self._admin.create_topics([new], operation_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
        except KafkaException as error:
            raise BenchError(
                f"the {self.name} cluster did not create {topic}: {error}", "see its broker's log"
            ) from error
        self._await(lambda: self._is_led(topic, partitions), f"{topic} to have leaders")

    def delete_all(self) -> None:
        """Delete every topic but Kafka's own, and wait until the disk is free of them.

        Raises:
            BenchError: some were still there after a while.
        """
        topics = [
            topic for topic in self._admin.list_topics(timeout=_TIMEOUT_S).topics if not topic.startswith(_INTERNAL)
        ]
        if topics:
            for future in self._admin.delete_topics(topics, operation_timeout=_TIMEOUT_S).values():
                with contextlib.suppress(KafkaException):  # gone already; the disk says whether it is
                    future.result(_TIMEOUT_S)
        self._await(lambda: not any(self._folders(topic) for topic in topics), f"{', '.join(topics)} to be gone")

    def records(self, topic: str, partitions: int) -> int:
        """Records that consumers can read, over all partitions; -1 if that is not known at the moment."""
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
        total = 0
        for future in self._admin.list_offsets(asked, request_timeout=_LOOK_TIMEOUT_S).values():
            try:
                total += future.result(_LOOK_TIMEOUT_S).offset
            except (KafkaException, TimeoutError):
                return -1
        return total

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})

    def _is_led(self, topic: str, partitions: int) -> bool:
        """Asked by a new client, which goes on being used. One that had known a topic of this name, since deleted, was
        told of no leaders for two minutes; whether by the broker or by its own memory is not known."""
        self._admin = self._client()
        return self.records(topic, partitions) >= 0

    def segments(self, topic: str, partitions: int) -> list[Path]:
        """The topic's log segments on the broker's disk."""
        return stored.segments(self.data_dir, topic, partitions)

    def stored(self, topic: str, partitions: int) -> stored.Stored:
        """What the topic holds, read back from the segments' headers."""
        return stored.read(self.segments(topic, partitions))

    def _folders(self, topic: str) -> list[Path]:
        return list(self.data_dir.glob(f"{topic}-*"))

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline_at = time.monotonic() + _TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline_at:
                raise BenchError(
                    f"waited {_TIMEOUT_S:.0f} s in vain for {what} on the {self.name} cluster", "run it again"
                )
            time.sleep(0.05)


@contextlib.contextmanager
def pair(ways: tuple[Proxy, Proxy] | None = None) -> Iterator[tuple[Side, Side]]:
    """A source and a destination, started; both gone with their data at the end.

    Args:
        ways: proxies that lead to them as well as the direct way does.
    """
    with contextlib.ExitStack() as started:
        sides = []
        keys = started.enter_context(certificates.made())
        for number, name in enumerate(("source", "destination")):
            cluster = started.enter_context(
                Cluster(
                    name, version=KAFKA_VERSION, properties=BROKER_SETTINGS, heap_mb=HEAP_MB,
                    proxied=ways[number].ports if ways else (), tls=keys.keystore,
                )
            )  # fmt: skip
            if ways:
                ways[number].attach(cluster)
            sides.append(Side.of(cluster, keys.ca))
        yield sides[0], sides[1]
