"""``mirror run`` from logs that do not begin at 0: the copy begins there, too, and stays there."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from mirror.records.filler import filler_batch
from mirror.sandbox import SandboxCluster
from tests.net.stage.real import log_of, opened
from tests.patience import KEEPING
from tests.service.stage.kafka_side import assert_identical, create_topic, end_of, produce, start_of
from tests.service.stage.running import Mirror, config_text, mirror

pytestmark = pytest.mark.broker

STARTS = (1_234_567, 0, 40_000)
"""Of the partitions."""


def begin_at(cluster: SandboxCluster, topic: str, starts: Mapping[int, int]) -> None:
    """Moves the starts of a topic's empty partitions."""

    async def fill() -> None:
        async with opened(cluster) as there:
            for partition, start in starts.items():
                log = await log_of(there, topic, partition)
                for offset in range(0, start, 1_000_000):
                    count = min(1_000_000, start - offset)
                    await log.produce(
                        filler_batch(producer=1 << 40, offset=offset, count=count, timestamp=1_700_000_000_000)
                    )

    asyncio.run(fill())
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = [TopicPartition(topic, partition, start) for partition, start in starts.items()]
    for future in admin.delete_records(wanted).values():
        future.result()


def set_policy(cluster: SandboxCluster, topic: str, policy: str) -> None:
    """The topic's cleanup.policy."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def policy_of(cluster: SandboxCluster, topic: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    value: str | None = future.result()["cleanup.policy"].value
    return value


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_the_copy_begins_there(source_cluster: SandboxCluster, topic_name: str, tmp_path: Path, policy: str) -> None:
    """
    1. Three partitions, two of which do not begin at 0: the destination's begin at the same offsets, and are equal.
    2. The mirror and the destination's broker are killed at once, and come back: all as before, and it goes on.
    """
    source = source_cluster.bootstrap_servers
    create_topic(source, topic_name, len(STARTS))
    begin_at(source_cluster, topic_name, {index: start for index, start in enumerate(STARTS) if start})
    set_policy(source_cluster, topic_name, policy)
    codec = {"delete": "zstd", "compact": "lz4"}[policy]
    produce(source, topic_name, 300, partitions=len(STARTS), codec=codec, keyed=True)
    with SandboxCluster(name="destination", properties=KEEPING, quick=True) as destination_cluster:
        destination = destination_cluster.bootstrap_servers

        def same(process: Mirror) -> None:
            def bounds_equal() -> bool:
                return all(
                    start_of(destination, topic_name, index) == start
                    and end_of(destination, topic_name, index) == end_of(source, topic_name, index)
                    for index, start in enumerate(STARTS)
                )

            process.wait_for(bounds_equal, "equal bounds")
            process.wait_for(lambda: policy_of(destination_cluster, topic_name) == policy, f"policy {policy}")

        config = config_text(source, destination, [topic_name])
        with mirror(tmp_path / "mirror.yaml", config) as process:
            process.wait_event("started")
            same(process)
            process.process.kill()
        (broker,) = destination_cluster.brokers
        broker.kill()
        broker.start()
        produce(source, topic_name, 300, partitions=len(STARTS), codec=codec, seed=1, keyed=True)
        with mirror(tmp_path / "mirror.yaml", config) as process:
            process.wait_event("started")
            same(process)
            assert process.stop() == 0
            assert not process.of("halted")
        assert assert_identical(source, destination, [topic_name], len(STARTS))
