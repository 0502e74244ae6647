"""Ranges as scripted brokers answer them: where they lie in the log, what an answer without a batch means, and which
rows a task makes of them."""

from typing import Any

import pytest

from mirror.audit.errors import AuditError
from mirror.audit.model.places import OldRange, Side, TopicPartition
from mirror.audit.prepare.plan import CopiedRange, Range
from mirror.audit.read import fetching, reader, selecting
from mirror.audit.read.holes import Rules
from mirror.audit.read.leaders import DAMAGED
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.read.reader import Reader
from mirror.audit.read.tasks import _rows
from mirror.audit.read.witness import Witness
from mirror.audit.spark.options import (
    BATCH,
    BATCHES,
    CHUNKS,
    COVERAGE,
    OPENED,
    RECORD,
    RECORDS,
    UNOPENED,
    WHOLE,
    SourceOptions,
)
from mirror.offsetmap.runs import Run
from mirror.records.transactions import ABORT, COMMIT
from mirror.wire.errors import ErrorCode, error_name
from tests.audit.clusters import faked
from tests.audit.read.test_holes import data, marker
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import Fault
from tests.records.builders import kafka_batch, raw_batch

THERE = Rules(side=Side.DESTINATION)
KEY = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that have nothing say so without waiting."""
    monkeypatch.setattr(fetching, "FETCH_WAIT_MS", 1)


def batches(count: int, start: int = 0) -> list[bytes]:
    """Of five records each."""
    return [raw_batch(b"p" * 50, base_offset=start + 5 * at, leader_epoch=0) for at in range(count)]


async def read(fake: FakeCluster, wanted: Range, **settings: Any) -> tuple[list[int], RangeCoverage]:
    """The base offsets of what the range owns, and its coverage."""
    here = Reader(faked(fake), cluster_id=fake.cluster_id, topic_ids={}, digest="xxh3_128", **settings)
    coverage = RangeCoverage()
    await here.open({wanted.topic})
    try:
        blocks = [block async for block in here.blocks(wanted, coverage)]
    finally:
        await here.close()
    return [base for block in blocks for base in block.headers["base_offset"].tolist()], coverage


@pytest.mark.parametrize("version", range(4, 18))
@pytest.mark.parametrize("ids", [True, False])
async def test_in_every_version_of_fetch(version: int, ids: bool) -> None:
    """By id where the cluster has ids, otherwise by name: the newest version that both know."""
    versions = {"Fetch": (4, version), "Metadata": (0, 13 if ids else 9)}
    async with FakeCluster(versions=versions) as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(4))
        found, coverage = await read(fake, Range("t", 0, 0, 20, True, 1_000), fetch_bytes=250)
        assert found == [0, 5, 10, 15]
        assert (coverage.batches, coverage.offsets, coverage.next_offset) == (4, 20, 20)
        assert {seen.version for seen in fake.seen("Fetch")} == {version if ids else min(version, 12)}


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("what", ["topic", "partition"])
async def test_an_answer_about_another_partition(ids: bool, what: str) -> None:
    """Its batches may look like those that were asked for: they are not taken, and it is asked again."""
    async with FakeCluster(versions={"Metadata": (0, 13 if ids else 9)}) as fake:
        for topic in ("t", "other"):
            fake.add_topic(topic, partitions=2)
            fake.store(topic, 0, *batches(1))

        def about_another(answer: Any) -> None:
            (topic,) = answer.responses
            if what == "partition":
                topic.partitions[0].partition_index = 1
            elif ids:
                topic.topic_id = fake.topics["other"].topic_id
            else:
                topic.topic = "other"

        fake.next("Fetch", faults.alter(about_another))
        found, coverage = await read(fake, Range("t", 0, 0, 5, True, 1_000))
        assert (found, coverage.batches) == ([0], 1)
        assert len(fake.seen("Fetch")) == 2


async def test_a_copy_that_has_moved() -> None:
    """It is read where it lies, and shown where it would be."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(4, start=7))
        found, coverage = await read(fake, Range("t", 0, 5, 15, False, 1_000, None, 7), rules=THERE)
        assert found == [5, 10]
        assert (coverage.next_offset, coverage.accounted) == (15, 10)
        assert fake.seen("Fetch")[0].request.topics[0].partitions[0].fetch_offset == 12


