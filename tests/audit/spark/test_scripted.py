"""Whole audits of scripted brokers, which need no Kafka: what Spark reads, joins and opens, told as findings."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Cleaned, Verdict
from mirror.audit.prepare import plan
from mirror.audit.prepare.plan import Range
from mirror.audit.read.rows import digester
from mirror.audit.spark import compare
from mirror.audit.spark.by_record import LaterRecords, Limits, record_differences
from mirror.audit.spark.options import RECORDS, SourceOptions
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME
from tests.audit.clusters import edited, faked
from tests.fakes.broker import FakeCluster
from tests.records.builders import Record, kafka_batch
from tests.simulation.model.broker import marker_batch

pytestmark = pytest.mark.spark

Batches = list[bytes]
Pair = tuple[FakeCluster, FakeCluster]
KEYS = 4
COMPACTED = {"cleanup.policy": "compact"}


@contextmanager
def clusters() -> Iterator[Pair]:
    """Two clusters, in a thread of their own: Spark's tasks are other processes, and the audit waits for them."""
    up, over = threading.Event(), threading.Event()
    found: list[FakeCluster] = []

    async def serve() -> None:
        async with FakeCluster("west") as west, FakeCluster("east") as east:
            found.extend((west, east))
            up.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    up.wait()
    try:
        yield found[0], found[1]
    finally:
        over.set()
        thread.join()


def batch(base: int, *, count: int = 5, salt: str = "", at_ms: int | None = None) -> bytes:
    """Its keys repeat. ``at_ms``: the time of all its records, since 1970."""
    times = [1_000 + at if at_ms is None else at_ms for at in range(count)]
    records = [Record(at, times[at], b"%d" % (at % KEYS), f"{base + at}{salt}".encode()) for at in range(count)]
    return kafka_batch(records, base_offset=base)


def log(count: int, *, salt: str = "") -> Batches:
    return [batch(5 * at, salt=salt) for at in range(count)]


def behind(*batches: bytes, by: int) -> Batches:
    """So many offsets further."""
    return [(int.from_bytes(one[:8]) + by).to_bytes(8) + one[8:] for one in batches]


def kept(base: int, offsets: Sequence[int], *, salt: str) -> bytes:
    """A batch as a cleaner leaves it."""
    some = [Record(at, 1_000 + at, b"%d" % (at % KEYS), f"{base + at}{salt}".encode()) for at in offsets]
    return edited(kafka_batch(some, base_offset=base), last_offset_delta=4)


def filled(
    pair: Pair, topic: str, source: Batches, destination: Batches, configs: dict[str, str] | None = None
) -> None:
    for cluster, batches in zip(pair, (source, destination), strict=True):
        cluster.add_topic(topic, configs=configs)
        cluster.store(topic, 0, *batches)


def audit(pair: Pair, spark: SparkSession) -> AuditResult:
    """All topics."""
    request = AuditRequest(
        flow="west->east", source=faked(pair[0]), destination=faked(pair[1]), topics=tuple(pair[0].topics),
        catch_up_s=0,
    )  # fmt: skip
    return job.run(request, spark=spark)


Told = tuple[str, Kind, Span | None, Span | None]


def told(result: AuditResult, topics: Sequence[str]) -> list[Told]:
    """What is said of these."""
    return [(one.topic, one.kind, one.source, one.destination) for one in result.findings if one.topic in topics]


def fill_with_differences(pair: Pair) -> None:
    """Topics of ``DIFFERENT``."""
    some = log(30)
    filled(pair, "same", some, some)
    filled(pair, "lost", some, [*some[:4], *behind(*some[5:], by=-5)])
    filled(pair, "twice", some, [*some[:5], *behind(*some[4:], by=5)])
    filled(pair, "value", some, [*some[:7], batch(35, salt="x"), *some[8:]])
    filled(pair, "damaged", some, [*some[:7], some[7][:-1] + b"?", *some[8:]])
    filled(pair, "short", some, some[:25])
    filled(pair, "long", some[:25], some)
    filled(pair, "strange", log(3), [*log(2), *behind(*some[20:21], by=-90)])


def fill_with_markers(pair: Pair) -> None:
    """Topics of ``MARKED``. They have no record of the others'."""
    first, second, third, last = (batch(base, salt=" marked") for base in (0, 5, 11, 16))
    open_then = edited(second, producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10)
    here = [first, open_then, marker_batch(10, 7, 0, leader_epoch=0, coordinator_epoch=0), third, last]
    markers = [marker_batch(at, (1 << 62) | 1, 1, leader_epoch=0, coordinator_epoch=0) for at in range(5, 17)]
    filled(pair, "filled", here, [first, *markers[:6], third, last])
    filled(pair, "copied", here, [first, second, markers[5], third, last])
    filled(pair, "over", here, [first, *markers[:11], last])
    for name in MARKED:
        pair[0].log(name).aborted = [(7, 5)]


