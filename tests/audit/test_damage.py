"""Bytes that changed on a broker's disk: found, named with the side, even where the log itself is damaged."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.model import AuditRequest, Kind, Side, Span
from mirror.records.header import BatchHeader
from mirror.sandbox import Broker, Cluster
from tests.audit.clusters import Batches, batches_of, copy, create, endpoint, fill

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
    source_cluster: Cluster, destination_cluster: Cluster, spark: SparkSession, topic_name: str
) -> None:
    """1. Two topics are copied.
    2. With the destination's broker down, one batch of each is damaged in its file: a payload byte, and a last offset.
    3. The broker starts again, and does not notice.
    4. The audit does.
    """
    payload, borders = f"{topic_name}-payload", f"{topic_name}-borders"
    for topic in (payload, borders):
        for cluster in (source_cluster, destination_cluster):
            create(cluster, topic)
        fill(source_cluster, topic, codec="zstd")
        copy(source_cluster, destination_cluster, topic)
    batches = {topic: batches_of(source_cluster, topic) for topic in (payload, borders)}
    broker = destination_cluster.brokers[0]
    broker.stop()
    damage(segment(broker, payload), batches[payload], 70)
    damage(segment(broker, borders), batches[borders], 26)
    broker.start()
    result = job.run(
        AuditRequest(
            flow="f",
            source=endpoint(source_cluster, "source"),
            topics=(payload, borders),
            catch_up_s=0,
            destination=endpoint(destination_cluster, "destination"),
        ),
        spark=spark,
    )
    hit = {topic: BatchHeader.read(raw[DAMAGED]) for topic, raw in batches.items()}
    (found,) = [finding for finding in result.findings if finding.topic == payload]
    assert found.kind is Kind.CORRUPT
    assert found.source == found.destination == Span(hit[payload].base_offset, hit[payload].next_offset)
    assert "destination" in found.detail
    (found,) = [finding for finding in result.findings if finding.topic == borders]
    assert found.kind is Kind.CORRUPT
    assert found.source is None
    assert found.destination == Span(hit[borders].base_offset, BatchHeader.read(batches[borders][-1]).next_offset)
    unread = {(row.topic, row.side) for row in result.coverage if not row.complete}
    assert unread == {(borders, Side.DESTINATION)}
