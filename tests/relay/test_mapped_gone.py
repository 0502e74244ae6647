"""``offsets: mapped`` between real clusters that delete and clean away what was copied, behind the last checkpoint."""

import asyncio

import pytest

from mirror.net.log import PartitionLog
from mirror.relay import mapped
from mirror.relay.fence import Before
from mirror.relay.resync import Log
from mirror.sandbox import Cluster as Sandbox
from tests.net.real import create, log_of, opened, records
from tests.relay.mapping import mapping, payloads

pytestmark = pytest.mark.broker


def write(sandbox: Sandbox, topic: str, first: int, count: int) -> None:
    """Batches of three records, no two alike."""
    for number in range(first, first + count):
        records(sandbox, topic, [f"{topic} {number} {at}" for at in range(3)])


async def copied_of(sandbox: Sandbox, topic: str) -> list[bytes]:
    """The records that stand there, by batch."""
    async with opened(sandbox) as cluster:
        return [content.records for _, content in (await payloads(await log_of(cluster, topic))).values()]


async def purge(sandbox: Sandbox, topic: str) -> None:
    """DeleteRecords to the end, as Kafka Streams does with its repartition topics."""
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic)
        await log.delete_before(await log.visible_end())


@pytest.mark.parametrize("stopped", ["killed", "drained"])
async def test_a_destination_that_was_purged(
    source_cluster: Sandbox, destination_cluster: Sandbox, topic_name: str, stopped: str
) -> None:
    """
    1. Everything is copied; the mirror dies with only its first checkpoint written, or stops in order.
    2. All of it is deleted at the destination, more is written at the source.
    3. The next life copies what is new, and nothing again: the leader remembers what was written last.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(source_cluster, topic_name, 0, 7)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
        assert stopped == "killed" or await flow.relay.drain()
    await purge(destination_cluster, topic_name)
    await asyncio.to_thread(write, source_cluster, topic_name, 10, 2)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
        assert await flow.relay.drain()
    assert len(await copied_of(destination_cluster, topic_name)) == 2


async def test_a_purged_destination_whose_leader_has_forgotten(
    source_cluster: Sandbox, destination_cluster: Sandbox, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. The same, killed, and nobody knows what was written last: halted, and on from the checkpoint by decision only.
    2. After a stop in order nothing can have been written behind the checkpoint: it goes on.
    """

    async def forgetful(there: PartitionLog, _: Log) -> Before:
        return Before(await there.true_end(), [])

    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(source_cluster, topic_name, 0, 2)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
    await purge(destination_cluster, topic_name)
    monkeypatch.setattr(mapped, "look_before", forgetful)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        assert await flow.halted(topic_name) == "checkpoint_behind"
        assert await flow.relay.resume((topic_name, 0), accept_gap=True) == ""
        await flow.copied(topic_name)
        assert await flow.relay.drain()
    assert len(await copied_of(destination_cluster, topic_name)) == 2
    await purge(destination_cluster, topic_name)
    await asyncio.to_thread(write, source_cluster, topic_name, 10, 1)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
    assert len(await copied_of(destination_cluster, topic_name)) == 1


async def test_a_source_that_deletes_behind_the_checkpoint(
    source_cluster: Sandbox, destination_cluster: Sandbox, topic_name: str
) -> None:
    """
    1. Six batches are copied, the first checkpoint is the only one, and the source deletes two of them, then all six.
    2. Each life finds which of its batches are copied; beginning exactly where the copy ends is no gap.
    3. With equal batches at a source that goes on, there are several places: halted, and nothing lost by a decision.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(source_cluster, topic_name, 0, 6)
    for deleted in (6, 18):
        async with mapping(source_cluster, destination_cluster, topic_name) as flow:
            await flow.copied(topic_name)
            await (await log_of(flow.source, topic_name)).delete_before(deleted)
    await asyncio.to_thread(write, source_cluster, topic_name, 10, 1)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
    assert len(await copied_of(destination_cluster, topic_name)) == 7
