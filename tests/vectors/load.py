"""What the capture's topics hold: written by real clients, in small batches of every kind."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = round(time.time() * 1_000) - 600_000
"""Near to now: a marker, which has the time of its writing, would roll the segment behind records of long ago, and an
answer never reaches past a segment."""
WAIT_S = 60
TOOLS = ("org.apache.kafka", "kafka-tools", "4.3.0")
"""The Java producer's version, whatever the broker's."""

Config = dict[str, str]


def create_topics(bootstrap_servers: str, topics: dict[str, tuple[int, Config]]) -> None:
    """Create them, name -> (partitions, config); partition k is on broker k modulo the cluster's size."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    brokers = sorted(admin.list_topics(timeout=WAIT_S).brokers)
    made = admin.create_topics(
        [
            NewTopic(
                name, count, replica_assignment=[[brokers[at % len(brokers)]] for at in range(count)], config=config
            )
            for name, (count, config) in topics.items()
        ]
    )
    for future in made.values():
        future.result(WAIT_S)


class Writer:
    """A librdkafka producer that tells of every record that was not taken."""

    def __init__(self, bootstrap_servers: str, **config: str | bool) -> None:
        named = {key.replace("_", "."): value for key, value in config.items()}
        self._failed: list[str] = []
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "linger.ms": 200,
                "log_level": 2,
                "on_delivery": self._seen,
                **named,
            }
        )

    def _seen(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}: {error}")

    def send(self, topic: str, partition: int, round_at: int, records: int, *, headers: bool = True) -> None:
        """One batch: keys, a null key, headers (one without a value), a null value."""
        for at in range(records):
            self.producer.produce(
                topic,
                key=None if at == 1 else f"key-{round_at}-{at}",
                value=None if at == 2 else f"value {at} ".encode() * 12,
                headers=[("round", str(round_at).encode()), ("empty", None)] if headers and at == 0 else None,
                partition=partition,
                timestamp=START_MS + round_at * 1_000 + at,
            )
        self.flush()

    def flush(self) -> None:
        """Wait until everything is in the log."""
        left = self.producer.flush(WAIT_S)
        if left or self._failed:
            raise RuntimeError(f"{left} records not sent, not taken: {self._failed[:3]}")


def produce(
    bootstrap_servers: str,
    topic: str,
    rounds: int,
    *,
    partition: int = 0,
    records: int = 5,
    headers: bool = True,
    **config: str | bool,
) -> None:
    """Batches from librdkafka, one a round. The formats before magic 2 have no ``headers``."""
    writer = Writer(bootstrap_servers, **config)
    for at in range(rounds):
        writer.send(topic, partition, at, records, headers=headers)


def produce_transactions(bootstrap_servers: str, topic: str) -> None:
    """Committed, aborted, outside of any, aborted twice by another producer, committed."""
    one, other = (Writer(bootstrap_servers, transactional_id=name) for name in ("one", "other"))
    one.producer.init_transactions(WAIT_S)
    other.producer.init_transactions(WAIT_S)
    for at, (writer, commit) in enumerate([(one, True), (one, False), (other, False), (other, False), (one, True)]):
        writer.producer.begin_transaction()
        writer.send(topic, 0, at, 3)
        if commit:
            writer.producer.commit_transaction(WAIT_S)
        else:
            writer.producer.abort_transaction(WAIT_S)
        if at == 1:
            produce(bootstrap_servers, topic, 1, records=2)


def produce_compactable(bootstrap_servers: str, topic: str) -> None:
    """Batches whose keys come again, and a tombstone: the cleaner makes holes in all but the last segment."""
    writer = Writer(bootstrap_servers, compression_type="lz4")
    for round_at in range(4):
        for at in range(4):
            value = None if (round_at, at) == (1, 0) else f"value {round_at} ".encode() * 12
            key = "once" if (round_at, at) == (0, 1) else f"key-{at}"
            writer.producer.produce(
                topic, key=key, value=value, partition=0, timestamp=START_MS + round_at * 60_000 + at
            )
        writer.flush()


def produce_with_java(bootstrap_servers: str, topics: Sequence[tuple[str, str]], folder: Path) -> None:
    """Batches from Kafka's console producer (Java), (topic, codec) each; idempotent, as it is by default."""
    classpath = jars.classpath_of([TOOLS])
    lines = "".join(f"kind:java,empty:\tkey-{at}\tvalue {at} {'of the Java producer ' * 4}\n" for at in range(4))
    lines += "kind:java\tlonely\tNULL\n"
    for topic, codec in topics:
        arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--compression-codec", codec]
        for name, value in (("parse.key", "true"), ("parse.headers", "true"), ("null.marker", "NULL")):
            arguments += ["--reader-property", f"{name}={value}"]
        command = Jvm().command(
            classpath, "org.apache.kafka.tools.ConsoleProducer", arguments, folder=folder, small=True
        )
        done = subprocess.run(command, input=lines, text=True, capture_output=True, timeout=WAIT_S * 2, check=False)
        if done.returncode:
            raise RuntimeError(f"console producer ended with {done.returncode}: {done.stderr[-500:]}")