async def test_what_markers_say_of_a_range_is_kept_for_the_next_one() -> None:
    """Of data that is listed as aborted, of other data, and of the transactions that end there. Mutations: any of it is
    forgotten."""
    log = [data(0), data(5, producer=9), marker(10, COMMIT, producer=8), marker(11, ABORT, producer=6)]
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *log)

        def list_aborted(answer: Any) -> None:
            part = answer.responses[0].partitions[0]
            kind = type(part).AbortedTransaction
            part.aborted_transactions = [kind(producer_id=7, first_offset=0)]

        fake.next("Fetch", faults.alter(list_aborted))
        _, coverage = await read(fake, Range("t", 0, 0, 12, True, 1_000), rules=Rules(committed=True))
    assert coverage.witness == Witness(0, due={9}, ended={6, 8}, unexplained={6: 11}, undone={7}, commits={8: 10})


@pytest.mark.parametrize("how", ["as it is", "moved", "mapped"])
async def test_damaged_batches_are_counted(how: str) -> None:
    """Those that the range owns. Another writer's batch in a mapped topic is none of them."""
    log = batches(4, start=7)
    log[2] = log[2][:-1] + b"?"
    strange = raw_batch(b"strange", base_offset=27, leader_epoch=0)
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *log, strange[:-1] + b"?")
        copied = CopiedRange("t", 7, 32, (), (Run(0, 7, 20),)) if how == "mapped" else None
        start, end = (7, 27) if how == "as it is" else (0, 20)
        wanted = Range("t", 0, start, end, True, 1_000, copied, 7 * (how == "moved"))
        found, coverage = await read(fake, wanted, rules=THERE)
        assert found == [*range(start, end, 5)]
        assert coverage.damaged == 1
        assert RangeCoverage.from_json(coverage.to_json()) == coverage


@pytest.mark.parametrize("listed", [100, 0])
async def test_a_mapped_copy(monkeypatch: pytest.MonkeyPatch, listed: int) -> None:
    """Another writer's batch stands among its own, and one of its own that the map does not have."""
    monkeypatch.setattr(selecting, "LISTED", listed)
    own = {"producer_id": 77, "leader_epoch": 0}
    async with FakeCluster() as fake:
        fake.add_topic("there")
        fake.store("there", 0, raw_batch(b"a", base_offset=100, **own), raw_batch(b"x", base_offset=105))
        fake.store("there", 0, raw_batch(b"b", base_offset=110, **own), raw_batch(b"c", base_offset=115, **own))
        where = CopiedRange("there", 100, 120, (77,), (Run(0, 100, 5), Run(5, 115, 5)))
        found, coverage = await read(
            fake, Range("there", 0, 0, 10, True, 1_000, where), rules=Rules(side=Side.DESTINATION, mapped=True)
        )
        assert found == [0, 5]
        assert (coverage.offsets, coverage.gap_offsets, coverage.next_offset) == (10, 0, 10)
        assert coverage.unmapped == ([(110, 115)] if listed else [])
        assert coverage.unlisted == ((0, 0, 0, 0) if listed else (1, 5, 110, 115))


def _without_records(answer: Any) -> None:
    answer.responses[0].partitions[0].records = b""


