"""Whose copy a topic is, by what the internal topics of the destination say."""

import pytest

from mirror.net.cluster import Cluster
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import Order
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import FlowEntry
from mirror.offsetmap.internal.memory import state_topic
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.reasons import HaltReason
from mirror.records.filler import filler_id
from mirror.records.identity import Identity, producer_id
from mirror.relay.durable.flows import Flows
from mirror.relay.halts import PartitionHalted, halt
from mirror.relay.partition.partition import Partition
from tests.fakes.broker import FakeCluster

OLD, NEW = "west->east", "old-west->east"
IDS = {"here": b"h" * 16, "elsewhere": b"e" * 16}


def partition(source: str = "here") -> Partition:
    found = Partition("orders", 3, "all")
    found.claim.source_id = IDS.get(source)
    return found


async def remember(cluster: Cluster, *, source: str = "here") -> None:
    """What the flow has written down under its old id."""
    state = InternalTopic(cluster, OLD)
    await state.open()
    topic_id = IDS.get(source)
    checkpoint = Checkpoint(
        subject=Subject("orders", 3, "all"),
        writer="w",
        order=Order(1, 1000, 0),
        source_offset=7,
        source_epoch=0,
        destination_offset=9,
        identity=Identity(1000, 0, 7),
        source_id=topic_id.hex() if topic_id else None,
    )
    await state.save([FlowEntry(flow=OLD, source_cluster="c1", destination_cluster="c2"), checkpoint])


async def flows(cluster: Cluster, flow: str = NEW, source_cluster: str = "c1") -> Flows:
    own = InternalTopic(cluster, flow)
    await own.open(create=False)
    return Flows(cluster, flow=flow, source_cluster=source_cluster, state=own, mapped=True)


async def told(found: Flows, one: Partition) -> str:
    """The halt's detail and remedy; empty: none."""
    try:
        await found.check_new(one)
    except PartitionHalted as stop:
        halted = stop.halted
    else:
        return ""
    assert halted.reason == "other_flow"
    return f"{halted.detail}; {halted.remedy}"


@pytest.mark.parametrize(
    ("source", "source_cluster", "copied"),
    [("here", "c1", True), ("here", "c9", True), ("elsewhere", "c1", False), ("", "c1", True), ("", "c9", False)],
)
async def test_a_mapped_copy_under_another_id(source: str, source_cluster: str, *, copied: bool) -> None:
    """By the source topic's id; where one of them has none, by its cluster. Under the old id, all is well."""
    async with FakeCluster() as fake, await Cluster.open("destination", fake.options()) as cluster:
        await remember(cluster)
        found = await told(await flows(cluster, source_cluster=source_cluster), partition(source))
        assert bool(found) is copied
        if copied:
            assert f'by flow "{OLD}" ({state_topic(OLD)})' in found
            assert f'set flow.id: "{OLD}"' in found
        assert not await told(await flows(cluster, flow=OLD), partition())
        assert not await told(await flows(cluster), Partition("orders", 4, "all"))


@pytest.mark.parametrize("compute", [producer_id, filler_id])
async def test_whose_a_batch_is(compute: type) -> None:
    """A computed id, of data or of padding: of which flow, from which source; what no mirror wrote stays foreign."""
    async with FakeCluster() as fake, await Cluster.open("destination", fake.options()) as cluster:
        await remember(cluster)
        fake.add_topic("mirror-internal.of_somebody", configs={"cleanup.policy": "delete"})
        stop = halt(HaltReason.FOREIGN_WRITER, "a batch")
        stop.writer = compute(flow=OLD, cluster_id="c1", topic="orders", partition=3)
        named = (await (await flows(cluster)).named(stop, partition())).halted
        assert (named.reason, named.detail) == ("other_flow", f'a batch, of flow "{OLD}", copied from cluster c1')
        moved = (await (await flows(cluster, flow=OLD, source_cluster="c9")).named(stop, partition())).halted
        assert "of this flow, copied from cluster c1; the source is c9" in moved.detail
        stop.writer = compute(flow="unheard of", cluster_id="c1", topic="orders", partition=3)
        assert "not written down" in (await (await flows(cluster)).named(stop, partition())).halted.detail
        for stop.writer in (-1, 12_345):
            assert await (await flows(cluster)).named(stop, partition()) is stop
