"""``mirror-audit-batches`` by itself, and its errors on their way through Spark."""

import asyncio
import json
import pickle
import re
from dataclasses import asdict, replace
from unittest.mock import Mock

import pytest
import xxhash
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirror.audit.errors import AuditError
from mirror.audit.judge.coverage import AGAIN, CoverageKey
from mirror.audit.model.places import Adopted, OldRange, Side, TopicPartition
from mirror.audit.model.request import Endpoint
from mirror.audit.prepare.plan import Range
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.read.reader import Reader
from mirror.audit.read.tasks import read_task
from mirror.audit.spark.compare import _take_coverage, compare, read_side
from mirror.audit.spark.options import BATCHES, CHUNKS, SourceOptions
from mirror.audit.spark.source import AuditBatches, AuditBatchReader, TaskPartition
from mirror.net.security.options import SaslOptions, Secret, SecurityOptions, TlsOptions, TokenOptions
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, create, endpoint, fill

OPTIONS = SourceOptions(
    endpoint=Endpoint(alias="east", bootstrap=(("127.0.0.1", 1), ("::1", 9092)), request_timeout_s=3),
    cluster_id="id",
    topic_ids={"t": "00"},
    digest="sha256",
    tasks=((Range("t", 0, 0, 10, True, 5), Range("t", 1, 0, 10, True, 5)), (Range("t", 0, 10, 20, False, 5),)),
    old={TopicPartition("t", 0): [OldRange(0, 4), OldRange(7, 20, None, 25)]},
    adopted={TopicPartition("t", 0): Adopted(15, 2, committed=False), TopicPartition("t", 1): Adopted(4)},
)


def test_options_are_text_on_the_way() -> None:
    options = OPTIONS.to_options()
    assert all(isinstance(value, str) for value in options.values())
    assert SourceOptions.from_options(options) == OPTIONS


