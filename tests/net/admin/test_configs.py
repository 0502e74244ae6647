"""Configs of topics, from brokers that do not take each form of the question."""

import pytest

from mirror.net.admin.configs import Resource, describe_configs
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from tests.fakes import faults
from tests.fakes.broker import FakeCluster


async def test_a_broker_that_closes_the_connection_when_asked_for_named_configs() -> None:
    """As Tansu does: it is asked for all of them. If that fails, too, the error is told; there is no third try."""
    async with FakeCluster("source") as fake:
        fake.add_topic("t", configs={"cleanup.policy": "compact"})
        async with await Cluster.open("source", fake.options()) as cluster:
            fake.next("DescribeConfigs", faults.disconnect())
            found = await describe_configs(cluster, Resource.TOPIC, ["t"], keys=["cleanup.policy"])
            assert found["t"]["cleanup.policy"].value == "compact"
            assert [seen.request.resources[0].configuration_keys for seen in fake.seen("DescribeConfigs")] == [
                ["cleanup.policy"], None,
            ]  # fmt: skip
            for _ in range(2):
                fake.next("DescribeConfigs", faults.disconnect())
            with pytest.raises(NetworkError):
                await describe_configs(cluster, Resource.TOPIC, ["t"], keys=["cleanup.policy"])
            fake.next("DescribeConfigs", faults.disconnect())
            with pytest.raises(NetworkError):
                await describe_configs(cluster, Resource.TOPIC, ["t"])
            assert len(fake.seen("DescribeConfigs")) == 5
