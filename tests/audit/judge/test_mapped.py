"""Audits of copies with offsets of their own, in topics that others write to as well."""

import asyncio
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from pyspark.sql import SparkSession

from mirror.audit import job
from mirror.audit.errors import AuditError
from mirror.audit.judge import mapped
from mirror.audit.judge.coverage import unmapped
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.model.result import AuditResult
from mirror.audit.prepare import bounds, plan
from mirror.audit.prepare.plan import Range, copied
from mirror.audit.read.holes import Rules
from mirror.audit.read.ranges import RangeCoverage, cut_records
from mirror.audit.read.selecting import LISTED, Selector
from mirror.net.cluster import Cluster
from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.net.options import ClusterOptions
from mirror.offsetmap.compare.alignment import Ambiguous, Differs
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import MapChunk, Order
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import Pin
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.header import HEADER_SIZE, TRANSACTIONAL, BatchHeader
from mirror.records.identity import MIRROR_BIT, Identity, producer_id
from mirror.records.restamp import restamp
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.audit.clusters import addresses, create, edited, endpoint, faked
from tests.audit.exact import Batch, steps_of, transactions
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import alter, refuse
from tests.records.builders import kafka_batch, raw_batch

Pair = tuple[SandboxCluster, SandboxCluster]
Batches = list[bytes]
Change = Callable[[Batches], Sequence[bytes]]
FLOW = "source->destination"


# -- where ranges are -----------------------------------------------------------------------------------------------

MAP = OffsetMap([Run(0, 10, 5), Run(5, 20, 3), Run(10, 23, 7), Run(20, 40, 1)])


@pytest.mark.parametrize("borders", [(0, 25), (0, 3, 25), (0, 5, 9, 10, 25), (0, 8, 18, 21, 25), tuple(range(26))])
def test_ranges_that_touch_at_the_source_touch_at_the_destination(borders: tuple[int, ...]) -> None:
    bounds = Span(10, 50)
    found = [
        copied(MAP, start, end, topic="there", bounds=bounds, own=[7]) for start, end in itertools.pairwise(borders)
    ]
    assert [one.start for one in found] == [10, *(one.end for one in found[:-1])]
    assert found[-1].end == 50
    for one, (start, end) in zip(found, itertools.pairwise(borders), strict=True):
        assert list(one.runs) == [run for run in MAP if run.source < end and run.source_end > start]


def test_a_source_that_lost_its_beginning() -> None:
    """What the copy has of before is not read: there is nothing to compare it with, and the range's runs lack it."""
    found = copied(MAP, 10, 25, topic="there", bounds=Span(10, 50), own=[])
    assert (found.start, found.runs) == (23, (MAP[2], MAP[3]))


def test_a_log_that_lost_its_beginning() -> None:
    found = copied(MAP, 6, 30, topic="there", bounds=Span(21, 50), own=[])
    assert (found.start, found.end) == (21, 50)
    assert copied(MAP, 22, 30, topic="there", bounds=Span(21, 50), own=[])[1:3] == (50, 50)


@pytest.mark.parametrize(("other", "sharing", "told"), [(1, (), [(5, 10)]), (1, (1,), []), (2, (), [])])
def test_a_batch_of_another_copy(other: int, sharing: tuple[int, ...], told: list[tuple[int, int]]) -> None:
    """It came into the wrong partition: unless another topic is copied there, too, or another flow writes there."""
    ids = [producer_id(flow=FLOW, cluster_id="c", topic="t", partition=index) for index in range(3)]
    found = b"".join(
        raw_batch(bytes(9), base_offset=base, last_offset_delta=4, record_count=5, producer_id=ids[at])
        for base, at in ((0, 0), (5, other), (10, 0))
    )
    rules = Rules(side=Side.DESTINATION, mapped=True)
    piece = cut_records(memoryview(found), 0, len(found), Range("t", 0, 0, 15, True, 10), 0, rules)
    where = copied(
        OffsetMap([Run(0, 0, 5), Run(5, 10, 5)]), 0, 15, topic="t", bounds=Span(0, 15), own=ids[:1],
        sharing=[ids[at] for at in sharing],
    )  # fmt: skip
    selector = Selector(where, ids[:2])
    assert selector(piece).headers["base_offset"].tolist() == [0, 5]
    assert selector.unmapped == told