def fill_and_clean(pair: Pair) -> None:
    """Topics of ``CLEANED``. They have no record of the others'."""
    salt = " cleaned"
    some = log(20, salt=salt)
    for name, (base, offsets) in CLEANED.items():
        there = [kept(base, offsets, salt=salt) if one is some[base // 5] else one for one in some]
        filled(pair, name, some, there, configs=COMPACTED)


def fill_torn(pair: Pair, *, copied: int = 10) -> None:
    """The topic ``TORN``: every batch was written anew because it has the time of its append. The source's log is
    damaged at offset 50. ``copied``: the batches of the copy."""
    salt, appended_at = " torn", 9_000
    here = [edited(one, attributes=LOG_APPEND_TIME, max_timestamp=appended_at) for one in log(40, salt=salt)]
    here[10] = here[10][:8] + (-1).to_bytes(4, signed=True) + here[10][12:]
    there = [batch(5 * at, salt=salt, at_ms=appended_at) for at in range(copied)]
    filled(pair, TORN, here, there)


DIFFERENT = ("damaged", "long", "lost", "same", "short", "strange", "twice", "value")
MARKED = ("filled", "copied", "over")
EXCUSED = sorted(f"excused-{at}" for at in range(job.MOST_NOTES + 2))
TORN = "torn"
CLEANED = {name: (20, [1, 3]) for name in EXCUSED} | {"whole": (20, [0, 1, 2, 3, 4]), "last": (95, [0, 1])}


@pytest.fixture(scope="module")
def coarse(spark: SparkSession) -> AuditResult:
    """Of all topics, each in one range."""
    with clusters() as pair:
        for fill in (fill_with_differences, fill_with_markers, fill_and_clean, fill_torn):
            fill(pair)
        return audit(pair, spark)


@pytest.fixture(scope="module")
def fine(spark: SparkSession) -> AuditResult:
    """Of those that differ, in many ranges with chunks of a few batches."""
    with pytest.MonkeyPatch.context() as patched, clusters() as pair:
        for name, size in (("LEAST_TASK_BYTES", 1), ("TASK_BYTES", 1_000), ("CHUNK_BYTES", 300)):
            patched.setattr(plan, name, size)
        fill_with_differences(pair)
        fill_torn(pair, copied=40)
        return audit(pair, spark)


@pytest.mark.parametrize("which", ["coarse", "fine"])
def test_every_kind_of_difference(request: pytest.FixtureRequest, which: str) -> None:
    """In one range, and in many with chunks of a few batches."""
    result: AuditResult = request.getfixturevalue(which)
    assert result.verdict is Verdict.DIFFERENT
    assert told(result, DIFFERENT) == [
        ("damaged", Kind.CORRUPT, Span(35, 40), Span(35, 40)),
        ("long", Kind.EXTRA, None, Span(125, 150)),
        ("lost", Kind.MISSING, Span(20, 25), None),
        ("short", Kind.MISSING, Span(125, 150), None),
        ("strange", Kind.MISROUTED, None, Span(10, 15)),
        ("strange", Kind.MISSING, Span(10, 15), None),
        ("twice", Kind.DUPLICATE, Span(20, 25), Span(25, 30)),
        ("value", Kind.VALUE_CHANGED, Span(35, 40), Span(35, 40)),
    ]
    assert all(row.complete for row in result.coverage if row.topic in DIFFERENT)
    same = {row.side: (row.batches, row.records) for row in result.coverage if row.topic == "same"}
    assert same == dict.fromkeys(Side, (30, 150))


def test_markers_stand_where_no_record_is_due(coarse: AuditResult) -> None:
    """In place of aborted data and of the source's markers. What else they replace is told, and what was copied."""
    assert told(coarse, MARKED) == [
        ("copied", Kind.EXTRA, None, Span(5, 10)),
        ("over", Kind.MISSING, Span(11, 16), None),
        ("over", Kind.OVERFILLED, None, Span(11, 16)),
    ]


def test_what_cleaners_have_taken(coarse: AuditResult) -> None:
    """A record is excused by a later one of its key: each key is in every batch, but in the last."""
    assert {one.topic for one in coarse.findings} & CLEANED.keys() == {"last"}
    notes = [note for note in coarse.notes if note.startswith(tuple(CLEANED)) or "log cleaners" in note]
    noted = [note.partition(":")[0] for note in notes]
    assert noted == [
        *(f"{name} partition 0, destination offsets 20 to 24" for name in EXCUSED[: job.MOST_NOTES]),
        "and 2 more places that log cleaners have changed",
    ]
    assert {key.topic: one for key, one in coarse.cleaned.items()} == dict.fromkeys(EXCUSED, Cleaned(1, 3))


def test_damage_just_behind_the_copys_end_hides_nothing(coarse: AuditResult) -> None:
    """All that was read is the same, in batches that were written anew. Mutation: what is behind counts as read."""
    assert told(coarse, [TORN]) == [(TORN, kind, Span(50, 200), None) for kind in (Kind.CORRUPT, Kind.MISSING)]
    assert sum(one.batches for one in coarse.reencoded if one.topic == TORN) == 10


def test_damage_in_one_range_says_nothing_of_the_next(fine: AuditResult) -> None:
    """What stands behind the range with the damage was written anew like all else. Mutation: records are read in other
    ranges than batches were, up to where one of them breaks off."""
    (kind, span), *others = [(one.kind, one.source) for one in fine.findings if one.topic == TORN]
    assert (kind, others) == (Kind.CORRUPT, [])
    assert span is not None
    assert span.start == 50
    assert span.end < 100
    assert sum(one.records for one in fine.reencoded if one.topic == TORN) >= 200 - span.offsets - 5


def test_records_that_cannot_be_read_any_more(spark: SparkSession) -> None:
    """It is said of which side, and where: otherwise they look as if a log cleaner had taken them."""
    with clusters() as pair:
        fill_torn(pair, copied=40)
        ours, theirs = (
            SourceOptions(
                endpoint=faked(cluster), cluster_id=cluster.cluster_id, topic_ids={}, digest="xxh3_128",
                tasks=((Range(TORN, 0, 0, end, True, 10),),), rows=RECORDS,
            )
            for cluster, end in zip(pair, (60, 50), strict=True)
        )  # fmt: skip
        looked = {TopicPartition(TORN, 0): [Span(0, 60)]}
        found, broken = record_differences(spark, ours, theirs, looked, None)
        assert (found, broken) == ({}, {Side.SOURCE: [TopicPartition(TORN, 0)]})
        found, broken = record_differences(spark, theirs, ours, looked, None)
        assert (found, broken) == ({}, {Side.DESTINATION: [TopicPartition(TORN, 0)]})


@pytest.mark.parametrize(("audited", "excused"), [(30, True), (60, False)])
def test_what_stands_in_front_of_a_tombstone_must_be_known(spark: SparkSession, audited: int, *, excused: bool) -> None:
    """
    1. A log cannot be read on from offset 50, and the other side has a tombstone behind that. If nothing is told of the
       damage, since it lies in front of the audited offsets, its key may live there.
    2. Mutation: what cannot be read is nothing.
    """
    with clusters() as pair:
        fill_torn(pair, copied=40)
        torn, whole = (
            SourceOptions(
                endpoint=faked(cluster), cluster_id=cluster.cluster_id, topic_ids={}, digest="xxh3_128",
                tasks=((Range(TORN, 0, 0, end, True, 10),),), rows=RECORDS,
            )
            for cluster, end in zip(pair, (60, 50), strict=True)
        )  # fmt: skip
        later = LaterRecords.read(spark, whole, torn, {TopicPartition(TORN, 0): Limits(copied=60, audited=audited)})
        found = [row.asDict() for row in later.destination.where("key is null").collect()]
        assert [row["d_first"] for row in found] == ([] if excused else [50])


def test_of_a_payload_that_stands_everywhere_the_first_places_are_taken(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each partition. That there are more is said: mutation, they are left out in silence."""
    monkeypatch.setattr(compare, "MOST_ALIKE", 3)
    some = batch(0)
    with clusters() as (west, _):
        west.add_topic("again", partitions=2)
        west.store("again", 0, *(one for at in range(6) for one in behind(some, by=5 * at)))
        west.store("again", 1, *(one for at in range(3) for one in behind(some, by=5 * at)))
        side = SourceOptions(
            endpoint=faked(west), cluster_id=west.cluster_id, topic_ids={}, digest="xxh3_128",
            tasks=((Range("again", 0, 0, 30, True, 10), Range("again", 1, 0, 15, True, 10)),),
        )  # fmt: skip
        found = compare.locate(spark, side, [digester("xxh3_128")(memoryview(some)[HEADER_SIZE:])])
    assert sorted((key.partition, row.base_offset) for key, row in found.places) == [
        (partition, offset) for partition in (0, 1) for offset in (0, 5, 10)
    ]
    assert (found.all, found.alike) == (True, True)
