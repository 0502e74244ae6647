"""``mirror run`` between two real clusters: what it copies, through what it goes on, and how it stops."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirror.sandbox import SandboxCluster
from tests.patience import PATIENT
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import CODECS, assert_identical, create_topic, end_of, produce, writing
from tests.service.stage.running import Mirror, config_text, mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
PARTITIONS = 3


def caught_up(process: Mirror, source: str, destination: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Waits until the destination ends where the source does, and the mirror knows it."""

    def equal() -> bool:
        return all(end_of(source, topic, each) == end_of(destination, topic, each) for each in range(partitions))

    process.wait_event("caught_up")
    process.wait_for(equal, "equal ends")
    count = len(process.of("progress"))
    process.wait_for(
        lambda: any(line["lag_records"] == 0 for line in process.of("progress")[count:]), "a lag of 0 records"
    )


def forwarded(process: Mirror) -> int:
    """Batches that the destination has acknowledged, as of the last progress line."""
    lines = process.of("progress")
    return int(lines[-1]["batches_forwarded"]) if lines else 0


def test_all_codecs(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A topic in all codecs, with keys, headers and null values; some batches are large.
    2. It is copied, and what is written meanwhile as well. The topic was created with the same partitions.
    3. SIGTERM: drained, exit code 0. Both sides are the same, batch for batch.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name, PARTITIONS)
    for codec in CODECS:
        produce(source, topic_name, 600, partitions=PARTITIONS, codec=codec)
    produce(source, topic_name, 6, partitions=PARTITIONS, size=1_800_000)
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])) as process:
        started = process.wait_event("started")
        assert started["partitions"] == PARTITIONS
        assert started["source_id"] == source_cluster.cluster_id
        assert started["destination_id"] == destination_cluster.cluster_id
        process.wait_event("caught_up")
        produce(source, topic_name, 300, partitions=PARTITIONS, codec="lz4", seed=1)
        caught_up(process, source, destination, topic_name)
        assert process.stop(signal.SIGTERM) == 0
        assert process.of("stopped")[0]["drained"] is True
        last = process.of("progress")[-1]
        assert last["partitions"] == {"active": PARTITIONS}
        assert last["batches_opened"] == 0
    compared = assert_identical(source, destination, [topic_name], PARTITIONS)
    assert last["batches_forwarded"] == compared


@pytest.mark.spark
def test_killed_five_times(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    spark: "SparkSession",
) -> None:
    """
    1. A producer writes all the time. Five times in a row ``mirror run`` copies some of it and is killed (-9).
    2. The sixth catches up. Nothing is lost, nothing is there twice, every offset and every byte is the source's:
       says a reader of the test's own, and says ``mirror audit``.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name, PARTITIONS)
    produce(source, topic_name, 6_000, partitions=PARTITIONS, codec="zstd", size=2_000)
    config = config_text(source, destination, [topic_name], flow={"fetch.max.bytes": "64KiB"})
    with writing(source, topic_name, PARTITIONS):
        for _ in range(5):
            with mirror(tmp_path / "mirror.yaml", config) as process:
                process.wait_for(lambda: forwarded(process) > 0, "the first batches")
                process.process.kill()
                assert process.wait() == -signal.SIGKILL
                process.check_clean()
    with mirror(tmp_path / "mirror.yaml", config) as process:
        caught_up(process, source, destination, topic_name)
        assert process.stop() == 0
        assert not process.of("halted")
    assert assert_identical(source, destination, [topic_name], PARTITIONS) > 100
    code, told = audited(spark, tmp_path / "mirror.yaml")
    assert code == 0, told
    assert f"{PARTITIONS} partitions" in told


@pytest.fixture
def two_to_kill() -> Iterator[tuple[SandboxCluster, SandboxCluster]]:
    """A source and a destination of one's own, whose brokers are soon let in again."""
    with (
        SandboxCluster(name="source", quick=True) as source,
        SandboxCluster(name="destination", quick=True) as destination,
    ):
        yield source, destination


def test_brokers_killed_and_restarted(
    two_to_kill: tuple[SandboxCluster, SandboxCluster], topic_name: str, tmp_path: Path
) -> None:
    """
    1. In the middle of a copy, while a producer writes, the destination's leader is killed (-9) and started again;
       then the source's.
    2. The mirror goes on by itself, nothing halts, and both sides end up the same.
    """
    source_cluster, destination_cluster = two_to_kill
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name, PARTITIONS)
    produce(source, topic_name, 3_000, partitions=PARTITIONS, codec="lz4", size=2_000)
    config = config_text(source, destination, [topic_name], flow={"fetch.max.bytes": "64KiB"})
    with mirror(tmp_path / "mirror.yaml", config) as process:
        with writing(source, topic_name, PARTITIONS):
            for cluster in (destination_cluster, source_cluster):
                before = forwarded(process)
                process.wait_for(lambda: forwarded(process) > before, "batches")  # noqa: B023
                (broker,) = cluster.brokers
                broker.kill()
                broker.start()
        caught_up(process, source, destination, topic_name)
        assert process.stop(signal.SIGINT) == 0
        assert not process.of("halted")
        assert process.of("progress")[-1]["resyncs"]
    assert_identical(source, destination, [topic_name], PARTITIONS)


def test_a_second_signal_does_not_wait(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. The destination hangs with batches under way: the first SIGTERM waits for them.
    2. The second ends it at once, exit code 1. A new run goes on where the log ends.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    produce(source, topic_name, 300)
    config = config_text(source, destination, [topic_name], top={"drain.timeout.ms": 600_000})
    (broker,) = destination_cluster.brokers
    with mirror(tmp_path / "mirror.yaml", config) as process:
        process.wait_event("caught_up")
        broker.pause()
        try:
            produce(source, topic_name, 300, seed=1)
            process.wait_for(lambda: process.of("progress")[-1]["lag_records"] > 0, "a lag")
            process.process.send_signal(signal.SIGTERM)
            process.wait_event("stopping")
            process.process.send_signal(signal.SIGTERM)
            assert process.wait() == 1
            process.check_clean()
            assert process.of("killed")
            assert not process.of("stopped")
        finally:
            broker.resume()
    with mirror(tmp_path / "mirror.yaml", config) as process:
        caught_up(process, source, destination, topic_name, 1)
        assert process.stop() == 0
    assert_identical(source, destination, [topic_name])


def test_a_signal_while_it_starts(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """A destination that hangs does not keep it from stopping: there is nothing to wait for."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    (broker,) = destination_cluster.brokers
    broker.pause()
    try:
        config = config_text(source, destination, [topic_name])
        with mirror(tmp_path / "mirror.yaml", config) as process:
            process.wait_event("connecting", cluster="destination")
            assert process.stop() == 0
            assert not process.of("started")
    finally:
        broker.resume()


@pytest.mark.parametrize("version", ["2.3.1", "2.7.2", "2.8.2", "3.0.2", "3.9.2"])
def test_old_brokers(version: str, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> None:
    """From an old broker to a new one, and from the new one back to the old one."""
    new = destination_cluster.bootstrap_servers
    with SandboxCluster(name="old", version=version, properties=PATIENT, quick=True, heap_mb=512) as cluster:
        old = cluster.bootstrap_servers
        for number, (source, destination) in enumerate(((old, new), (new, old))):
            topic = f"{topic_name}-{number}"
            create_topic(source, topic, 2)
            for codec in CODECS:
                produce(source, topic, 100, partitions=2, codec=codec)
            with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic])) as process:
                caught_up(process, source, destination, topic, 2)
                assert process.stop() == 0
            assert assert_identical(source, destination, [topic], 2) >= 10
