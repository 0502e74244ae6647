"""Audits of real topics on two real clusters: the untouched copy passes, every tampering is named with its place."""

import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.judge.rounds import differences
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Undecided
from mirror.audit.prepare import plan
from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import CODECS, Batches, batches_of, copy, create, delete_before, edited, endpoint, fill
from tests.records.builders import Record, kafka_batch

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture
def pair(source_cluster: SandboxCluster, destination_cluster: SandboxCluster) -> tuple[SandboxCluster, SandboxCluster]:
    """The two clusters."""
    return source_cluster, destination_cluster


Pair = tuple[SandboxCluster, SandboxCluster]


def audit(pair: Pair, spark: SparkSession, *topics: str, digest: str = "xxh3_128") -> AuditResult:
    """Without waiting for a mirror that does not run."""
    request = AuditRequest(
        flow="source->destination", source=endpoint(pair[0], "source"), destination=endpoint(pair[1], "destination"),
        topics=topics, catch_up_s=0, digest=digest,
    )  # fmt: skip
    return job.run(request, spark=spark)


def one(result: AuditResult, kind: Kind) -> Finding:
    """The only finding of this kind."""
    found = [finding for finding in result.findings if finding.kind is kind]
    assert len(found) == 1, result.findings
    return found[0]


def span_of(batch: bytes) -> Span:
    """Its offsets."""
    header = BatchHeader.read(batch)
    return Span(header.base_offset, header.next_offset)


def laid(pair: Pair, topic: str, change: Callable[[Batches], Batches]) -> None:
    """One topic of one partition, copied with a change.

    Uncompressed: brokers open compressed batches, and would refuse one with a flipped byte.
    """
    for cluster in pair:
        create(cluster, topic)
    fill(pair[0], topic, salt=topic)
    copy(*pair, topic, change=change)


def tampered(
    pair: Pair, spark: SparkSession, topic: str, change: Callable[[Batches], Batches]
) -> tuple[AuditResult, Batches]:
    """The audit's result, and the source's batches."""
    laid(pair, topic, change)
    return audit(pair, spark, topic), batches_of(pair[0], topic)


