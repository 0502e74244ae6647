"""Topic configs of real clusters: what a new topic is given, and what changes while it is copied."""

import time

import pytest
from confluent_kafka import Producer

from mirror.sandbox import SandboxCluster
from tests.net.stage.real import create, log_of
from tests.relay.stage.mapping import mapping

pytestmark = pytest.mark.broker

HOUR_MS = 3_600_000


def ahead(sandbox: SandboxCluster, topic: str, hours: int) -> None:
    """A record by a clock that is so many hours ahead."""
    producer = Producer({"bootstrap.servers": sandbox.bootstrap_servers, "log_level": 0})
    producer.produce(topic, "from tomorrow", timestamp=round(time.time() * 1000) + hours * HOUR_MS, partition=0)
    assert producer.flush(30) == 0


async def test_a_clock_two_hours_ahead(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. The source takes records from up to a day ahead; the destination's default is an hour.
    2. The mirror creates the topic, and what is two hours ahead is copied.
    3. A topic that exists with the default: a warning names config and both values, and the partition halts there.
    """
    narrow = f"{topic_name}-narrow"
    for name in (topic_name, narrow):
        create(source_cluster, name, message_timestamp_after_max_ms=str(24 * HOUR_MS))
        ahead(source_cluster, name, 2)
    create(destination_cluster, narrow)
    async with mapping(source_cluster, destination_cluster, topic_name, narrow, mapped=False) as flow:
        await flow.copied(topic_name)
        assert await (await log_of(flow.destination, topic_name)).true_end() == 1
        assert await flow.halted(narrow) == "invalid_timestamp"
        (told,) = flow.log.of("destination_narrower")
        assert f"{narrow} at destination: message.timestamp.after.max.ms=3600000 refuses" in told["detail"]
        assert told["needed"] == 24 * HOUR_MS
