"""Only what is known to be a copy gets partitions: more of them would send other writers' keys elsewhere, for ever."""

import time

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.loop import until
from tests.net.stage.real import create, records
from tests.relay.stage.flows import batches, clusters, copies, fill, mirroring
from tests.relay.stage.mapping import mapping


async def test_a_strange_topic_does_not_grow() -> None:
    """
    1. The destination has a topic of the name, with fewer partitions and somebody else's records.
    2. Its partition halts, and the one that it lacks says why none are added, and what to do. At no later look either.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        destination.add_topic("t")
        destination.store("t", 0, *batches(2, size=30))
        async with mirroring(source, destination, refresh_topics_interval_ms=10) as flow:
            assert await flow.halted() in ("foreign_writer", "not_a_copy")
            assert await flow.halted(index=1) == "fewer_partitions"
            looks = len(source.seen("Metadata"))
            await until(lambda: len(source.seen("Metadata")) > looks + 5)
            assert len(destination.topics["t"].logs) == 1
            assert not destination.seen("CreatePartitions")
            halted = flow.partition(index=1).halted
            assert halted is not None
            assert "none are added: t-0 at destination ends at offset 6, and is not known" in halted.detail
            assert "exclude the source's topic" in halted.remedy


async def test_a_copy_grows_once_its_log_shows_it() -> None:
    """Nothing is written down of it (the internal topic is another one now): it grows when it was located."""
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        destination.add_topic("t")
        of = source.log("t").batches[:5]
        for sequence, one in enumerate(of):
            (sent,) = copies([one], cluster_id=source.cluster_id, sequence=3 * sequence)
            destination.log("t").produce(sent)
        async with mirroring(source, destination, refresh_topics_interval_ms=10) as flow:
            assert flow.relay.pairs["t"].strange
            await flow.copied()
            assert flow.log.of("healed")
            assert len(flow.log.of("partitions_added")) == 1


async def test_a_topic_that_held_nothing_grows_at_once() -> None:
    """So does one whose source grows while it is copied; nobody halts."""
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        destination.add_topic("t")
        async with mirroring(source, destination, refresh_topics_interval_ms=10) as flow:
            await flow.copied()
            log = source.topics["t"].logs[0]
            source.topics["t"].logs[2] = type(log)(leader=log.leader)
            source.store("t", 2, *batches(3))
            await flow.copied()
            assert not flow.log.of("halted")


async def test_whether_it_is_a_copy_cannot_be_asked_now() -> None:
    """Nothing is added, and the cause is named; the next look asks again."""
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        destination.add_topic("t")
        destination.next("ListOffsets", faults.refuse(ErrorCode.KAFKA_STORAGE_ERROR))
        async with mirroring(source, destination, refresh_topics_interval_ms=10) as flow:
            assert "is not known now: " in flow.relay.pairs["t"].strange
            await flow.copied()


@pytest.mark.broker
async def test_a_strange_topic_of_a_real_cluster(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """It keeps its one partition. That of another topic, whose source grows, is added meanwhile."""
    beside = f"{topic_name}-beside"
    create(source_cluster, topic_name, partitions=2)
    create(destination_cluster, topic_name)
    records(source_cluster, topic_name, ["of the source"])
    records(destination_cluster, topic_name, ["of others"])
    create(source_cluster, beside)
    records(source_cluster, beside, ["of the source"])
    there = AdminClient({"bootstrap.servers": destination_cluster.bootstrap_servers})
    async with mapping(
        source_cluster, destination_cluster, topic_name, beside, mapped=False, refresh_topics_interval_ms=200
    ) as flow:
        await flow.copied(beside)
        assert await flow.halted(topic_name) == "foreign_writer"
        assert await flow.halted(topic_name, 1) == "fewer_partitions"
        grow(source_cluster, beside, 2)
        records(source_cluster, beside, ["of the new partition"], partition=1)
        await flow.copied(beside, partition=1)
        assert len(there.list_topics(topic_name).topics[topic_name].partitions) == 1


def grow(sandbox: SandboxCluster, topic: str, partitions: int) -> None:
    """Gives a topic so many partitions."""
    admin = AdminClient({"bootstrap.servers": sandbox.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result()
    while len(admin.list_topics(topic).topics[topic].partitions) < partitions:
        time.sleep(0.02)
