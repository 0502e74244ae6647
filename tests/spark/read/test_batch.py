"""Queries at real brokers, as Spark's workers run them: what Java clients and librdkafka wrote, of every kind."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.raw.errors import NotAuthenticated, OffsetOutOfRange, UnknownTopic
from mirror.records.header import LOG_APPEND_TIME, BatchHeader
from mirror.sandbox import SandboxCluster
from mirror.spark.read.batch import RawBatchReader, read_partition
from mirror.spark.read.options import read_options
from mirror.spark.read.ranges import RangesPartition
from tests import secured
from tests.audit.clusters import batches_of, create, delete_before, fill
from tests.legacy.logs import AS_0_9
from tests.patience import PATIENT
from tests.raw.real import PATIENCE_S, batch, consumed
from tests.service.runs.rewriting.test_deep_path import keyed, sparse_in
from tests.spark.read.stage import options
from tests.spark.real import given, records_of, rows_of, tasks_of
from tests.vectors import load

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
broker = pytest.mark.broker


def test_what_spark_holds() -> None:
    """What is pushed into a reader would be seen by every DataFrame of one load(); Spark calls once without ranges."""
    assert "pushFilters" not in vars(RawBatchReader)
    assert list(read_partition(options(), None)) == []


@broker
def test_of_every_codec_by_a_java_client(source_cluster: SandboxCluster, topic_name: str, tmp_path: Path) -> None:
    """The Java producer is idempotent, which the rows say; the records are those that librdkafka reads."""
    for codec in CODECS:
        topic = f"{topic_name}-{codec}"
        create(source_cluster, topic)
        load.produce_with_java(source_cluster.bootstrap_servers, [(topic, codec)], tmp_path)
        rows = rows_of(given(source_cluster, topic))
        assert records_of(rows) == consumed(source_cluster, topic)
        assert [row["batch"] for row in rows] == batches_of(source_cluster, topic)
        assert {row["codec"] for row in rows} == {codec}
        assert all(row["producer_id"] >= 0 and row["base_sequence"] >= 0 and row["crc_ok"] for row in rows)


@broker
def test_by_librdkafka_in_any_number_of_tasks(source_cluster: SandboxCluster, topic_name: str) -> None:
    """However a topic is cut, each batch comes once; tasks have about as many bytes as was asked for."""
    create(source_cluster, topic_name, 2, message_timestamp_type="LogAppendTime")
    for index, codec in enumerate(CODECS):
        fill(source_cluster, topic_name, codec=codec, partition=index % 2, batches=15)
    whole = rows_of(given(source_cluster, topic_name))
    assert records_of(whole) == consumed(source_cluster, topic_name)
    assert {row["timestamp_type"] for row in whole} == {"LogAppendTime"}
    assert all(BatchHeader.read(row["batch"]).attributes & LOG_APPEND_TIME for row in whole)
    total = sum(row["size"] for row in whole)
    for least in ("2", "7", "40"):
        tasks = tasks_of(given(source_cluster, topic_name, minPartitions=least))
        assert len(tasks) >= int(least)
        assert (
            sorted((row for task in tasks for row in task), key=lambda row: (row["partition"], row["base_offset"]))
            == whole
        )
    tasks = tasks_of(given(source_cluster, topic_name, maxBytesPerPartition="4KiB"))
    assert total / 4_096 / 2 <= len(tasks) <= total / 4_096 * 2 + 2
    assert len(tasks_of(given(source_cluster, topic_name))) == 1, "little data is one task"
    small = rows_of(given(source_cluster, topic_name, kafka_fetch_max_bytes="1024", includeBatch="false"))
    assert small == [{**row, "batch": None} for row in whole]


@broker
def test_from_and_to_anywhere(source_cluster: SandboxCluster, topic_name: str) -> None:
    """A start inside of a batch has it whole; so has an end."""
    create(source_cluster, topic_name)
    for at in range(6):
        batch(source_cluster, topic_name, *[f"{at} {n}" for n in range(4)], codec="lz4")
    stored = batches_of(source_cluster, topic_name)

    def between(start: int, end: int, **more: str) -> list[bytes]:
        starts, ends = (f'{{"{topic_name}": {{"0": {offset}}}}}' for offset in (start, end))
        wanted = given(source_cluster, topic_name, startingOffsets=starts, endingOffsets=ends, **more)
        return [row["batch"] for row in rows_of(wanted)]

    for start in range(24):
        for end in (start + 1, start + 6):
            if end <= 24:
                assert between(start, end) == stored[start // 4 : (end + 3) // 4], (start, end)
    assert between(-2, -1, minPartitions="24") == stored
    delete_before(source_cluster, topic_name, 10)
    assert [row["batch"] for row in rows_of(given(source_cluster, topic_name))] == stored[2:]
    assert between(9, 24) == stored[2:], "the batch with offset 9 is still whole there"
    with pytest.raises(OffsetOutOfRange, match="offsets 3 to 9 are gone"):
        between(3, 24)
    assert between(3, 24, failOnDataLoss="false") == stored[2:]
    with pytest.raises(OffsetOutOfRange, match="endingOffsets has offset 99, and what can be read ends at 24"):
        between(10, 99)


@broker
def test_by_time(source_cluster: SandboxCluster, topic_name: str) -> None:
    create(source_cluster, topic_name)
    load.produce(source_cluster.bootstrap_servers, topic_name, 4, compression_type="gzip")
    rows = rows_of(given(source_cluster, topic_name))
    second, third = rows[1]["base_timestamp"], rows[2]["base_timestamp"]
    within = given(source_cluster, topic_name, startingTimestamp=str(second + 1), endingTimestamp=str(third))
    assert rows_of(within) == rows[1:2]
    assert rows_of(given(source_cluster, topic_name, endingTimestamp=str(third + 1))) == rows[:3]
    inside = f'{{"{topic_name}": {{"0": {third}}}}}'
    assert rows_of(given(source_cluster, topic_name, startingOffsetsByTimestamp=inside)) == rows[2:]


@broker
def test_transactions(source_cluster: SandboxCluster, topic_name: str) -> None:
    """By default what the log has, markers among it; at read_committed what consumers see."""
    create(source_cluster, topic_name, 2)
    load.produce_transactions(source_cluster.bootstrap_servers, topic_name)
    rows = rows_of(given(source_cluster, topic_name))
    assert records_of(rows) == consumed(source_cluster, topic_name, isolation="read_uncommitted")
    assert sum(row["is_control"] for row in rows) == 5
    assert all(row["is_transactional"] for row in rows if row["is_control"])
    committed = rows_of(given(source_cluster, topic_name, kafka_isolation_level="read_committed"))
    assert records_of(committed) == consumed(source_cluster, topic_name)
    assert not any(row["is_control"] for row in committed)
    assert 0 < len(committed) < len(rows) - 5


@broker
def test_what_a_log_cleaner_has_left(topic_name: str) -> None:
    """Batches with holes, and offsets without batches, however they are cut."""
    with SandboxCluster(
        name="cleaning", properties={**PATIENT, "log.cleaner.backoff.ms": "200"}, quick=True
    ) as cluster:
        create(
            cluster, topic_name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
            delete_retention_ms="86400000",
        )  # fmt: skip
        for codec in CODECS:
            keyed(cluster.bootstrap_servers, topic_name, codec)
        until = time.monotonic() + PATIENCE_S
        while len(sparse_in(cluster.bootstrap_servers, topic_name)) < len(CODECS) - 1:
            assert time.monotonic() < until, "not cleaned"
            time.sleep(0.2)
        rows = rows_of(given(cluster, topic_name))
        assert any(row["record_count"] < row["last_offset"] - row["base_offset"] + 1 for row in rows)
        for least in ("1", "3", "20"):
            while True:
                expected = consumed(cluster, topic_name)
                tasks = tasks_of(given(cluster, topic_name, minPartitions=least))
                if consumed(cluster, topic_name) == expected:
                    break  # otherwise the cleaner has come in between
            found = [row for task in tasks for row in task]
            assert records_of(found) == expected
            assert [row["base_offset"] for row in found] == sorted({row["base_offset"] for row in found})


@broker
def test_what_does_not_exist(source_cluster: SandboxCluster, topic_name: str) -> None:
    with pytest.raises(UnknownTopic, match=f"has no topic {topic_name}; create it"):
        rows_of(given(source_cluster, topic_name))


@pytest.fixture(scope="module", params=["0.10.2.2", "2.8.2"])
def older(request: pytest.FixtureRequest) -> Iterator[SandboxCluster]:
    with SandboxCluster(name=f"v{request.param}", version=request.param, properties=PATIENT, quick=True) as running:
        yield running


@broker
def test_older_brokers(older: SandboxCluster, topic_name: str) -> None:
    """One from before batches: what librdkafka wrote as magic 0 and 1, whole wrappers among it."""
    old = older.version.startswith("0.10")
    load.create_topics(older.bootstrap_servers, {topic_name: (1, {"message.format.version": "0.9.0"} if old else {})})
    for codec in ("none", "gzip"):
        wire = AS_0_9 if old else {}
        load.produce(older.bootstrap_servers, topic_name, 2, headers=not old, compression_type=codec, **wire)
    rows = rows_of(given(older, topic_name))
    assert all(row["crc_ok"] for row in rows)
    if not old:
        assert records_of(rows) == consumed(older, topic_name)
        return
    assert {row["magic"] for row in rows} == {0}
    assert [row["last_offset"] for row in rows] == [*range(10), 14, 19]
    assert [row["codec"] for row in rows] == ["none"] * 10 + ["gzip"] * 2
    halves = tasks_of(given(older, topic_name, minPartitions="5"))
    assert [row for task in halves for row in task] == rows
    inside = given(older, topic_name, startingOffsets=f'{{"{topic_name}": {{"0": 12}}}}')
    assert [row["last_offset"] for row in rows_of(inside)] == [14, 19]


@broker
def test_tls_and_sasl(tmp_path: Path, topic_name: str) -> None:
    """As the daemon: the same keys; a wrong password is told of at once."""
    files = secured.made(tmp_path)
    with secured.cluster(files, more=secured.BOTH) as cluster:
        create(cluster, topic_name)
        batch(cluster, topic_name, "a", "b")
        keys = {f"kafka.{name}": value for name, value in secured.keys(files).items()}
        wanted = {"subscribe": topic_name, "kafka.bootstrap.servers": cluster.servers(secured.SASL_TLS), **keys}
        assert [row["record_count"] for row in rows_of(wanted)] == [2]
        with pytest.raises(NotAuthenticated, match="check the ssl and sasl settings") as raised:
            rows_of({**wanted, "kafka.sasl.password": "wrong"})
        assert "wrong" not in str(raised.value)


@broker
def test_brokers_are_killed_while_a_task_reads(topic_name: str) -> None:
    """Each of three brokers is killed and started again: every batch comes once, in order."""
    with SandboxCluster(name="three", brokers=3, quick=True) as cluster:
        create(cluster, topic_name, 3, replicas=3, min_insync_replicas="2")
        for partition in range(3):
            for _ in range(40):
                batch(cluster, topic_name, "x" * 500, partition=partition)
        wanted = read_options(given(cluster, topic_name, kafka_fetch_max_bytes="1024"), streaming=False)
        reader = RawBatchReader(wanted)
        partitions = [each for each in reader.partitions() if isinstance(each, RangesPartition)]
        found: dict[int, list[int]] = {partition: [] for partition in range(3)}

        def disturb() -> None:
            for one in cluster.brokers:
                one.kill()
                time.sleep(1)
                one.start()

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        try:
            rounds = 0
            while disturbing.is_alive() or not rounds:
                rounds += 1
                for part in found.values():
                    part.clear()
                for each in partitions:
                    for rows in reader.read(each):
                        for row in rows.to_pylist():
                            found[row["partition"]].append(row["base_offset"])
                assert found == {partition: list(range(40)) for partition in range(3)}
        finally:
            disturbing.join()
