"""Partitions that an operator pauses, in whatever state they are."""

import asyncio

import pytest

from mirror.net.errors import NetworkError
from mirror.relay import pausing
from mirror.relay.partition.phases import Phase
from tests.fakes import faults
from tests.fakes.loop import some_turns, until
from tests.relay.stage.flows import Flow, batches, clusters, fill, mirroring

FIRST, SECOND = ("t", 0), ("t", 1)


def paused(flow: Flow, index: int = 0) -> bool:
    halted = flow.partition("t", index).halted
    return halted is not None and halted.reason == "paused"


async def under_way(flow: Flow) -> faults.Fault:
    """Has the source get two batches, of which the first is sent. Its answer comes when the result is opened."""
    held = flow.destination.next("Produce", faults.held())
    flow.source.store("t", 0, *batches(2, first=60))
    await held.came.wait()
    return held


async def test_paused_and_resumed() -> None:
    """
    1. Paused: what the source gets from then on stays there, and the other partition goes on. No halt is counted.
    2. Paused once more: nothing changes. Resumed: all of it is copied.
    """
    async with clusters() as (source, destination):
        fill(source, 2)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            source.store("t", 0, *batches(2, first=60))
            source.store("t", 1, *batches(2, first=60))
            await flow.copied(SECOND)
            await some_turns()
            assert paused(flow)
            assert destination.log("t", 0).end == 60
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            assert len(flow.log.of("paused")) == 1
            assert not flow.log.of("halted")
            assert not flow.relay.stats.halts
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()


async def test_it_outlives_a_restart() -> None:
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
        source.store("t", 0, *batches(2, first=60))
        async with mirroring(source, destination) as flow:
            await until(lambda: paused(flow))
            assert flow.log.of("paused")[0]["since_ms"] > 0
            await some_turns()
            assert destination.log("t").end == 60
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert not flow.log.of("paused")


async def test_what_was_sent_is_waited_for() -> None:
    """Halted only when the destination has answered for all that was fetched: its position is certain then."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, max_in_flight=1) as flow:
            await flow.copied()
            held = await under_way(flow)
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            assert not pause.done()
            held.open()
            assert await pause == {FIRST: ""}
            assert destination.log("t").end == flow.partition().shown_position >= 63


async def test_a_position_that_is_lost_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks while it waits for the last answer: it stops before it is located again."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, max_in_flight=1) as flow:
            await flow.copied()
            held = await under_way(flow)
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            destination.drop(1)
            assert await pause == {FIRST: ""}
            assert paused(flow)
            assert await flow.relay.resume(FIRST) == ""
            held.open()
            await flow.copied()


async def test_one_that_is_being_located() -> None:
    async with clusters() as (source, destination):
        fill(source)
        held = source.next("ListOffsets", faults.held())
        async with mirroring(source, destination) as flow:
            await held.came.wait()
            assert flow.partition().phase is Phase.LOCATING
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            held.open()
            assert await pause == {FIRST: ""}
            await some_turns()
            assert destination.log("t").end == 0
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()


async def test_a_destination_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told that it is not paused yet, and is paused once the answer is there."""
    monkeypatch.setattr(pausing, "WATCH_S", 0.1)
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, max_in_flight=1) as flow:
            await flow.copied()
            held = await under_way(flow)
            told = await flow.relay.pause_all([FIRST])
            assert told[FIRST].startswith("not yet: the destination has not answered")
            held.open()
            await until(lambda: paused(flow))


async def test_what_cannot_be_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has stopped, and the operator is told that a restart may resume it."""
    monkeypatch.setattr(pausing, "WATCH_S", 0.1)
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()

            async def fails(*_: object, **__: object) -> None:
                raise NetworkError("away")

            monkeypatch.setattr(flow.relay.pins.state, "save", fails)
            told = await flow.relay.pause_all([FIRST])
            assert told[FIRST].startswith("it has stopped, but that could not be written down yet")
            assert paused(flow)


async def test_what_is_not_paused() -> None:
    """Partitions that are not here, and those that have halted."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        destination.store("t", 0, *batches(1))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            told = await flow.relay.pause_all([FIRST, SECOND])
            assert told == {FIRST: "it has halted already, foreign_writer", SECOND: "not copied here"}


async def test_one_that_another_worker_gets_meanwhile() -> None:
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, assigned=True, max_in_flight=1) as flow:
            assert flow.relay.assignment is not None
            flow.relay.assignment.assign({FIRST})
            await flow.copied()
            held = await under_way(flow)
            pause = asyncio.create_task(flow.relay.pause_all([FIRST]))
            await some_turns()
            flow.relay.assignment.lose({FIRST})
            assert (await pause)[FIRST].startswith("let go meanwhile")
            held.open()
