"""The grid of faults in copies of topics in formats from before Kafka 0.11."""

import asyncio
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import xxhash
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.judge.changed.old_formats import OLD as WHY
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.request import AuditRequest
from mirror.audit.prepare import plan
from mirror.audit.read import units
from mirror.legacy import Converted, cut, messages, up_convert
from mirror.records.content.opening import Record
from mirror.records.header import BatchHeader
from mirror.records.identity import producer_id
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import create, endpoint
from tests.audit.exact import Batch, Markers, Step, append
from tests.audit.faults.grid import Grid, Seen, create_all
from tests.audit.faults.healthy import HEALTHY
from tests.audit.faults.kinds import Shape, of_shapes
from tests.audit.faults.old import BATCHES, OLD, VERSION, VERSIONS, sizes, write
from tests.audit.faults.test_grid import check, spoiled
from tests.audit.independent.test_consumer import audited
from tests.audit.independent.tools import stored, varint
from tests.legacy.logs import CODECS, MIB, consumed, fetched_old
from tests.patience import PATIENT
from tests.service.runs.rewriting.test_deep_path import wait_equal
from tests.service.runs.rewriting.test_old_formats import await_holes, keyed
from tests.service.stage.kafka_side import create_topic
from tests.service.stage.running import config_text, mirror
from tests.vectors import load

pytestmark = [pytest.mark.broker, pytest.mark.spark]
PROPERTIES = {**PATIENT, "log.cleaner.backoff.ms": "200"}
FAULTS = of_shapes(*OLD)
HEALTHY_COPIES = [one for one in HEALTHY if one.shape in OLD]
MESSAGES = sum(size if codec == "none" else 1 for codec, size in zip(BATCHES, sizes(), strict=False))
RECORDS = sum(sizes()[: len(BATCHES)])


@pytest.fixture(scope="module")
def old() -> Iterator[SandboxCluster]:
    """The last Kafka but one that writes old formats where it is told to."""
    with SandboxCluster(name="old", version=VERSION, properties=PROPERTIES, quick=True, heap_mb=512) as cluster:
        yield cluster


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 40
    assert len(HEALTHY_COPIES) >= 10


