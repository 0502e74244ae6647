"""The two clusters of a run, with one real broker each, and the harness's requests to them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from bench.data import certificates, stored
from bench.data.longlink import LongLink
from bench.errors import BenchError
from mirror.sandbox import SandboxCluster

__all__ = ["BROKER_SETTINGS", "SPARING", "Side", "pair"]

KAFKA_VERSION = "4.3.0"
HEAP_MB = 1536
BROKER_SETTINGS = {
    "log.retention.ms": "-1",
    "log.segment.bytes": "268435456",
    "log.segment.delete.delay.ms": "200",
    "log.retention.check.interval.ms": "1000",  # so that copied data is deleted soon (SPARING)
    "message.max.bytes": "10485760",
    "auto.create.topics.enable": "false",
    "broker.session.timeout.ms": "60000",  # so that a broker does not lose its leaderships on a busy machine
    "num.network.threads": "2",
    "num.io.threads": "4",
}
"""Broker properties in addition to those of the sandbox. All others have Kafka's defaults."""

SPARING = {"segment.bytes": "16777216", "retention.bytes": "16777216"}
"""Topic configs for a copy that nobody reads: the destination keeps only the end of each partition, so that the data
fit into memory."""

_AT_ONCE = 2_000
"""Number of partitions that are created with one request. A controller refuses 10,000."""
_TIMEOUT_S = 120.0
_LOOK_TIMEOUT_S = 5.0
_INTERNAL = "__"


class Side:
    """One cluster with a single broker.

    Attributes:
        name: name of the cluster.
        bootstrap_servers: bootstrap servers without TLS.
        tls_servers: bootstrap servers with TLS.
        ca: PEM file with the CA of the TLS listener.
        data_dir: the broker's data folder.
        link: the long link to the broker; None: there is none.
    """

    def __init__(
        self, name: str, bootstrap_servers: str, data_dir: Path, tls_servers: str = "", ca: Path | None = None,
        link: LongLink | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.tls_servers = tls_servers
        self.ca = ca
        self.data_dir = data_dir
        self.link = link
        self._admin = self._client()

    @classmethod
    def of(cls, cluster: SandboxCluster, ca: Path | None = None, link: LongLink | None = None) -> Self:
        """Returns the side for a running cluster. ``ca``, ``link``: see the attributes."""
        data_dir = cluster.brokers[0].data_dir
        return cls(cluster.name, cluster.bootstrap_servers, data_dir, cluster.servers(certificates.TLS), ca, link)

    def far_servers(self, round_trip_ms: float) -> str:
        """Returns the bootstrap servers of the long link. From now on, a round trip over it takes ``round_trip_ms``
        longer."""
        assert self.link is not None, "no long way was made"
        self.link.delay_s = round_trip_ms / 2_000
        return self.link.bootstrap_servers

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic, and waits until each partition has a leader. ``config``: configs of the topic.

        Raises:
            BenchError: the broker has refused, or a partition has no leader in time.
        """
        first = min(partitions, _AT_ONCE)
        new = NewTopic(topic, num_partitions=first, replication_factor=1, config=dict(config or {}))
        try:
            self._admin.create_topics([new], operation_timeout=_TIMEOUT_S)[topic].result(_TIMEOUT_S)
            for count in [*range(2 * first, partitions, first), partitions] if partitions > first else ():
                more = self._admin.create_partitions([NewPartitions(topic, count)], operation_timeout=_TIMEOUT_S)
                more[topic].result(_TIMEOUT_S)
        except KafkaException as error:
            raise BenchError(
                f"the {self.name} cluster did not create {topic}: {error}", "see its broker's log"
            ) from error
        self._await(lambda: self._is_led(topic, partitions), f"{topic} to have leaders")

    def delete_all(self) -> None:
        """Deletes all topics except Kafka's internal ones, and waits until they are gone from the disk.

        Raises:
            BenchError: some were still there after ``_TIMEOUT_S``.
        """
        topics = [
            topic for topic in self._admin.list_topics(timeout=_TIMEOUT_S).topics if not topic.startswith(_INTERNAL)
        ]
        if topics:
            for future in self._admin.delete_topics(topics, operation_timeout=_TIMEOUT_S).values():
                with contextlib.suppress(KafkaException):  # perhaps deleted already; the disk shows that
                    future.result(_TIMEOUT_S)
        self._await(lambda: not any(self._folders(topic) for topic in topics), f"{', '.join(topics)} to be gone")

    def records(self, topic: str, partitions: int) -> int:
        """Returns the sum of the end offsets of all partitions; -1 if it is not known at present."""
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
        """Returns True if every partition has a leader. Asks with a new client, which replaces the old one: a client
        that had known a deleted topic of the same name saw no leaders for two minutes. It is not known whether the
        broker or the client's cache was wrong."""
        self._admin = self._client()
        return self.records(topic, partitions) >= 0

    def segments(self, topic: str, partitions: int) -> list[Path]:
        """Returns the topic's log segments on the broker's disk."""
        return stored.segments(self.data_dir, topic, partitions)

    def stored(self, topic: str, partitions: int) -> stored.Stored:
        """Returns the contents of a topic, read from the batch headers in its segments."""
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
def pair(*, long_links: bool = False) -> Iterator[tuple[Side, Side]]:
    """Starts a source and a destination, and yields both. They are removed with their data at the end.

    Args:
        long_links: True to make a long link to each of them, in addition to the direct way.
    """
    with contextlib.ExitStack() as started:
        sides = []
        keys = started.enter_context(certificates.made())
        for name in ("source", "destination"):
            link = started.enter_context(LongLink()) if long_links else None
            cluster = started.enter_context(
                SandboxCluster(
                    name, version=KAFKA_VERSION, heap_mb=HEAP_MB, proxied=link.ports if link else (),
                    properties={**BROKER_SETTINGS, **certificates.served(certificates.TLS, keys.keystore)},
                    listeners={certificates.TLS: "SSL"},
                )
            )  # fmt: skip
            if link:
                link.attach(cluster)
            sides.append(Side.of(cluster, keys.ca, link))
        yield sides[0], sides[1]