def test_secrets_on_the_way_to_executors() -> None:
    """One of a file is read there: only the file's name is sent. Another goes in one option, with a name beside it by
    which Spark hides the whole value wherever it shows options (spark.redaction.regex)."""
    of_a_file = Secret("of a file: 4715", "/etc/mirror/secrets/password")
    client = Secret("of a client: 4716")
    tls = TlsOptions(certificate_file="/c.pem", key_password=of_a_file)
    tokens = TokenOptions(endpoint="https://id", client_id="me", client_secret=client, token=of_a_file)
    sasl = SaslOptions(mechanism="PLAIN", username="me", password=of_a_file, tokens=tokens)
    security = SecurityOptions(tls=tls, sasl=sasl)
    options = replace(OPTIONS, endpoint=replace(OPTIONS.endpoint, security=security)).to_options()
    assert not [name for name, value in options.items() if of_a_file.value in value]
    (name,) = [name for name, value in options.items() if client.value in value]
    assert re.search("(?i)secret|password|token|access[.]?key", options[name])
    found = SourceOptions.from_options(options).endpoint.security
    named = Secret("", of_a_file.file)
    assert found.tls == replace(tls, key_password=named)
    assert found.sasl == replace(sasl, password=named, tokens=replace(tokens, token=named))
    assert of_a_file.value in json.dumps(asdict(security)), "what the process itself has is as it was"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bootstrap.servers", "host"), ("bootstrap.servers", None), ("ranges", "[[1]]"), ("ranges", None),
        ("cluster.id", None), ("topic.ids", "{"), ("request.timeout.ms", "soon"), ("fetch.max.bytes", "1 MB"),
        ("old", "[1]"), ("adopted", "[1]"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(name: str, value: str | None) -> None:
    options = OPTIONS.to_options()
    if value is None:
        del options[name]
    else:
        options[name] = value
    with pytest.raises(AuditError, match=f"option {name}"):
        SourceOptions.from_options(options)


def test_there_is_no_filter_to_push() -> None:
    """What a reader is pushed is kept where every DataFrame of one load sees it: an audit would compare a side with
    itself and find nothing."""
    assert "pushFilters" not in vars(AuditBatchReader)
    assert AuditBatches.name() == "mirror-audit-batches"


def test_one_spark_partition_for_each_task() -> None:
    reader = AuditBatchReader(OPTIONS)
    partitions = reader.partitions()
    assert isinstance(partitions, list)
    assert [found.task for found in partitions if isinstance(found, TaskPartition)] == list(OPTIONS.tasks)
    assert list(reader.read(None)) == [], "Spark asks once even where there is nothing to read"


def test_a_task_is_sent_its_own_ranges_only() -> None:
    """Spark sends reader and data source to each task. A plan of thousands of ranges, times thousands of tasks, is
    gigabytes."""
    tasks = tuple((Range("t", at, 0, 10, True, 5),) for at in range(2_000))
    source = AuditBatches(options={**OPTIONS.to_options(), **replace(OPTIONS, tasks=tasks).to_options()})
    reader = source.reader(None)
    assert [one.task for one in reader.partitions() if isinstance(one, TaskPartition)] == list(tasks)
    sent = pickle.dumps((reader, source))
    assert len(sent) < 5_000
    assert pickle.loads(sent)[0].options == replace(OPTIONS, tasks=())


def test_a_range_that_comes_twice() -> None:
    """Spark may run the tasks of a lost executor again, and have their rows twice: that is no verdict."""
    coverage: dict[Side, dict[CoverageKey, RangeCoverage]] = {side: {} for side in Side}
    row = {"topic": "t", "partition": 0, "base_offset": 5, "s_note": RangeCoverage().to_json(), "s_last_offset": 9}
    row |= {"s_cluster": "id", "d_note": None}
    clusters: dict[Side, set[str]] = {side: set() for side in Side}
    _take_coverage(row, coverage, clusters)
    with pytest.raises(AuditError, match="source: offsets 5 to 10 of t partition 0 came twice") as raised:
        _take_coverage(row, coverage, clusters)
    assert AGAIN in str(raised.value)


def test_rows_of_two_kinds_are_not_compared() -> None:
    """They would all differ."""
    with pytest.raises(AssertionError, match="rows of one kind are compared with rows of the same"):
        compare(Mock(), OPTIONS, replace(OPTIONS, rows=CHUNKS))


@pytest.mark.broker
class TestReading:
    """From a real broker."""

    def options(self, cluster: SandboxCluster, topic: str, end: int, *, fetch_bytes: int = 1 << 20) -> SourceOptions:
        """One range, read by batches."""
        return replace(
            OPTIONS,
            endpoint=endpoint(cluster, "east"),
            cluster_id=cluster.cluster_id,
            topic_ids={},
            tasks=((Range(topic, 0, 0, end, True, 1_000),),),
            rows=BATCHES,
            fetch_bytes=fetch_bytes,
        )

    def test_small_fetches_bring_the_same_rows(self, source_cluster: SandboxCluster, topic_name: str) -> None:
        create(source_cluster, topic_name)
        fill(source_cluster, topic_name, codec="gzip", batches=20)
        raw = batches_of(source_cluster, topic_name)
        end = BatchHeader.read(raw[-1]).next_offset
        rows = []
        for fetch_bytes in (1, 500, 1 << 20):
            options = self.options(source_cluster, topic_name, end, fetch_bytes=fetch_bytes)
            (found,) = read_task(options, options.tasks[0])
            rows.append(found.to_pylist())
        assert rows[0] == rows[1] == rows[2]
        assert [row["size"] for row in rows[0][:-1]] == [len(batch) for batch in raw]
        assert all(row["crc_ok"] for row in rows[0][:-1])
        assert rows[0][-1]["note"] is not None

    def test_a_lost_connection_loses_no_batch(self, source_cluster: SandboxCluster, topic_name: str) -> None:
        """1. Small fetches bring one batch at a time.
        2. After each, the connection is cut, with the next fetch sent ahead on it.
        3. The reader dials again and goes on at the offset that is due.
        """
        create(source_cluster, topic_name)
        fill(source_cluster, topic_name, batches=6)
        raw = batches_of(source_cluster, topic_name)
        wanted = Range(topic_name, 0, 0, BatchHeader.read(raw[-1]).next_offset, True, 1_000)
        coverage = RangeCoverage()

        async def read() -> list[bytes]:
            reader = Reader(
                endpoint(source_cluster, "east"), cluster_id=source_cluster.cluster_id, topic_ids={},
                digest="xxh3_128", fetch_bytes=1,
            )  # fmt: skip
            await reader.open({topic_name})
            digests: list[bytes] = []
            async for block in reader.blocks(wanted, coverage):
                digests += block.digests
                for connection in reader._leaders._connections.values():
                    connection.close()
            await reader.close()
            return digests

        assert asyncio.run(read()) == [xxhash.xxh3_128_digest(batch[HEADER_SIZE:]) for batch in raw]
        assert (coverage.batches, coverage.bytes) == (len(raw), sum(map(len, raw)))

    def test_offsets_that_are_gone(self, source_cluster: SandboxCluster, topic_name: str) -> None:
        create(source_cluster, topic_name)
        options = self.options(source_cluster, topic_name, 10)
        beyond = replace(options, tasks=((Range(topic_name, 0, 5, 10, True, 10),),))
        with pytest.raises(AuditError, match="run the audit again"):
            list(read_task(beyond, beyond.tasks[0]))

    def test_a_recreated_topic(self, source_cluster: SandboxCluster, topic_name: str) -> None:
        create(source_cluster, topic_name)
        options = self.options(source_cluster, topic_name, 10)
        pinned = replace(options, topic_ids={topic_name: "ab" * 16})
        with pytest.raises(AuditError, match="recreated"):
            list(read_task(pinned, pinned.tasks[0]))

    @pytest.mark.spark
    def test_another_cluster_than_the_one_that_was_frozen(
        self, source_cluster: SandboxCluster, topic_name: str, spark: SparkSession
    ) -> None:
        create(source_cluster, topic_name)
        wrong = replace(self.options(source_cluster, topic_name, 10), cluster_id="another")
        with pytest.raises(PySparkException) as raised:
            read_side(spark, wrong).collect()
        error = AuditError.unmarked(str(raised.value))
        assert error is not None
        assert error.problem == f"cluster east answers with cluster id {source_cluster.cluster_id}, not another"
