"""What scripted brokers answer before anything is read, and while it is: bounds, estimates, filler, and starts."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mirror.audit import job
from mirror.audit.errors import AuditError
from mirror.audit.judge.mapped import MappedPartition
from mirror.audit.model.findings import Kind
from mirror.audit.model.places import Bounds, Side, Span, TopicPartition
from mirror.audit.model.request import AuditRequest
from mirror.audit.prepare.bounds import Frozen, freeze, outside
from mirror.audit.prepare.estimate import estimates
from mirror.audit.prepare.leading import VisibleFiller, visible_filler
from mirror.audit.prepare.moving import LogsMoved, Scope
from mirror.audit.prepare.offsets import EARLIEST
from mirror.audit.prepare.plan import Range
from mirror.net.cluster import Cluster
from mirror.net.errors import Unreachable, Unreadable
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.starting import StartingOffset
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.filler import filler_batch, filler_id
from mirror.wire.errors import ErrorCode
from tests.audit.clusters import faked
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import Fault, refuse
from tests.records.builders import raw_batch

FLOW = "west->east"
KEY = TopicPartition("t", 0)


def batches(count: int, start: int = 0, size: int = 50) -> list[bytes]:
    """Of five records each."""
    return [raw_batch(bytes(size), base_offset=start + 5 * at, leader_epoch=0) for at in range(count)]


def request(west: FakeCluster, east: FakeCluster, *topics: str) -> AuditRequest:
    """Without waiting for a mirror that does not run."""
    return AuditRequest(flow=FLOW, source=faked(west), destination=faked(east), topics=topics, catch_up_s=0)


async def frozen(west: FakeCluster, east: FakeCluster, *topics: str) -> Frozen:
    """As an audit begins."""
    async with (
        await Cluster.open(west.name, west.options()) as source,
        await Cluster.open(east.name, east.options()) as destination,
    ):
        return await freeze(source, destination, request(west, east, *topics))


async def test_bounds() -> None:
    """The destination of one is behind, that of another beyond, and so are partitions that only one side has; of those,
    an empty one at the destination is nothing."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        west.add_topic("t", partitions=3)
        east.add_topic("t", partitions=5)
        west.add_topic("absent")
        for partition, (here, there) in enumerate(((4, 4), (4, 3), (3, 4), (0, 0), (0, 2))):
            east.store("t", partition, *batches(there))
            if partition < 3:
                west.store("t", partition, *batches(here))
        east.log("t", 3).start = 7  # deleted between two questions: beyond its end
        found = await frozen(west, east, "t", "absent")
        assert [(each.source, each.destination) for each in found.bounds] == [
            (Span(0, 20), Span(0, 20)), (Span(0, 20), Span(0, 15)), (Span(0, 15), Span(0, 20)),
        ]  # fmt: skip
        assert [(one.kind, one.topic, one.partition, one.destination) for one in found.findings] == [
            (Kind.ABSENT, "absent", None, None), (Kind.EXTRA, "t", 4, Span(0, 10)),
        ]  # fmt: skip


async def test_the_result_says_what_was_asked_and_of_which_topics() -> None:
    """Both are in the certificate. There is nothing to read, so nothing but brokers is needed."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        ids = [str(fake.add_topic("t").topic_id).replace("-", "") for fake in (west, east)]
        asked = replace(request(west, east, "t"), fill="transaction")
        result = await asyncio.to_thread(job.run, asked)
    assert result.fill == "transaction"
    assert result.topic_ids == {Side.SOURCE: {"t": ids[0]}, Side.DESTINATION: {"t": ids[1]}}


async def test_what_was_copied_meanwhile_is_not_extra() -> None:
    """The destination is beyond the source's frozen end: that end has moved since, and the rest is not audited."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t", partitions=2)
        for partition in range(2):
            west.store("t", partition, *batches(3))
            east.store("t", partition, *batches(4))

        async with (
            await Cluster.open("west", west.options()) as source,
            await Cluster.open("east", east.options()) as destination,
        ):
            asked = destination.call

            async def call(message: object, *, node_id: int) -> object:
                if len(west.log("t", 0).batches) == 3 and "ListOffsets" in type(message).__name__:
                    west.store("t", 0, *batches(1, start=15))
                return await asked(message, node_id=node_id)

            destination.call = call  # type: ignore[method-assign, assignment]
            found = await freeze(source, destination, request(west, east, "t"))
        assert [(each.source, each.destination) for each in found.bounds] == [
            (Span(0, 15), Span(0, 15)), (Span(0, 15), Span(0, 20)),
        ]  # fmt: skip


