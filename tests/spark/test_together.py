"""Source and sink together, on real brokers: topics into Parquet, and back into a cluster that has lost them."""

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.model.request import AuditRequest
from mirror.sandbox import SandboxCluster
from mirror.spark import FORMAT, in_order
from tests.audit.clusters import CODECS, batches_of, copy, create, endpoint, fill

pytestmark = [pytest.mark.broker, pytest.mark.spark]
PARTITIONS = 2


def read(spark: SparkSession, cluster: SandboxCluster, topics: list[str], into: Path) -> int:
    """Appends what the topics hold to an archive. Returns the number of batches."""
    rows = (
        spark.read.format(FORMAT)
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", ",".join(topics))
        .load()
    )
    rows.write.mode("append").parquet(str(into))
    return spark.read.parquet(str(into)).count()


def write(spark: SparkSession, archive: Path, cluster: SandboxCluster, source: SandboxCluster) -> None:
    """Writes an archive at the offsets that it has."""
    (
        in_order(spark.read.parquet(str(archive)))
        .write.format(FORMAT)
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("flow", "archive")
        .option("source.cluster.id", source.cluster_id)
        .option("offsets", "exact")
        .mode("append")
        .save()
    )


def test_an_archive_is_restored(
    known: SparkSession,
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
) -> None:
    """
    1. Topics of all codecs go into Parquet, and from there into another cluster.
    2. That loses them. They are written again, once, however often the query runs.
    3. Every batch has its bytes and its offset; the audit says identical.
    """
    pair = source_cluster, destination_cluster
    topics = [f"{topic_name}-{codec}" for codec in CODECS]
    for topic, codec in zip(topics, CODECS, strict=True):
        for cluster in pair:
            create(cluster, topic, PARTITIONS)
        for partition in range(PARTITIONS):
            fill(source_cluster, topic, codec=codec, partition=partition, batches=4 + partition)
            copy(*pair, topic, partition=partition)
    archive = tmp_path / "archive"
    assert read(known, source_cluster, topics, archive) == sum(4 + at for at in range(PARTITIONS)) * len(topics)

    admin = AdminClient({"bootstrap.servers": destination_cluster.bootstrap_servers})
    for future in admin.delete_topics(topics).values():
        future.result()
    for topic in topics:
        create(destination_cluster, topic, PARTITIONS)
    for _ in range(2):
        write(known, archive, destination_cluster, source_cluster)

    for topic in topics:
        for partition in range(PARTITIONS):
            ours, theirs = (batches_of(cluster, topic, partition) for cluster in pair)
            assert [(batch[:8], batch[61:]) for batch in ours] == [(batch[:8], batch[61:]) for batch in theirs]
    request = AuditRequest(
        flow="archive", source=endpoint(source_cluster, "source"),
        destination=endpoint(destination_cluster, "destination"), topics=tuple(topics), catch_up_s=0,
    )  # fmt: skip
    assert job.run(request, spark=known).identical
