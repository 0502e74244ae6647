"""What a group has committed, asked without joining it, and on a cluster that no group has used."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.net.coordinator import GROUP, find_coordinators
from mirror.relay.partition.claim import Committed
from mirror.sandbox import SandboxCluster
from mirror.service.plan.ask.clusters import group_rights
from mirror.service.plan.ask.group import committed
from tests.fakes.loop import pytest_pyfunc_call, until  # noqa: F401 - a hook
from tests.net.stage.real import opened
from tests.service.stage.kafka_side import create_topic

pytestmark = pytest.mark.broker


@pytest.fixture
def unused() -> Iterator[SandboxCluster]:
    with SandboxCluster(name="unused", quick=True) as cluster:
        yield cluster


async def test_a_group_that_has_committed(source_cluster: SandboxCluster, topic_name: str) -> None:
    create_topic(source_cluster.bootstrap_servers, topic_name, 3)
    settings = {"bootstrap.servers": source_cluster.bootstrap_servers, "group.id": f"g-{topic_name}"}
    metadata = '{"v":1,"id":"ab","epoch":3,"digest":"cd","at":7,"leader":4}'
    consumer = Consumer(settings)
    consumer.commit(
        offsets=[TopicPartition(topic_name, 1, 7, metadata), TopicPartition(topic_name, 2, 9)], asynchronous=False
    )
    consumer.close()
    async with opened(source_cluster) as cluster:
        assert await committed(cluster, f"g-{topic_name}") == {
            (topic_name, 1): Committed(7, "ab", 3, "cd", 7, 4),
            (topic_name, 2): Committed(9),
        }
        rights, forbidden = await group_rights(cluster, f"g-{topic_name}")
        assert rights is not None
        assert "Read" in rights
        assert not forbidden


async def test_a_cluster_without_groups(unused: SandboxCluster) -> None:
    """Nobody knows, and Kafka's topic of groups is not created by asking. Looking for a coordinator would create it."""

    def topics() -> list[str]:
        return list(AdminClient({"bootstrap.servers": unused.bootstrap_servers}).list_topics(timeout=30).topics)

    async with opened(unused) as cluster:
        assert await committed(cluster, "nobody") == {}
        assert await group_rights(cluster, "nobody") == (None, False)
        assert topics() == []
        await find_coordinators(cluster, GROUP, ["nobody"])
        await until(lambda: topics() == ["__consumer_offsets"], what="the topic of groups")