async def test_a_topic_that_has_an_error_of_its_own() -> None:
    """It is not absent: the audit ends."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        west.add_topic("t").error = ErrorCode.UNKNOWN_SERVER_ERROR
        east.add_topic("t")
        with pytest.raises(AuditError, match="topic t of cluster west: "):
            await frozen(west, east, "t")


async def test_topics_of_a_pattern_that_have_an_error() -> None:
    """
    1. One is listed at the source with an error that says that it is there: it is not left out.
    2. One may not be described at the destination: that is no topic that is missing there. One that is not there is.
    3. Another error: the audit ends.
    """
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for name in ("t", "denied", "lost", "other"):
            west.add_topic(name)
        for name in ("t", "denied"):
            east.add_topic(name)
        east.topics["denied"].error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        west.topics["other"].error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        west.add_topic("__internal").error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        asked = replace(request(west, east), selects=lambda name: name != "excluded")
        async with (
            await Cluster.open("west", west.options()) as source,
            await Cluster.open("east", east.options()) as destination,
        ):
            found = await freeze(source, destination, asked)
            assert sorted((one.topic, one.kind) for one in found.findings) == [
                ("denied", Kind.ABSENT), ("lost", Kind.MISSING), ("other", Kind.ABSENT),
            ]  # fmt: skip
            east.topics["denied"].error = ErrorCode.UNKNOWN_SERVER_ERROR
            with pytest.raises(AuditError, match="topic denied of cluster east: "):
                await freeze(source, destination, asked)


async def test_estimates() -> None:
    """From samples of each partition; of one that cannot be sampled, a guess; of an empty one, nothing."""
    async with FakeCluster("west", brokers=2) as west:
        west.add_topic("t", partitions=4)
        small, large = batches(20), batches(20, size=5_000)
        west.store("t", 0, *small)
        west.store("t", 1, *large)
        await west.stop(2)
        west.log("t", 1).leader = 1
        bounds = [
            Bounds(topic="t", partition=at, source=span, destination=span)
            for at, span in enumerate((Span(0, 100), Span(0, 100), Span(0, 0), Span(0, 100)))
        ]
        async with await Cluster.open("west", west.options()) as cluster:
            await cluster.refresh(["t"])
            found = await estimates(cluster, "audit", bounds)
        assert [each.span for each in found] == [each.audited for each in bounds]
        sizes = [sum(map(len, small)), sum(map(len, large)), 0, 100_000]
        assert [each.size for each in found] == [pytest.approx(size, abs=1) for size in sizes]


@pytest.mark.parametrize("filled", [0, 1, 2, 3])
async def test_filler_that_consumers_see(filled: int) -> None:
    """It ends where the copy begins, or where the source's log does; a log without it has none in its middle."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t")
        filler = filler_id(flow=FLOW, cluster_id=west.cluster_id, topic="t", partition=0)
        for _ in range(filled):
            east.log("t").produce(filler_batch(producer=filler, offset=east.log("t").end, count=20, timestamp=0))
        east.log("t").produce(raw_batch(b"copy", last_offset_delta=39))
        end = east.log("t").end
        bounds = Bounds(topic="t", partition=0, source=Span(50, 90), destination=Span(0, end))
        async with await Cluster.open("east", east.options()) as destination:
            await destination.refresh(["t"])
            found = await visible_filler(destination, [bounds], flow=FLOW, source_cluster_id=west.cluster_id)
        spans = [] if not filled else [Span(0, min(20 * filled, 50))]
        assert [one.destination for one in found.findings] == spans
        assert [one.records for one in found.findings] == [span.offsets for span in spans]
        assert found.notes == []


async def test_what_is_no_filler() -> None:
    """
    1. The first batch is damaged, or its broker cannot read it: that is a note, and no reason to give up the audit.
    2. The log shows less than it did: it is asked again. So it is if nobody leads it.
    """
    async with FakeCluster("east", brokers=2) as east:
        east.add_topic("t")
        filler = filler_id(flow=FLOW, cluster_id="west", topic="t", partition=0)
        log = east.log("t")
        for _ in range(2):
            log.produce(filler_batch(producer=filler, offset=log.end, count=20, timestamp=0))
        whole = log.batches[0]
        bounds = [Bounds(topic="t", partition=0, source=Span(50, 90), destination=Span(0, 40))]
        async with await Cluster.open("east", east.options()) as destination:
            await destination.refresh(["t"])

            async def found() -> VisibleFiller:
                return await visible_filler(destination, bounds, flow=FLOW, source_cluster_id="west")

            log.batches[0] = whole[:-1] + bytes([whole[-1] ^ 1])
            ((), (note,)) = await found()
            assert "t-0 at east: whether leading filler is visible in front of offset 40 is not known: " in note
            log.batches[0] = whole
            east.next("Fetch", refuse(ErrorCode.CORRUPT_MESSAGE))
            ((), (note,)) = await found()
            assert "is not known: east: Fetch of t-0 at 0: CORRUPT_MESSAGE" in note
            log.hidden = 20
            with pytest.raises(Unreachable, match=r"t-0 at east ends at 40, and is to be read to 20 only"):
                await found()
            log.hidden = 0
            assert [one.destination for one in (await found()).findings] == [Span(0, 40)]
            east.lead("t", 0, 2)
            await east.stop(2)
            await destination.refresh(["t"])
            with pytest.raises(Unreachable, match="topic t partition 0 has no leader; check"):
                await found()