@pytest.mark.parametrize("cleaned", [True, False])
async def test_nothing_up_to_the_end(cleaned: bool) -> None:
    """A log cleaner may have left nothing there; nobody else does."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(2))
        fake.log("t").end = 40
        found, coverage = await read(fake, Range("t", 0, 0, 40, True, 1_000), cleaned={"t"} if cleaned else ())
        assert found == [0, 5]
        assert coverage.unreadable is not cleaned
        why = (
            "the broker shows nothing from offset 10 on, and its log goes on to 40; no log cleaner works on this topic"
        )
        assert coverage.broken == (None if cleaned else why)
        assert coverage.gap_offsets == (30 if cleaned else 0)


async def test_what_a_broker_hides_from_a_cleaners_gap() -> None:
    """It shows a batch behind the offset from which on it shows nothing: it cannot read its log there."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(4))
        for _ in range(reader.EMPTY_ANSWERS):
            fake.next("Fetch", Fault(alter=_without_records))
        found, coverage = await read(fake, Range("t", 0, 0, 20, True, 1_000), cleaned={"t"})
        assert (found, coverage.unreadable) == ([], True)
        assert coverage.broken is not None
        assert coverage.broken.endswith("at offset 1 it shows a batch")
        asked = [seen.request.topics[0].partitions[0].fetch_offset for seen in fake.seen("Fetch")]
        assert asked == [0, 0, 0, 1]


