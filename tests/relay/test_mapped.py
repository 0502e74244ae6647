"""``offsets: mapped`` between real clusters: others write to the destination, workers die, and the map is exact."""

import asyncio

import pytest

from mirror.sandbox import Cluster as Sandbox
from tests.net.real import create, records, transaction
from tests.relay.mapping import assert_exact, mapping, written_map

pytestmark = pytest.mark.broker


def write(sandbox: Sandbox, topic: str, first: int, count: int, *, partition: int = 0, size: int = 3) -> None:
    """Batches of records, no two alike."""
    for number in range(first, first + count):
        records(sandbox, topic, [f"{topic} {partition} {number} {at}" for at in range(size)], partition=partition)


async def test_among_the_batches_of_others(
    source_cluster: Sandbox, destination_cluster: Sandbox, topic_name: str
) -> None:
    """
    1. A source with holes, a destination that others write to before, while and after.
    2. A clean stop: the map that was written down is exact.
    3. More on both sides, a second life, another clean stop: still.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(destination_cluster, topic_name, 900, 2)
    write(source_cluster, topic_name, 0, 3)
    transaction(source_cluster, topic_name, ["aborted 1", "aborted 2"], commit=False, transactional_id=topic_name)
    transaction(source_cluster, topic_name, ["kept 1", "kept 2"], commit=True, transactional_id=topic_name)
    for life in range(2):
        async with mapping(source_cluster, destination_cluster, topic_name) as flow:
            await flow.copied(topic_name)
            await asyncio.to_thread(write, destination_cluster, topic_name, 910 + life, 1)
            await asyncio.to_thread(write, source_cluster, topic_name, 10 + life, 1)
            await flow.copied(topic_name)
            assert await flow.relay.drain()
        found = await written_map(destination_cluster, topic_name)
        assert await assert_exact(source_cluster, destination_cluster, topic_name, found) == 3 + life
