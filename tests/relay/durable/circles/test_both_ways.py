"""The same topic mirrored both ways between two real clusters: the second mirror sees the first one's internal topic.

Should it not see it, each mirror is a foreign writer to the other in exact mode.
"""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from mirror.offsetmap.internal.memory import state_topic
from mirror.relay.durable import writer
from mirror.relay.durable.loops import Loops
from mirror.relay.locate import resync
from mirror.sandbox import SandboxCluster
from tests.fakes.loop import some_turns, until
from tests.net.stage.real import create, log_of, records
from tests.relay.stage.mapping import MappedFlow, anew, mapping, payloads

pytestmark = pytest.mark.broker

WRITTEN = 12


async def both_ways(
    stack: AsyncExitStack, one: SandboxCluster, other: SandboxCluster, topic: str
) -> tuple[MappedFlow, MappedFlow]:
    """A mirror in each direction."""
    there = await stack.enter_async_context(mapping(one, other, topic, mapped=False, flow="there"))
    back = await stack.enter_async_context(mapping(other, one, topic, mapped=False, flow="back"))
    return there, back


async def count(flow: MappedFlow, topic: str) -> int:
    """Records at the flow's source."""
    return sum(content.length for _, content in (await payloads(await log_of(flow.source, topic))).values())


async def unlooked(*_: object, **__: object) -> None:
    """No check of what stands between our batches."""


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither mirror sees the other's internal topic."""
    monkeypatch.setattr(Loops, "_ring", lambda *_: None)


@pytest.mark.usefixtures("unseen")
async def test_the_same_topic_both_ways(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
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


@pytest.mark.usefixtures("unseen")
@pytest.mark.parametrize("more", [0, 3])
async def test_it_ends_as_soon_as_it_begins(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, more: int
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


MODES = [(True, True), (False, True)]


@pytest.mark.parametrize(("one_way", "other_way"), MODES)
async def test_the_second_mirror_halts_before_it_copies(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    *,
    one_way: bool,
    other_way: bool,
) -> None:
    """
    1. A mirror has copied a topic. One of the same topic the other way starts: it halts before it has copied anything,
       and names the flow.
    2. The first one goes on, also after a restart: the second one's halt is written down.
    """
    for sandbox in (source_cluster, destination_cluster):
        create(sandbox, topic_name)
    records(source_cluster, topic_name, [f"record {number}" for number in range(WRITTEN)])
    for _ in range(2):
        async with mapping(source_cluster, destination_cluster, topic_name, mapped=one_way, flow="there") as there:
            await there.copied(topic_name)
            async with mapping(destination_cluster, source_cluster, topic_name, mapped=other_way, flow="back") as back:
                assert await back.halted(topic_name) == "loop"
                (halted,) = back.log.of("halted")
                assert 'flow "there" (mirror-internal.there at ' in halted["detail"]
                records(source_cluster, topic_name, ["one more"])
                there.relay.look_now()
                await there.copied(topic_name)
            written = await count(there, topic_name)
    assert written == WRITTEN + 2


@pytest.mark.parametrize(("one_way", "other_way"), MODES)
async def test_also_when_the_internal_topic_was_made_anew(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    one_way: bool,
    other_way: bool,
) -> None:
    """While the first mirror runs: it says again who it is, and what it copies."""
    monkeypatch.setattr(writer, "LOOK_EVERY_S", 0.1)
    for sandbox in (source_cluster, destination_cluster):
        create(sandbox, topic_name)
    records(source_cluster, topic_name, [f"record {number}" for number in range(WRITTEN)])
    flow = f"there-{topic_name}"
    async with mapping(source_cluster, destination_cluster, topic_name, mapped=one_way, flow=flow) as there:
        await there.copied(topic_name)
        await anew(destination_cluster, state_topic(flow))
        await until(lambda: there.log.of("state_lost"), what="a warning")
        await until(lambda: there.relay.durable.state.lost is None, what="it is written again")
        async with mapping(destination_cluster, source_cluster, topic_name, mapped=other_way, flow="back") as back:
            assert await back.halted(topic_name) == "loop"


@pytest.mark.parametrize(("one_way", "other_way"), MODES)
async def test_without_the_look_it_has_no_end(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    unseen: None,
    *,
    one_way: bool,
    other_way: bool,
) -> None:
    """Mutation: nobody looks. Every record comes back, again and again, and nobody halts."""
    for sandbox in (source_cluster, destination_cluster):
        create(sandbox, topic_name)
    records(source_cluster, topic_name, [f"record {number}" for number in range(WRITTEN)])
    async with mapping(source_cluster, destination_cluster, topic_name, mapped=one_way, flow="there") as there:
        await there.copied(topic_name)
        async with mapping(destination_cluster, source_cluster, topic_name, mapped=other_way, flow="back") as back:
            log = await log_of(there.source, topic_name)
            while await log.visible_end() < 10 * WRITTEN:
                await some_turns()
            assert not [*there.log.of("halted"), *back.log.of("halted")]


async def _nothing_comes_back(there: MappedFlow, back: MappedFlow, source: SandboxCluster, topic: str) -> None:
    (halted,) = back.log.of("halted")
    told: dict[str, Any] = halted
    if "is of producer id -1" not in told["detail"]:
        # Else it was found while the position was sought, and none of ours stand behind it.
        assert "were written by others" in told["detail"]
        assert "own records at offsets" in told["detail"]
    await there.copied(topic)
    before = await count(there, topic)
    records(source, topic, ["one more"])
    await there.copied(topic)
    assert await count(there, topic) == await count(back, topic) == before + 1
    await until(lambda: there.relay.partitions[topic, 0].lag == 0)
    assert await count(there, topic) == before + 1
