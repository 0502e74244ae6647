"""The data source in Spark: its rows, streams from checkpoint to checkpoint, and what errors say."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import _parse_datatype_string

from mirror.sandbox import SandboxCluster
from mirror.spark import FORMAT, SCHEMA
from mirror.spark.schema import ARROW_SCHEMA
from tests.audit.clusters import batches_of, create, delete_before, fill
from tests.raw.real import PATIENCE_S, batch
from tests.spark.real import given, rows_of


def load(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format(FORMAT).options(**options).load()


@pytest.mark.broker
@pytest.mark.spark
class TestInSpark:
    def test_a_query(self, known: SparkSession, source_cluster: SandboxCluster, topic_name: str) -> None:
        create(source_cluster, topic_name, 2)
        for partition in range(2):
            fill(source_cluster, topic_name, codec="zstd", partition=partition)
        wanted = given(source_cluster, topic_name)
        frame = load(known, wanted)
        assert frame.schema == _parse_datatype_string(SCHEMA)
        assert to_arrow_schema(frame.schema) == ARROW_SCHEMA, "Spark checks that"
        rows = [row.asDict() for row in frame.orderBy("partition", "base_offset").collect()]
        assert [{**row, "batch": bytes(row["batch"])} for row in rows] == rows_of(wanted)
        counted = load(known, {**wanted, "minPartitions": "8", "includeBatch": "false"}).groupBy("codec").sum("size")
        assert counted.collect() == [("zstd", sum(row["size"] for row in rows))]
        assert load(known, {**wanted, "startingTimestamp": "0"}).limit(3).count() == 3
        create(source_cluster, f"{topic_name}-empty")
        assert load(known, given(source_cluster, f"{topic_name}-empty")).count() == 0

    def test_large_batches(self, known: SparkSession, source_cluster: SandboxCluster, topic_name: str) -> None:
        """Larger than an Arrow batch may be otherwise, and many that are not."""
        create(source_cluster, topic_name, max_message_bytes="20000000")
        batch(source_cluster, topic_name, *[bytes(1_000_000)] * 18)
        for _ in range(30):
            batch(source_cluster, topic_name, bytes(900_000))
        frame = load(known, given(source_cluster, topic_name))
        (row,) = frame.selectExpr("count(*) as n", "sum(length(batch)) as bytes", "max(size) as most").collect()
        assert (row["n"], row["bytes"]) == (31, sum(map(len, batches_of(source_cluster, topic_name))))
        assert row["most"] > 16 << 20

    def test_two_clusters_in_one_query(
        self, known: SparkSession, source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
    ) -> None:
        """Filters are not pushed anywhere: each side of a join reads its own cluster."""
        for cluster, values in ((source_cluster, 3), (destination_cluster, 2)):
            create(cluster, topic_name)
            for at in range(values):
                batch(cluster, topic_name, f"{cluster.name} {at}")
        ours, theirs = (
            load(known, given(cluster, topic_name)).filter("base_offset < 2")
            for cluster in (source_cluster, destination_cluster)
        )
        keys = ["topic", "partition", "base_offset"]
        assert ours.join(theirs, [*keys, "batch"], "left_anti").count() == 2
        assert ours.join(theirs, keys).count() == 2
        assert ours.exceptAll(ours).count() == 0

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"subscribe": "nowhere"}, "UnknownTopic: .*has no topic nowhere; create it, or check its name"),
            ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "Unavailable: cannot reach cluster 127.0.0.1:1: .*refused"),
            ({"startingOffset": "earliest"}, "kafka-raw-batches: startingoffset: is unknown; did you mean startingOff"),
            ({"kafka.security.protocol": "SSL"}, "Unavailable: .*or this port does not speak TLS"),
        ],
    )
    def test_what_errors_say(
        self, known: SparkSession, source_cluster: SandboxCluster, topic_name: str, options: dict[str, str], told: str
    ) -> None:
        create(source_cluster, topic_name)
        with pytest.raises(PySparkException, match=told):
            load(known, {**given(source_cluster, topic_name), **options}).count()

    def test_an_error_in_a_task(self, known: SparkSession, source_cluster: SandboxCluster, topic_name: str) -> None:
        """The topic is deleted after its query was planned."""
        create(source_cluster, topic_name)
        batch(source_cluster, topic_name, "a")
        frame = load(known, given(source_cluster, topic_name))
        assert len(frame.collect()) == 1
        batch(source_cluster, topic_name, "b")
        assert len(frame.collect()) == 1, "by the same plan"
        admin = AdminClient({"bootstrap.servers": source_cluster.bootstrap_servers})
        for future in admin.delete_topics([topic_name]).values():
            future.result()
        with pytest.raises(PySparkException, match=f"UnknownTopic: .*has no topic {topic_name}"):
            frame.collect()

    def test_warnings_of_lost_records(
        self, known: SparkSession, source_cluster: SandboxCluster, topic_name: str
    ) -> None:
        """They do not end the query; SQL finds the rest."""
        create(source_cluster, topic_name)
        fill(source_cluster, topic_name)
        wanted = given(source_cluster, topic_name, startingOffsets=f'{{"{topic_name}": {{"0": 1}}}}')
        delete_before(source_cluster, topic_name, 7)
        with pytest.raises(
            PySparkException, match=r"OffsetOutOfRange: .*offsets 1 to 6 are gone .*failOnDataLoss to f"
        ):
            load(known, wanted).collect()
        load(known, {**wanted, "failOnDataLoss": "false"}).createOrReplaceTempView("what_is_left")
        assert known.sql("SELECT min(base_offset) AS first FROM what_is_left").collect() == [(7,)]


@pytest.mark.broker
@pytest.mark.spark
class TestStreams:
    def run(
        self,
        spark: SparkSession,
        options: dict[str, str],
        folder: Path,
        seen: dict[int, list[Any]],
        *,
        trigger: dict[str, Any],
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Runs a query from its checkpoint; ``seen`` gets the rows of each micro-batch by its number. It ends by itself
        or when there is enough. A query that is stopped before it has noted a micro-batch repeats it: with the same
        rows."""

        def take(frame: DataFrame, number: int) -> None:
            found = frame.orderBy("topic", "partition", "base_offset").collect()
            rows = [(row["topic"], row["partition"], row["base_offset"]) for row in found]
            assert seen.setdefault(number, rows) == rows

        frame = spark.readStream.format(FORMAT).options(**options).load()
        query = (
            frame.writeStream.foreachBatch(take).option("checkpointLocation", str(folder)).trigger(**trigger).start()
        )
        try:
            until = time.monotonic() + PATIENCE_S
            while query.isActive and not enough():
                assert time.monotonic() < until, seen
                time.sleep(0.1)
            if not query.isActive and query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
        finally:
            query.stop()

    def test_available_now_from_checkpoint_to_checkpoint(
        self, known: SparkSession, source_cluster: SandboxCluster, topic_name: str, tmp_path: Path
    ) -> None:
        """
        1. A first run reads what is there, in micro-batches that end inside of batches.
        2. More comes, in a partition that is new, too. A second run reads that, and nothing twice.
        """
        create(source_cluster, topic_name)
        for at in range(6):
            batch(source_cluster, topic_name, *[f"{at} {n}" for n in range(4)])
        wanted = given(source_cluster, topic_name, startingOffsets="earliest", maxOffsetsPerTrigger="7")
        seen: dict[int, list[Any]] = {}
        self.run(known, wanted, tmp_path, seen, trigger={"availableNow": True})
        wanted_rows = [(topic_name, 0, offset) for offset in range(0, 24, 4)]
        assert [row for rows in seen.values() for row in rows] == wanted_rows
        assert len(seen) == 4
        admin = AdminClient({"bootstrap.servers": source_cluster.bootstrap_servers})
        for future in admin.create_partitions([NewPartitions(topic_name, 2)]).values():
            future.result()
        batch(source_cluster, topic_name, "a", "b")
        batch(source_cluster, topic_name, "c", partition=1)
        seen.clear()
        self.run(known, wanted, tmp_path, seen, trigger={"availableNow": True})
        assert sorted(row for rows in seen.values() for row in rows) == [(topic_name, 0, 24), (topic_name, 1, 0)]
        batch(source_cluster, topic_name, "d")
        seen.clear()
        self.run(known, wanted, tmp_path, seen, trigger={"once": True})
        assert [row for rows in seen.values() for row in rows] == [(topic_name, 0, 26)]

    def test_a_query_that_goes_on(
        self, known: SparkSession, source_cluster: SandboxCluster, topic_name: str, tmp_path: Path
    ) -> None:
        """From the latest offset on, topics that come later among it; a stop and a start in between."""
        create(source_cluster, f"{topic_name}-a")
        batch(source_cluster, f"{topic_name}-a", "before")
        wanted = given(source_cluster, topic_name, subscribePattern=f"{topic_name}-.*")
        del wanted["subscribe"]
        seen: dict[int, list[Any]] = {}
        often = {"processingTime": "100 milliseconds"}
        written = False

        def rows() -> list[Any]:
            return sorted(row for some in seen.values() for row in some)

        def go_on() -> bool:
            nonlocal written
            if seen and not written:  # the first micro-batch is empty, and says that the stream has begun
                written = True
                create(source_cluster, f"{topic_name}-b")
                for name in "ab":
                    batch(source_cluster, f"{topic_name}-{name}", "after")
            return len(rows()) >= 2

        self.run(known, wanted, tmp_path, seen, trigger=often, enough=go_on)
        assert rows() == [(f"{topic_name}-a", 0, 1), (f"{topic_name}-b", 0, 0)]
        batch(source_cluster, f"{topic_name}-b", "while it is down")
        self.run(known, wanted, tmp_path, seen, trigger=often, enough=lambda: len(rows()) >= 3)
        assert rows()[2:] == [(f"{topic_name}-b", 0, 1)]

    def test_an_error_ends_the_query(
        self, known: SparkSession, source_cluster: SandboxCluster, topic_name: str, tmp_path: Path
    ) -> None:
        seen: dict[int, list[Any]] = {}
        with pytest.raises(PySparkException, match=f"has no topic {topic_name}"):
            self.run(known, given(source_cluster, topic_name), tmp_path, seen, trigger={"availableNow": True})
