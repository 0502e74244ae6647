"""The relay's life, between two fake clusters: what is copied, what is found later, how it ends."""

import asyncio
import re
from typing import Any

import pytest

from mirror.net.errors import Unsupported
from mirror.offsetmap.internal.ledger import Ledger
from mirror.relay.partition.phases import Phase
from mirror.relay.relay import NothingToMirror, SameCluster
from mirror.wire.errors import ErrorCode
from mirror.wire.versions import FETCH_VERSIONS, PRODUCE_VERSIONS
from tests.fakes import faults
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import batch, batches, clusters, copies, mirroring

# Copying.


async def test_copies_everything_and_goes_on() -> None:
    """
    1. Two topics, several partitions (one of them empty) on two brokers each side: all copied, offsets kept.
    2. More is written at the source: it follows.
    """
    async with clusters(brokers=2) as (source, destination):
        for name, partitions in (("a", 3), ("b", 2)):
            source.add_topic(name, partitions=partitions)
        for index in range(3):
            source.store("a", index, *batches(20 * index))
        source.store("b", 1, *batches(7, size=3000))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            source.store("a", 0, *batches(3))
            source.store("a", 2, *batches(2, first=120))
            await flow.copied()
            assert flow.relay.states == {"active": 5}
            assert flow.relay.lag_records == 0
            assert flow.copied_batches == 20 + 40 + 7 + 3 + 2
            assert flow.relay.rewriter.opened == {}
            assert not flow.relay.halted


@pytest.mark.parametrize("version", range(FETCH_VERSIONS[0], FETCH_VERSIONS[1] + 1))
async def test_every_fetch_version(version: int) -> None:
    async with clusters() as (source, destination):
        source.versions["Fetch"] = (3, version)
        source.add_topic("t", partitions=2)
        for index in range(2):
            source.store("t", index, *batches(9))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert {seen.version for seen in source.seen("Fetch")} == {version}


@pytest.mark.parametrize("version", range(PRODUCE_VERSIONS[0], PRODUCE_VERSIONS[1] + 1))
async def test_every_produce_version(version: int) -> None:
    async with clusters() as (source, destination):
        destination.versions["Produce"] = (3, version)
        source.add_topic("t", partitions=2)
        for index in range(2):
            source.store("t", index, *batches(9), batch(27, payload=bytes(70_000)))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert {seen.version for seen in destination.seen("Produce")} == {version}


async def test_clusters_without_topic_ids() -> None:
    """Before Kafka 2.8 topics have no ids: Fetch and Produce go by name, whatever else the brokers speak."""
    old = {"Metadata": (0, 9)}
    for versions, there in ((old, {}), ({}, old)):
        async with clusters(versions=versions, there=there) as (source, destination):
            source.add_topic("t")
            source.store("t", 0, *batches(4))
            async with mirroring(source, destination) as flow:
                await flow.copied()
            assert destination.seen("Produce")[0].version == (13 if versions else 12)
            assert source.seen("Fetch")[-1].version == (12 if versions else 17)


async def test_resumes_where_the_destination_ends() -> None:
    """What is there already is neither fetched for copying nor sent again."""
    async with clusters() as (source, destination):
        stored = batches(10)
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *stored)
        for one in copies(stored[:6], cluster_id=source.cluster_id):
            assert destination.log("t").produce(one)[0] == 0
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert flow.copied_batches == 4
            assert flow.log.of("located")[0]["offset"] == 18


