"""A foreign record in a log that stands still is seen while it stands still."""

from typing import Any
from unittest.mock import patch

import pytest

from mirror.relay.locate.owners import Owners
from mirror.relay.locate.seeking import Seeking
from mirror.relay.watch import idle
from mirror.sandbox import SandboxCluster
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.net.stage.real import create, records
from tests.records.builders import raw_batch
from tests.relay.stage.flows import Flow, batch, batches, clusters, mirroring
from tests.relay.stage.mapping import mapping

NEVER_S = 1e9


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "LOOK_EVERY_S", 0.02)


def looks(destination: FakeCluster) -> list[Any]:
    """ListOffsets for true log ends, which consumers do not ask for."""
    return [seen for seen in destination.seen("ListOffsets") if seen.request.replica_id >= 0]


def intrude(flow: Flow, index: int = 0) -> None:
    """Somebody else appends a batch."""
    log = flow.destination.log("t", index)
    log.store(raw_batch(b"of others", base_offset=log.end, last_offset_delta=1, record_count=2, leader_epoch=0))


async def test_a_foreign_record_in_an_idle_log() -> None:
    """
    1. Two partitions are copied, and nothing more comes. Nothing is doubted, however often is looked.
    2. Somebody else writes to one of them: it halts, though the source has nothing new. The other one goes on.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", partitions=2)
        for index in range(2):
            source.store("t", index, *batches(5))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            before = len(looks(destination))
            await until(lambda: len(looks(destination)) > before + 5)
            assert not flow.log.of("resync")
            intrude(flow)
            assert await flow.halted() == "foreign_writer"
            assert [line["cause"] for line in flow.log.of("resync")] == ["end_moved"]
            source.store("t", 1, *batches(5, first=15))
            await flow.copied(("t", 1))


async def test_without_looking_it_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: it is seen with the next batch only."""
    monkeypatch.setattr(idle, "LOOK_EVERY_S", NEVER_S)
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            intrude(flow)
            asked = len(source.seen("Fetch"))
            await until(lambda: len(source.seen("Fetch")) > asked + 10)
            assert flow.partition().halted is None
            source.store("t", 0, batch(15))
            assert await flow.halted() == "foreign_writer"


async def test_one_request_to_a_broker() -> None:
    """For all of its partitions that stand still, and for no other."""
    async with clusters(brokers=2) as (source, destination):
        source.add_topic("t", partitions=40)
        destination.add_topic("t", partitions=40)
        for index in range(40):
            source.store("t", index, batch(0))
            destination.log("t", index).leader = 1 + index % 2
        async with mirroring(source, destination) as flow:
            await flow.copied()
            busy = flow.partition("t", 0)
            gate = destination.next("Produce", faults.held())
            source.store("t", 0, batch(3))
            await until(lambda: busy.queue.in_flight)
            # What was asked a moment before the batch was sent may come after it, one request to each broker at most.
            seen_before = looks(destination)
            await until(lambda: {seen.node_id for seen in looks(destination)[len(seen_before) :]} == {1, 2})
            before = len(looks(destination))
            await until(lambda: len(looks(destination)) >= before + 6)
            for seen in looks(destination)[before:]:
                asked = {one.partition_index for topic in seen.request.topics for one in topic.partitions}
                assert asked == {index for index in range(40) if index % 2 == seen.node_id - 1} - {0}
            gate.open()
            await flow.copied()
            assert not flow.log.of("resync")


async def test_another_leader() -> None:
    """The log that stands still is led by another broker by now: found out, and looked at there."""
    async with clusters(brokers=2) as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            destination.lead("t", 0, 3 - destination.log("t").leader)
            intrude(flow)
            assert await flow.halted() == "foreign_writer"


@pytest.mark.broker
@pytest.mark.parametrize("case", ["exact", "unlooked", "mapped"])
async def test_on_real_brokers(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A producer of somebody else's writes to a topic that stands still. Without the look it is not seen; with mapped
    offsets others may do so."""
    if case == "unlooked":
        monkeypatch.setattr(idle, "LOOK_EVERY_S", NEVER_S)
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    records(source_cluster, topic_name, ["one", "two"])
    async with mapping(source_cluster, destination_cluster, topic_name, mapped=case == "mapped") as flow:
        await flow.copied(topic_name)
        records(destination_cluster, topic_name, ["of others"])
        if case == "exact":
            assert await flow.halted(topic_name) == "foreign_writer"
            return
        asked = flow.relay.stats.fetch_requests
        await until(lambda: flow.relay.stats.fetch_requests > asked + 10)
        assert flow.relay.states == {"active": 1}
        assert not flow.log.of("resync")


@pytest.mark.parametrize("mapped", [False, True])
async def test_another_worker_has_it(mapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the coordinator's word. That is what it is called, in either mode, and it is left to the other for a while."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, mapped=mapped) as flow:
            await flow.copied()
            left: list[bool] = []
            words = [False]

            async def word(*_: Any) -> bool:
                return words.pop() if words else True  # it takes the partition over again, and is asked once more

            async def leave(*_: Any) -> None:
                left.append(flow.partition().claim.taken_over)

            monkeypatch.setattr(Seeking, "_leave_to_the_other", leave)
            with patch.object(Owners, "owns", word):
                flow.relay.reconfirm(flow.partition())
                await until(lambda: flow.log.of("resync"))
            assert [line["cause"] for line in flow.log.of("resync")] == ["not_owner"]
            await until(lambda: left == [True])
