"""Transactions of real producers through ``mirror run``: the same offsets, and nothing that was not committed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from mirror.sandbox import SandboxCluster
from tests.service.stage.kafka_side import PATIENCE_S, create_topic, end_of
from tests.service.stage.running import Mirror, config_text, mirror

pytestmark = pytest.mark.broker

ISOLATIONS = ("read_committed", "read_uncommitted")


class Record(NamedTuple):
    """As a consumer has it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Any
    timestamp: Any


def transactional(bootstrap: str, name: str) -> Producer:
    """A producer that has its transactional id."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "compression.codec": "lz4", "linger.ms": 1}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def transactions(bootstrap: str, topic: str, count: int, *, records: int = 3, name: str = "writer") -> None:
    """So many transactions on partition 0, one in five aborted."""
    producer = transactional(bootstrap, f"{topic}-{name}")
    for number in range(count):
        producer.begin_transaction()
        for index in range(records):
            producer.produce(
                topic, key=b"k%d" % number, value=b"%s %d %d" % (name.encode(), number, index), partition=0
            )
        if number % 5 == 3:
            producer.flush(PATIENCE_S)
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    transactional(bootstrap, f"{topic}-{name}")  # has its id once the last marker is written


def plain(bootstrap: str, topic: str, count: int) -> None:
    """Records outside of any transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    for number in range(count):
        producer.produce(topic, value=b"plain %d" % number, headers=[("n", b"%d" % number)], partition=0)
    assert producer.flush(PATIENCE_S) == 0


def consumed(bootstrap: str, topic: str, isolation: str) -> list[Record]:
    """Everything that a consumer gets, up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    records: list[Record] = []
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return records
            records.append(
                Record(message.offset(), message.key(), message.value(), message.headers(), message.timestamp())
            )
    finally:
        consumer.close()


def wait_for_equal_ends(process: Mirror, source: str, destination: str, topic: str) -> None:
    """Until the destination ends where the source does."""
    process.wait_event("located")
    process.wait_for(lambda: end_of(source, topic, 0) == end_of(destination, topic, 0), "equal ends")


def assert_same_for_consumers(source: str, destination: str, topic: str) -> list[Record]:
    """The destination holds at either isolation level what a read_committed consumer reads at the source."""
    wanted = consumed(source, topic, "read_committed")
    for isolation in ISOLATIONS:
        assert consumed(destination, topic, isolation) == wanted
    return wanted


@contextmanager
def open_transaction(bootstrap: str, topic: str) -> Iterator[Producer]:
    """A transaction with one record that is neither committed nor aborted while the block lasts."""
    producer = transactional(bootstrap, f"{topic}-open")
    producer.begin_transaction()
    producer.produce(topic, value=b"held", partition=0)
    producer.flush(PATIENCE_S)
    yield producer


def test_transactions(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Two transactional producers interleave, with plain records in between; one transaction in five is aborted.
    2. All is copied while it is written, and killed in the middle; ends are equal, and consumers agree.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    plain(source, topic_name, 20)
    transactions(source, topic_name, 10)
    text = config_text(source, destination, [topic_name])
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        writers = [
            threading.Thread(target=transactions, args=(source, topic_name, 25), kwargs={"name": name})
            for name in ("one", "two")
        ]
        for writer in writers:
            writer.start()
        plain(source, topic_name, 50)
        process.wait_for(lambda: end_of(destination, topic_name, 0) > 120, "some more")
        process.process.kill()
        for writer in writers:
            writer.join()
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        assert process.of("halted") == []
        assert process.stop() == 0
    records = assert_same_for_consumers(source, destination, topic_name)
    assert len(records) == 70 + 8 * 3 + 2 * 20 * 3


def test_an_open_transaction_is_waited_for(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """Nothing behind it is copied before it is decided, also over a restart; then all is."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    plain(source, topic_name, 5)
    text = config_text(source, destination, [topic_name])
    with open_transaction(source, topic_name) as producer:
        plain(source, topic_name, 5)
        for _ in range(2):
            with mirror(tmp_path / "mirror.yaml", text) as process:
                process.wait_event("located")
                process.wait_for(lambda: end_of(destination, topic_name, 0) == 5, "the first records")
                assert process.stop() == 0
        producer.abort_transaction(PATIENCE_S)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        assert process.stop() == 0
    assert len(assert_same_for_consumers(source, destination, topic_name)) == 10


def test_a_marker_too_many_halts(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """An aborted transaction by hand at the destination's end: where the source then has a record, ``overfilled``."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    plain(source, topic_name, 5)
    text = config_text(source, destination, [topic_name])
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        assert process.stop() == 0
    with open_transaction(destination, topic_name) as producer:
        producer.abort_transaction(PATIENCE_S)
    plain(source, topic_name, 5)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        halted = process.wait_event("halted")
        assert halted["reason"] in ("overfilled", "foreign_writer")
