"""The internal topic loses what was written down, while the mirror runs: it says so, and writes it again."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import KeptHalt
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import state_topic
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.relay.durable import writer
from mirror.relay.durable.repair import Rewriting
from mirror.relay.durable.skips import ON_GAP
from mirror.relay.halts import Halted
from mirror.relay.relay import Relay
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import FLOW, Flow, Log, batches, clusters, settings

TOPIC = state_topic(FLOW)
SIDE = Subject("t", 0, "t")
STOPPED = Subject("stopped", 0, "stopped")
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LOOK_EVERY_S", 0.02)


@asynccontextmanager
async def running() -> AsyncIterator[Flow]:
    """A flow with an internal topic: one partition is copied, of another some is skipped, and it has halted."""
    async with clusters() as (source, destination):
        for name in ("t", "stopped"):
            source.add_topic(name)
            destination.add_topic(name)
        source.store("t", 0, *batches(3))
        log = Log()
        async with (
            await Cluster.open("source", source.options()) as here,
            await Cluster.open("destination", destination.options()) as there,
        ):
            relay = Relay(here, there, settings(), log)
            flow = Flow(source, destination, relay, log)
            try:
                await relay.start()
                await flow.copied()
                await relay.durable.pins.skips.write(STOPPED, [(3, 5, ON_GAP)])
                relay.halt(flow.partition("stopped"), Halted("foreign_writer", "d", "r"))
                await until(lambda: is_whole(relay.durable.state.ledger), what="all of it")
                yield flow
            finally:
                await relay.close()


def is_whole(ledger: Ledger) -> bool:
    """All that was written down is there."""
    return bool(
        ledger.flows
        and ledger.pin(SIDE)
        and ledger.notes(SIDE)
        and ledger.halt(STOPPED)
        and len(list(ledger.skipped())) == 1
    )


async def read(destination: FakeCluster) -> Ledger:
    """What the topic says to who comes later."""
    async with await Cluster.open("destination", destination.options()) as cluster:
        state = InternalTopic(cluster, FLOW)
        return state.ledger if await state.open(create=False) else Ledger()


def lose(flow: Flow, how: str) -> None:
    """Somebody does that."""
    topics, log = flow.destination.topics, flow.destination.log(TOPIC)
    if how == "cut":
        log.delete_before(log.end)
    elif how == "truncated":
        log.truncate(0)
    else:
        del topics[TOPIC]
        if how == "made anew":
            flow.destination.add_topic(TOPIC, configs=COMPACT)


HOW = ["cut", "truncated", "gone", "made anew"]


@pytest.mark.parametrize("how", HOW)
async def test_what_is_lost_is_written_again(how: str) -> None:
    """Told once; the halt of a partition that was resumed since does not come back."""
    async with running() as flow:
        state, looked = flow.relay.durable.state, []
        flow.relay.look_now = lambda: looked.append(how)  # type: ignore[method-assign]
        lose(flow, how)
        await until(lambda: flow.log.of("state_lost"), what="a warning")
        await until(lambda: is_whole(state.ledger) and state.lost is None, what="all of it again")
        assert is_whole(await read(flow.destination))
        await until(lambda: looked, what="a look for flows the other way")
        flow.partition("stopped").halted = None
        lose(flow, how)
        await until(lambda: len(flow.log.of("state_lost")) == 2, what="another warning")
        await until(lambda: state.ledger.pin(SIDE) and state.lost is None, what="all of it again")
        found = await read(flow.destination)
        assert found.halt(STOPPED) is None
        assert found.flows
        assert found.notes(SIDE)
        assert len(flow.log.of("state_lost")) == 2


@pytest.mark.parametrize("event", ["resumed", "being resumed", "let go"])
async def test_a_halt_that_ends_while_it_waits_to_be_written_again(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is among what was lost, and waits for other writes. Meanwhile an operator resumes the partition, or it is let
    go, and may be resumed elsewhere: the halt is not written any more. All else is, with the next look."""
    async with running() as flow:
        state, partition = flow.relay.durable.state, flow.partition("stopped")
        came, gate, save = asyncio.Event(), asyncio.Event(), state.save

        async def saves(entries: Iterable[Any], **rest: Any) -> None:
            entries = list(entries)
            if any(isinstance(each, KeptHalt) for each in entries) and not came.is_set():
                came.set()
                await gate.wait()
            await save(entries, **rest)

        monkeypatch.setattr(state, "save", saves)
        lose(flow, "cut")
        await came.wait()
        forgotten, goes_on = asyncio.Event(), asyncio.Event()

        async def unpaused(*_: Any) -> list[Any]:
            forgotten.set()
            await goes_on.wait()
            return []

        monkeypatch.setattr(flow.relay.pins, "unpaused", unpaused)
        resume = asyncio.create_task(flow.relay.resume(("stopped", 0))) if event != "let go" else None
        if resume is None:
            flow.relay.release(partition)
        else:
            await forgotten.wait()
        if event == "resumed":
            goes_on.set()
            await until(lambda: partition.halted is None)
        gate.set()
        await some_turns()
        goes_on.set()
        await until(lambda: state.ledger.notes(SIDE) and state.lost is None, what="all else again")
        assert (await read(flow.destination)).halt(STOPPED) is None


