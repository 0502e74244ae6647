"""One destination broker takes nothing, or little: the partitions of the others go on, in bounded memory."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from mirror.relay.watch import stalls
from mirror.relay.watch.stalls import Stalls
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import Fault
from tests.fakes.loop import until
from tests.relay.stage.flows import batches, clusters, mirroring

KIB, MIB = 1 << 10, 1 << 20
FLOW: dict[str, Any] = {"fetch_max_bytes": MIB, "max_partition_fetch_bytes": 256 * KIB, "buffer_memory": 5 * MIB // 2}
"""Two full answers, and a little."""
PARTITIONS = 4
"""The even ones are led by the first broker of the destination, the odd ones by the second."""
COUNT, SIZE = 40, 100_000


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "STALL_S", 0.05)


def two_brokers(source: FakeCluster, destination: FakeCluster, count: int = COUNT, size: int = SIZE) -> Fault:
    """Topic "t", several times the memory in each partition; the second broker answers one request of each partition,
    and then no more until the fault is opened."""
    for cluster in (source, destination):
        cluster.add_topic("t", partitions=PARTITIONS)
    for index in range(PARTITIONS):
        source.log("t", index).leader = 1
        source.store("t", index, *batches(count, size=size))
    destination.next("Produce", Fault(), node_id=2)
    destination.next("Produce", Fault(), node_id=2)
    return destination.next("Produce", faults.held(), node_id=2)


@pytest.mark.parametrize(("count", "size"), [(COUNT, SIZE), (400, 3_900)])
async def test_the_others_go_on(count: int, size: int) -> None:
    """
    1. The second broker freezes with requests under way, and more in the kernel's buffers and behind them than fits.
    2. All of the first broker's partitions are copied, many times the memory. No more than ``buffer.memory`` is used.
    3. It answers again: its partitions are copied too, each batch as it is at the source.
    """
    async with clusters(brokers=2) as (source, destination):
        frozen = two_brokers(source, destination, count, size)
        async with mirroring(source, destination, **FLOW) as flow:
            await flow.copied(("t", 0), ("t", 2))
            assert flow.log.of("lane_stalled")[0]["broker"] == 2
            assert flow.relay.pool.used <= FLOW["buffer_memory"]
            for index in (1, 3):
                assert flow.partition("t", index).queue.acknowledged < 3 * count
            frozen.open()
            await flow.copied()
            counts = [flow.partition("t", index).counts for index in range(PARTITIONS)]
            assert [(each.records, each.batches) for each in counts] == [(3 * count, count)] * PARTITIONS
            assert not flow.relay.stats.resyncs


async def test_without_making_room_all_of_them_stop() -> None:
    """The mutation: whoever has frames keeps them."""
    async with clusters(brokers=2) as (source, destination):
        frozen = two_brokers(source, destination)
        with patch.object(Stalls, "_make_room", lambda _: None):
            async with mirroring(source, destination, **FLOW) as flow:
                await until(lambda: flow.relay.pool.waited_for and not flow.partition("t", 0).queue.frames)
                at = [flow.partition("t", index).queue.acknowledged for index in (0, 2)]
                await until(lambda: frozen.came.is_set())
                await asyncio.sleep(0.5)
                assert [flow.partition("t", index).queue.acknowledged for index in (0, 2)] == at
                assert max(at) < 3 * COUNT


async def test_a_broker_that_is_lost_while_it_is_stalled() -> None:
    """What was under way is in doubt, and its partitions are copied once it is back."""
    async with clusters(brokers=2) as (source, destination):
        two_brokers(source, destination)
        async with mirroring(source, destination, **FLOW) as flow:
            await flow.copied(("t", 0), ("t", 2))
            destination.drop(2)
            await flow.copied()


async def test_a_slow_broker() -> None:
    """Every request to it waits for a while: it is set aside again and again, and everything is copied."""
    async with clusters(brokers=2) as (source, destination):
        two_brokers(source, destination).open()
        for _ in range(30):
            destination.next("Produce", faults.late(0.06), node_id=2)
        async with mirroring(source, destination, **FLOW) as flow:
            await flow.copied()
            assert len(flow.log.of("lane_stalled")) >= 1