@pytest.mark.parametrize("count", [LISTED, LISTED + 1, LISTED + 30])
def test_batches_that_the_map_does_not_have_are_all_counted(count: int) -> None:
    """The first ones are listed, and those behind are one finding. Two responses, and Spark in between. Mutation: what
    is not listed is left out."""
    own = producer_id(flow=FLOW, cluster_id="c", topic="t", partition=0)
    where = copied(OffsetMap([Run(0, 0, 5)]), 0, 5, topic="t", bounds=Span(0, 5 * count + 5), own=[own])
    selector = Selector(where)
    rules = Rules(side=Side.DESTINATION, mapped=True)
    for bases in (range(count // 2), range(count // 2, count)):
        sent = b"".join(
            raw_batch(bytes(9), base_offset=5 * at + 5, last_offset_delta=4, record_count=5, producer_id=own)
            for at in bases
        )
        whole, due = Range("t", 0, 5, 5 * count + 5, True, 10), 5 * bases[0] + 5
        selector(cut_records(memoryview(sent), 0, len(sent), whole, due, rules))
    coverage = RangeCoverage(unmapped=selector.unmapped, unlisted=selector.unlisted)
    found = unmapped("east", {("t", 0, 0, 5): RangeCoverage.from_json(coverage.to_json())})
    assert [one.destination for one in found[:LISTED]] == [Span(5 * at + 5, 5 * at + 10) for at in range(LISTED)]
    assert (sum(one.batches for one in found), sum(one.records for one in found)) == (count, 5 * count)
    assert {one.kind for one in found} == {Kind.EXTRA}
    more = [(one.destination, one.detail) for one in found[LISTED:]]
    several = "1 more batch" if count == LISTED + 1 else f"{count - LISTED} more batches"
    told = f"{several} of the flow at east that its offset map does not have, up to there: copied "
    assert more == (
        [] if count == LISTED else [(Span(5 * LISTED + 5, 5 * count + 5), told + "twice, or into the wrong partition")]
    )


def test_what_cannot_be_told_apart_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no difference: the copies behind the checkpoint may be right. Other wrong copies are."""
    found = mapped.Mapped({}, [], [], [])
    asked = AuditRequest(flow=FLOW, source=Mock(), destination=Mock(), topics=("t",), rename=str)
    monkeypatch.setattr(mapped, "_log", Mock())

    def freeze(error: Differs) -> None:
        monkeypatch.setattr(mapped, "translation", AsyncMock(side_effect=error))
        source = Mock(cluster_id="c")
        key = TopicPartition("t", 0)
        asyncio.run(mapped._freeze(found, Mock(), source, Mock(), key, Span(0, 9), asked, 0.0, 7, {}))

    with pytest.raises(AuditError, match=r"t partition 0: .* it cannot be told which .* in 2 places"):
        freeze(Ambiguous("fits in 2 places"))
    assert not found.findings
    freeze(Differs("is another batch"))
    assert [one.kind for one in found.findings] == [Kind.WHOLESALE]


def test_where_no_copy_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two topics are copied into one, which has a partition more than the larger of them. Each that neither has is
    looked at once, for all of the flow's producer ids but those that were at home there before."""
    looked = AsyncMock(return_value=mapped.Strays([], []))
    log = Mock(start=AsyncMock(return_value=3), visible_end=AsyncMock(return_value=9))
    monkeypatch.setattr(mapped, "_strays", looked)
    monkeypatch.setattr(mapped, "_log", Mock(return_value=log))
    asked = AuditRequest(flow=FLOW, source=Mock(), destination=Mock(), rename=lambda _: "there", offsets="mapped")
    keys = [TopicPartition("u", 0), TopicPartition("t", 0), TopicPartition("t", 1)]
    homes = {("there", 0): {1, 2}, ("there", 1): {3}, ("there", 3): {4}}
    destination = Mock(topics={"there": Mock(leaders=dict.fromkeys(range(4)))})
    assert asyncio.run(mapped._in_spare(destination, keys, asked, homes)) == 2 * [mapped.Strays([], [])]
    assert [call.args for call in looked.await_args_list] == [
        (TopicPartition("t", 2), log, Span(3, 9), (), {1, 2, 3, 4}),
        (TopicPartition("t", 3), log, Span(3, 9), (), {1, 2, 3}),
    ]


def test_retention_at_both_sides_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source was asked for its start before the wait, and the copy behind it: what is gone at both is not lost."""
    found = mapped.Mapped({}, [], [], [])
    asked = AuditRequest(flow=FLOW, source=Mock(), destination=Mock(), topics=("t",), rename=str)
    known = Mock(
        map=OffsetMap([Run(0, 0, 30)]), source_end=30, destination_end=30,
        to_source=lambda offset: Mock(offset=offset),
    )  # fmt: skip
    monkeypatch.setattr(mapped, "translation", AsyncMock(return_value=known))
    monkeypatch.setattr(mapped, "_strays", AsyncMock(return_value=mapped.Strays([], [])))
    state = Mock(ledger=Mock(own=lambda _: set()))

    def bounds(here: int, there: int) -> Bounds:
        logs = iter(
            Mock(start=AsyncMock(return_value=start), visible_end=AsyncMock(return_value=30)) for start in (here, there)
        )
        monkeypatch.setattr(mapped, "_log", lambda *_: next(logs))
        key, source = TopicPartition("t", 0), Mock(cluster_id="c")
        asyncio.run(mapped._freeze(found, state, source, Mock(), key, Span(0, 30), asked, 0.0, 7, {}))
        return found.bounds[-1]

    both, alone = bounds(12, 11), bounds(0, 11)
    assert (both.source, both.destination) == (Span(12, 30), Span(12, 30))
    assert (alone.source, alone.destination) == (Span(0, 30), Span(11, 30))


async def test_what_was_not_looked_at_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the search for batches outside of the map to the result."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t")
        asked = AuditRequest(
            flow=FLOW, source=faked(west), destination=faked(east), topics=("t",), offsets="mapped", catch_up_s=0
        )

        async def freeze_mapped(*_: object) -> mapped.Mapped:
            found = mapped.Mapped({}, [], [], ["before"])
            found.take(mapped.Strays([], ["not looked at"]))
            return found

        monkeypatch.setattr(bounds, "freeze_mapped", freeze_mapped)
        result = await asyncio.to_thread(job.run, asked)
        assert result.notes[-2:] == ("before", "not looked at")


# -- real clusters --------------------------------------------------------------------------------------------------


def due(source: SandboxCluster, topic: str) -> Batches:
    """The batches that are copied."""
    return [step.data for step in steps_of(source, topic) if isinstance(step, Batch)]


def copy_mapped(
    pair: Pair, topic: str, there: str, *, change: Change = list, written: int = 3, former: int = 0, other: int = 0
) -> OffsetMap:
    """Partition 0, with another writer's batches in between; the map of the first ``written`` batches is written down.
    ``former``: a producer id that the flow had before, under which a stray batch comes. ``other``: that of another
    copy, likewise.

    Returns:
        The whole map, as it would be if nothing were changed.
    """
    return asyncio.run(_copy(pair, topic, there, change(due(pair[0], topic)), written, former, other))


async def _copy(
    pair: Pair, topic: str, there: str, batches: Sequence[bytes], written: int, former: int, other: int
) -> OffsetMap:
    owner = producer_id(flow=FLOW, cluster_id=pair[0].cluster_id, topic=topic, partition=0)
    side, order = Subject(topic, 0, there), Order(1, owner, 0)
    offsets = OffsetMap()
    async with await Cluster.open("destination", ClusterOptions(bootstrap=addresses(pair[1]))) as opened:
        state = InternalTopic(opened, FLOW)
        await state.open()
        await opened.refresh([there])
        leader = opened.leader(there, 0)
        assert leader is not None
        log = PartitionLog(opened, opened.topics[there], 0, leader)
        identity = Identity(owner, 0, 0)
        for index, raw in enumerate(batches):
            if index % 3 == 1:
                await log.produce(kafka_batch())
            header = BatchHeader.read(raw)
            stamped = restamp(header, identity, header.attributes & ~TRANSACTIONAL).pack() + raw[HEADER_SIZE:]
            base = await log.produce(stamped)
            if header.base_offset >= offsets.source_end:
                offsets.append(header.base_offset, base, header.last_offset_delta + 1)
            identity = identity.after(header.last_offset_delta + 1)
            if (former or other) and not index:
                await log.produce(restamp(header, Identity(former or other, 0, 0), 0).pack() + raw[HEADER_SIZE:])
            if index == written - 1:
                await state.save(
                    [
                        Checkpoint(
                            subject=side, writer="w", order=order, source_offset=offsets.source_end, source_epoch=-1,
                            destination_offset=offsets.destination_end, identity=identity,
                            own=(former, owner) if former else (),
                        ),
                        MapChunk(subject=side, writer="w", order=order, number=0, since=0, map=OffsetMap(offsets)),
                    ]
                )  # fmt: skip
    return offsets


def put_stray(pair: Pair, there: str, raw: bytes, owner: int, partition: int = 0) -> None:
    """A batch at the end of the partition, under this producer id."""

    async def produced() -> None:
        async with await Cluster.open("destination", ClusterOptions(bootstrap=addresses(pair[1]))) as opened:
            await opened.refresh([there])
            leader = opened.leader(there, partition)
            assert leader is not None
            header = BatchHeader.read(raw)
            log = PartitionLog(opened, opened.topics[there], partition, leader)
            await log.produce(restamp(header, Identity(owner, 0, 0), 0).pack() + raw[HEADER_SIZE:])

    asyncio.run(produced())


def request(pair: Pair, *topics: str) -> AuditRequest:
    """Copies are in topics of other names."""
    return AuditRequest(
        flow=FLOW, source=endpoint(pair[0], "source"), destination=endpoint(pair[1], "destination"), topics=topics,
        catch_up_s=0, offsets="mapped", rename=lambda name: f"{name}-there",
    )  # fmt: skip


def of(result: AuditResult, topic: str) -> list[Finding]:
    """One topic's findings."""
    return [finding for finding in result.findings if finding.topic == topic]


@pytest.mark.broker
@pytest.mark.spark
def test_copies_with_offsets_of_their_own(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    spark: SparkSession,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One untouched topic, and one for each damage; the untouched one once more in many ranges."""
    pair = source_cluster, destination_cluster
    names = "same", "lost", "value", "twice", "stray", "misrouted", "front", "behind", "spare", "absent"
    topics = {name: f"{topic_name}-{name}" for name in names}
    for topic in topics.values():
        create(pair[0], topic)
        create(pair[1], f"{topic}-there", partitions=3 if topic == topics["spare"] else 1)
    transactions(pair[0], *topics.values(), codec="none")
    topics["empty"] = f"{topic_name}-empty"  # the source has nothing there, and so the flow no map
    create(pair[0], topics["empty"])
    create(pair[1], f"{topics['empty']}-there")
    raw = due(pair[0], topics["value"])
    changed = edited(raw[1], at=raw[1].index(b"plain"))
    changes: dict[str, Change] = {
        "same": list,
        "lost": lambda found: [*found[:1], *found[2:]],
        "value": lambda found: [found[0], changed, *found[2:]],
        "twice": lambda found: [found[0], found[0], *found[1:]],
        "stray": list,
        "misrouted": list,
        "front": list,
        "behind": list,
        "spare": list,
    }
    same = producer_id(flow=FLOW, cluster_id=pair[0].cluster_id, topic=topics["same"], partition=0)
    put_stray(pair, f"{topics['front']}-there", raw[0], same)
    maps = {
        name: copy_mapped(
            pair,
            topics[name],
            f"{topics[name]}-there",
            change=change,
            former=MIRROR_BIT | 7 if name == "stray" else 0,
            other=same if name == "misrouted" else 0,
        )
        for name, change in changes.items()
    }
    for name in ("behind", "empty"):
        put_stray(pair, f"{topics[name]}-there", raw[0], same)
    put_stray(pair, f"{topics['spare']}-there", raw[0], same, partition=1)
    put_stray(pair, f"{topics['spare']}-there", raw[0], 77, partition=2)  # somebody else's
    result = job.run(request(pair, *topics.values()), spark=spark)
    assert result.renamed[topics["same"]] == f"{topics['same']}-there"

    assert of(result, topics["same"]) == []
    for name in ("front", "behind", "empty", "spare"):
        (alien,) = of(result, topics[name])
        assert (alien.kind, alien.batches) == (Kind.EXTRA, 1), name
        assert alien.partition == (1 if name == "spare" else 0)
        assert "other partitions' copies" in alien.detail
    sides = {
        side: next(row for row in result.coverage if (row.topic, row.side) == (topics["same"], side)) for side in Side
    }
    assert sides[Side.SOURCE].records == sides[Side.DESTINATION].records == 20

    (lost,) = of(result, topics["lost"])
    second = BatchHeader.read(due(pair[0], topics["lost"])[1])
    assert (lost.kind, lost.source) == (Kind.MISSING, Span(second.base_offset, second.next_offset))

    (value,) = of(result, topics["value"])
    here = BatchHeader.read(raw[1])
    there = maps["value"].to_destination(here.base_offset)
    assert there is not None
    assert (value.kind, value.source) == (Kind.VALUE_CHANGED, Span(here.base_offset, here.next_offset))
    assert value.destination == Span(there.offset, there.offset + here.last_offset_delta + 1)

    (twice,) = of(result, topics["twice"])
    assert twice.kind is Kind.EXTRA
    assert "offset map does not have" in twice.detail

    (stray,) = of(result, topics["stray"])
    assert stray.kind is Kind.EXTRA
    assert "offset map does not have" in stray.detail

    (misrouted,) = of(result, topics["misrouted"])
    assert misrouted.kind is Kind.EXTRA
    assert "offset map does not have" in misrouted.detail

    (absent,) = of(result, topics["absent"])
    assert (absent.kind, absent.source and absent.source.start) == (Kind.MISSING, 0)

    monkeypatch.setattr(plan, "LEAST_TASK_BYTES", 1)
    monkeypatch.setattr(plan, "TASK_BYTES", 200)
    monkeypatch.setattr(plan, "CHUNK_BYTES", 100)
    assert job.run(request(pair, topics["same"]), spark=spark).identical
    unwritten = job.run(replace(request(pair, topics["same"]), flow="another->flow"), spark=spark)
    assert [finding.kind for finding in unwritten.findings] == [Kind.MISSING]


def test_findings_get_the_offsets_of_the_destination() -> None:
    """Those of a mapped partition that are about the destination; others stay as they are."""
    there = mapped.MappedPartition("there", OffsetMap([Run(0, 100, 5), Run(5, 200, 5)]), Span(100, 205), (7,))
    plain = Finding(
        kind=Kind.MOVED, topic="t", partition=0, source=Span(0, 5), destination=Span(5, 8), batches=1, records=3,
        detail="",
    )  # fmt: skip
    others = [replace(plain, destination=None), replace(plain, partition=1), replace(plain, partition=None)]
    found = mapped.at_destination([plain, *others], {TopicPartition("t", 0): there})
    assert found == [replace(plain, destination=Span(200, 203)), *others]


async def test_batches_that_the_map_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Own ones, and those of other copies, without markers and what lies behind; not more than so many bytes, and a
    note says where nobody looked."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        for producer, attributes in ((1, 0), (2, 0), (9, 0), (1, 0x20), (1, 0), (1, 0)):
            fake.store(
                "t", 0, raw_batch(b"x" * 50, base_offset=fake.log("t").end, producer_id=producer, attributes=attributes)
            )
        async with await Cluster.open("fake", fake.options()) as cluster:
            await cluster.refresh(["t"])
            log = mapped._log(cluster, "t", 0)

            async def strays(end: int, *noted: str) -> list[tuple[Kind, Span | None, int, int]]:
                found = await mapped._strays(TopicPartition("s", 3), log, Span(0, end), [1], [2])
                assert found.notes == [*noted]
                return [(one.kind, one.destination, one.batches, one.records) for one in found.findings]

            extra = (Kind.EXTRA, Span(5, 10), 1, 5)
            assert await strays(30) == [(Kind.UNVERIFIABLE, Span(0, 30), 3, 15), extra]
            assert await strays(25) == [(Kind.UNVERIFIABLE, Span(0, 25), 2, 10), extra]
            assert await strays(0) == []
            monkeypatch.setattr(mapped, "READ_BYTES", 111)
            monkeypatch.setattr(mapped, "MOST_OUTSIDE_BYTES", 112)
            left = (
                "t-0 at fake: outside of the offset map, batches of the flow were looked for in the first 0.0 GiB of "
                "what is there; offsets 10 to {} were not looked at"
            )
            first = (Kind.UNVERIFIABLE, Span(0, 5), 1, 5)
            assert await strays(30, left.format(29)) == [first, extra]
            assert await strays(10) == [first, extra], "all of it"


async def test_where_batches_outside_of_the_map_cannot_be_read() -> None:
    """
    1. Another writer's batch is damaged: what stands in front of it is looked at, and a note says that the rest is not.
       So it is if the broker cannot read its log there.
    2. The broker shows less than before: nothing is concluded. 3. It has more, and shows nothing of it: a note.
    """
    async with FakeCluster() as fake:
        fake.add_topic("t")
        log = fake.log("t")
        for producer in (1, 9, 1):
            fake.store("t", 0, raw_batch(b"x" * 50, base_offset=log.end, producer_id=producer))
        whole = list(log.batches)
        async with await Cluster.open("fake", fake.options()) as cluster:
            await cluster.refresh(["t"])

            async def strays() -> mapped.Strays:
                return await mapped._strays(TopicPartition("s", 3), mapped._log(cluster, "t", 0), Span(0, 15), [1], [2])

            log.batches[1] = whole[1][:-1] + bytes([whole[1][-1] ^ 1])
            found = await strays()
            assert [(one.kind, one.destination) for one in found.findings] == [(Kind.UNVERIFIABLE, Span(0, 5))]
            assert re.search(r"offsets 5 to 14 were not looked at; .*t-0 at 5: ", found.notes[0])
            log.batches[:] = whole
            for _ in range(2):
                fake.next("Fetch", refuse(ErrorCode.CORRUPT_MESSAGE))
            found = await strays()
            assert found.findings == []
            assert "offsets 0 to 14 were not looked at; fake: Fetch of t-0 at 0: CORRUPT_MESSAGE" in found.notes[0]
            log.hidden = 10
            with pytest.raises(Unreachable, match="t-0 at fake ends at 15, and is to be read to 5 only"):
                await strays()
            log.hidden = 0
            del log.batches[1:]
            found = await strays()
            assert [(one.kind, one.destination) for one in found.findings] == [(Kind.UNVERIFIABLE, Span(0, 5))]
            assert "offsets 5 to 14 were not looked at; the broker shows nothing from 5 on" in found.notes[0]


async def test_damage_that_was_none_does_not_make_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: what that answer had is read batch by batch, the rest as before. Mutation: all that follows, too."""

    def flip(answer: Any) -> None:
        found = answer.responses[0].partitions[0]
        found.records = found.records[:-1] + bytes([found.records[-1] ^ 1])

    async with FakeCluster() as fake:
        fake.add_topic("t")
        for _ in range(10):
            fake.store("t", 0, raw_batch(b"x" * 50, base_offset=fake.log("t").end, producer_id=1))
        async with await Cluster.open("fake", fake.options()) as cluster:
            await cluster.refresh(["t"])
            monkeypatch.setattr(mapped, "READ_BYTES", 2 * len(fake.log("t").batches[0]))
            fake.next("Fetch", alter(flip))
            log = mapped._log(cluster, "t", 0)
            found = await mapped._strays(TopicPartition("s", 3), log, Span(0, 50), [1], [2])
            assert [(one.destination, one.batches) for one in found.findings] == [(Span(0, 50), 10)]
            assert found.notes == []
            assert len(fake.seen("Fetch")) == 1 + 2 + 4


async def test_an_offset_map_that_its_broker_cannot_read() -> None:
    """No right would help."""
    async with FakeCluster() as fake, await Cluster.open("fake", fake.options()) as cluster:
        state = InternalTopic(cluster, FLOW)
        await state.open()
        await state.save([Pin(subject=Subject("t", 0, "t"), source_id=None, destination_id=None)])
        fake.next("Fetch", refuse(ErrorCode.CORRUPT_MESSAGE))
        with pytest.raises(AuditError, match=r"cannot be read: .*CORRUPT_MESSAGE") as raised:
            await mapped._is_written(InternalTopic(cluster, FLOW), cluster)
        assert "see that broker's log and disk" in raised.value.remedy


def test_ids_of_copies_that_are_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is excluded by now was copied elsewhere: a batch under its id, between the copies of another topic,
    is the flow's. Mutation: only ids of what is audited."""
    asked = AuditRequest(
        flow=FLOW, source=Mock(), destination=Mock(), topics=("t",), offsets="mapped", rename=str, catch_up_s=0
    )  # fmt: skip
    key, source = TopicPartition("t", 0), Mock(cluster_id="c")
    ledger = Mock(subjects=[Subject("t", 0, "t"), Subject("old", 0, "old")], own=lambda _: {77})
    state = Mock(ledger=ledger, open=AsyncMock(return_value=True))
    monkeypatch.setattr(mapped, "InternalTopic", lambda *_: state)
    monkeypatch.setattr(mapped, "_freeze", AsyncMock())
    monkeypatch.setattr(mapped, "_in_spare", AsyncMock(return_value=[]))
    found = asyncio.run(mapped.freeze_mapped(source, Mock(), {key: 0}, {key: 9}, asked))
    ids = {producer_id(flow=FLOW, cluster_id="c", topic=topic, partition=0) for topic in ("t", "old")}
    assert found.flow_ids == ids | {77}