async def test_lag() -> None:
    """What the source has and the destination has not acknowledged, also while nothing can be sent."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(5))
        held = destination.next("Produce", faults.held())
        async with mirroring(source, destination) as flow:
            await held.came.wait()
            assert flow.relay.lag_records == 15
            held.open()
            await flow.copied()
            assert flow.relay.lag_records == 0


# What there is to mirror.


async def test_the_same_cluster() -> None:
    async with clusters() as (source, _):
        source.add_topic("t")
        async with mirroring(source, source, start=False) as flow:
            with pytest.raises(SameCluster, match=f"same cluster .{source.cluster_id}.*check bootstrap.servers"):
                await flow.relay.start()


async def test_nothing_to_mirror() -> None:
    async with clusters() as (source, destination):
        source.add_topic("other")
        source.add_topic("__consumer_offsets", internal=True)
        async with mirroring(
            source,
            destination,
            start=False,
            selects=lambda name: name != "other",
            wanted={entry: re.compile(entry).fullmatch for entry in ("orders", "pay.*")},
        ) as flow:
            with pytest.raises(NothingToMirror, match=r"no topic of cluster source matches orders, pay\.\*; check"):
                await flow.relay.start()


async def test_some_patterns_find_nothing() -> None:
    """A name that no topic has is told, with what to do; the others are mirrored, and it too once it is there."""
    async with clusters() as (source, destination):
        source.add_topic("orders")
        source.store("orders", 0, *batches(2))
        wanted = {entry: re.compile(entry).fullmatch for entry in ("orders", "paymnets", r"log\..*")}
        async with mirroring(source, destination, wanted=wanted, refresh_topics_interval_ms=5) as flow:
            await flow.copied()
            lines = flow.log.of("topic_unknown")
            assert [line["pattern"] for line in lines] == ["paymnets", r"log\..*"]
            assert all("source" in line["detail"] and line["remedy"] for line in lines)
            assert flow.relay.refresh.unmatched == ["paymnets", r"log\..*"]
            source.add_topic("log.a")
            source.store("log.a", 0, *batches(1))
            await flow.copied()
            assert len(flow.log.of("topic_unknown")) == 2
            assert flow.relay.refresh.unmatched == ["paymnets"]


async def test_a_topic_that_is_gone() -> None:
    """
    1. Two topics that a pattern has matched are deleted, and one that is named: the two are shown, until the copy of
       one of them is deleted, too; the other is also shown by a mirror that starts later.
    2. Once it is excluded, or its copy is deleted, or it is back, it is not.
    """
    names = ("log.a", "log.b", "orders")
    async with clusters() as (source, destination):
        for name in names:
            source.add_topic(name)
            source.store(name, 0, *batches(2))
        source.add_topic("log.c")
        source.store("log.c", 0, *batches(1))
        settings: dict[str, Any] = {
            "wanted": {entry: re.compile(entry).fullmatch for entry in (r"log\..*", "orders")},
            "refresh_topics_interval_ms": 5,
        }
        gone = {}
        async with mirroring(source, destination, **settings) as flow:
            await flow.copied()
            assert await flow.relay.drain()
        async with mirroring(source, destination, **settings) as flow:
            await flow.copied()
            for name in names:
                gone[name] = source.topics.pop(name)
            # A copy that is deleted while a look is under way, which has seen the topic at the source, is made again.
            await until(lambda: flow.relay.topics.gone.shown == ["log.a", "log.b"])
            del destination.topics["log.b"]
            await until(lambda: flow.relay.topics.gone.shown == ["log.a"])
            await until(lambda: len(flow.log.of("topic_gone")) == 3)
        async with mirroring(source, destination, **settings) as flow:
            assert flow.relay.topics.gone.shown == ["log.a"]
            assert not flow.log.of("topic_gone")
            source.topics["log.a"] = gone["log.a"]
            await until(lambda: not flow.relay.topics.gone.shown)
            await flow.copied()
            del source.topics["log.a"]
            await until(lambda: flow.relay.topics.gone.shown == ["log.a"])
        async with mirroring(source, destination, selects=lambda name: name != "log.a", **settings) as flow:
            assert not flow.relay.topics.gone.shown
        async with mirroring(source, destination, **settings) as flow:
            assert flow.relay.topics.gone.shown == ["log.a"]
            del destination.topics["log.a"]
            await until(lambda: not flow.relay.topics.gone.shown)


async def test_a_topic_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken away: what was written down is not looked at, and a start knows of no topic that is gone."""
    monkeypatch.setattr(Ledger, "known", frozenset())
    with pytest.raises(AssertionError):
        await test_a_topic_that_is_gone()


async def test_new_topics_and_partitions_are_found() -> None:
    """
    1. One topic. Then a second one appears, and the first gets a partition (on both sides).
    2. A refresh finds them; a failed refresh before it is told and tried again.
    """
    async with clusters() as (source, destination):
        first = source.add_topic("a")
        source.store("a", 0, *batches(2))
        async with mirroring(source, destination, refresh_topics_interval_ms=5) as flow:
            await flow.copied()
            # Two: the look for loops asks the same cluster, and tells its failure as its own.
            for _ in range(2):
                source.next("Metadata", faults.disconnect())
            await until(lambda: flow.log.of("topics_not_refreshed"))
            source.add_topic("b")
            source.store("b", 0, *batches(3))
            for cluster in (source, destination):
                cluster.topics["a"].logs[1] = type(first.logs[0])(leader=1)
            source.store("a", 1, *batches(4))
            await flow.copied()
            assert flow.relay.states == {"active": 3}


async def test_no_common_produce_version() -> None:
    async with clusters(versions={"Produce": (14, 20)}) as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination, start=False) as flow:
            with pytest.raises(Unsupported, match=r"has versions 14 to 20 of Produce, and .* needs one of 3 to 13"):
                await flow.relay.start()


