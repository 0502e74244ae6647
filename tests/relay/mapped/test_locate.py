"""``offsets: mapped`` between real clusters: others write to the destination, workers die, and the map is exact."""

import asyncio
from collections.abc import Iterable
from functools import partial

import pytest
from confluent_kafka import Producer

from mirror.net.errors import Refused
from mirror.offsetmap.internal.memory import state_topic
from mirror.offsetmap.runs import Run
from mirror.records.identity import MIRROR_BIT, Identity
from mirror.relay.durable.flows import Flows
from mirror.relay.locate.owners import Owners
from mirror.relay.mapped.copied import write_down
from mirror.relay.partition.partition import Partition
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes.loop import until
from tests.net.stage.real import create, log_of, records, transaction
from tests.records.builders import kafka_batch
from tests.relay.stage.mapping import FLOW, assert_exact, mapping, payloads, written_map
from tests.service.stage.kafka_side import delete_topic

pytestmark = pytest.mark.broker


def write(sandbox: SandboxCluster, topic: str, first: int, count: int, *, partition: int = 0, size: int = 3) -> None:
    """Batches of records, no two alike."""
    for number in range(first, first + count):
        records(sandbox, topic, [f"{topic} {partition} {number} {at}" for at in range(size)], partition=partition)


def batch_of(identity: Identity) -> bytes:
    """Three records, as they are sent."""
    return kafka_batch(
        leader_epoch=-1,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=identity.sequence,
    )


def _some_of_each(partitions: Iterable[Partition]) -> bool:
    return all(one.queue.copied is not None and one.queue.copied.source > 0 for one in partitions)


