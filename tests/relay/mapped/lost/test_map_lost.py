"""``offsets: mapped``: the internal topic lacks a part of the offset map. Nobody translates by the rest, and it is made
anew out of both logs."""

from unittest.mock import patch

import pytest

from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import StateUnusable, state_topic
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import MappedOffset
from mirror.offsetmap.translation import Translation, translation
from mirror.relay.durable import writer
from mirror.relay.mapped import copied
from mirror.relay.mapped.beginning import Beginning, ReadingStart
from mirror.sandbox import SandboxCluster
from tests.fakes.loop import until
from tests.net.stage.real import create, log_of, opened, transaction
from tests.relay.mapped.test_locate import write
from tests.relay.stage.mapping import FLOW, anew, assert_exact, mapping, written_map

pytestmark = pytest.mark.broker


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copied, "CHUNK_RUNS", 2)


def holes(source: SandboxCluster, topic: str, first: int, count: int) -> None:
    """Each in a run of its own."""
    for at in range(first, first + count):
        transaction(source, topic, [f"{topic} {at}"], commit=True, transactional_id=topic)


async def lose(destination: SandboxCluster, topic: str, at: int) -> None:
    """A chunk of the map goes; how many there were."""
    async with opened(destination) as there:
        state = InternalTopic(there, FLOW)
        assert await state.open(create=False)
        chunks = state.ledger.chunks(Subject(topic, 0, topic))
        assert len(chunks) > 4
        await state.save([], forget=[chunks[at].key()])


async def translated(source: SandboxCluster, destination: SandboxCluster, topic: str, flow: str = FLOW) -> Translation:
    async with opened(source) as here, opened(destination) as there:
        state = InternalTopic(there, flow)
        assert await state.open(create=False)
        found = await translation(state, await log_of(here, topic), await log_of(there, topic), committed=True)
        assert found is not None
        return found


@pytest.mark.parametrize("at", [0, 2])
async def test_a_part_of_the_map_is_lost(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, at: int
) -> None:
    """
    1. A map of several chunks, of two owners. One of them is lost.
    2. Offsets are not translated. Without the rule, what is behind the gap is given for what it lacks.
    3. The next owner halts; resumed, it makes the map anew: it is exact, and nothing is copied twice.
    """
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(destination_cluster, topic_name, 900, 2)
    for life in range(2):
        holes(source_cluster, topic_name, 5 * life, 5)
        async with mapping(source_cluster, destination_cluster, topic_name) as flow:
            await flow.copied(topic_name)
            assert await flow.relay.drain()
    whole = (await translated(source_cluster, destination_cluster, topic_name)).map
    assert whole == await written_map(destination_cluster, topic_name)
    await lose(destination_cluster, topic_name, at)
    with pytest.raises(StateUnusable, match="lacks a part of the offset map"):
        await translated(source_cluster, destination_cluster, topic_name)
    with patch.object(Ledger, "linked", lambda self, side, **_: self.chunks(side)):
        wrong = (await translated(source_cluster, destination_cluster, topic_name)).map
    assert [wrong.to_destination(run.source) != MappedOffset(run.destination, exact=True) for run in whole].count(
        True
    ) == 2
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        assert await flow.halted(topic_name) == "checkpoint_lost"
        assert await flow.relay.resume((topic_name, 0), accept_gap=True) == ""
        await flow.copied(topic_name)
        holes(source_cluster, topic_name, 10, 1)
        await flow.copied(topic_name)
        assert await flow.relay.drain()
    found = await written_map(destination_cluster, topic_name)
    assert len(found) == len(whole) + 1
    assert await assert_exact(source_cluster, destination_cluster, topic_name, found) == 2


async def test_without_the_halt(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """The mutation: the next owner goes on with what is left, and the map looks whole again."""
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    holes(source_cluster, topic_name, 0, 10)
    async with mapping(source_cluster, destination_cluster, topic_name) as flow:
        await flow.copied(topic_name)
        assert await flow.relay.drain()
    whole = await written_map(destination_cluster, topic_name)
    await lose(destination_cluster, topic_name, 0)

    async def goes_on(self: Beginning, *_: object) -> ReadingStart:
        one = self._accounts.checkpoint(self._partition.subject)
        assert one is not None
        return ReadingStart(one.source_offset, one.source_epoch, one.destination_offset, one.identity)

    with (
        patch.object(Beginning, "find", goes_on),
        patch.object(Ledger, "linked", lambda self, side, **_: self.chunks(side)[-1:]),
    ):
        async with mapping(source_cluster, destination_cluster, topic_name) as flow:
            await flow.copied(topic_name)
            assert await flow.relay.drain()
    assert len((await translated(source_cluster, destination_cluster, topic_name)).map) < len(whole)


@pytest.mark.parametrize("short", [True, False])
async def test_the_topic_is_made_anew_while_it_runs(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    short: bool,
) -> None:
    """
    1. A map that is whole in memory is written again, and the mirror goes on.
    2. One of which parts were written long before is not: the partition halts. Nobody translates by what is left.
    3. Resumed, it makes the map anew.
    """
    monkeypatch.setattr(writer, "LOOK_EVERY_S", 0.1)
    flow_id = f"to->{topic_name}"
    create(source_cluster, topic_name)
    create(destination_cluster, topic_name)
    write(destination_cluster, topic_name, 900, 2)
    holes(source_cluster, topic_name, 0, 2 if short else 9)
    async with mapping(source_cluster, destination_cluster, topic_name, flow=flow_id) as flow:
        await flow.copied(topic_name)
        await flow.relay.durable.write_down()
        await anew(destination_cluster, state_topic(flow_id))
        await until(lambda: flow.log.of("state_lost"), what="a warning")
        if not short:
            assert await flow.halted(topic_name) == "checkpoint_lost"
            with pytest.raises(StateUnusable, match="lacks a part of the offset map"):
                await translated(source_cluster, destination_cluster, topic_name, flow_id)
            assert await flow.relay.resume((topic_name, 0), accept_gap=True) == ""
        holes(source_cluster, topic_name, 20, 1)
        await flow.copied(topic_name)
        assert flow.log.of("halted") == [] or not short
        assert await flow.relay.drain()
    found = (await translated(source_cluster, destination_cluster, topic_name, flow_id)).map
    assert await assert_exact(source_cluster, destination_cluster, topic_name, found) == 2
