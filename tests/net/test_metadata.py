"""What a cluster's brokers say of it: its id, topics and leaders, and which of two answers counts."""

import asyncio
import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net import cluster as cluster_module
from mirror.net.cluster import Cluster
from mirror.net.errors import WrongCluster
from mirror.net.metadata import Leader, no_leader
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import Node
from tests.fakes import faults
from tests.fakes.broker import FakeCluster


@pytest.mark.parametrize("version", [4, 7, 9, 10, 12, 13])
async def test_metadata_versions(version: int) -> None:
    """Ids from v10, leader epochs from v7; a cluster that has no ids says so with zeros."""
    async with FakeCluster(versions={"Metadata": (0, version)}) as fake:
        topic = fake.add_topic("t", internal=True)
        fake.log("t").epoch = 5
        async with await Cluster.open("source", fake.options()) as cluster:
            assert await cluster.refresh(["t"]) == {}
            found = cluster.topics["t"]
            assert found.internal
            assert found.leaders == {0: Leader(1, 5 if version >= 7 else -1)}
            assert found.topic_id == (topic.topic_id.bytes if topic.topic_id else None)
            assert (found.topic_id is None) == (version < 10)
            topic.topic_id = uuid.UUID(int=0)
            await cluster.refresh(["t"])
            assert cluster.topics["t"].topic_id is None


async def test_another_cluster_at_the_same_address() -> None:
    """
    1. A cluster is known; its connections break, and another cluster answers at its port.
    2. The refresh says so and keeps nothing; when the first is back, all is well.
    """
    async with FakeCluster("first") as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.add_topic("t")
        await cluster.refresh(["t"])
        known, fake.cluster_id = fake.cluster_id, "another"
        fake.topics.clear()
        with pytest.raises(WrongCluster, match=f"cluster source was {known}, and now another answers"):
            await cluster.refresh(["t"])
        assert "t" in cluster.topics
        fake.cluster_id = known
        assert await cluster.refresh(["t"]) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# Topics and leaders.


