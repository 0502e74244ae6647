"""The same topic mirrored both ways between two real clusters: each mirror is a foreign writer to the other."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from mirror.relay import resync
from mirror.sandbox import Cluster as Sandbox
from tests.fakes.loop import some_turns, until
from tests.net.real import create, log_of, records
from tests.relay.mapping import MappedFlow, mapping, payloads

pytestmark = pytest.mark.broker

WRITTEN = 12


async def both_ways(stack: AsyncExitStack, one: Sandbox, other: Sandbox, topic: str) -> tuple[MappedFlow, MappedFlow]:
    """A mirror in each direction."""
    there = await stack.enter_async_context(mapping(one, other, topic, mapped=False, flow="there"))
    back = await stack.enter_async_context(mapping(other, one, topic, mapped=False, flow="back"))
    return there, back


async def count(flow: MappedFlow, topic: str) -> int:
    """Records at the flow's source."""
    return sum(content.length for _, content in (await payloads(await log_of(flow.source, topic))).values())


async def unlooked(*_: object, **__: object) -> None:
    """No check of what stands between our batches."""


async def test_the_same_topic_both_ways(
    source_cluster: Sandbox, destination_cluster: Sandbox, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. Mutation: without the rule, every record that is written comes back, again and again, and nothing halts.
    2. Both mirrors are killed and start again, with the rule: the one whose destination holds others' records halts at
       once, and says which.
    3. The other goes on; what is written from then on is copied once, and nothing comes back.
    """
    for sandbox in (source_cluster, destination_cluster):
        create(sandbox, topic_name)
    with monkeypatch.context() as patched:
        patched.setattr(resync, "check_run", unlooked)
        async with AsyncExitStack() as stack:
            there, back = await both_ways(stack, source_cluster, destination_cluster, topic_name)
            await there.copied(topic_name)
            await back.copied(topic_name)
            log = await log_of(there.source, topic_name)
            for times in range(1, 4):
                records(source_cluster, topic_name, [f"record {number}" for number in range(WRITTEN)])
                while await log.visible_end() < 2 * WRITTEN * times:
                    await some_turns()
                await there.copied(topic_name)
                await back.copied(topic_name)
            assert not [*there.log.of("halted"), *back.log.of("halted")]
    async with AsyncExitStack() as stack:
        there, back = await both_ways(stack, source_cluster, destination_cluster, topic_name)
        assert await back.halted(topic_name) == "foreign_writer"
        await _nothing_comes_back(there, back, source_cluster, topic_name)


@pytest.mark.parametrize("more", [0, 3])
async def test_it_ends_as_soon_as_it_begins(
    source_cluster: Sandbox, destination_cluster: Sandbox, topic_name: str, more: int
) -> None:
    """
    1. Both mirrors wait at the ends of empty topics; records are written at one side, some of them in between.
    2. One of the mirrors halts; at most what was under way has come back.
    """
    for sandbox in (source_cluster, destination_cluster):
        create(sandbox, topic_name)
    async with AsyncExitStack() as stack:
        there, back = await both_ways(stack, source_cluster, destination_cluster, topic_name)
        await there.copied(topic_name)
        await back.copied(topic_name)
        for _ in range(1 + more):
            records(source_cluster, topic_name, [f"record {number}" for number in range(WRITTEN)])
        assert await back.halted(topic_name) == "foreign_writer"
        came_back = await count(there, topic_name) - WRITTEN * (1 + more)
        assert came_back <= 5 * WRITTEN
        await _nothing_comes_back(there, back, source_cluster, topic_name)


async def _nothing_comes_back(there: MappedFlow, back: MappedFlow, source: Sandbox, topic: str) -> None:
    (halted,) = back.log.of("halted")
    told: dict[str, Any] = halted
    assert "were written by others" in told["detail"]
    assert "own records at offsets" in told["detail"]
    await there.copied(topic)
    before = await count(there, topic)
    records(source, topic, ["one more"])
    await there.copied(topic)
    assert await count(there, topic) == await count(back, topic) == before + 1
    await until(lambda: there.relay.partitions[topic, 0].lag == 0)
    assert await count(there, topic) == before + 1