async def test_among_the_batches_of_others(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. A source with holes, a destination that others write to before, while and after.
    2. A clean stop: the map that was written down is exact.
    3. More on both sides, a second life, another clean stop: still.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(destination_cluster, topic_name, 900, 2)
    write(source_cluster, topic_name, 0, 3)
    transaction(source_cluster, topic_name, ["aborted 1", "aborted 2"], commit=False, transactional_id=topic_name)
    transaction(source_cluster, topic_name, ["kept 1", "kept 2"], commit=True, transactional_id=topic_name)
    for life in range(2):
        async with mapping(source_cluster, destination_cluster, topic_name) as flow:
            await flow.copied(topic_name)
            await asyncio.to_thread(write, destination_cluster, topic_name, 910 + life, 1)
            await asyncio.to_thread(write, source_cluster, topic_name, 10 + life, 1)
            await flow.copied(topic_name)
            assert await flow.relay.drain()
        found = await written_map(destination_cluster, topic_name)
        assert await assert_exact(source_cluster, destination_cluster, topic_name, found) == 3 + life


async def test_lives_that_end_in_the_middle(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. Two source topics into one of the destination: batches of both in turn on one connection, never two in a request.
    2. Each life ends without a drain, with whatever under way; nothing but the first checkpoint was written down.
    3. The next one finds all of it in the logs. A batch of a former life that arrives late is refused.
    """
    east, west, merged = f"{topic_name}-east", f"{topic_name}-west", f"{topic_name}-all"
    for topic in (east, west):
        create(source_cluster, topic)
    create(destination_cluster, merged)
    into = {east: merged, west: merged}
    late: dict[str, Identity] = {}
    for life in range(3):
        for topic in (east, west):
            write(source_cluster, topic, life * 10, 4)
        async with mapping(source_cluster, destination_cluster, east, west, into=into) as flow:
            partitions = flow.relay.partitions
            await until(partial(_some_of_each, partitions.values()))
            log = await log_of(flow.destination, merged)
            for topic, identity in late.items():
                with pytest.raises(Refused) as caught:
                    await log.produce(batch_of(identity))
                assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH, topic
            late = {topic: p.cursor.identity for (topic, _), p in flow.relay.partitions.items()}
    async with mapping(source_cluster, destination_cluster, east, west, into=into) as flow:
        await flow.copied(east, west)
        assert await flow.relay.drain()
    for topic in (east, west):
        found = await written_map(destination_cluster, topic, into=merged)
        assert await assert_exact(source_cluster, destination_cluster, topic, found, into=merged) == 12


async def test_a_transaction_of_others_that_stays_open(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """What is behind it is hidden from read_committed consumers; the mirror starts, copies and stops all the same."""
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(source_cluster, topic_name, 0, 2)
    other = Producer({"bootstrap.servers": destination_cluster.bootstrap_servers, "transactional.id": topic_name})
    await asyncio.to_thread(other.init_transactions)
    other.begin_transaction()
    other.produce(topic_name, "open", partition=0)
    await asyncio.to_thread(other.flush)
    for _ in range(2):
        async with mapping(source_cluster, destination_cluster, topic_name) as flow:
            await flow.copied(topic_name)
            assert await flow.relay.drain()
    await asyncio.to_thread(other.commit_transaction)
    found = await written_map(destination_cluster, topic_name)
    assert await assert_exact(source_cluster, destination_cluster, topic_name, found) == 1


async def test_retention_overtook_and_then_the_checkpoint_is_lost(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. The source deletes what was not copied: halted, until an operator accepts the gap.
    2. The internal topic is lost while nobody runs: batches of ours without a checkpoint.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(source_cluster, topic_name, 0, 2)
    async with mapping(source_cluster, destination_cluster, topic_name, flow=f"a->{topic_name}") as flow:
        await flow.copied(topic_name)
        assert await flow.relay.drain()
    write(source_cluster, topic_name, 10, 2)
    async with mapping(source_cluster, destination_cluster, topic_name, flow=f"a->{topic_name}") as flow:
        await flow.copied(topic_name)
        assert await flow.relay.drain()
        await asyncio.to_thread(write, source_cluster, topic_name, 20, 3)
        await (await log_of(flow.source, topic_name)).delete_before(15)
    async with mapping(source_cluster, destination_cluster, topic_name, flow=f"a->{topic_name}") as flow:
        assert await flow.halted(topic_name) == "retention_overtook"
        assert await flow.relay.resume((topic_name, 0), accept_gap=True) == ""
        await flow.copied(topic_name)
        assert [(one.first, one.next) for one in flow.relay.stats.skipped] == [(12, 15)]
        assert await flow.relay.drain()
    found = await written_map(destination_cluster, topic_name, flow=f"a->{topic_name}")
    assert list(found) == [Run(0, 1, 6), Run(6, 8, 6), Run(15, 16, 6)]
    delete_topic(destination_cluster.bootstrap_servers, state_topic(f"a->{topic_name}"))
    # ``on.gap`` is about records that the source has no more, and nothing else.
    async with mapping(
        source_cluster, destination_cluster, topic_name, flow=f"a->{topic_name}", accept_gaps=True
    ) as flow:
        assert await flow.halted(topic_name) == "checkpoint_lost"


async def test_without_a_right_to_transactional_ids(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No fence: the end is settled instead, and the computed identity goes on where it was, life after life."""

    async def refused(*_: object) -> None:
        return None

    monkeypatch.setattr(Owners, "take_over", refused)
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    for life in range(3):
        write(source_cluster, topic_name, life * 10, 2)
        async with mapping(source_cluster, destination_cluster, topic_name) as flow:
            await flow.copied(topic_name)
            assert flow.relay.partitions[topic_name, 0].cursor.identity.producer_id & MIRROR_BIT
            assert life == 1 or await flow.relay.drain()
    found = await written_map(destination_cluster, topic_name)
    assert list(found) == [Run(0, 0, 18)]
    assert await assert_exact(source_cluster, destination_cluster, topic_name, found) == 0


async def test_a_destination_that_lost_its_end(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """The internal topic says that more was acknowledged than there is, and another's batch stands in the place of the
    last: what is missing is copied again."""
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(source_cluster, topic_name, 0, 2)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
        assert await flow.relay.drain()
        copied = flow.relay.partitions[topic_name, 0].queue.copied
        assert copied is not None
        end = copied.destination
        await asyncio.to_thread(write, source_cluster, topic_name, 10, 2)
        await asyncio.to_thread(write, destination_cluster, topic_name, 90, 2)
        copied.landed(end, 3)
        copied.landed(end + 3, 3)
        assert flow.relay.durable.state is not None
        await write_down(flow.relay.durable.state, [copied])
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
        assert "copied again" in flow.log.of("destination_lost")[0]["detail"]
        assert await flow.relay.drain()
    found = await written_map(destination_cluster, topic_name)
    assert await assert_exact(source_cluster, destination_cluster, topic_name, found) == 2


async def test_two_workers_that_fence_each_other(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """Neither knows of the other, and each takes the partition from the other; nothing is lost or doubled by it."""
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    async with mapping(source_cluster, destination_cluster, topic_name) as second:
        async with mapping(source_cluster, destination_cluster, topic_name) as first:
            await until(lambda: first.log.of("located") and second.log.of("located"))
            fenced: set[str] = set()
            number = 0
            while not fenced:
                await asyncio.to_thread(write, source_cluster, topic_name, number, 1)
                number += 1
                fenced = {"invalid_producer_epoch", "not_owner"} & {
                    *first.relay.stats.resyncs,
                    *second.relay.stats.resyncs,
                }
        await second.copied(topic_name)
        assert await second.relay.drain()
    found = await written_map(destination_cluster, topic_name)
    assert await assert_exact(source_cluster, destination_cluster, topic_name, found) == 0


@pytest.mark.parametrize("looked", [True, False])
async def test_under_another_flow_id(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    looked: bool,
) -> None:
    """
    1. Copied; then the flow has another name, and with it another internal topic: halt, and the old id is told.
    2. Without a look at what other flows have written down, everything is copied a second time.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    records(source_cluster, topic_name, [f"record {at}" for at in range(20)])
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
    if not looked:
        monkeypatch.setattr(Flows, "check_new", _unlooked)
    async with mapping(source_cluster, destination_cluster, topic_name, flow=f"{topic_name}->there") as flow:
        if not looked:
            await flow.copied(topic_name)
            copies = await payloads(await log_of(flow.destination, topic_name))
            assert sum(content.length for _, content in copies.values()) == 40
            return
        assert await flow.halted(topic_name) == "other_flow"
        halted = flow.relay.partitions[topic_name, 0].halted
        assert halted is not None
        assert f'by flow "{FLOW}"' in halted.detail
        assert f'set flow.id: "{FLOW}"' in halted.remedy
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        records(source_cluster, topic_name, ["one more"])
        await flow.copied(topic_name)


async def _unlooked(*_: object, **__: object) -> None:
    """As if there were no other flows."""
