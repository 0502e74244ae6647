"""Transactional ids on real brokers: taken over, looked at, and used for one empty transaction."""

import asyncio
from contextlib import suppress

import pytest

from mirror.net.cluster import Cluster
from mirror.net.coordinator import NOBODY, Coordinator, Ownership
from mirror.net.errors import NetworkError, Refused
from mirror.net.logs.log import PartitionLog
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from tests.fakes.loop import until
from tests.net.stage.real import consumed, create, log_of, opened, records, transaction

pytestmark = pytest.mark.broker

FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


def describes(cluster: Cluster) -> bool:
    """DescribeTransactions came with Kafka 3.0."""
    return any(65 in connection.api_versions for connection in cluster._control.values())


async def until_end(log: PartitionLog, end: int) -> None:
    """Waits for the marker that a coordinator writes."""
    while await log.visible_end() != end:  # noqa: ASYNC110 - a log has no event
        await asyncio.sleep(0.01)


async def test_takeover(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. Nobody owns an id that nobody took. The first owner sees itself; so does everybody else.
    2. A second one takes over: the same producer id in a later epoch, as the first one sees.
    """
    name = f"mirror.dc1->dc2.{topic_name}.0"
    async with opened(sandbox) as cluster, opened(sandbox) as other:
        ours, theirs = Coordinator(cluster), Coordinator(other)
        nobody = await ours.describe(name)
        first = await ours.init_producer_id(name)
        known = describes(cluster)
        assert nobody == (NOBODY if known else None)
        assert await theirs.describe(name) == (first if known else None)
        second = await theirs.init_producer_id(name)
        assert second == Ownership(first.producer_id, first.epoch + 1)
        assert await ours.describe(name) == (second if known else None)


async def test_many_ids_at_once(sandbox: SandboxCluster, topic_name: str) -> None:
    """Two hundred partitions: found, taken and described together, each with its own."""
    names = [f"mirror.{topic_name}.{number}" for number in range(200)]
    async with opened(sandbox) as cluster:
        coordinator = Coordinator(cluster)
        owners = await asyncio.gather(*(coordinator.init_producer_id(name) for name in names))
        assert len({owner.producer_id for owner in owners}) == len(names)
        if describes(cluster):
            assert await asyncio.gather(*(coordinator.describe(name) for name in names)) == owners


async def test_an_empty_transaction_is_one_marker(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. Three empty transactions behind two records: an offset each, and records go on behind them.
    2. The owner stays the same, and consumers see the records only. Somebody takes over: the first owner is refused.
    """
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        log, coordinator = await log_of(cluster, topic_name), Coordinator(cluster)
        records(sandbox, topic_name, ["a", "b"])
        owner = await coordinator.init_producer_id(topic_name)
        for number in range(3):
            await coordinator.abort_empty(topic_name, owner, topic_name, 0)
            await until_end(log, 3 + number)
        found = await log.batch_at(4)
        assert found is not None
        assert found[0].is_control
        assert (found[0].producer_id, found[0].producer_epoch) == owner
        if describes(cluster):
            assert await coordinator.describe(topic_name) == owner
        records(sandbox, topic_name, ["c"])
        taken = await Coordinator(cluster).init_producer_id(topic_name)
        assert taken.epoch > owner.epoch
        with pytest.raises(Refused) as caught:
            await coordinator.abort_empty(topic_name, owner, topic_name, 0)
        assert caught.value.code in FENCED
        assert await log.true_end() == 6
    for isolation in ("read_uncommitted", "read_committed"):
        assert await consumed(sandbox, topic_name, 6, isolation=isolation) == [(0, "a"), (1, "b"), (5, "c")]


async def test_a_takeover_ends_what_was_open(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. A transaction is left open: its owner is taken over, which aborts it. The marker is there when that returns.
    """
    create(sandbox, topic_name)
    async with opened(sandbox) as cluster:
        log, coordinator = await log_of(cluster, topic_name), Coordinator(cluster)
        transaction(sandbox, topic_name, ["a"], commit=None, transactional_id=topic_name)
        assert await log.true_end() == 1
        await coordinator.init_producer_id(topic_name)
        assert await log.true_end() == 2
        found = await log.batch_at(1)
        assert found is not None
        assert found[0].is_control


async def test_the_coordinator_moves() -> None:
    """
    1. Three brokers; the one that coordinates an id is killed: after a while, another one does, with the same owner.
    2. Its topic's partition gets the marker all the same.
    """
    with SandboxCluster(name="three", brokers=3, quick=True) as sandbox:
        create(sandbox, "t", partitions=1, replicas=3)
        async with opened(sandbox) as cluster:
            coordinator = Coordinator(cluster)
            owner = await coordinator.init_producer_id("id")
            first = coordinator._nodes["id"]
            broker = sandbox.brokers[first - 1]
            broker.kill()
            found = None
            while found is None:  # the brokers may need longer for it than a question waits
                with suppress(NetworkError):
                    found = await coordinator.describe("id")
            assert found == owner
            assert coordinator._nodes["id"] != first
            owner = await coordinator.init_producer_id("id")
            log = await log_of(cluster, "t")
            await coordinator.abort_empty("id", owner, "t", 0)
            await until_end(log, 1)
            broker.start()
            await until(lambda: broker.running)


async def test_an_id_is_renewed_by_its_owner_only(sandbox: SandboxCluster, topic_name: str) -> None:
    """
    1. The owner uses its id: the same producer id, a later epoch. Nobody owns an id of another name.
    2. Somebody takes over: the first owner is refused, and the second one renews its own.
    """
    async with opened(sandbox) as cluster:
        coordinator = Coordinator(cluster)
        first = await coordinator.init_producer_id(topic_name)
        renewed = await coordinator.renew(topic_name, first)
        assert renewed == Ownership(first.producer_id, first.epoch + 1)
        taken = await Coordinator(cluster).init_producer_id(topic_name)
        assert taken == Ownership(first.producer_id, first.epoch + 2)
        with pytest.raises(Refused) as caught:
            await coordinator.renew(topic_name, renewed)
        assert caught.value.code in FENCED
        assert (await coordinator.renew(topic_name, taken)).epoch > taken.epoch
