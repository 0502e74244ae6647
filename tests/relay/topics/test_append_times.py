"""Destination topics with LogAppendTime in a flow that takes them (``destination.timestamps: append``)."""

import time

import pytest

from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from mirror.relay.hot import freshness
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, batches, clusters, mirroring
from tests.relay.topics.test_verdicts import looked, set_config

TYPE = "message.timestamp.type"


async def through(flow: Flow, count: int) -> list[bool]:
    """Waits until so many batches are copied: whether each has the time of its append. All else of them is the same."""
    here, there = flow.logs()
    await until(lambda: len(there.batches) == count and flow.partition().queue.acknowledged == here.end)
    found = []
    for one, other in zip(here.batches, there.batches, strict=True):
        mine, theirs = BatchHeader.read(one), BatchHeader.read(other)
        assert one[HEADER_SIZE:] == other[HEADER_SIZE:]
        assert theirs.base_offset == mine.base_offset
        found.append(bool(theirs.attributes & LOG_APPEND_TIME))
        assert found[-1] or theirs.max_timestamp == mine.max_timestamp
    return found


@pytest.mark.parametrize("mapped", [False, True])
async def test_it_is_copied(mapped: bool) -> None:
    """Located anew by another worker too, and the configs are not described again for each answer."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t", configs={TYPE: "LogAppendTime"})
        source.store("t", 0, *batches(5))
        for count in (5, 10):
            async with mirroring(source, destination, append_times=True, mapped=mapped) as flow:
                assert await through(flow, count) == [True] * count
                described = len(destination.seen("DescribeConfigs"))
                for number in range(5):
                    source.store("t", 0, batch(3 * (count + number)))
                    await through(flow, count + number + 1)
                assert not looked(destination, described)
                assert not flow.log.of("halted")
                assert not flow.log.of("prefix_unproven")


async def test_without_the_right_to_read_the_config() -> None:
    """Each answer has an append time: no repeat is told by it."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t", configs={TYPE: "LogAppendTime"})
        source.store("t", 0, *batches(5))
        for _ in range(200):
            destination.next("DescribeConfigs", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        async with mirroring(source, destination, append_times=True) as flow:
            assert await through(flow, 5) == [True] * 5
            source.store("t", 0, *batches(5, first=15))
            assert await through(flow, 10) == [True] * 10
            assert not flow.partition().terms.append_times_there
            assert not flow.relay.stats.resyncs


async def test_not_by_default() -> None:
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t", configs={TYPE: "LogAppendTime"})
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "destination_rewrites"
            assert "destination.timestamps: append" in flow.log.of("halted")[0]["remedy"]


@pytest.mark.parametrize("mapped", [False, True])
async def test_the_config_changes_while_it_runs(mapped: bool) -> None:
    """
    1. CreateTime, then LogAppendTime: an answer says so, and the topic is described, once.
    2. CreateTime again.
    3. In between, and behind, the partition is located anew: each batch is judged by its own mark.
    """
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(2))
        async with mirroring(source, destination, append_times=True, mapped=mapped) as flow:
            marks = await through(flow, 2)
            for value, marked in (("LogAppendTime", True), ("CreateTime", False), ("LogAppendTime", True)):
                set_config(destination, TYPE, value)
                for doubts in (False, True):
                    if doubts:
                        destination.next("Produce", faults.refuse(ErrorCode.NOT_ENOUGH_REPLICAS, only=("t", 0)))
                    source.store("t", 0, batch(3 * len(marks)))
                    marks.append(marked)
                    assert await through(flow, len(marks)) == marks
                if marked:
                    await until(lambda: flow.partition().terms.append_times_there)
            assert not flow.log.of("halted")


async def test_without_the_look_a_repeat_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of the append end the knowledge of a producer, however late the records are."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t", configs={TYPE: "LogAppendTime"})
        late = round(time.time() * 1000) + 400 * 86_400_000
        for takes in (True, False):
            if not takes:
                set_config(destination, TYPE, "CreateTime")
            source.store("t", 0, batch(source.log("t").end, max_timestamp=late, base_timestamp=late))
            async with mirroring(source, destination, append_times=takes) as flow:
                await until(lambda: flow.partition().queue.acknowledged == source.log("t").end)
                await until(lambda: flow.partition().queue.proven)
                source.store("t", 0, batch(source.log("t").end, max_timestamp=late, base_timestamp=late))
                await until(lambda: flow.partition().queue.acknowledged == source.log("t").end)
                counted = flow.partition().queue.freshness.least_ms(source.log("t").end)
                assert (counted <= freshness.now_ms()) is takes
            source.topics.pop("t")
            source.add_topic("t")
            destination.topics.pop("t")
            destination.add_topic("t", configs={TYPE: "LogAppendTime"})
            destination.remembered.clear()


def names(cluster: FakeCluster) -> list[str]:
    """Topics that are there."""
    return sorted(cluster.topics)


async def test_topics_that_are_created_keep_the_times() -> None:
    async with clusters() as (source, destination):
        source.add_topic("t", configs={TYPE: "LogAppendTime"})
        async with mirroring(source, destination, append_times=True, rewrites=True) as flow:
            await until(lambda: ("t", 0) in flow.relay.partitions)
            assert destination.topics["t"].configs[TYPE] == "CreateTime"
            assert "t" in names(destination)
