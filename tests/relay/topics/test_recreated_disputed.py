"""A broker that is behind tells the id of a topic that is no more: nothing halts by the word of one."""

import uuid
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.reasons import HaltReason
from mirror.relay.halts import Halted
from mirror.relay.locate.position import MISSING_LOOKS
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.topics import recreated
from mirror.relay.watch import idle
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import Fault
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, ledger, recreate

NEVER_S = 1e9


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(idle, "LOOK_EVERY_S", NEVER_S)


class Behind:
    """The first broker of a cluster, which alone is asked for metadata (``asked``), tells another id of topic "t" than
    the others, while ``told`` is set. It leads nothing."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.told: uuid.UUID | None = None
        self.alone = False
        """True while the others do not answer."""
        self._usual = cluster._fault_for
        cluster._fault_for = self._fault_for  # type: ignore[method-assign]
        for name in cluster.topics:
            cluster.lead(name, 0, 2)

    @staticmethod
    def asked(cluster: Cluster) -> Cluster:
        """It has the connection that is taken whenever it does not matter which."""
        cluster.control_of_any = lambda: cluster.control(1)  # type: ignore[method-assign]
        return cluster

    def _fault_for(self, name: str, node_id: int, request: Any) -> Fault:
        if name == "Metadata" and node_id == 1 and self.told is not None:
            return faults.alter(self._change)
        if name == "Metadata" and node_id != 1 and self.alone:
            return faults.disconnect()
        return self._usual(name, node_id, request)

    def _change(self, answer: Any) -> None:
        for topic in answer.topics:
            if topic.name == "t":
                topic.topic_id = self.told


def alone(flow: Flow) -> list[str]:
    return [line["detail"] for line in flow.log.of("position_unknown") if "have not said" in line["detail"]]


def disputed(flow: Flow) -> list[str]:
    return [line["detail"] for line in flow.log.of("position_unknown") if "do not agree" in line["detail"]]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("side", ["source", "destination"])
async def test_a_broker_that_is_behind(side: str, *, mapped: bool) -> None:
    """
    1. All is copied. One broker tells the id of the topic that had the name before: it has not heard of the new one.
    2. The partition waits, and goes on when that broker knows better. Nothing is written down of it.
    """
    async with clusters(brokers=2) as (source, destination):
        fill(source)
        destination.add_topic("t")
        behind = {cluster.name: Behind(cluster) for cluster in (source, destination)}[side]
        async with mirroring(source, destination, mapped=mapped) as flow:
            await flow.copied()
            behind.asked(flow.relay.source if side == "source" else flow.relay.destination)
            behind.told = uuid.uuid4()
            await until(lambda: disputed(flow) or flow.partition().halted)
            assert flow.partition().halted is None
            behind.told = None
            source.store("t", 0, *batches(2, first=60))
            await until(lambda: flow.partition().queue.acknowledged == 66)
            assert not flow.log.of("halted")
            assert not ledger(destination).halts


async def test_the_others_do_not_answer() -> None:
    """The broker that is behind is the only one that answers. The partition waits, until the other one does, too."""
    async with clusters(brokers=2) as (source, destination):
        fill(source)
        destination.add_topic("t")
        behind = Behind(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            behind.asked(flow.relay.source)
            behind.told, behind.alone = uuid.uuid4(), True
            await until(lambda: alone(flow) or flow.partition().halted)
            assert flow.partition().halted is None
            behind.alone = False
            await until(lambda: disputed(flow) or flow.partition().halted)
            behind.told = None
            source.store("t", 0, *batches(2, first=60))
            await until(lambda: flow.partition().queue.acknowledged == 66)
            assert flow.partition().claim.unheard == 0
            assert not flow.log.of("halted")


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("copied", [True, False])
async def test_the_others_are_away_for_long(*, copied: bool, mapped: bool) -> None:
    """It is decided by those that answer: not every cluster has all of its brokers back some time."""
    async with clusters(brokers=2) as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        if copied:
            source.store("t", 0, *batches(2))
        behind = Behind(source)
        async with mirroring(source, destination, mapped=mapped) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 6 * copied)
            behind.asked(flow.relay.source)
            behind.told, behind.alone = uuid.uuid4(), True
            await until(lambda: flow.log.of("halted") or flow.log.of("begun_anew"))
            assert bool(flow.partition().halted) == copied
            assert len(alone(flow)) >= MISSING_LOOKS - 1


@pytest.mark.parametrize("check", ["the log's end", "a gap"])
async def test_seen_by_a_check_beside_the_data_path(check: str) -> None:
    """The same, where not the look at the ids, but one at the log's end, or at a gap, meets the other id first."""
    async with clusters(brokers=2) as (source, destination):
        fill(source)
        destination.add_topic("t")
        behind = Behind(destination)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            behind.asked(flow.relay.destination)
            behind.told = uuid.uuid4()
            await flow.relay.destination.refresh(["t"])
            if check == "a gap":
                flow.relay.look(flow.partition())
            else:
                flow.relay.reconfirm(flow.partition())
            await until(lambda: disputed(flow) or flow.partition().halted)
            assert flow.partition().halted is None
            behind.told = None
            await flow.copied()
            assert not flow.log.of("halted")


