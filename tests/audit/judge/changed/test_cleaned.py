"""Audits of compacted topics that real cleaners have worked on: what is left is compared record by record, and what is
gone is excused only where a later record of its key stands."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.judge.changed import cleaned
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Span
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Verdict
from mirror.audit.prepare import plan
from mirror.audit.spark import by_record
from mirror.records.content.opening import opened
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, create, edited, endpoint
from tests.audit.exact import Batch, Step, copy_exact
from tests.net.stage.real import alter
from tests.patience import PATIENT
from tests.records.builders import Record, kafka_batch
from tests.relay.locate.test_cleaned import HOUR_MS, SEGMENT_MS, write

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TIMEOUT_S = 120
SUPERSEDED = [("a", "first"), ("b", "kept")]
"""Of this batch, the first record has a later one of its key."""
GONE = [("c", "first"), ("d", "first")]
"""Of this, both have."""
LATER = [("a", "second"), ("c", "second"), ("d", None)]
Pair = tuple[SandboxCluster, SandboxCluster]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two brokers that clean at once what they may."""
    properties = {**PATIENT, "log.cleaner.backoff.ms": "100"}
    with (
        SandboxCluster(name="source", quick=True, properties=properties) as source,
        SandboxCluster(name="destination", quick=True, properties=properties) as destination,
    ):
        yield source, destination


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs lies in several."""
    monkeypatch.setattr(by_record, "BLOCK_BITS", 1)


def set_cleaned(cluster: SandboxCluster, *topics: str) -> None:
    """From now on a cleaner works on these."""
    for topic in topics:
        alter(cluster, topic, "min.cleanable.dirty.ratio", "0.0001")


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def written(pair: Pair, *topics: str) -> None:
    """Compacted on both sides, and not cleaned yet. The marker gets a segment of its own: all before it is closed."""
    for topic in topics:
        for cluster in pair:
            create(
                cluster, topic, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0", segment_ms=SEGMENT_MS,
                delete_retention_ms=str(HOUR_MS),
            )  # fmt: skip
        write(pair[0], topic, SUPERSEDED, GONE, LATER, name="all", codec="lz4")


def clean(cluster: SandboxCluster, *topics: str) -> None:
    """Waits until nothing of ``GONE`` is left."""
    set_cleaned(cluster, *topics)
    for topic in topics:
        until(lambda topic=topic: records_of(cluster, topic) == [1, 4, 5, 6], f"{topic} to be cleaned")  # type: ignore[misc]


def records_of(cluster: SandboxCluster, topic: str) -> list[int]:
    """Offsets of the records that are left."""
    return [
        record.offset
        for batch in batches_of(cluster, topic)
        for header in [BatchHeader.read(batch)]
        if not header.is_control
        for record in opened(header, batch[HEADER_SIZE:])
    ]


def audit(pair: Pair, spark: SparkSession, *topics: str, **more: object) -> AuditResult:
    request = AuditRequest(
        flow="source->destination", source=endpoint(pair[0], "source"), destination=endpoint(pair[1], "destination"),
        topics=topics, catch_up_s=0, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return job.run(request, spark=spark)


def told(findings: Sequence[Finding], topic: str) -> list[tuple[Kind, Span | None, Span | None, int]]:
    return [(found.kind, found.source, found.destination, found.records) for found in findings if found.topic == topic]


def instead(at: int, *records: Record) -> Callable[[list[Step]], list[Step]]:
    """A batch of these records, in the place of one that has as many offsets."""

    def change(steps: list[Step]) -> list[Step]:
        step = steps[at]
        assert isinstance(step, Batch)
        header = BatchHeader.read(step.data)
        batch = kafka_batch(records, base_offset=header.base_offset)
        fields = {"last_offset_delta": header.last_offset_delta, "attributes": 0}
        return [*steps[:at], Batch(edited(batch, **fields)), *steps[at + 1 :]]

    return change


def old(offset: int, key: bytes, value: bytes | None) -> Record:
    return Record(offset, round(time.time() * 1000) - HOUR_MS, key, value)


def test_what_only_the_destination_still_has(
    pair: Pair, spark: SparkSession, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. Copied, then cleaned at the source: one batch has lost a record, one is gone, one has another header. No
       difference, and no proof.
    2. Accepted by name: a pass, which says so.
    3. Foreign records where the source has nothing any more, one of a key that nothing else has: a difference.
    4. The same in a batch that the cleaner has left.
    5. The same, wherever the logs are cut into chunks and ranges.
    6. The source is not compacted any more: nothing explains what it lacks.
    7. Mutation: without keys, anything may stand there.
    """
    topics = [f"{topic_name}-{name}" for name in ("fine", "foreign", "inside")]
    fine, foreign, inside = topics
    written(pair, *topics)
    copy_exact(*pair, fine)
    copy_exact(*pair, foreign, change=instead(1, old(0, b"c", b"other"), old(1, b"nowhere", b"other")))
    copy_exact(*pair, inside, change=lambda steps: _with_key(steps, 0, b"a", b"x"))
    clean(pair[0], *topics)
    result = audit(pair, spark, fine, accept=frozenset({"unverifiable"}))
    assert told(result.findings, fine) == [
        (Kind.UNVERIFIABLE, Span(0, 2), Span(0, 2), 1),
        (Kind.UNVERIFIABLE, None, Span(2, 4), 2),
    ]
    size = sum(len(key + value) for key, value in [("a", "first"), ("c", "first"), ("d", "first")])
    assert sum(found.bytes for found in result.findings) == size
    assert result.verdict is Verdict.ACCEPTED
    named = replace(result, accepted=frozenset())
    assert (named.verdict, named.identical) == (Verdict.UNVERIFIABLE, False)
    assert [note.partition(": ")[2] for note in result.notes] == [cleaned.REWRITTEN], "with a tombstone: delete horizon"
    result = audit(pair, spark, *topics)
    assert result.verdict is Verdict.DIFFERENT
    assert told(result.findings, foreign) == [
        (Kind.UNVERIFIABLE, Span(0, 2), Span(0, 2), 1),
        (Kind.EXTRA, None, Span(2, 4), 2),
    ]
    assert (Kind.VALUE_CHANGED, Span(0, 2), Span(0, 2), 1) in told(result.findings, inside)
    for name, size in (("CHUNK_BYTES", 1), ("TASK_BYTES", 40)):
        with monkeypatch.context() as patched:
            patched.setattr(plan, "LEAST_TASK_BYTES", 1)
            patched.setattr(plan, name, size)
            cut = audit(pair, spark, *topics)
        assert [told(cut.findings, topic) for topic in topics] == [told(result.findings, topic) for topic in topics]
    alter(pair[0], fine, "cleanup.policy", "delete")
    result = audit(pair, spark, fine)
    assert (Kind.EXTRA, None, Span(2, 4), 2) in told(result.findings, fine)
    assert (Kind.UNVERIFIABLE, Span(2, 4), None, 0) in told(result.findings, fine), "nothing explains the gap"
    with monkeypatch.context() as patched:
        patched.setattr(cleaned, "is_excused", lambda one, _: one.at is not None)
        assert audit(pair, spark, foreign).verdict is Verdict.UNVERIFIABLE


