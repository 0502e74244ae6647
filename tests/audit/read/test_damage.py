"""Bytes that changed on a broker's disk: found, named with the side, even where the log itself is damaged."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.errors import AuditError
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.request import AuditRequest
from mirror.audit.prepare import plan
from mirror.records.header import BatchHeader
from mirror.sandbox import Broker, SandboxCluster
from tests.audit.clusters import Batches, batches_of, copy, create, endpoint, fill
from tests.audit.exact import copy_exact

pytestmark = [pytest.mark.broker, pytest.mark.spark]

DAMAGED = 3


def segment(broker: Broker, topic: str) -> Path:
    """The first file of partition 0."""
    return broker.data_dir / f"{topic}-0" / f"{0:020}.log"


def damage(path: Path, batches: Batches, byte: int) -> None:
    """Flips a bit of one byte in the batch DAMAGED, counted from its start."""
    at = sum(map(len, batches[:DAMAGED])) + byte
    with path.open("r+b") as file:
        file.seek(at)
        value = file.read(1)[0]
        file.seek(at)
        file.write(bytes([value ^ 0x40]))


def test_damage_on_disk(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    spark: SparkSession,
    topic_name: str,
) -> None:
    """1. Four topics are copied.
    2. With the destination's broker down, one batch of two of them is damaged in its file: a payload byte, and a last
       offset. The broker starts again, and does not notice.
    3. While it runs, a length is, and one of a topic that log cleaners work on.
    4. The audit does.
    """
    payload, borders, length, compacted = (f"{topic_name}-{name}" for name in ("payload", "borders", "length", "keys"))
    topics = (payload, borders, length, compacted)
    for topic in topics:
        for cluster in (source_cluster, destination_cluster):
            create(cluster, topic, cleanup_policy="compact" if topic == compacted else "delete")
        fill(source_cluster, topic, codec="zstd", keyed=topic == compacted)
        copy(source_cluster, destination_cluster, topic)
    batches = {topic: batches_of(source_cluster, topic) for topic in topics}
    broker = destination_cluster.brokers[0]
    broker.stop()
    damage(segment(broker, payload), batches[payload], 70)
    damage(segment(broker, borders), batches[borders], 26)
    broker.start()
    damage(segment(broker, length), batches[length], 9)
    damage(segment(broker, compacted), batches[compacted], 9)
    request = AuditRequest(
        flow="f",
        source=endpoint(source_cluster, "source"),
        topics=topics,
        catch_up_s=0,
        destination=endpoint(destination_cluster, "destination"),
    )
    result = job.run(request, spark=spark)
    hit = {topic: BatchHeader.read(raw[DAMAGED]) for topic, raw in batches.items()}
    (found,) = [finding for finding in result.findings if finding.topic == payload]
    assert found.kind is Kind.CORRUPT
    assert found.source == found.destination == Span(hit[payload].base_offset, hit[payload].next_offset)
    assert "destination" in found.detail
    (found,) = [finding for finding in result.findings if finding.topic == borders]
    assert found.kind is Kind.CORRUPT
    assert found.source is None
    assert found.destination == Span(hit[borders].base_offset, BatchHeader.read(batches[borders][-1]).next_offset)
    (found,) = [finding for finding in result.findings if finding.topic == length]
    assert (found.kind, found.source) == (Kind.UNREADABLE, None)
    assert found.destination == Span(hit[length].base_offset, BatchHeader.read(batches[length][-1]).next_offset)
    assert "shows nothing" in found.detail
    (found,) = [finding for finding in result.findings if finding.topic == compacted]
    assert (found.kind, found.source) == (Kind.MISSING, Span(hit[compacted].base_offset, 31))
    unread = {(row.topic, row.side) for row in result.coverage if not row.complete}
    assert unread == {(topic, Side.DESTINATION) for topic in (borders, length)}


def test_a_transaction_index_that_is_gone(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    spark: SparkSession,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    1. A transaction, other data, an abort; copied as it should be.
    2. The source loses its index: brokers now show the aborted data to everybody. There is no verdict, also where the
       data and its marker are read by different tasks. Nothing is told of what the copy lacks.
    """
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name)
    producer = Producer({"bootstrap.servers": source_cluster.bootstrap_servers, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"aborted" * 50, partition=0)
    producer.flush()
    fill(source_cluster, topic_name)
    producer.abort_transaction()
    copy_exact(source_cluster, destination_cluster, topic_name)
    request = AuditRequest(
        flow="f", source=endpoint(source_cluster, "source"), topics=(topic_name,), catch_up_s=0,
        destination=endpoint(destination_cluster, "destination"),
    )  # fmt: skip
    assert job.run(request, spark=spark).identical
    broker = source_cluster.brokers[0]
    broker.stop()
    for index in segment(broker, topic_name).parent.glob("*.txnindex"):
        index.unlink()
    broker.start()
    for _ in range(2):
        with pytest.raises(AuditError, match="aborts a transaction"):
            job.run(request, spark=spark)
        monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)
        monkeypatch.setattr(plan, "TASK_BYTES", 400)