async def started(west: FakeCluster, east: FakeCluster, *offsets: int) -> None:
    """Writes down that the copies of these partitions begin at these offsets."""
    async with await Cluster.open("east", east.options()) as destination:
        state = InternalTopic(destination, FLOW)
        await state.open()
        await state.save(
            StartingOffset(
                subject=Subject("t", partition, "t"), writer="stalled", source_id=None, offset=offset, batch=offset,
                leader_epoch=0, start_from="latest",
            )
            for partition, offset in enumerate(offsets)
        )  # fmt: skip


async def test_a_starting_offset_that_came_late() -> None:
    """
    1. The copy begins at the offset that is decided upon, is not begun, has only filler so far, or filler in front of
       it, also if more of that comes meanwhile: what is before that offset is not audited.
    2. Somebody has begun in front of it; a worker that had lost the partition wrote the decision down late. It does not
       count: all is audited. So it is if filler of an earlier start stands in front of those copies, or damage, or what
       its broker cannot read.
    """
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t", partitions=9)
        filler = {
            at: filler_id(flow=FLOW, cluster_id=west.cluster_id, topic="t", partition=at) for at in range(9)
        }  # fmt: skip

        def fill(partition: int, count: int) -> None:
            log = east.log("t", partition)
            log.produce(filler_batch(producer=filler[partition], offset=log.end, count=count, timestamp=0))

        def fills(request: Any) -> bool:
            if asks(request) != 8:
                return False
            fill(8, 20)
            return True

        def asks(request: Any) -> int:
            partition: int = request.topics[0].partitions[0].partition
            return partition

        for partition in range(9):
            west.store("t", partition, *batches(20))
        east.store("t", 0, *batches(10, start=50))
        east.log("t", 0).delete_before(50)
        fill(2, 20)
        fill(3, 50)
        east.store("t", 3, *batches(10, start=50))
        east.store("t", 4, *batches(20))
        fill(5, 20)
        east.store("t", 5, *batches(16, start=20))
        east.store("t", 6, *batches(20))
        torn = bytearray(east.log("t", 6).batches[0])
        torn[-1] ^= 1
        east.log("t", 6).batches[0] = bytes(torn)
        east.store("t", 7, *batches(20))
        fill(8, 20)
        await started(west, east, *[50] * 9)
        east.next("Fetch", Fault(error=ErrorCode.CORRUPT_MESSAGE, when=lambda request: asks(request) == 7))
        east.next("Fetch", Fault(when=fills))
        found = await frozen(west, east, "t")
        assert [each.source.start for each in found.bounds] == [50, 50, 50, 50, 0, 0, 0, 0, 50]
        assert [(one.key.partition, one.span) for one in found.begun] == [(at, Span(0, 50)) for at in (0, 1, 2, 3, 8)]


async def test_a_starting_offset_and_a_log_that_shows_nothing() -> None:
    """Nobody knows whether the copy begins in front of it: it is asked again."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t")
            fake.store("t", 0, *batches(20))
        await started(west, east, 50)
        east.log("t").batches.clear()
        with pytest.raises(Unreachable, match=r"t-0 .*shows nothing from offset 0 on"):
            await frozen(west, east, "t")


async def test_a_starting_offset_and_a_broker_that_fails_for_once() -> None:
    """That says nothing about the log."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t", partitions=2)
            fake.store("t", 1, *batches(20))
        await started(west, east, 50, 50)

        def is_it(request: Any) -> bool:
            partition: int = request.topics[0].partitions[0].partition
            return partition == 1

        east.next("Fetch", Fault(error=ErrorCode.UNKNOWN_SERVER_ERROR, when=is_it))
        with pytest.raises(Unreadable):
            await frozen(west, east, "t")