def test_the_grid(
    old: SandboxCluster,
    destination_cluster: SandboxCluster,
    spark: SparkSession,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    1. A topic for each kind of fault and of healthy copy, in magic 1 and magic 0 in turn, with batches of today behind.
    2. Each copy is spoiled in its own way. One audit says all that is due, and nothing else.
    3. Of the healthy ones, all records in old formats are counted.
    4. The same, of the healthy ones and some others, in many small ranges, whose borders are anywhere: inside of
       wrappers, and of what was gathered.
    """
    names = {fault.name: fault.shape for fault in FAULTS} | {one.name: one.shape for one in HEALTHY_COPIES}
    grid = Grid({Side.SOURCE: old, Side.DESTINATION: destination_cluster})
    prefix = {name: f"{topic_name}-{at}" for at, name in enumerate(["other", *names])}
    grid.write({prefix[name]: shape for name, shape in {"other": Shape.OLD, **names}.items()})
    wanted = spoiled(grid, prefix, FAULTS, HEALTHY_COPIES)
    grid.lay()
    seen = grid.audit(spark)
    check({name: (seen[prefix[name]], told) for name, told in wanted.items()})
    few = {name: told for name, told in wanted.items() if not told or name in ALSO_IN_MANY_RANGES}
    assert len(few) == len(HEALTHY_COPIES) + 1 + len(ALSO_IN_MANY_RANGES)
    check_counts(grid, {name: seen[prefix[name]] for name, told in few.items() if not told})
    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)
    monkeypatch.setattr(plan, "TASK_BYTES", 7_000)
    monkeypatch.setattr(plan, "CHUNK_BYTES", 1_500)
    seen = grid.audit(spark, {prefix[name] for name in few})
    check({name: (seen[prefix[name]], told) for name, told in few.items()})
    check_counts(grid, {name: seen[prefix[name]] for name, told in few.items() if not told})


ALSO_IN_MANY_RANGES = (
    "old-lost", "old-another-value-of-a-record", "old-a-wrapper-flipped-at-byte-40", "old-copy-3-flipped",
    "old-both-flipped", "old-a-marker-for-a-record", "old-mapped-lost",
)  # fmt: skip


def check_counts(grid: Grid, healthy: Mapping[str, Seen]) -> None:
    """All records in old formats are counted, however they are read."""
    for name, seen in healthy.items():
        (one,) = seen.reencoded
        copy = grid.copies[one.topic]
        if not copy.trimmed and not copy.meanwhile:
            assert (one.batches, one.records, one.detail) == (MESSAGES, RECORDS, WHY), name


def test_records_as_a_consumer_reads_them(
    old: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. Of magic 1, of magic 0, and of today: the same records as librdkafka's consumer gets, in all they hold.
    2. Mutation: what is shared with the mirror passes over a record of each wrapper.
    """
    shapes = {f"{topic_name}-{version}": Shape.OLD for version in VERSIONS}
    create_all(old, shapes, VERSIONS)
    write(old, list(shapes))
    at = endpoint(old, "old")
    for topic in shapes:
        theirs = {one.offset: _digest(one) for one in consumed(old.bootstrap_servers, topic)}
        ours = {offset: row.digest for offset, row in audited(at, old, topic, sum(sizes())).items()}
        assert ours == theirs
        assert len(ours) == sum(sizes())

    def all_but_one(*arguments: Any, **more: Any) -> Iterator[Record]:
        return iter(list(messages(*arguments, **more))[1:])

    monkeypatch.setattr(units, "messages", all_but_one)
    assert audited(at, old, topic, sum(sizes())).keys() < theirs.keys()


def test_what_the_mirror_itself_makes_of_them(
    old: SandboxCluster, destination_cluster: SandboxCluster, spark: SparkSession, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Topics of magic 1 and of magic 0 with batches of today behind them, and one out of whose wrappers, and from
       between whose messages, a cleaner has taken records. ``mirror run`` copies them.
    2. The audit of the same flow says identical, and counts what was made anew. What a cleaner takes meanwhile is no
       difference.
    """
    shapes = {f"{topic_name}-{version}": Shape.OLD for version in VERSIONS}
    create_all(old, shapes, VERSIONS)
    write(old, list(shapes))
    cleaned = f"{topic_name}-cleaned"
    compact: Any = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    here, there = old.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(here, cleaned, segment_ms="100", message_format_version=VERSIONS[0], **compact)
    keyed(here, cleaned)
    await_holes(old, cleaned)
    topics = [*shapes, cleaned]
    with mirror(tmp_path / "mirror.yaml", config_text(here, there, topics)) as process:
        for topic in topics:
            wait_equal(process, (here, there), topic)
        assert process.stop() == 0
        assert not process.of("halted")
    request = AuditRequest(
        flow="source->destination", source=endpoint(old, "source"), topics=tuple(topics), catch_up_s=0,
        destination=endpoint(destination_cluster, "destination"),
    )  # fmt: skip
    result = job.run(request, spark=spark)
    assert {one.kind for one in result.findings} <= {Kind.UNVERIFIABLE}, result.findings
    assert {one.topic for one in result.findings} <= {cleaned}
    counts = {one.topic: one.records for one in result.reencoded if one.detail == WHY}
    assert counts.keys() == set(topics)
    assert {counts[topic] for topic in shapes} == {RECORDS}


def test_a_source_of_kafka_0_10(destination_cluster: SandboxCluster, spark: SparkSession, topic_name: str) -> None:
    """
    1. A broker that knows no batches, no transactions, no topic ids and no configs; a copy of what clients wrote there.
    2. It is identical. With one record less, that is missing.
    """
    with SandboxCluster(name="ancient", version="0.10.2.2", properties=PATIENT, quick=True, heap_mb=512) as ancient:
        servers = ancient.bootstrap_servers
        topics = [f"{topic_name}-{what}" for what in ("same", "less")]
        load.create_topics(servers, {topic: (1, {}) for topic in topics})
        for topic in topics:
            create(destination_cluster, topic)
            for codec in CODECS:
                load.produce(servers, topic, 2, headers=False, compression_type=codec)
            view = memoryview(fetched_old(ancient, 3, topic, 0, end=consumed(servers, topic)[-1].offset + 1))
            made = [one.batch for one in up_convert(view, cut(view), most=MIB) if isinstance(one, Converted)]
            steps: list[Step] = [Batch(batch) for batch in made]
            if topic == topics[1]:
                steps[1] = Markers(BatchHeader.read(made[1]).record_count)
            owner = producer_id(flow="test", cluster_id=ancient.cluster_id, topic=topic, partition=0)
            asyncio.run(append(destination_cluster, topic, owner, steps))
        request = AuditRequest(
            flow="ancient->destination", source=endpoint(ancient, "ancient"), topics=tuple(topics), catch_up_s=0,
            destination=endpoint(destination_cluster, "destination"),
        )  # fmt: skip
        result = job.run(request, spark=spark)
        header = BatchHeader.read(made[1])
        lost = Span(header.base_offset, header.next_offset)
        assert {(one.topic, one.kind, one.source, one.destination) for one in result.findings} == {
            (topics[1], Kind.MISSING, lost, None), (topics[1], Kind.OVERFILLED, None, lost),
        }  # fmt: skip
        counts = {one.topic: one.records for one in result.reencoded}
        assert counts[topics[0]] == counts[topics[1]] + lost.offsets == len(consumed(servers, topics[0]))


def _digest(record: Record) -> bytes:
    """The audit's digest of a record that a consumer got."""
    parts = [struct.pack(">qB", record.timestamp, 0), stored(record.key), stored(record.value)]
    parts.append(varint(len(record.headers)))
    for name, value in record.headers:
        parts += [stored(name.encode()), stored(value)]
    return xxhash.xxh3_128_digest(b"".join(parts))