async def test_a_leader_that_moves() -> None:
    """Its successor is looked up; after an error that does not say so, the same broker is asked again."""
    async with FakeCluster(brokers=2) as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(4))
        fake.next("Fetch", faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
        found, _ = await read(fake, Range("t", 0, 0, 20, True, 1_000))
        assert found == [0, 5, 10, 15]
        calm = len(fake.seen("Metadata"))
        fake.requests.clear()
        fake.next("Fetch", faults.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        found, _ = await read(fake, Range("t", 0, 0, 20, True, 1_000))
        assert found == [0, 5, 10, 15]
        assert len(fake.seen("Metadata")) == calm + 1


@pytest.mark.parametrize("code", sorted(DAMAGED))
async def test_a_broker_that_cannot_read_its_log(code: int) -> None:
    """
    1. Its disk fails now and then: asked again, it answers, each time. Other trouble in between does not count.
    2. It goes on failing at one offset: what is behind could not be read, and that is a finding.
    3. Mutations: the first error counts, or only one of the codes; errors are counted over all answers.
    """
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(4))
        wanted = Range("t", 0, 0, 20, True, 1_000)
        for _ in range(2):
            for _ in range(reader.UNREADABLE_TRIES):
                fake.next("Fetch", faults.refuse(code))
            fake.next("Fetch", faults.refuse(ErrorCode.LEADER_NOT_AVAILABLE))
            fake.next("Fetch", faults.alter(lambda _: None))
        found, coverage = await read(fake, wanted, fetch_bytes=250)
        assert (found, coverage.broken) == ([0, 5, 10, 15], None)
        fake.requests.clear()
        fake.next("Fetch", faults.alter(lambda _: None))
        for _ in range(reader.UNREADABLE_TRIES + 1):
            fake.next("Fetch", faults.refuse(code))
        found, coverage = await read(fake, wanted, fetch_bytes=250)
        assert (found, coverage.next_offset) == ([0, 5], 10)
        assert coverage.broken == f"the broker cannot read its own log here: {error_name(code)}"
        assert len(fake.seen("Fetch")) == reader.UNREADABLE_TRIES + 2


async def test_a_broker_that_does_not_say_what_is_wrong() -> None:
    """Tiered storage that is down is answered like that: no verdict, and no finding."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(4))
        for _ in range(20):
            fake.next("Fetch", faults.refuse(ErrorCode.UNKNOWN_SERVER_ERROR))
        with pytest.raises(AuditError, match="UNKNOWN_SERVER_ERROR"):
            await read(fake, Range("t", 0, 0, 20, True, 1_000))


async def test_a_log_that_has_lost_its_end() -> None:
    """It is no gap: what was frozen is not there any more."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(2))
        with pytest.raises(AuditError, match="lost offset 15 and what follows"):
            await read(fake, Range("t", 0, 15, 20, True, 1_000))


@pytest.mark.parametrize(
    ("rows", "units", "found"),
    [
        (BATCHES, WHOLE, {"batch": [10, 13], "holes": [16], "coverage": [10]}),
        (BATCHES, OPENED, {"batch": [10, 11, 12, 13, 14, 15], "holes": [16], "coverage": [10]}),
        (RECORDS, WHOLE, {"record": [10, 11, 12, 13, 14, 15], "coverage": [10]}),
        (CHUNKS, WHOLE, {"batch": [10, 13], "coverage": [10]}),
    ],
)
async def test_the_rows_of_a_task(rows: str, units: str, found: dict[str, list[int]]) -> None:
    """By their base offsets; the source has a gap at its end."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *(kafka_batch(base_offset=base) for base in (7, 10, 13, 20)))
        options = SourceOptions(
            endpoint=faked(fake), cluster_id=fake.cluster_id, topic_ids={}, digest="xxh3_128", tasks=(), rows=rows,
            units=units, rules=Rules(side=Side.SOURCE),
        )  # fmt: skip
        seen: dict[str, list[int]] = {}
        async for some in _rows(options, (Range("t", 0, 10, 20, False, 3),)):
            for row in some.to_pylist():
                seen.setdefault(row["part"], []).append(row["base_offset"])
        assert seen == found


@pytest.mark.parametrize("shift", [0, 7])
async def test_a_batch_that_cannot_be_opened_and_begins_before_what_is_compared(shift: int) -> None:
    """Its checksum is right. It is told at the first offset that is compared. Mutation: at its base offset, of which
    nothing is told: its records seem to be gone, and a log cleaner may have taken them."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *batches(1, start=10), kafka_batch(base_offset=15))
        options = SourceOptions(
            endpoint=faked(fake), cluster_id=fake.cluster_id, topic_ids={}, digest="xxh3_128", tasks=(), rows=RECORDS,
            rules=THERE,
        )  # fmt: skip
        wanted = Range("t", 0, 12 - shift, 18 - shift, True, 3, None, shift)
        seen = [row for some in [one async for one in _rows(options, (wanted,))] for row in some.to_pylist()]
    parts = [(row["part"], row["base_offset"] + shift) for row in seen if row["part"] != COVERAGE]
    assert parts == [(UNOPENED, 12), *((RECORD, at) for at in (15, 16, 17))]


@pytest.mark.parametrize("how", ["as it is", "moved", "mapped", "opened"])
@pytest.mark.parametrize("rows", [BATCHES, CHUNKS])
async def test_readers_count_the_rows_that_spark_gets(how: str, rows: str) -> None:
    """Of batches, and of records in their place where the source has old formats: whoever has fewer has lost some."""
    log = [kafka_batch(base_offset=base) for base in (7, 10, 13, 20, 23)]
    strange = raw_batch(b"strange", base_offset=26, leader_epoch=0)
    async with FakeCluster() as fake:
        fake.add_topic("t")
        fake.store("t", 0, *log, strange)
        copied = CopiedRange("t", 10, 29, (), (Run(3, 10, 6), Run(9, 20, 6))) if how == "mapped" else None
        start, end = (10, 25) if how in ("as it is", "opened") else (3, 18)
        options = SourceOptions(
            endpoint=faked(fake), cluster_id=fake.cluster_id, topic_ids={}, digest="xxh3_128", tasks=(), rows=rows,
            rules=THERE, old={KEY: [OldRange(10, 16)]} if how == "opened" else {},
        )  # fmt: skip
        counted, told = (0, 0), None
        wanted = Range("t", 0, start, end, False, 4, copied, 7 if how == "moved" else 0)
        async for some in _rows(options, (wanted,)):
            for row in some.to_pylist():
                if row["part"] == BATCH:
                    batches = row["count"] if rows == CHUNKS else 1
                    counted = counted[0] + batches, counted[1] + row["size"]
                elif row["part"] == COVERAGE:
                    told = RangeCoverage.from_json(row["note"])
        assert told is not None
        assert counted == (told.rows, told.row_bytes)
        assert counted[0] == (8 if how == "opened" else 4)