@pytest.mark.parametrize("phase", [Phase.DOUBT, Phase.LOCATING])
async def test_seen_by_a_check_that_ends_in_a_look(phase: Phase) -> None:
    """Work beside the data path has begun before the partition came into doubt. The look decides."""
    async with clusters(brokers=2) as (source, destination):
        fill(source)
        destination.add_topic("t")
        async with mirroring(source, destination) as flow:
            await flow.copied()
            partition, usual, relay = flow.partition(), flow.relay.emptied, flow.relay
            if phase is Phase.DOUBT:
                relay.emptied = lambda partition: None  # type: ignore[method-assign]
            relay.doubt_now(partition, "recreated", "as a look at the ids would have it")
            assert partition.phase is phase
            relay.act(partition, Halted.of(HaltReason.RECREATED, "as one broker would have it"))
            assert partition.halted is None
            if phase is Phase.DOUBT:
                usual(partition)
            await flow.copied()
            assert partition.phase is Phase.ACTIVE
            assert not flow.log.of("halted")


async def test_a_better_answer_comes_while_all_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker that was behind knows better by then, and its answer has taken the place of the one that the verdict
    rests on: all agree, and on another id than that."""
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", NEVER_S)
    async with clusters(brokers=2) as (source, destination):
        fill(source)
        destination.add_topic("t")
        behind = Behind(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            usual, asked = flow.relay.locator.check_ids, 0

            async def check_ids(partition: Partition) -> None:
                nonlocal asked
                asked += 1
                behind.told = None
                await flow.relay.source.refresh(["t"])
                await usual(partition)

            monkeypatch.setattr(flow.relay.locator, "check_ids", check_ids)
            behind.asked(flow.relay.source)
            behind.told = uuid.uuid4()
            await flow.relay.source.refresh(["t"])
            flow.relay.doubt_now(flow.partition(), "recreated", "as a look at the ids would have it")
            await until(lambda: asked)
            await flow.copied()
            assert not flow.log.of("halted")


@pytest.mark.parametrize("side", ["source", "destination"])
async def test_made_anew_and_one_broker_has_not_heard_of_it(side: str) -> None:
    """It halts, once that broker has: until then, nobody can tell which of the two is behind."""
    async with clusters(brokers=2) as (source, destination):
        fill(source)
        destination.add_topic("t")
        cluster = {each.name: each for each in (source, destination)}[side]
        behind = Behind(cluster)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            seen = flow.relay.source if side == "source" else flow.relay.destination
            seen.control_of_any = lambda: seen.control(2)  # type: ignore[method-assign]
            behind.told = cluster.topics["t"].topic_id
            recreate(cluster, *batches(3))
            cluster.lead("t", 0, 2)
            await until(lambda: disputed(flow) or flow.partition().halted)
            assert flow.partition().halted is None
            behind.told = None
            assert await flow.halted() == "recreated"


@pytest.mark.parametrize("mapped", [False, True])
async def test_nothing_begins_anew_by_the_word_of_one(*, mapped: bool) -> None:
    """Nothing was copied yet, so that another topic would be adopted: not one that is no more."""
    async with clusters(brokers=2) as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        behind = Behind(source)
        async with mirroring(source, destination, mapped=mapped) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 0)
            behind.asked(flow.relay.source)
            behind.told = uuid.uuid4()
            await until(lambda: disputed(flow) or flow.log.of("begun_anew"))
            assert not flow.log.of("begun_anew")
            behind.told = None
            source.store("t", 0, *batches(2))
            await flow.copied(FIRST)