def test_untouched_copies_in_every_codec_are_identical(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    for index, codec in enumerate(CODECS):
        topic = f"{topic_name}-{codec}"
        for cluster in pair:
            create(cluster, topic, partitions=2)
        fill(pair[0], topic, codec=codec, partition=index % 2, batches=6)
        copy(*pair, topic, partition=index % 2)
    topics = [f"{topic_name}-{codec}" for codec in CODECS]
    result = audit(pair, spark, *topics)
    assert result.findings == ()
    assert result.identical
    for side, cluster in zip(Side, pair, strict=True):
        rows = [row for row in result.coverage if row.side is side]
        assert {(row.topic, row.partition) for row in rows} == {(topic, p) for topic in topics for p in (0, 1)}
        assert {row.cluster_id for row in rows} == {cluster.cluster_id}
        assert all(row.complete and row.audited == row.log and row.records == row.log.offsets for row in rows)
        raw = [batch for index, topic in enumerate(topics) for batch in batches_of(cluster, topic, index % 2)]
        assert sum(row.batches for row in rows) == len(raw) == 30
        assert sum(row.bytes for row in rows) == sum(map(len, raw))
    assert audit(pair, spark, *topics, digest="sha256").identical


def _older(raw: Batches) -> Batches:
    header = BatchHeader.read(raw[2])
    times = {"base_timestamp": header.base_timestamp - 7, "max_timestamp": header.max_timestamp - 7}
    return [*raw[:2], edited(raw[2], **times), *raw[3:]]


TAMPERINGS: Mapping[str, Callable[[Batches], Batches]] = {
    "flipped": lambda raw: [*raw[:3], edited(raw[3], at=raw[3].index(b"none")), *raw[4:]],
    "older": _older,
    "dropped": lambda raw: [*raw[:2], *raw[3:]],
    "doubled": lambda raw: [*raw[:3], raw[2], *raw[3:]],
    # Batches 0, 3 and 6 have three records each: replacing one by another shifts nothing.
    "replaced": lambda raw: [*raw[:3], raw[0], *raw[4:]],
    "longer": lambda raw: [*raw, edited(raw[1], at=raw[1].index(b"none"))],
    "shorter": lambda raw: raw[:-2],
}


@pytest.fixture(scope="module")
def each(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, spark: SparkSession
) -> Mapping[str, tuple[AuditResult, Batches]]:
    """What one audit of all of them says of each tampering, and the source's batches."""
    pair, prefix = (source_cluster, destination_cluster), uuid.uuid4().hex[:12]
    topics = {name: f"t-{prefix}-{name}" for name in TAMPERINGS}
    for name, topic in topics.items():
        laid(pair, topic, TAMPERINGS[name])
    result = audit(pair, spark, *topics.values())
    return {
        name: (
            replace(result, findings=tuple(found for found in result.findings if found.topic == topic)),
            batches_of(source_cluster, topic),
        )
        for name, topic in topics.items()
    }


Each = Mapping[str, tuple[AuditResult, Batches]]


def test_a_flipped_payload_byte_is_a_changed_value(each: Each) -> None:
    result, batches = each["flipped"]
    found = one(result, Kind.VALUE_CHANGED)
    assert found.partition == 0
    assert found.source == found.destination == span_of(batches[3])
    assert len(result.findings) == 1


def test_a_changed_timestamp_is_a_changed_header(each: Each) -> None:
    result, batches = each["older"]
    found = one(result, Kind.HEADER_CHANGED)
    assert found.source == found.destination == span_of(batches[2])
    assert "base timestamp" in found.detail
    assert "max timestamp" in found.detail
    assert len(result.findings) == 1


def test_a_dropped_batch_is_missing(each: Each) -> None:
    result, batches = each["dropped"]
    gone, end = span_of(batches[2]), span_of(batches[-1]).end
    (missing,) = result.findings
    assert (missing.kind, missing.source, missing.batches) == (Kind.MISSING, gone, 1)
    assert missing.detail == f"all behind it lies by -{gone.offsets} offsets, source offsets {gone.end} to {end - 1}"


def test_a_doubled_batch_is_a_duplicate(each: Each) -> None:
    result, batches = each["doubled"]
    twice = span_of(batches[2])
    duplicate = one(result, Kind.DUPLICATE)
    assert duplicate.source == twice
    assert duplicate.destination == Span(twice.end, twice.end + twice.offsets)
    assert f"all behind it lies by +{twice.offsets} offsets" in duplicate.detail
    assert len(result.findings) == 1


def test_one_lost_and_one_doubled_batch_do_not_cancel_out(each: Each) -> None:
    """The ends are equal on both sides, which is all that a lag metric sees."""
    result, batches = each["replaced"]
    assert one(result, Kind.DUPLICATE).destination == span_of(batches[3])
    assert one(result, Kind.DUPLICATE).source == span_of(batches[0])
    assert one(result, Kind.MISSING).source == span_of(batches[3])
    assert len(result.findings) == 2


def test_batches_behind_the_source_end_are_extra(each: Each) -> None:
    result, batches = each["longer"]
    end = span_of(batches[-1]).end
    found = one(result, Kind.EXTRA)
    assert found.destination == Span(end, end + span_of(batches[1]).offsets)
    assert found.source is None
    assert len(result.findings) == 1


def test_a_shorter_destination_lacks_the_rest(each: Each) -> None:
    result, batches = each["shorter"]
    found = one(result, Kind.MISSING)
    assert found.source == Span(span_of(batches[-2]).start, span_of(batches[-1]).end)
    assert len(result.findings) == 1


def test_many_small_ranges_and_chunks_find_the_same(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut inside batches as well: borders are offsets, and a batch belongs to the range of its base offset."""
    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)
    monkeypatch.setattr(plan, "TASK_BYTES", 700)
    monkeypatch.setattr(plan, "CHUNK_BYTES", 300)
    result, batches = tampered(
        pair, spark, topic_name, lambda raw: [*raw[:5], edited(raw[5], at=raw[5].index(b"none")), *raw[6:]]
    )
    assert one(result, Kind.VALUE_CHANGED).source == span_of(batches[5])
    assert len(result.findings) == 1
    assert all(row.ranges > 2 and row.batches == len(batches) for row in result.coverage)
    assert sum(row.bytes for row in result.coverage) == 2 * sum(map(len, batches))


def test_more_batches_differ_than_are_looked_at(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "CHUNK_BYTES", 1)
    monkeypatch.setattr(differences, "ROUND_BATCHES", 2)
    monkeypatch.setattr(differences, "MOST_UNEXPLAINED", 2)
    result, batches = tampered(
        pair, spark, topic_name, lambda raw: [edited(batch, at=batch.index(b"none")) for batch in raw]
    )
    assert one(result, Kind.VALUE_CHANGED).source == Span(0, span_of(batches[1]).end)
    wholesale = one(result, Kind.WHOLESALE)
    assert wholesale.batches == len(batches) - 2
    assert wholesale.source is not None
    assert wholesale.source.start == span_of(batches[2]).start


def test_logs_that_begin_inside_a_batch(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """1. Both logs begin inside the same batch: identical, and that batch is compared.
    2. The destination's begins later: it lacks what the source still has.
    3. The source's begins later still: nothing to compare the destination's rest with.
    """
    for cluster in pair:
        create(cluster, topic_name)
    fill(pair[0], topic_name, codec="lz4")
    copy(*pair, topic_name)
    for cluster in pair:
        delete_before(cluster, topic_name, 4)
    result = audit(pair, spark, topic_name)
    assert result.identical
    assert {(row.audited.start, row.batches) for row in result.coverage} == {(4, 7)}
    delete_before(pair[1], topic_name, 13)
    result = audit(pair, spark, topic_name)
    assert one(result, Kind.MISSING).source == Span(4, 13)
    assert len(result.findings) == 1
    delete_before(pair[0], topic_name, 15)
    result = audit(pair, spark, topic_name)
    assert result.identical
    assert "still has 2 offsets in 1 partition from before" in result.notes[0]


def test_a_mirror_that_is_still_running_gets_its_time(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    for cluster in pair:
        create(cluster, topic_name)
    fill(pair[0], topic_name, codec="gzip")
    later = threading.Timer(1.0, copy, (*pair, topic_name))
    later.start()
    request = AuditRequest(
        flow="f", source=endpoint(pair[0], "source"), destination=endpoint(pair[1], "destination"),
        topics=(topic_name,), catch_up_s=60,
    )  # fmt: skip
    result = job.run(request, spark=spark)
    later.join()
    assert result.identical
    assert all(row.batches == 8 for row in result.coverage)


def test_what_is_behind_an_open_transaction_is_said(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """At the source it is not audited, and the pass says so; the destination has none."""
    for cluster in pair:
        create(cluster, topic_name)
    fill(pair[0], topic_name)
    copy(*pair, topic_name)
    end = span_of(batches_of(pair[0], topic_name)[-1]).end
    producer = Producer({"bootstrap.servers": pair[0].bootstrap_servers, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic_name, b"open", partition=0)
    producer.flush()
    result = audit(pair, spark, topic_name)
    producer.abort_transaction()
    assert result.identical
    assert result.undecided == (Undecided(Side.SOURCE, topic_name, 0, Span(end, end + 3)),)


def test_one_lost_record_of_a_stream_in_other_batches(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """Nothing can be followed by batches there. The record is one finding, the batches are another."""
    for cluster in pair:
        create(cluster, topic_name)
    records = [Record(0, 1_700_000_000_000 + at, b"%d" % at, b"value %d" % at) for at in range(2_000)]

    def batches(some: list[Record], size: int) -> Batches:
        parts = [some[at : at + size] for at in range(0, len(some), size)]
        return [kafka_batch([record._replace(offset=at) for at, record in enumerate(part)]) for part in parts]

    copy(pair[0], pair[0], topic_name, change=lambda _: batches(records, 5))
    copy(*pair, topic_name, change=lambda _: batches(records[:777] + records[778:], 8))
    found = audit(pair, spark, topic_name).findings
    told = {finding.kind: finding for finding in found}
    assert (len(found), set(told)) == (2, {Kind.MISSING, Kind.RESEGMENTED})
    assert (told[Kind.MISSING].source, told[Kind.MISSING].records) == (Span(777, 778), 1)
    assert "by -1 offsets" in told[Kind.MISSING].detail
    assert told[Kind.RESEGMENTED].source == Span(0, 2_000)
