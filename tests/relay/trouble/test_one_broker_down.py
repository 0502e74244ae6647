"""A destination one of whose brokers is down, hangs, or is not replicated: what the others lead is copied."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost, NetworkError, RequestTimedOut
from mirror.net.options import ConnectionOptions
from mirror.relay.locate import resync, seeking
from mirror.relay.locate.resync import LOOKS
from mirror.relay.locate.seeking import REFRESH_AT_MOST_EVERY_S, Seeking
from mirror.relay.partition.partition import Partition
from mirror.relay.watch.expiry import EXPIRATION_MARGIN_MS, PRODUCER_EXPIRATION_MS, ProducerExpiry
from mirror.wire.errors import ErrorCode
from mirror.wire.versions import PRODUCE_KEY
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import Log, batches, clusters, mirroring

BROKERS = (1, 2, 3)
HOUR_MS = 3_600_000


def three_topics(source: FakeCluster, destination: FakeCluster) -> None:
    """Topic "t", a partition for each broker, on both sides; the source has one broker."""
    for cluster in (source, destination):
        cluster.add_topic("t", partitions=len(BROKERS))
    for index in range(len(BROKERS)):
        source.store("t", index, *batches(5))


@pytest.mark.parametrize("down", BROKERS)
async def test_started_while_one_broker_is_down(down: int) -> None:
    """
    1. One of the three brokers is down, and still in the metadata. The flow starts, whichever it is.
    2. The partitions that the others lead are copied.
    3. The broker comes back: so is its own.
    """
    async with clusters(brokers=3) as (source, destination):
        three_topics(source, destination)
        destination.unnoticed = True
        await destination.stop(down)
        async with mirroring(source, destination) as flow:
            await flow.copied(*[("t", node_id - 1) for node_id in BROKERS if node_id != down])
            waits = flow.partition("t", down - 1)
            assert waits.queue.acknowledged < 0
            await until(lambda: waits.waiting is not None and waits.waiting.failed)
            assert waits.waiting is not None
            assert f"destination broker {down} at " in waits.waiting.reason
            await destination.start(down)
            await flow.copied()
            assert waits.waiting is None


@pytest.mark.parametrize("down", BROKERS)
async def test_topics_are_created_while_one_broker_is_down(down: int) -> None:
    """The controller of the metadata is the broker that is down: another one is asked, which passes it on (KRaft)."""
    async with clusters(brokers=3) as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(5))
        destination.unnoticed = True
        await destination.stop(down)
        destination.controller_id = down
        async with mirroring(source, destination) as flow:
            await until(lambda: "t" in destination.topics)
            destination.lead("t", 0, down % 3 + 1)
            await flow.copied()


async def test_what_brokers_remember_is_the_least_that_one_answers() -> None:
    """
    1. Brokers that do not answer, or may not be asked, say nothing; of the others the least counts.
    2. Nobody says anything: Kafka's default, less a margin, and a warning; or what was known before.
    """
    async with (
        clusters(brokers=3) as (_, destination),
        await Cluster.open("destination", destination.options()) as cluster,
    ):
        destination.producer_id_expiration_ms = 10 * HOUR_MS
        destination.next("DescribeConfigs", faults.disconnect(), node_id=1)
        destination.next("DescribeConfigs", faults.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), node_id=3)
        memory = ProducerExpiry(cluster, log := Log())
        await memory.ask()
        assert memory.ms == 10 * HOUR_MS - EXPIRATION_MARGIN_MS
        assert not log.lines
        for node_id in BROKERS * 2:  # asked again without names of configs
            destination.next("DescribeConfigs", faults.disconnect(), node_id=node_id)
        fresh = ProducerExpiry(cluster, log)
        await fresh.ask()
        assert fresh.ms == PRODUCER_EXPIRATION_MS - EXPIRATION_MARGIN_MS
        assert log.of("producer_memory_assumed")
        for node_id in BROKERS * 2:  # asked again without names of configs
            destination.next("DescribeConfigs", faults.disconnect(), node_id=node_id)
        await memory.ask()
        assert memory.ms == 10 * HOUR_MS - EXPIRATION_MARGIN_MS


async def test_the_version_is_one_that_every_broker_speaks() -> None:
    """In the middle of an upgrade: the version of the oldest broker, whichever is asked first."""

    def older(answer: Any) -> None:
        for api in answer.api_keys:
            if api.api_key == PRODUCE_KEY:
                api.max_version = 9

    async with clusters(brokers=3) as (source, destination):
        three_topics(source, destination)
        destination.next("ApiVersions", faults.alter(older), node_id=2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
        assert {seen.version for seen in destination.seen("Produce")} == {9}


async def _first_only(self: Cluster, ask: Callable[[int], Awaitable[int]], *, patience_s: float) -> list[int]:
    return [await ask(next(iter(self.nodes)))]


async def test_without_asking_all_of_them_it_does_not_start() -> None:
    """The mutation: only the first broker is asked."""
    async with clusters(brokers=3) as (source, destination):
        three_topics(source, destination)
        destination.unnoticed = True
        await destination.stop(BROKERS[0])
        with patch.object(Cluster, "ask_all", _first_only):
            async with mirroring(source, destination, start=False) as flow:
                with pytest.raises(NetworkError):
                    await flow.relay.start()


# Seats.

CROWD = 4
"""Partitions whose position is sought at the same time in these tests."""


@pytest.fixture
def few_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeking, "AT_ONCE", CROWD)
    monkeypatch.setattr(resync, "POLL_S", 0.001)


def unreplicated(source: FakeCluster, destination: FakeCluster) -> None:
    """Topic "t": as many partitions as there are seats whose ends are above the high watermark, and one like others."""
    for cluster in (source, destination):
        cluster.add_topic("t", partitions=CROWD + 1)
    for index in range(CROWD + 1):
        source.store("t", index, *batches(5))
        destination.log("t", index).hidden = int(index < CROWD)


async def test_who_waits_for_replicas_gives_the_seat_back(few_seats: None) -> None:
    """
    1. Partitions that are not replicated have taken all seats: each waits for a while only, and the next is copied.
       What they wait for is told, since when, whatever they do meanwhile.
    2. They are replicated: all are copied.
    """
    async with clusters() as (source, destination):
        unreplicated(source, destination)
        async with mirroring(source, destination) as flow:
            await flow.copied(("t", CROWD))
            assert flow.log.of("position_unknown")[0]["detail"].endswith("is replicated to -1")
            waiting = flow.partition().waiting
            assert waiting is not None
            assert waiting.reason.endswith("is replicated to -1")
            since_s = waiting.since_s
            await until(lambda: len(flow.log.of("position_unknown")) > 3 * CROWD)
            waiting = flow.partition().waiting
            assert waiting is not None
            assert waiting.since_s == since_s
            for index in range(CROWD):
                destination.log("t", index).hidden = 0
            await flow.copied()


async def test_without_a_bound_nobody_else_gets_a_seat(few_seats: None) -> None:
    """The mutation: whoever waits for replicas waits in its seat."""
    async with clusters() as (source, destination):
        unreplicated(source, destination)
        with patch.object(resync, "LOOKS", 1 << 60):
            async with mirroring(source, destination) as flow:
                await until(lambda: len(destination.seen("ListOffsets")) > 4 * LOOKS)
                assert flow.partition("t", CROWD).queue.acknowledged < 0


def one_broker_hangs(source: FakeCluster, destination: FakeCluster) -> None:
    """Topics "hangs" and "well", led by one broker each; the one says nothing of log ends."""
    for node_id, (name, partitions) in enumerate((("hangs", CROWD), ("well", 1)), start=1):
        for cluster in (source, destination):
            cluster.add_topic(name, partitions=partitions)
            for index in range(partitions):
                cluster.log(name, index).leader = node_id if cluster is destination else 1
        for index in range(partitions):
            source.store(name, index, *batches(5))
    destination.next("ListOffsets", faults.silence(), node_id=1)


async def test_a_broker_that_hangs_keeps_its_own_seats_only(few_seats: None) -> None:
    async with clusters(brokers=2) as (source, destination):
        one_broker_hangs(source, destination)
        async with mirroring(source, destination) as flow:
            await flow.copied(("well", 0))
            assert flow.relay.states == {"locating": CROWD, "active": 1}
            waiting = flow.partition("hangs").waiting
            assert waiting is not None
            assert waiting.reason == "both logs are looked at: cluster source, broker 1, cluster destination, broker 1"


async def test_with_seats_for_all_brokers_together_it_keeps_them(few_seats: None) -> None:
    """The mutation: one lot of seats."""
    together = asyncio.Semaphore(CROWD)

    def seats_at(self: Seeking, partition: Partition) -> asyncio.Semaphore:
        return together

    async with clusters(brokers=2) as (source, destination):
        one_broker_hangs(source, destination)
        with patch.object(Seeking, "_seats_at", seats_at):
            async with mirroring(source, destination) as flow:
                await until(lambda: destination.seen("ListOffsets"))
                await some_turns(100)
                assert flow.relay.states == {"locating": CROWD + 1}


async def test_a_dial_that_fails_fails_for_all_who_wait() -> None:
    """A broker that hangs keeps whoever asks for it for one timeout, not each of them for one after the other."""
    async with clusters() as (_, destination):
        options = destination.options(connection=ConnectionOptions(client_id="test", request_timeout_s=2))
        async with await Cluster.open("destination", options) as cluster:
            hanging = destination.next("ApiVersions", faults.silence())
            answers = await asyncio.gather(*(cluster.control(1) for _ in range(50)), return_exceptions=True)
            assert hanging.came.is_set()
            assert {type(answer) for answer in answers} == {RequestTimedOut}
            assert len(destination.seen("ApiVersions")) == 2
            one = asyncio.create_task(cluster.control(1))
            other = asyncio.create_task(cluster.control(1))
            await asyncio.sleep(0)
            one.cancel()
            assert not (await other).closed
            assert one.cancelled()


async def test_a_dial_ends_with_the_cluster() -> None:
    """Who waits for a connection is told that the cluster is closed."""
    async with clusters() as (_, destination):
        cluster = await Cluster.open("destination", destination.options())
        hanging = destination.next("ApiVersions", faults.silence())
        waiting = asyncio.create_task(cluster.control(1))
        await hanging.came.wait()
        await cluster.close()
        with pytest.raises(ConnectionLost, match="closed"):
            await waiting


async def test_a_leader_that_moves_right_after_another_topic_was_asked_for() -> None:
    """What the cluster has just said of another topic says nothing of this one: it is asked before the first try."""
    async with clusters(brokers=2) as (source, destination):
        source.add_topic("t")
        source.add_topic("x")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, selects=lambda name: name == "t") as flow:
            await flow.copied(("t", 0))
            await asyncio.sleep(2 * REFRESH_AT_MOST_EVERY_S)
            source.unnoticed = True
            source.lead("t", 0, 2)
            await flow.relay.source.refresh(["x"])
            flow.relay.doubt_now(flow.partition(), "test", "looked for again")
            source.store("t", 0, *batches(1, first=15))
            await flow.copied(("t", 0))
            assert not flow.log.of("position_unknown")