def test_what_only_the_source_still_has(pair: Pair, spark: SparkSession, topic_name: str) -> None:
    """
    1. Copied, then cleaned at the destination: no difference, a note.
    2. A record was lost on the way, of a key that nothing else has: a difference, though a cleaner works there.
    """
    topics = [f"{topic_name}-{name}" for name in ("fine", "lost")]
    fine, lost = topics
    written(pair, *topics)
    copy_exact(*pair, fine)
    copy_exact(*pair, lost, change=instead(0, old(0, b"a", b"first"), old(1, b"a", b"kept")))
    set_cleaned(pair[1], *topics)
    until(lambda: records_of(pair[1], fine) == [1, 4, 5, 6], "the copy to be cleaned")
    until(lambda: records_of(pair[1], lost) == [4, 5, 6], "the copy to be cleaned")
    result = audit(pair, spark, fine)
    assert (result.verdict, result.findings) == (Verdict.IDENTICAL, ())
    assert "has removed records" in " ".join(result.notes)
    result = audit(pair, spark, lost)
    assert result.verdict is Verdict.DIFFERENT
    assert (Kind.MISSING, Span(0, 2), None, 2) in told(result.findings, lost)


def _with_key(steps: list[Step], at: int, before: bytes, after: bytes) -> list[Step]:
    """The batch with another key of the same length; opened, as it is compressed."""
    step = steps[at]
    assert isinstance(step, Batch)
    header = BatchHeader.read(step.data)
    records = [
        Record(
            record.offset - header.base_offset,
            record.timestamp,
            after if record.key == before else record.key,
            record.value,
        )
        for record in opened(header, step.data[HEADER_SIZE:])
    ]
    return instead(at, *records)(steps)
