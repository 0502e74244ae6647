"""Topics whose older segments are in tiered storage (KIP-405), as source: Kafka's own brokers, with the storage of
Kafka's own tests, which is a folder."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from mirror.sandbox import SandboxCluster, jars
from mirror.sandbox.kafka.versions import DEFAULT
from tests.patience import PATIENT
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import create_topic, end_of, fetched
from tests.service.stage.running import PATIENCE_S, config_text, mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SEGMENT = 1 << 20
TIERED: dict[str, Any] = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT),
    "local.retention.bytes": str(SEGMENT),
    "retention.ms": "-1",
}
TRANSACTIONS = 6
RECORDS = 200


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the older segments."""
    return tmp_path_factory.mktemp("tiered") / "storage"


@pytest.fixture(scope="module")
def tiered(storage: Path) -> Iterator[SandboxCluster]:
    """A cluster with tiered storage, which soon moves what it can."""
    (jar,) = jars.fetch("org.apache.kafka", "kafka-storage", DEFAULT, "test")
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": str(jar),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": "200",
        "rsm.config.dir": str(storage),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "log.initial.task.delay.ms": "200",
        "log.retention.check.interval.ms": "200",
        "file.delete.delay.ms": "0",
    }
    with SandboxCluster(name="tiered", properties={**PATIENT, **properties}, quick=True) as cluster:
        yield cluster


def write(cluster: SandboxCluster, topic: str) -> None:
    """A topic: transactions of more than a segment, one in four aborted, and waits until most of them are moved."""
    create_topic(cluster.bootstrap_servers, topic, 1, **TIERED)
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic, "linger.ms": 20, "log_level": 0}
    )
    producer.init_transactions()
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for record in range(RECORDS):
            producer.produce(topic, os.urandom(6_000), b"%d" % record, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        if number % 4 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    until = time.monotonic() + PATIENCE_S
    while size_of(cluster.brokers[0].data_dir / f"{topic}-0") > 3 * SEGMENT:
        assert time.monotonic() < until, "the broker keeps its segments"
        time.sleep(0.2)


def size_of(folder: Path) -> int:
    """Of a partition's segments, some of which the broker may be deleting."""
    total = 0
    for segment in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            total += segment.stat().st_size
    return total


@contextlib.contextmanager
def gone(storage: Path) -> Iterator[None]:
    """Meanwhile, no segment can be read that the storage has now."""
    segments = list(storage.rglob("*.log"))
    assert segments
    for segment in segments:
        segment.rename(segment.with_suffix(".gone"))
    try:
        yield
    finally:
        for segment in segments:
            segment.with_suffix(".gone").rename(segment)


@contextlib.contextmanager
def limited(cluster: SandboxCluster, rate: int) -> Iterator[None]:
    """Meanwhile, the broker reads no more than this from its storage, in bytes per second."""
    name = "remote.log.manager.fetch.max.bytes.per.second"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for how, value in ((AlterConfigOpType.SET, str(rate)), (AlterConfigOpType.DELETE, None)):
        entry = ConfigEntry(name, value, incremental_operation=how)
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([broker]).values():
            future.result()
        if value is not None:
            yield


def test_what_is_in_tiered_storage_is_copied(
    tiered: SandboxCluster,
    storage: Path,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    spark: "SparkSession",
) -> None:
    """
    1. While the storage cannot be read, nothing is copied, and nothing is taken for deleted.
    2. Once it can, all is copied, holes included, without a restart.
    3. An audit that cannot read the storage is none.
    """
    write(tiered, topic_name)
    there = destination_cluster.bootstrap_servers
    config = config_text(tiered.bootstrap_servers, there, [topic_name])
    with mirror(tmp_path / "mirror.yaml", config) as process:
        with gone(storage):
            process.wait_event("located", topic=topic_name)
            # Anywhere else, this error eight times in a row is damage.
            process.wait_for(lambda: len(process.of("resync")) >= 12 or process.of("halted"), "twelve tries")
            assert not process.of("halted")
            assert end_of(there, topic_name) == 0
        end = end_of(tiered.bootstrap_servers, topic_name)
        assert end == TRANSACTIONS * (RECORDS + 1)
        process.wait_for(lambda: end_of(there, topic_name) == end, "the copy")
        assert not process.of("halted")
        assert process.stop() == 0
    with gone(storage):
        code, told = audited(spark, tmp_path / "mirror.yaml")
        assert code == 1, told
        assert f"topic {topic_name} partition 0 cannot be read from offset" in told
        assert "Traceback" not in told


def test_a_quota_on_tiered_storage(
    tiered: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    spark: "SparkSession",
) -> None:
    """A broker that has read its share for now (KIP-956) answers with nothing: that is no gap and no damage, neither
    for the mirror, even where it was told to skip gaps, nor for the audit."""
    write(tiered, topic_name)
    there = destination_cluster.bootstrap_servers
    flow = {"on.gap": "continue"}
    with limited(tiered, 800_000):
        assert any(not fetched(tiered.bootstrap_servers, topic_name, 0) for _ in range(20)), "the quota is not kept"
        with mirror(
            tmp_path / "mirror.yaml", config_text(tiered.bootstrap_servers, there, [topic_name], flow=flow)
        ) as process:
            end = end_of(tiered.bootstrap_servers, topic_name)
            process.wait_for(lambda: process.of("halted") or end_of(there, topic_name) == end, "the copy")
            assert not process.of("halted")
            assert not process.of("skipped")
            assert process.stop() == 0
        code, told = audited(spark, tmp_path / "mirror.yaml")
    assert code == 0, told
    assert "identical" in told
