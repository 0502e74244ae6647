"""Topics that change while revoked partitions are drained, at a real broker: librdkafka then gives up the rebalance
that it is in, and must not be left in it."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from mirror.relay.assignment import Committable, Key
from mirror.relay.partition.claim import Committed
from mirror.sandbox import SandboxCluster
from mirror.service.group.member import Membership
from mirror.service.worker_settings import GroupSettings
from tests.audit.clusters import create
from tests.fakes.loop import until
from tests.relay.stage.flows import Log

pytestmark = pytest.mark.broker
PATIENCE_S = 60.0
"""For what takes a second or two on a quiet machine."""
REFRESH_MS = 500


class Draining:
    """Copies nothing, and drains until it is told that it may end."""

    def __init__(self) -> None:
        self.keys: set[Key] = set()
        self.drains = asyncio.Event()
        self.may_end = asyncio.Event()

    def assign(self, keys: Iterable[Key], committed: Mapping[Key, Committed] | None = None) -> None:
        self.keys.update(keys)

    async def revoke(self, keys: Iterable[Key], timeout_s: float) -> dict[Key, Committable]:
        self.drains.set()
        await self.may_end.wait()
        self.keys.difference_update(keys)
        return {}

    def lose(self, keys: Iterable[Key]) -> None:
        self.keys.difference_update(keys)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SandboxCluster]:
    with SandboxCluster(name="source", properties={"group.min.session.timeout.ms": "500"}, quick=True) as running:
        yield running


def member_of(
    group: str, cluster: SandboxCluster, copying: Draining, log: Log | None = None, *, protocol: str = "classic"
) -> Membership:
    return Membership(
        copying,
        GroupSettings(group_id=group, protocol=protocol, session_timeout_ms=6_000),
        bootstrap=cluster.bootstrap_servers,
        client_id="abandoned",
        drain_timeout_ms=round(PATIENCE_S * 1000),
        refresh_topics_interval_ms=REFRESH_MS,
        log=log or Log(),
    )


async def test_a_topic_grows_while_revoked_partitions_are_drained(cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. One member has a topic; another one joins, and the first one drains what it has to give away.
    2. Meanwhile the topic grows, and the client behind the first seat begins a new rebalance amid the drain.
    3. The first one's topics change: it gets the new topic. Left as it is, its client would ask the group for another
       rebalance after each one, with the topics of before, for ever.
    """
    grows, added = f"{topic_name}-grows", f"{topic_name}-added"
    create(cluster, grows, 4)
    create(cluster, added)
    log, first, second = Log(), Draining(), Draining()
    second.may_end.set()
    one, two = member_of(topic_name, cluster, first, log), member_of(topic_name, cluster, second)
    try:
        one.start([grows])
        await until(lambda: len(first.keys) == 4)
        two.start([grows])
        await asyncio.wait_for(first.drains.wait(), PATIENCE_S)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_partitions([NewPartitions(grows, 5)])[grows].result(PATIENCE_S)
        await until(lambda: second.keys != set())  # although the drain has not ended
        one.subscribe([grows, added])
        first.may_end.set()
        await until(lambda: (added, 0) in first.keys)
        await until(lambda: first.keys | second.keys == {(added, 0), *((grows, index) for index in range(5))})
        assert len(log.of("group_client_replaced")) == 1
    finally:
        first.may_end.set()
        await asyncio.gather(one.stop(), two.stop())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_rebalance_that_comes_to_its_end(cluster: SandboxCluster, topic_name: str, protocol: str) -> None:
    """Partitions are given to a member that joins, come back when it leaves, and a topic is given up: all of it with
    one client."""
    stays, goes = f"{topic_name}-stays", f"{topic_name}-goes"
    create(cluster, stays, 4)
    create(cluster, goes, 2)
    log, first, second = Log(), Draining(), Draining()
    first.may_end.set()
    second.may_end.set()
    one = member_of(topic_name, cluster, first, log, protocol=protocol)
    two = member_of(topic_name, cluster, second, protocol=protocol)
    try:
        one.start([stays, goes])
        await until(lambda: len(first.keys) == 6)
        two.start([stays, goes])
        await until(lambda: len(first.keys) == len(second.keys) == 3)
        for each in (one, two):
            each.subscribe([stays])
        await until(lambda: len(first.keys | second.keys) == 4)
        await two.stop()
        second.keys.clear()
        await until(lambda: len(first.keys) == 4)
        assert first.drains.is_set()
        assert log.of("group_client_replaced") == []
    finally:
        await asyncio.gather(one.stop(), two.stop())