async def test_refresh() -> None:
    """
    1. All topics; those that are gone are forgotten.
    2. Some topics: the others are kept, an unknown one is told with its code, and its old entry is dropped.
    """
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        for name in "abc":
            fake.add_topic(name, partitions=2)
        assert await cluster.refresh(None) == {}
        assert set(cluster.topics) == {"a", "b", "c"}
        assert cluster.leader("a", 0) == Leader(1, 0)
        assert cluster.leader("a", 1) == Leader(2, 0)
        assert cluster.leader("a", 2) is None
        assert cluster.leader("x", 0) is None
        del fake.topics["b"]
        assert await cluster.refresh(["b", "c"]) == {"b": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert set(cluster.topics) == {"a", "c"}
        del fake.topics["a"]
        await cluster.refresh(None)
        assert set(cluster.topics) == {"c"}


async def test_a_partition_without_a_leader() -> None:
    """It is still one of the topic's partitions (a new topic must get as many), and nobody leads it."""
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.add_topic("t", partitions=2)
        await fake.stop(2)
        await cluster.refresh(["t"])
        assert cluster.topics["t"].leaders == {0: Leader(1, 0), 1: Leader(-1, 0)}
        assert cluster.leader("t", 1) is None


async def test_who_is_missing_where_a_partition_has_no_leader() -> None:
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.add_topic("t", partitions=2)
        await fake.stop(2)
        await cluster.refresh(["t"])
        topic = cluster.topics["t"]
        assert list(topic.down) == [1]
        told = "cluster source: t-1 has no leader at present; its replicas are on broker 2, and 2 is down"
        assert str(no_leader("source", "t", 1, topic)) == told


async def test_a_missing_follower_does_not_matter() -> None:
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.add_topic("t")

        def change(answer: object) -> None:
            answer.topics[0].partitions[0].error_code = ErrorCode.REPLICA_NOT_AVAILABLE  # type: ignore[attr-defined]

        fake.next("Metadata", faults.alter(change))
        await cluster.refresh(["t"])
        assert cluster.leader("t", 0) == Leader(1, 0)


async def test_hints() -> None:
    """
    1. A leader of a later epoch is believed, with its address, even if the broker was not known.
    2. One of the same or an earlier epoch is not, nor one without an address, nor of a topic that is not known.
    """
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.add_topic("t")
        fake.log("t").epoch = 4
        await cluster.refresh(["t"])
        assert not cluster.hint("t", 0, (2, 5), [])
        assert not cluster.hint("x", 0, (1, 9), [])
        assert cluster.hint("t", 0, (2, 5), [Node(2, "127.0.0.1", 1)])
        assert cluster.leader("t", 0) == Leader(2, 5)
        for epoch in (4, 5):
            assert not cluster.hint("t", 0, (1, epoch), [])
        assert cluster.leader("t", 0) == Leader(2, 5)
        assert cluster.hint("t", 7, (1, 0), [])


async def test_stale_metadata_does_not_undo_a_hint() -> None:
    """
    1. The leader moved, and the answer that said so was believed; the next metadata come from a broker that is behind.
    2. The later epoch stays, until the topic is another one (deleted and made anew, its epochs begin at 0).
    """
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        topic = fake.add_topic("t")
        await cluster.refresh(["t"])
        assert cluster.hint("t", 0, (2, 1), [])
        await cluster.refresh(["t"])
        assert cluster.leader("t", 0) == Leader(2, 1)
        topic.topic_id = uuid.uuid4()
        await cluster.refresh(["t"])
        assert cluster.leader("t", 0) == Leader(1, 0)


async def test_a_broker_that_stays_behind_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A former leader that is cut off from its cluster answers from its old state, for however long, and all requests
    for metadata go to the same open connection. What it says does not become true by being said again: the partition's
    log would seem to have lost its end."""
    async with FakeCluster(brokers=2) as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.add_topic("t")
        await cluster.refresh(["t"])
        assert cluster.hint("t", 0, (2, 1), [])
        now = time.monotonic()
        monkeypatch.setattr(cluster_module, "time", SimpleNamespace(monotonic=lambda: now))
        for _ in range(10):
            now += 600.0
            await cluster.refresh(["t"])
            assert cluster.leader("t", 0) == Leader(2, 1)


async def test_when_a_topic_was_last_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, also in vain, or with all topics. What is said of others says nothing of it. What an answer says
    counts from when its request was sent."""
    now = [1_000.0]
    monkeypatch.setattr(cluster_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    async with FakeCluster() as fake, await Cluster.open("source", fake.options()) as cluster:
        fake.add_topic("t")

        def known() -> list[float]:
            return [cluster.refreshed_of(name) for name in ("t", "u")]

        assert known() == [0, 0]
        await cluster.refresh(["t"])
        now[0] += 1
        await cluster.refresh(["u"])
        assert known() == [1_000, 1_001]
        now[0] += 1
        await cluster.refresh(None)
        assert known() == [1_002, 1_002]
        now[0] += 1
        await cluster.refresh(["t"])
        assert known() == [1_003, 1_002]
        held = fake.next("Metadata", faults.held())
        asking = asyncio.create_task(cluster.refresh(["t"]))
        await held.came.wait()
        now[0] += 60  # this process is stopped, say, and the answer was there long before it is read
        held.open()
        await asking
        assert known() == [1_003, 1_002]
        await cluster.refresh(["t"])
        assert known() == [1_063, 1_002]


async def test_the_ids_that_all_brokers_tell() -> None:
    """One has not heard yet of a topic that was made anew, one of none of that name, one does not answer. Nothing of
    what they say is stored."""
    async with FakeCluster(brokers=4) as fake, await Cluster.open("source", fake.options()) as cluster:
        topic, former = fake.add_topic("t"), uuid.uuid4()
        assert topic.topic_id is not None
        assert await cluster.ids_of("t", patience_s=5) == ({topic.topic_id.bytes}, 0)

        def behind(answer: Any) -> None:
            answer.topics[0].topic_id = former

        def unaware(answer: Any) -> None:
            answer.topics[0].error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer.topics[0].topic_id = uuid.UUID(int=0)

        fake.next("Metadata", faults.alter(behind), node_id=1)
        fake.next("Metadata", faults.alter(unaware), node_id=2)
        fake.next("Metadata", faults.disconnect(), node_id=3)
        assert await cluster.ids_of("t", patience_s=5) == ({topic.topic_id.bytes, former.bytes}, 1)
        assert "t" not in cluster.topics
