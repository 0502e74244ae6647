"""The nearest replica (KIP-392): followed, left after a doubt, asked for again; on fakes, and on real brokers."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from mirror.net.cluster import Cluster
from mirror.relay.fetch import replicas
from mirror.relay.relay import Relay
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster, Seen
from tests.fakes.loop import some_turns, until
from tests.fakes.state import MemoryState
from tests.net.stage.real import create, opened, records
from tests.patience import PATIENT
from tests.relay.stage.flows import Log, batches, clusters, mirroring, settings

LEADER, FOLLOWER = 1, 2
RACK = "here"


def of_data(source: FakeCluster, node_id: int) -> list[Seen]:
    """The Fetch requests of the data path at a broker."""
    return [seen for seen in source.seen("Fetch") if seen.node_id == node_id and seen.request.max_bytes > 1]


async def test_the_preferred_replica_is_fetched_from() -> None:
    """
    1. The leader names a follower: it is fetched from, while positions are found at the leader.
    2. A partition that is up to date goes on there as well.
    """
    async with clusters(brokers=2) as (source, destination):
        source.followers[RACK] = FOLLOWER
        source.add_topic("t")
        source.store("t", 0, *batches(30, size=50_000))
        async with mirroring(source, destination, client_rack=RACK) as flow:
            await flow.copied()
            source.store("t", 0, *batches(3, first=90))
            await flow.copied()
            assert flow.log.of("replica_followed") == [{"topic": "t", "partition": 0, "broker": FOLLOWER}]
            assert flow.partition().cursor.broker == FOLLOWER
            assert not flow.relay.stats.resyncs
        assert {seen.request.rack_id for seen in of_data(source, LEADER)} == {RACK}
        assert of_data(source, FOLLOWER)


async def test_without_a_rack_the_leader_is_fetched_from() -> None:
    async with clusters(brokers=2) as (source, destination):
        source.followers[RACK] = FOLLOWER
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        async with mirroring(source, destination) as flow:
            await flow.copied()
        assert not of_data(source, FOLLOWER)


@pytest.mark.parametrize("down", [True, False])
async def test_after_a_doubt_the_leader_gives_the_data(down: bool) -> None:
    """
    1. The follower goes away, or answers with an error.
    2. The partition is located again, and copied from the leader, which is told no rack for a while.
    """
    async with clusters(brokers=2) as (source, destination):
        source.followers[RACK] = FOLLOWER
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        async with mirroring(source, destination, client_rack=RACK) as flow:
            await flow.copied()
            await until(lambda: flow.log.of("replica_followed"))
            if down:
                await source.stop(FOLLOWER)
            else:
                source.next("Fetch", faults.refuse(ErrorCode.OFFSET_OUT_OF_RANGE), node_id=FOLLOWER)
            source.store("t", 0, *batches(3, first=9))
            await until(lambda: flow.log.of("replica_left"))
            await flow.copied()
            assert flow.partition().cursor.broker == LEADER
            await until(lambda: of_data(source, LEADER)[-1].request.rack_id == "")
            assert len(flow.log.of("replica_followed")) == 1


async def test_after_a_while_the_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name another follower by now."""
    async with clusters(brokers=3) as (source, destination):
        source.followers[RACK] = FOLLOWER
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        monkeypatch.setattr(replicas, "ASK_AGAIN_S", 0.0)
        async with mirroring(source, destination, client_rack=RACK) as flow:
            await flow.copied()
            await until(lambda: flow.log.of("replica_followed"))
            source.followers |= {RACK: 3, "another rack": FOLLOWER}  # it still is one
            await flow.relay.find_topics()
            await until(lambda: flow.partition().cursor.broker == 3)
            source.store("t", 0, *batches(3, first=9))
            await flow.copied()
            assert not flow.relay.stats.resyncs


async def test_one_that_is_being_revoked_is_not_fetched_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for what is under way, and a look for topics would have gone back to the leader with it."""
    async with clusters(brokers=2) as (source, destination):
        source.followers[RACK] = FOLLOWER
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        monkeypatch.setattr(replicas, "ASK_AGAIN_S", 0.0)
        async with mirroring(source, destination, client_rack=RACK, assigned=True) as flow:
            assignment = flow.relay.assignment
            assert assignment is not None
            assignment.assign({("t", 0)})
            await flow.copied()
            held = destination.next("Produce", faults.held())
            source.store("t", 0, *batches(2, first=9))
            await held.came.wait()
            revoking = asyncio.create_task(assignment.revoke({("t", 0)}, 60.0))
            await some_turns()
            assert flow.partition().cursor.broker == FOLLOWER
            await flow.relay.find_topics()
            assert flow.partition().cursor.broker == FOLLOWER, "it is left alone"
            source.store("t", 0, *batches(2, first=15))
            await some_turns(100)
            held.open()
            await revoking
            assert destination.log("t").end == 15


async def test_a_follower_that_nobody_knows() -> None:
    """A broker that is not in the metadata is not followed; the leader is told no rack, and gives the data."""
    async with clusters(brokers=2) as (source, destination):
        source.followers[RACK] = 9
        source.add_topic("t")
        source.store("t", 0, *batches(3))
        async with mirroring(source, destination, client_rack=RACK) as flow:
            await flow.copied()
            assert not flow.log.of("replica_followed")


# Real brokers.


@pytest.fixture(scope="module")
def racked() -> Iterator[SandboxCluster]:
    """Three brokers in as many racks, whose leaders prefer replicas in the client's rack."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    properties = {**PATIENT, "replica.selector.class": selector}
    racks = ("rack-1", "rack-2", "rack-3")
    with SandboxCluster(
        name="racked", brokers=3, racks=racks, properties=properties, heap_mb=512, quick=True
    ) as cluster:
        yield cluster


@pytest.mark.broker
async def test_real_brokers(racked: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. Partitions are led by three brokers. All of them are fetched from the one in the mirror's rack, and copied.
    2. That broker stops: they are copied from their leaders.
    """
    create(racked, topic_name, 4, replicas=3)
    create(destination_cluster, topic_name, 4)
    for partition in range(4):
        records(racked, topic_name, [f"first-{uuid.uuid4()}" for _ in range(50)], partition=partition)
    async with opened(racked) as here, opened(destination_cluster) as there:
        log = Log()
        made = settings(
            client_rack="rack-2", settle_ms=200, fetch_max_wait_ms=200, selects=lambda name: name == topic_name,
            wanted={topic_name: lambda name: name == topic_name},
        )  # fmt: skip
        relay = Relay(here, there, made, log, state=MemoryState([]))
        await relay.start()
        try:
            await until(lambda: _ends(relay) == [50] * 4)
            led = _led_by(here, topic_name, 1) | _led_by(here, topic_name, 3)
            assert {line["partition"] for line in log.of("replica_followed")} == led
            assert led
            assert {each.cursor.broker for each in relay.partitions.values()} == {2}
            (second,) = [broker for broker in racked.brokers if broker.node_id == 2]
            second.kill()
            for partition in range(4):
                records(racked, topic_name, ["more"] * 10, partition=partition)
            await until(lambda: _ends(relay) == [60] * 4)
            assert 2 not in {each.cursor.broker for each in relay.partitions.values()}
        finally:
            await relay.close()


def _ends(relay: Relay) -> list[int]:
    return [relay.partitions[key].queue.acknowledged for key in sorted(relay.partitions)]


def _led_by(cluster: Cluster, topic: str, node_id: int) -> set[int]:
    return {index for index, leader in cluster.topics[topic].leaders.items() if leader.node_id == node_id}
