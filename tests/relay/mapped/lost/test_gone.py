"""``offsets: mapped`` between real clusters that delete and clean away what was copied, behind the last checkpoint."""

import asyncio

import pytest
from confluent_kafka import Producer

from mirror.net.cluster import Cluster
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.compare.alignment import Ambiguous, Differs
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.translation import translation
from mirror.relay.events import EventLog
from mirror.relay.mapped import takeover
from mirror.relay.mapped.fence import Before
from mirror.relay.topics import recreated
from mirror.sandbox import SandboxCluster
from tests.net.stage.real import create, log_of, opened, records, transaction
from tests.patience import PATIENT
from tests.relay.stage.mapping import FLOW, assert_exact, mapping, payloads, written_map
from tests.service.stage.kafka_side import delete_topic

pytestmark = pytest.mark.broker


def write(sandbox: SandboxCluster, topic: str, first: int, count: int) -> None:
    """Batches of three records, no two alike."""
    for number in range(first, first + count):
        records(sandbox, topic, [f"{topic} {number} {at}" for at in range(3)])


async def copied_of(sandbox: SandboxCluster, topic: str) -> list[bytes]:
    """The records that stand there, by batch."""
    async with opened(sandbox) as cluster:
        return [content.records for _, content in (await payloads(await log_of(cluster, topic))).values()]


async def purge(sandbox: SandboxCluster, topic: str) -> None:
    """DeleteRecords to the end, as Kafka Streams does with its repartition topics."""
    async with opened(sandbox) as cluster:
        log = await log_of(cluster, topic)
        await log.delete_before(await log.visible_end())


@pytest.mark.parametrize("stopped", ["killed", "drained"])
async def test_a_destination_that_was_purged(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, stopped: str
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
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    1. The same, killed, and nobody knows what was written last: halted, and on from the checkpoint by decision only.
    2. After a stop in order nothing can have been written behind the checkpoint: it goes on.
    """

    async def forgetful(there: PartitionLog, _: EventLog) -> Before:
        return Before(await there.true_end(), [])

    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(source_cluster, topic_name, 0, 2)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
    await purge(destination_cluster, topic_name)
    monkeypatch.setattr(takeover, "look_before", forgetful)
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
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. Six batches are copied, the first checkpoint is the only one, and the source deletes two of them, then all six.
    2. Each life finds which of its batches are copied; beginning exactly where the copy ends is no gap.
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


def write_equal(sandbox: SandboxCluster, topic: str, count: int) -> None:
    """Batches of three records that are the same in all but their offsets."""
    producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers, "linger.ms": 30_000, "log_level": 0})
    producer.list_topics(topic)
    for _ in range(count):
        for _ in range(3):
            producer.produce(topic, "same", timestamp=1_700_000_000_000, partition=0)
        assert producer.flush(60) == 0


async def test_equal_batches_behind_a_deletion(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. Twelve equal batches, and what was aborted among them, are copied; the first checkpoint is the only one.
    2. The source deletes five of them, and goes on with equal ones: its first one may be any of several copies. The
       partition halts, nothing more is copied, and no offset is translated.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    await asyncio.to_thread(write_equal, source_cluster, topic_name, 3)
    await asyncio.to_thread(
        transaction, source_cluster, topic_name, ["gone"], commit=False, transactional_id=topic_name
    )
    await asyncio.to_thread(write_equal, source_cluster, topic_name, 9)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
        await (await log_of(flow.source, topic_name)).delete_before(17)
    copied = await copied_of(destination_cluster, topic_name)
    assert (len(copied), len(set(copied))) == (12, 1)
    await asyncio.to_thread(write_equal, source_cluster, topic_name, 8)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        assert await flow.halted(topic_name) == "ambiguous_position"
        here, there = await log_of(flow.source, topic_name), await log_of(flow.destination, topic_name)
        with pytest.raises(Ambiguous, match="the source begins at 17"):
            await translation(await _state(flow.destination), here, there, committed=True)
    assert await copied_of(destination_cluster, topic_name) == copied


@pytest.mark.parametrize("version", ["3.9.2", "4.3.0"])
async def test_a_destination_made_anew_while_it_runs(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    version: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    1. All is copied; the destination topic is made anew, others write more to it than there was, the source goes on.
    2. Kafka before 4.1 takes that by the topic's name: seen at the next look at the ids. Nothing is translated now.
    3. Resuming does not copy it a second time, and says that it is there. The topic is deleted once more, and resumed:
       all is copied, once, and the map is true.
    """
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", 1.0 if version == "4.3.0" else 1e9)
    if version == "4.3.0":
        await _made_anew(source_cluster, destination_cluster, topic_name, begun=False)
        return
    with SandboxCluster(name="old", version=version, properties=PATIENT, quick=True) as old:
        await _made_anew(source_cluster, old, topic_name, begun=True)


async def _state(destination: Cluster) -> InternalTopic:
    state = InternalTopic(destination, FLOW)
    assert await state.open(create=False)
    return state


async def _made_anew(source: SandboxCluster, destination: SandboxCluster, topic: str, *, begun: bool) -> None:
    create(source, topic)
    create(destination, topic)
    write(source, topic, 0, 5)
    async with mapping(source, destination, topic) as flow:
        await flow.copied(topic)
        await flow.relay.durable.write_down()
        await asyncio.to_thread(delete_topic, destination.bootstrap_servers, topic)
        create(destination, topic)
        await asyncio.to_thread(write, destination, topic, 100, 10)
        if begun:
            await asyncio.to_thread(write, source, topic, 10, 2)
            await flow.copied(topic)
            flow.relay.look_now()
        assert await flow.halted(topic) == "recreated"
        here, there = await log_of(flow.source, topic), await log_of(flow.destination, topic)
        with pytest.raises(Differs, match="what is known of the copy is of"):
            await translation(await _state(flow.destination), here, there, committed=True)
        if begun:
            assert await flow.relay.resume((topic, 0)) == ""
            assert await flow.halted(topic) == "recreated"
            assert "has batches of this flow already" in flow.log.of("halted")[-1]["detail"]
            await asyncio.to_thread(delete_topic, destination.bootstrap_servers, topic)
        assert await flow.relay.resume((topic, 0)) == ""
        await flow.copied(topic)
        assert await flow.relay.drain()
    found = await written_map(destination, topic)
    assert await assert_exact(source, destination, topic, found) == (0 if begun else 10)
