"""Whole audits of scripted brokers, which need no Kafka: what Spark reads, joins and opens, told as findings."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Side, Span
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult, Verdict
from mirror.audit.prepare import plan
from tests.audit.clusters import edited, faked
from tests.fakes.broker import FakeCluster
from tests.records.builders import Record, kafka_batch
from tests.simulation.model.broker import marker_batch

pytestmark = pytest.mark.spark

Batches = list[bytes]
Pair = tuple[FakeCluster, FakeCluster]
KEYS = 4
COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def pair() -> Iterator[Pair]:
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


def batch(base: int, *, count: int = 5, salt: str = "") -> bytes:
    """Its keys repeat."""
    records = [Record(at, 1_000 + at, b"%d" % (at % KEYS), f"{base + at}{salt}".encode()) for at in range(count)]
    return kafka_batch(records, base_offset=base)


def log(count: int, start: int = 0) -> Batches:
    return [batch(start + 5 * at) for at in range(count)]


def behind(*batches: bytes, by: int) -> Batches:
    """So many offsets further."""
    return [(int.from_bytes(one[:8]) + by).to_bytes(8) + one[8:] for one in batches]


def kept(base: int, offsets: Sequence[int]) -> bytes:
    """A batch as a cleaner leaves it."""
    some = [Record(at, 1_000 + at, b"%d" % (at % KEYS), f"{base + at}".encode()) for at in offsets]
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


def told(result: AuditResult) -> list[Told]:
    return [(one.topic, one.kind, one.source, one.destination) for one in result.findings]


@pytest.mark.parametrize("fine", [False, True])
def test_every_kind_of_difference(pair: Pair, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, fine: bool) -> None:
    """In one range, and in many with chunks of a few batches."""
    if fine:
        for name, size in (("LEAST_TASK_BYTES", 1), ("TASK_BYTES", 1_000), ("CHUNK_BYTES", 300)):
            monkeypatch.setattr(plan, name, size)
    some = log(30)
    filled(pair, "same", some, some)
    filled(pair, "lost", some, [*some[:4], *behind(*some[5:], by=-5)])
    filled(pair, "twice", some, [*some[:5], *behind(*some[4:], by=5)])
    filled(pair, "value", some, [*some[:7], batch(35, salt="x"), *some[8:]])
    filled(pair, "damaged", some, [*some[:7], some[7][:-1] + b"?", *some[8:]])
    filled(pair, "short", some, some[:25])
    filled(pair, "long", some[:25], some)
    filled(pair, "strange", log(3), [*log(2), *behind(*some[20:21], by=-90)])
    result = audit(pair, spark)
    assert result.verdict is Verdict.DIFFERENT
    assert told(result) == [
        ("damaged", Kind.CORRUPT, Span(35, 40), Span(35, 40)),
        ("long", Kind.EXTRA, None, Span(125, 150)),
        ("lost", Kind.MISSING, Span(20, 25), None),
        ("short", Kind.MISSING, Span(125, 150), None),
        ("strange", Kind.MISROUTED, None, Span(10, 15)),
        ("strange", Kind.MISSING, Span(10, 15), None),
        ("twice", Kind.DUPLICATE, Span(20, 25), Span(25, 30)),
        ("value", Kind.VALUE_CHANGED, Span(35, 40), Span(35, 40)),
    ]
    assert all(row.complete for row in result.coverage)
    same = {row.side: (row.batches, row.records) for row in result.coverage if row.topic == "same"}
    assert same == dict.fromkeys(Side, (30, 150))


def test_markers_stand_where_no_record_is_due(pair: Pair, spark: SparkSession) -> None:
    """In place of aborted data and of the source's markers. What else they replace is told, and what was copied."""
    open_then = edited(batch(5), producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10)
    here = [batch(0), open_then, marker_batch(10, 7, 0, leader_epoch=0, coordinator_epoch=0), batch(11), batch(16)]
    markers = [marker_batch(at, (1 << 62) | 1, 1, leader_epoch=0, coordinator_epoch=0) for at in range(5, 17)]
    filled(pair, "filled", here, [here[0], *markers[:6], here[3], here[4]])
    filled(pair, "copied", here, [here[0], batch(5), markers[5], here[3], here[4]])
    filled(pair, "over", here, [here[0], *markers[:11], here[4]])
    for name in ("filled", "copied", "over"):
        pair[0].log(name).aborted = [(7, 5)]
    result = audit(pair, spark)
    assert told(result) == [
        ("copied", Kind.EXTRA, None, Span(5, 10)),
        ("over", Kind.MISSING, Span(11, 16), None),
        ("over", Kind.OVERFILLED, None, Span(11, 16)),
    ]


def test_what_cleaners_have_taken(pair: Pair, spark: SparkSession) -> None:
    """A record is excused by a later one of its key: each key is in every batch, but in the last."""
    some = log(20)
    excused = {f"excused-{at}": (20, [1, 3]) for at in range(job.MOST_NOTES + 2)}
    for name, (base, offsets) in (excused | {"same": (20, [0, 1, 2, 3, 4]), "last": (95, [0, 1])}).items():
        there = [kept(base, offsets) if one is some[base // 5] else one for one in some]
        filled(pair, name, some, there, configs=COMPACTED)
    result = audit(pair, spark)
    assert {one.topic for one in result.findings} == {"last"}
    noted = [note.partition(":")[0] for note in result.notes]
    assert noted == [
        *(f"{name} partition 0, destination offsets 20 to 24" for name in sorted(excused)[: job.MOST_NOTES]),
        "and 2 more places that log cleaners have changed",
    ]