@pytest.mark.parametrize("ends", ["resumed", "not resumed"])
async def test_all_else_is_written_while_a_partition_is_being_resumed(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes. If it is not resumed after all, its halt is written again, too."""
    async with running() as flow:
        state, partition = flow.relay.durable.state, flow.partition("stopped")
        began, goes_on, usual = asyncio.Event(), asyncio.Event(), flow.relay.pins.resumed

        async def resumed(*told: Any) -> list[Any]:
            began.set()
            await goes_on.wait()
            if ends == "not resumed":
                raise NetworkError("away")
            return await usual(*told)

        monkeypatch.setattr(flow.relay.pins, "resumed", resumed)
        resume = asyncio.create_task(flow.relay.resume(("stopped", 0)))
        await began.wait()
        lose(flow, "cut")
        await until(lambda: flow.log.of("state_lost"), what="a warning")
        found = await read(flow.destination)
        assert found.pin(SIDE)
        assert found.notes(SIDE)
        assert found.halt(STOPPED) is None
        goes_on.set()
        with suppress(NetworkError):
            await resume
        await until(lambda: state.lost is None, what="all else again")
        found = await read(flow.destination)
        assert bool(found.halt(STOPPED)) == bool(partition.halted) == (ends == "not resumed")


async def test_it_is_tried_again_if_no_halt_is_among_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to be asked about it before each try."""
    async with running() as flow:
        state, may, save = flow.relay.durable.state, [], flow.relay.durable.state.save

        async def saves(entries: Iterable[Any], **rest: Any) -> None:
            entries = list(entries)
            if state.lost is not None and SIDE in {getattr(each, "subject", None) for each in entries}:
                may.append((any(isinstance(each, KeptHalt) for each in entries), rest.get("may") is not None))
            await save(entries, **rest)

        monkeypatch.setattr(state, "save", saves)
        lose(flow, "cut")
        await until(lambda: may and state.lost is None, what="all of it again")
        flow.partition("stopped").halted = None
        lose(flow, "cut")
        await until(lambda: len(may) > 1 and state.lost is None, what="all of it again")
        assert [*dict.fromkeys(may)] == [(True, True), (False, False)]


@pytest.mark.parametrize("how", HOW)
async def test_without_the_look(how: str) -> None:
    """The mutation: the next one to read knows nothing of it."""

    async def nothing(_: object) -> bool:
        return False

    with patch.object(Rewriting, "look", nothing):
        async with running() as flow:
            lose(flow, how)
            with suppress(NetworkError):  # of a topic that is gone
                await flow.relay.durable.pins.skips.write(SIDE, [(0, 1, ON_GAP)])
            found = await read(flow.destination)
            assert not found.flows
            assert found.halt(STOPPED) is None


async def test_nothing_is_lost() -> None:
    """Looks at a topic that is what it was write nothing, also behind an election."""
    async with running() as flow:
        log = flow.destination.log(TOPIC)
        log.epoch += 1
        end = log.end
        looked = len(flow.destination.seen("Metadata"))
        await until(lambda: len(flow.destination.seen("Metadata")) > looked + 5, what="looks")
        assert log.end == end
        assert not flow.log.of("state_lost")
        assert not flow.log.of("state_not_read")


async def test_a_topic_that_forgets() -> None:
    """Made anew as brokers make topics by themselves: told, once, and written to all the same."""
    async with running() as flow:
        lose(flow, "gone")
        flow.destination.add_topic(TOPIC, configs={"cleanup.policy": "delete"})
        await until(lambda: flow.log.of("state_unusable"), what="a warning")
        assert "cleanup.policy=delete" in flow.log.of("state_unusable")[0]["detail"]
        await until(lambda: is_whole(flow.relay.durable.state.ledger), what="all of it again")
        flow.destination.topics[TOPIC].configs.update(COMPACT)
        await until(lambda: flow.relay.durable._rewriting._told == "", what="all is well")
        assert len(flow.log.of("state_unusable")) == 1
        assert isinstance((await read(flow.destination)).halt(STOPPED), KeptHalt)


async def test_a_topic_that_cannot_be_read_now() -> None:
    """Told once until something else is wrong. Nothing ends, and what was lost meanwhile is written again."""
    async with running() as flow:
        state = flow.relay.durable.state
        read_it, tries = state.look, 0

        async def look(**settings: int) -> None:
            nonlocal tries
            tries += 1
            if tries <= 6:
                raise NetworkError("no leader" if tries <= 3 else "no broker")
            await read_it(**settings)

        state.look = look  # type: ignore[method-assign]
        await until(lambda: tries > 0, what="the end of a look that had begun before")
        lose(flow, "cut")
        await until(lambda: flow.log.of("state_lost"), what="a look that succeeds")
        assert [line["detail"] for line in flow.log.of("state_not_read")] == ["no leader", "no broker"]
        await until(lambda: is_whole(state.ledger), what="all of it again")
