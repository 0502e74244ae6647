"""Tansu 0.6.0, a broker written in Rust, as source and as destination. What it lacks is said by name.

The program is looked for at $TANSU, then on PATH; ``cargo install tansu`` builds it.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.parent import death_signal
from mirror.sandbox import SandboxCluster
from mirror.sandbox.children.ports import Reservation
from tests.service.plan.planning import plan
from tests.service.stage.kafka_side import create_topic
from tests.service.stage.running import config_text, mirror

TANSU = os.environ.get("TANSU") or shutil.which("tansu") or ""
PATIENCE_S = 60.0
pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not TANSU, reason="no tansu on PATH, and none at $TANSU (cargo install tansu)"),
]


@pytest.fixture(scope="module")
def tansu() -> Iterator[str]:
    """Its address. Its logs are in memory."""
    reserved = Reservation()
    where = f"127.0.0.1:{reserved.port}"
    listeners = [f"--{name}-url=tcp://{where}" for name in ("listener", "advertised-listener")]
    command = [TANSU, "broker", *listeners, "--storage-engine", "memory://t/"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=death_signal())
    try:
        admin = AdminClient({"bootstrap.servers": where, "log_level": 0})
        until = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < until:
            with suppress(KafkaException):
                admin.list_topics(timeout=2)
                break
        assert process.poll() is None, "it has ended"
        yield where
    finally:
        process.kill()
        process.wait()
        reserved.release()


def produced(bootstrap: str, topic: str, *values: str) -> None:
    """A batch of records in partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 30_000, "compression.type": "lz4"})
    producer.list_topics(topic)
    for value in values:
        producer.produce(topic, value, "key", partition=0)
    assert producer.flush(PATIENCE_S) == 0


def read(bootstrap: str, topic: str, count: int) -> list[tuple[int, str]]:
    """Offset and value of so many records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, str]] = []
    until = time.monotonic() + PATIENCE_S
    try:
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert isinstance(value, bytes)
                found.append((offset, value.decode()))
    finally:
        consumer.close()
    return found


def test_as_a_source(tansu: str, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> None:
    """
    1. A topic is copied at the same offsets; the mirror gets its seat in a group there, and commits.
    2. Restarted, it goes on where the destination ends.
    """
    there = destination_cluster.bootstrap_servers
    create_topic(tansu, topic_name)
    values = [f"value {number}" for number in range(200)]
    config = config_text(tansu, there, [topic_name])
    for start, end in ((0, 150), (150, 200)):
        produced(tansu, topic_name, *values[start:end])
        with mirror(tmp_path / "mirror.yaml", config) as process:
            process.wait_event("located", topic=topic_name, offset=start)
            process.wait_for(
                lambda: process.of("progress") and process.of("progress")[-1]["batches_forwarded"] >= 1, "a batch"
            )
            assert read(there, topic_name, end) == list(enumerate(values[:end]))
            assert not process.of("resync")
            assert process.stop() == 0


def test_as_a_destination(source_cluster: SandboxCluster, tansu: str, topic_name: str, tmp_path: Path) -> None:
    """It takes only producer ids that it has given out: the plan warns, the partition halts, and both say why."""
    create_topic(source_cluster.bootstrap_servers, topic_name)
    produced(source_cluster.bootstrap_servers, topic_name, "a", "b")
    config = config_text(source_cluster.bootstrap_servers, tansu, [topic_name])
    file = tmp_path / "mirror.yaml"
    file.write_text(config)
    row = plan(file).rows(None, least="warns")["P03"]
    assert "Tansu does (producer_ids_refused)" in row["detail"]
    with mirror(file, config) as process:
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "producer_ids_refused"
        assert "UNKNOWN_PRODUCER_ID" in line["detail"]
        assert "another cluster" in line["remedy"]
        assert process.stop() == 2


def test_as_a_destination_with_mapped_offsets(
    source_cluster: SandboxCluster, tansu: str, topic_name: str, tmp_path: Path
) -> None:
    """It has no EndTxn: the plan refuses, and the partition halts with the same reason."""
    create_topic(source_cluster.bootstrap_servers, topic_name)
    produced(source_cluster.bootstrap_servers, topic_name, "a", "b")
    config = config_text(source_cluster.bootstrap_servers, tansu, [topic_name], flow={"offsets": "mapped"})
    file = tmp_path / "mirror.yaml"
    file.write_text(config)
    found = plan(file)
    assert found.code == 2
    assert found.rows(None, least="refused")["P03"]["reason"] == "no_common_version"
    with mirror(file, config) as process:
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "no_common_version"
        assert "EndTxn" in line["detail"]
        assert process.stop() == 2