async def test_no_common_fetch_version() -> None:
    """Known only at the partition: it halts with a remedy."""
    async with clusters() as (source, destination):
        source.versions["Fetch"] = (18, 20)
        source.add_topic("t")
        destination.add_topic("t")
        stored = batches(1)
        source.store("t", 0, *stored)
        destination.log("t").produce(copies(stored, cluster_id=source.cluster_id)[0])
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "no_common_version"


# Halts leave the others alone.


async def test_a_halted_partition_does_not_stop_the_others() -> None:
    """
    1. Partition 0 has a gap in its middle, partition 1 none.
    2. What lies before the gap is copied and acknowledged first, then 0 halts with reason, place and remedy.
    3. Partition 1 goes on.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        source.store("t", 0, *batches(4), *batches(2, first=13))
        source.store("t", 1, *batches(4))
        async with mirroring(source, destination) as flow:
            assert await flow.halted("t", 0) == "unexplained_gap"
            assert destination.log("t", 0).end == 12
            line = flow.log.of("halted")[0]
            assert (line["topic"], line["partition"]) == ("t", 0)
            assert "offset 12 is due" in line["detail"]
            source.store("t", 1, *batches(3, first=12))
            await flow.copied(("t", 1))
            assert flow.relay.states == {"halted": 1, "active": 1}
            assert [partition.name for partition in flow.relay.halted] == ["t-0"]


async def test_damaged_at_the_source() -> None:
    """A wrong checksum is carried, never repaired: the destination refuses the batch, and the partition halts."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        good, bad, behind = batches(3)
        source.store("t", 0, good, bad[:-1] + b"?", behind)
        source.store("t", 1, *batches(3))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "corrupt"
            assert destination.log("t").end == 3
            await flow.copied(("t", 1))


# The end.


async def test_drain() -> None:
    """
    1. Batches are under way when the drain begins: fetching stops, what was fetched is waited for.
    2. The answers come: drained.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        for index in range(2):
            source.store("t", index, *batches(5))
        held = destination.next("Produce", faults.held())
        async with mirroring(source, destination) as flow:
            await held.came.wait()
            await until(lambda: flow.relay.pending == 10)
            draining = asyncio.create_task(flow.relay.drain())
            await some_turns()
            fetches = len(source.seen("Fetch"))
            assert not draining.done()
            held.open()
            assert await draining
            assert flow.relay.pending == 0
            await flow.copied()
            source.store("t", 0, *batches(1, first=15))
            await some_turns()
            assert len(source.seen("Fetch")) == fetches


async def test_drain_gives_up() -> None:
    """A destination that does not answer: the drain ends in its time, and says so."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(5))
        stuck = destination.next("Produce", faults.silence())
        async with mirroring(source, destination, drain_timeout_ms=30) as flow:
            await stuck.came.wait()
            assert not await flow.relay.drain()
            assert flow.relay.pending


async def test_drain_with_nothing_under_way() -> None:
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            assert await flow.relay.drain()


async def test_drain_does_not_wait_for_doubt() -> None:
    """A partition that falls into doubt while draining is not sought again, and not waited for."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(5))
        held = destination.next("Produce", faults.held())
        held.error = ErrorCode.NOT_ENOUGH_REPLICAS
        async with mirroring(source, destination) as flow:
            await held.came.wait()
            draining = asyncio.create_task(flow.relay.drain())
            await some_turns()
            held.open()
            assert await draining
            assert flow.partition().phase is Phase.LOCATING
            assert destination.log("t").end == 0


@pytest.mark.parametrize("kind", ["Metadata", "ListOffsets", "DescribeProducers", "Fetch", "Produce", "CreateTopics"])
async def test_close_at_any_time(kind: str) -> None:
    """Closed while a request of each kind is unanswered: nothing is left, no task, no frame, no warning."""
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=3)
        for index in range(3):
            source.store("t", index, *batches(9))
        side = source if kind == "Fetch" else destination
        starting: asyncio.Task[Any] | None = None
        async with mirroring(source, destination, start=False) as flow:
            held = side.next(kind, faults.silence())
            starting = asyncio.create_task(flow.relay.start())
            await held.came.wait()
            await some_turns()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert all(partition.phase is Phase.STOPPED for partition in flow.relay.partitions.values())
        assert not len(flow.relay.tasks)


async def test_a_bug_ends_the_relay() -> None:
    """An exception that is none of the expected ones does not vanish in a task: ``failed`` has it."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination, start=False) as flow:

            async def locate(*_: object, **__: object) -> None:
                raise ZeroDivisionError

            flow.relay.locator.locate = locate  # type: ignore[method-assign, assignment]
            await flow.relay.start()
            assert flow.relay.tasks.failed is not None
            with pytest.raises(ZeroDivisionError):
                await flow.relay.tasks.failed
            flow.relay.tasks.failed = None
