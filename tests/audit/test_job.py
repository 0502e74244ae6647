"""Audits of real topics on two real clusters: the untouched copy passes, every tampering is named with its place."""

import threading

import pytest
from pyspark.sql import SparkSession

from mirror.audit import drill, job, plan
from mirror.audit.model import AuditRequest, AuditResult, Finding, Kind, Side, Span
from mirror.records.header import BatchHeader
from mirror.sandbox import Cluster
from tests.audit.clusters import CODECS, Batches, batches_of, copy, create, delete_before, edited, endpoint, fill

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.fixture
def pair(source_cluster: Cluster, destination_cluster: Cluster) -> tuple[Cluster, Cluster]:
    """The two clusters."""
    return source_cluster, destination_cluster


Pair = tuple[Cluster, Cluster]


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


def tampered(pair: Pair, spark: SparkSession, topic: str, change: object) -> tuple[AuditResult, Batches]:
    """One topic of one partition, copied with a change; the audit's result and the source's batches.

    Uncompressed: brokers open compressed batches, and would refuse one with a flipped byte.
    """
    for cluster in pair:
        create(cluster, topic)
    fill(pair[0], topic, codec="none")
    copy(*pair, topic, change=change)  # type: ignore[arg-type]
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


def test_a_flipped_payload_byte_is_a_changed_value(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    result, batches = tampered(
        pair, spark, topic_name, lambda raw: [*raw[:3], edited(raw[3], at=raw[3].index(b"none")), *raw[4:]]
    )
    found = one(result, Kind.VALUE_CHANGED)
    assert (found.topic, found.partition) == (topic_name, 0)
    assert found.source == found.destination == span_of(batches[3])
    assert len(result.findings) == 1


def test_a_changed_timestamp_is_a_changed_header(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    def older(raw: Batches) -> Batches:
        header = BatchHeader.read(raw[2])
        times = {"base_timestamp": header.base_timestamp - 7, "max_timestamp": header.max_timestamp - 7}
        return [*raw[:2], edited(raw[2], **times), *raw[3:]]

    result, batches = tampered(pair, spark, topic_name, older)
    found = one(result, Kind.HEADER_CHANGED)
    assert found.source == found.destination == span_of(batches[2])
    assert "base timestamp" in found.detail
    assert "max timestamp" in found.detail
    assert len(result.findings) == 1


def test_a_dropped_batch_is_missing_and_those_behind_it_moved(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    result, batches = tampered(pair, spark, topic_name, lambda raw: [*raw[:2], *raw[3:]])
    gone = span_of(batches[2])
    missing = [finding for finding in result.findings if finding.kind is Kind.MISSING and finding.batches]
    assert [finding.source for finding in missing] == [gone]
    moved = one(result, Kind.MOVED)
    assert moved.batches == len(batches) - 3
    assert moved.source == Span(gone.end, span_of(batches[-1]).end)
    assert moved.destination == Span(gone.start, span_of(batches[-1]).end - gone.offsets)
    assert f"-{gone.offsets}" in moved.detail
    # and the destination ends too soon, which the bounds tell
    assert sum(finding.kind is Kind.MISSING for finding in result.findings) == 2
    assert len(result.findings) == 3


def test_a_doubled_batch_is_a_duplicate_and_those_behind_it_moved(
    pair: Pair, spark: SparkSession, topic_name: str
) -> None:
    result, batches = tampered(pair, spark, topic_name, lambda raw: [*raw[:3], raw[2], *raw[3:]])
    twice = span_of(batches[2])
    duplicate = one(result, Kind.DUPLICATE)
    assert duplicate.source == twice
    assert duplicate.destination == Span(twice.end, twice.end + twice.offsets)
    moved = [finding for finding in result.findings if finding.kind is Kind.MOVED]
    assert sum(finding.batches for finding in moved) == len(batches) - 3
    assert all(f"+{twice.offsets}" in finding.detail for finding in moved)
    extra = one(result, Kind.EXTRA)
    assert extra.destination == Span(span_of(batches[-1]).end, span_of(batches[-1]).end + twice.offsets)
    assert {finding.kind for finding in result.findings} == {Kind.DUPLICATE, Kind.MOVED, Kind.EXTRA}


def test_one_lost_and_one_doubled_batch_do_not_cancel_out(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """The ends are equal on both sides, which is all that a lag metric sees."""
    # Batches 0, 3 and 6 have three records each: replacing one by another shifts nothing.
    result, batches = tampered(pair, spark, topic_name, lambda raw: [*raw[:3], raw[0], *raw[4:]])
    assert one(result, Kind.DUPLICATE).destination == span_of(batches[3])
    assert one(result, Kind.DUPLICATE).source == span_of(batches[0])
    assert one(result, Kind.MISSING).source == span_of(batches[3])
    assert len(result.findings) == 2


def test_batches_behind_the_source_end_are_extra(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    result, batches = tampered(pair, spark, topic_name, lambda raw: [*raw, edited(raw[1], at=raw[1].index(b"none"))])
    end = span_of(batches[-1]).end
    found = one(result, Kind.EXTRA)
    assert found.destination == Span(end, end + span_of(batches[1]).offsets)
    assert found.source is None
    assert len(result.findings) == 1


def test_a_shorter_destination_lacks_the_rest(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    result, batches = tampered(pair, spark, topic_name, lambda raw: raw[:-2])
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


def test_more_chunks_differ_than_are_looked_at(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "CHUNK_BYTES", 1)
    monkeypatch.setattr(drill, "CHUNKS_PER_PARTITION", 2)
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
    assert "still has 2 offsets of 1 partitions" in result.notes[0]


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