@pytest.mark.parametrize("frozen_first", [False, True])
async def test_retention_at_both_sides_between_the_questions(frozen_first: bool) -> None:
    """Each side has deleted the same when the destination is asked for the first time; ``frozen_first``: for the first
    time since the source's start is frozen. Nothing is missing. One offset that only the destination has deleted is.
    Mutations: the source is frozen before the starting offsets are looked at; its start is not asked for again."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t", partitions=2)
            for partition in range(2):
                fake.store("t", partition, *batches(20))

        def deletes(_: Any) -> bool:
            for fake in (west, east):
                fake.log("t").delete_before(20)
            east.log("t", 1).delete_before(5)
            for fake in (west, east):
                fake.store("t", 0, *batches(1, start=100))
            return True

        def is_frozen(request: Any) -> bool:
            if request.topics[0].partitions[0].timestamp != EARLIEST:
                return False
            east.next("ListOffsets", Fault(when=deletes))
            return True

        await started(west, east, 0, 0)
        if frozen_first:
            west.next("ListOffsets", Fault(when=is_frozen))
        else:
            east.next("ListOffsets", Fault(when=lambda request: request.topics[0].name == "t" and deletes(request)))
        found = await frozen(west, east, "t")
        told = [(one.kind, one.partition, one.source) for known in found.bounds for one in outside(known, "a", "b")]
        assert told == [(Kind.MISSING, 1, Span(0, 5))]
        end = 100 if frozen_first else 105
        assert [(each.source, each.destination) for each in found.bounds] == [
            (Span(20, end), Span(20, end)), (Span(0, 100), Span(5, 100)),
        ]  # fmt: skip


async def test_starting_offsets_cost_no_question_each() -> None:
    """Where nothing stands in front of the offset, nothing is read; starts and ends are asked for together."""
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake in (west, east):
            fake.add_topic("t", partitions=60)
        for partition in range(60):
            west.store("t", partition, *batches(2))
            east.store("t", partition, *batches(2))
        await started(west, east, *[0] * 58, 5, 5)
        east.log("t", 58).delete_before(5)
        found = await frozen(west, east, "t")
        assert [each.source.start for each in found.bounds] == [0] * 58 + [5, 0]
        fetched = {
            partition.partition
            for seen in east.seen("Fetch")
            for topic in seen.request.topics
            for partition in topic.partitions
        }
        assert fetched - {0} == {59}, "0: the internal topic, too"
        asked = [topic.name for seen in east.seen("ListOffsets") for topic in seen.request.topics]
        assert asked.count("t") == 6, "three pairs of starts and ends"


@pytest.mark.parametrize("mapped", [False, True])
async def test_logs_that_begin_later_by_now(mapped: bool) -> None:
    """
    1. Nothing was deleted since the bounds were frozen. 2. The source has deleted; it is seen in what was examined.
    3. The destination has. What only it has deleted is lost, if the source still has it.
    """
    shift = 100 if mapped else 0
    async with FakeCluster("west") as west, FakeCluster("east") as east:
        for fake, ahead in ((west, 0), (east, shift)):
            fake.add_topic("t")
            fake.store("t", 0, *batches(20, start=ahead))
            fake.log("t").delete_before(5 + ahead)
        known = Bounds(topic="t", partition=0, source=Span(5, 100), destination=Span(5, 100))
        runs = OffsetMap([Run(at, at + shift, 5) for at in range(5, 100, 5)])
        place = MappedPartition("t", runs, Span(5 + shift, 100 + shift), (1,))
        base = Frozen(
            source_cluster_id="", destination_cluster_id="", bounds=(known,), findings=(), source_topic_ids={},
            destination_topic_ids={}, mapped={KEY: place} if mapped else {},
        )  # fmt: skip
        whole = Range("t", 0, 5, 100, True, 10)
        asked = replace(request(west, east), offsets="mapped" if mapped else "exact")
        scope = Scope(base, {KEY: [whole]}, asked)
        assert await scope.ends_now([KEY]) == {side: {KEY: 100} for side in Side if side is Side.SOURCE or not mapped}
        await scope.check([whole])
        west.log("t").delete_before(10)
        with pytest.raises(LogsMoved) as moved:
            await scope.check([whole])
        assert moved.value.starts == {Side.SOURCE: {KEY: 10}, Side.DESTINATION: {}}
        await scope.check([whole._replace(start=10)])
        east.log("t").delete_before(20 + shift)
        with pytest.raises(LogsMoved) as moved:
            await scope.check([whole._replace(start=15)])
        assert moved.value.starts == {Side.SOURCE: {}, Side.DESTINATION: {KEY: 20 + shift}}
        assert await scope.lost() == []
        scope._starts[Side.DESTINATION][KEY] = 20 + shift
        assert [(one.kind, one.source) for one in await scope.lost()] == [(Kind.MISSING, Span(10, 20))]
        gone = f"{5 + shift} to {19 + shift}"
        assert scope.notes == [
            f"t partition 0: east deleted offsets {gone} while the audit ran; what follows was compared"
        ]
