"""Who holds the partitions, by the group's own word, from real brokers."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer

from mirror.net.cluster import Cluster as Client
from mirror.net.errors import Refused
from mirror.net.options import ClusterOptions
from mirror.sandbox import SandboxCluster
from mirror.service.group.holders import Holders, holders
from tests.service.stage.kafka_side import create_topic
from tests.service.stage.running import PATIENCE_S

pytestmark = pytest.mark.broker


def asked(cluster: SandboxCluster, group: str, topic: str, partitions: int, *, mark: str = "") -> Holders:
    """As the coordinator says; one that is still being made is waited for."""

    async def ask() -> Holders:
        (broker,) = cluster.brokers
        options = ClusterOptions(bootstrap=(("127.0.0.1", broker.port),))
        async with await Client.open("source", options) as client:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                with suppress(Refused):
                    keys = [(topic, index) for index in range(partitions)]
                    found = await holders(client, group, keys, mark=mark)
                    if found.unassigned is not None:
                        return found
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)

    return asyncio.run(ask())


def until(condition: Callable[[], Any], consumer: Consumer) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        consumer.poll(0.1)


def test_who_holds_what(source_cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. A group that nobody has joined: all partitions are held by nobody.
    2. A member holds those of one topic. Of another, nobody does. Nor does it where it is no mirror of the flow.
    3. It leaves.
    """
    other = f"{topic_name}-other"
    for name in (topic_name, other):
        create_topic(source_cluster.bootstrap_servers, name, 3)
    assert asked(source_cluster, topic_name, topic_name, 3) == Holders(0, 3)
    consumer = Consumer(
        {
            "bootstrap.servers": source_cluster.bootstrap_servers,
            "group.id": topic_name,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([topic_name])
    until(lambda: asked(source_cluster, topic_name, topic_name, 3) == Holders(1, 0), consumer)
    assert asked(source_cluster, topic_name, other, 3) == Holders(1, 3)
    stranger = asked(source_cluster, topic_name, topic_name, 3, mark="-group-of-f")
    assert stranger == Holders(1, 3, ("rdkafka at 127.0.0.1",))
    consumer.close()
    assert asked(source_cluster, topic_name, topic_name, 3) == Holders(0, 3)
