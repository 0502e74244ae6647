"""Two flows in one worker, in this process and between fake clusters: what befalls one does not befall the other.

One flow alone is in ``tests.service.test_worker``.
"""

import asyncio
import gc
import json
import socket
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mirror.relay.relay import Relay
from mirror.service.channel import Channel, Message
from mirror.service.config import Config, load
from mirror.service.config.resolve import handover
from mirror.service.flows.run import FlowRun
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import clusters
from tests.service.stage.worker_here import Here, Running, Seat, scene, started

FIRST, SECOND = "source->destination", "source->other"


class Both(Running):
    """A worker that runs both flows."""

    def __init__(self, worker: Here, task: "asyncio.Task[int]", channel: Channel) -> None:
        super().__init__(worker, task, channel)
        self.seats_of: dict[str, list[Seat]] = {}

    def said_of(self, flow: str, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.of(kind) if message["flow"] == flow]

    def add(self, config: Config, name: str) -> None:
        self.channel.send("handover", settings=handover(config.enabled_flow(name), config).of_worker(1, 1).pack())


def config_of(folder: Path, source: FakeCluster, destination: FakeCluster, other: str) -> Config:
    """Two flows from one source; ``other`` is the second destination's address."""
    at = {"source": source.brokers[1].port, "destination": destination.brokers[1].port}
    found = {
        alias: {"bootstrap.servers": f"127.0.0.1:{port}", "reconnect.backoff.max.ms": 50} for alias, port in at.items()
    }
    flows = {FIRST: {"topics": ["t"]}, SECOND: {"topics": ["t"]}}
    path = folder / "mirror.yaml"
    path.write_text(
        json.dumps(
            {
                "clusters": found | {"other": {"bootstrap.servers": other, "reconnect.backoff.max.ms": 50}},
                "flows": flows,
                "progress.interval.ms": 100,
            }
        )
    )
    return load(path)


@asynccontextmanager
async def both(
    config: Config, *, seat: Callable[[str, Relay], Seat] = lambda _, relay: Seat(relay)
) -> AsyncIterator[Both]:
    """The worker, told to run both flows and to join."""
    seats_of: dict[str, list[Seat]] = {FIRST: [], SECOND: []}

    def take_seat(relay: Relay, flow: str) -> Seat:
        seats_of[flow].append(seat(flow, relay))
        return seats_of[flow][-1]

    def hear(found: Both, message: Message) -> None:
        if message["kind"] == "ready":
            found.channel.send("join", flow=message["flow"])

    async with started(Both, take_seat, hear) as found:
        found.seats_of = seats_of
        for name in (FIRST, SECOND):
            found.add(config, name)
        yield found


def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def address(cluster: FakeCluster) -> str:
    return f"127.0.0.1:{cluster.brokers[1].port}"


def copied(cluster: FakeCluster) -> bool:
    return "t" in cluster.topics and all(cluster.log("t", index).end == 30 for index in range(2))


async def test_one_waits_and_the_other_copies(tmp_path: Path) -> None:
    """
    1. A destination cannot be reached: its flow says so, again and again, and the other one copies everything.
    2. The flow that waits is removed: it has stopped at once. Told to stop, the worker drains the other: exit code 0.
    """
    async with clusters() as (source, destination):
        scene(source)
        async with both(config_of(tmp_path, source, destination, nobody())) as worker:
            await until(lambda: copied(destination))
            await until(lambda: len(worker.said_of(SECOND, "waiting")) > 2)
            assert not worker.said_of(FIRST, "waiting")
            assert not worker.said_of(SECOND, "ready")
            worker.channel.send("remove", flow=SECOND)
            await until(lambda: worker.said_of(SECOND, "stopped"))
            assert not worker.task.done()
            assert await worker.stop() == 0
            assert worker.said_of(FIRST, "stopped") == [
                {"kind": "stopped", "flow": FIRST, "drained": True, "pending": 0}
            ]
            assert not worker.of("failed")


async def test_one_fails_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. The thread of one flow's seat ends by a bug: it says so and when it is tried again, and leaves its group first.
    2. It begins anew in the same process, with stints of other numbers. The other flow has noticed nothing.
    """
    monkeypatch.setattr("mirror.service.worker.AGAIN_LEAST_MS", 1)
    async with clusters() as (source, destination), clusters() as (_, other):
        scene(source)
        async with both(config_of(tmp_path, source, destination, address(other))) as worker:
            await until(lambda: copied(destination) and copied(other))
            await until(lambda: worker.said_of(SECOND, "snapshot"))
            (seat,) = worker.seats_of[SECOND]
            seat._relay.source.failed("Fetch", "planted")
            seat.failed = ZeroDivisionError("a bug")
            await until(lambda: len(worker.seats_of[SECOND]) == 2 or worker.task.done())
            (failed,) = worker.of("failed")
            assert (failed["flow"], failed["detail"]) == (SECOND, "ZeroDivisionError: a bug")
            assert failed["again_s"] >= 0
            assert seat.ended
            assert len(worker.seats_of[FIRST]) == 1
            assert len(worker.said_of(FIRST, "ready")) == 1

            def stints() -> set[tuple[int, int]]:
                """(partition, the stint's number) as told so far."""
                told = [row for message in worker.said_of(SECOND, "snapshot") for row in message["partitions"]]
                return {(row[1], row[-1][0]) for row in told}

            await until(lambda: len(stints()) == 4, what=str(stints()))
            assert len({number for _, number in stints()}) == 4
            assert len(worker.said_of(SECOND, "ready")) == 2
            counted = worker.said_of(SECOND, "alive")[-1]["counters"]
            assert not [key for key in counted if "planted" in key], "it was reported before the failure"
            assert await worker.stop() == 0


async def test_nothing_is_left_of_what_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a relay, its buffers would stay, up to `buffer.memory` for each reload that restarts a flow.

    1. An attempt fails, and the next one runs. Nothing is left of the first, also if the collector never runs
       by itself.
    2. Both flows are removed. Nothing is left of them, although one was there when the collector was told to pass over
       what stays.
    """
    monkeypatch.setattr("mirror.service.worker.AGAIN_LEAST_MS", 1)
    gc.unfreeze()
    gc.disable()
    try:
        async with clusters() as (source, destination), clusters() as (_, other):
            scene(source)
            async with both(config_of(tmp_path, source, destination, address(other))) as worker:
                await until(lambda: copied(destination) and copied(other))
                worker.seats_of[SECOND][0].failed = ZeroDivisionError("a bug")
                relay = _forgotten(worker.seats_of[SECOND])
                await until(lambda: worker.seats_of[SECOND] or worker.task.done())
                await until(lambda: relay() is None)
                assert gc.get_freeze_count()
                for flow in (FIRST, SECOND):
                    relay = _forgotten(worker.seats_of[flow])
                    worker.channel.send("remove", flow=flow)
                    await until(lambda: relay() is None, what=f"the end of {flow}'s relay")  # noqa: B023 - awaited here
                assert not worker.task.done()
    finally:
        gc.enable()


def _forgotten(seats: list[Seat]) -> "weakref.ref[Relay]":
    """The relay of the only seat, which nobody in this file holds any more."""
    return weakref.ref(seats.pop()._relay)


async def test_a_seat_that_cannot_be_left(tmp_path: Path) -> None:
    """Its thread hangs and would go on holding partitions: the process ends, and with it the seat."""
    async with clusters() as (source, destination), clusters() as (_, other):
        scene(source)

        class Stuck(Seat):
            async def stop(self) -> None:
                """It does not end."""

        def seat(flow: str, relay: Relay) -> Seat:
            return Stuck(relay) if flow == SECOND else Seat(relay)

        async with both(config_of(tmp_path, source, destination, address(other)), seat=seat) as worker:
            await until(lambda: worker.seats_of[SECOND] and worker.seats_of[SECOND][0].joined)
            worker.seats_of[SECOND][0].failed = ZeroDivisionError("a bug")
            assert await worker.task == 1
            await until(lambda: worker.of("failed"))
            assert "again_s" not in worker.of("failed")[0]


async def test_a_bug_in_a_callback_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a callback raises is charged to the flow that asked for the callback, and only that one begins anew."""
    monkeypatch.setattr("mirror.service.worker.AGAIN_LEAST_MS", 1)
    pump, raised = Relay.pump_sinks, False

    def pump_sinks(relay: Relay) -> None:
        nonlocal raised
        if relay.destination.name == "other" and not raised:
            raised = True
            raise ZeroDivisionError("a bug")
        pump(relay)

    monkeypatch.setattr(Relay, "pump_sinks", pump_sinks)
    async with clusters() as (source, destination), clusters() as (_, other):
        scene(source)
        async with both(config_of(tmp_path, source, destination, address(other))) as worker:
            await until(lambda: len(worker.said_of(SECOND, "ready")) == 2)
            await until(lambda: copied(destination) and copied(other))
            assert [(each["flow"], "again_s" in each) for each in worker.of("failed")] == [(SECOND, True)]
            assert len(worker.said_of(FIRST, "ready")) == 1
            assert await worker.stop() == 0


async def test_a_bug_of_nobody_in_particular(tmp_path: Path) -> None:
    """A callback that no flow has asked for: nobody knows what hangs, so the process ends, with the trace."""
    async with clusters() as (source, destination), clusters() as (_, other):
        scene(source)
        async with both(config_of(tmp_path, source, destination, address(other))) as worker:
            await until(lambda: copied(destination) and copied(other))

            def callback() -> None:
                raise ZeroDivisionError("a bug")

            asyncio.get_running_loop().call_soon(callback)
            assert await worker.task == 1
            await until(lambda: worker.of("failed"))
            assert "again_s" not in worker.of("failed")[0]


async def test_told_to_stop_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a flow closes what it had opened, another stop does not interrupt that."""
    both_of = FlowRun._both
    closed: list[str] = []

    @asynccontextmanager
    async def slowly(self: FlowRun) -> AsyncIterator[Any]:
        async with both_of(self) as found:
            try:
                yield found
            finally:
                await asyncio.sleep(0.05)
                closed.append(self.handover.flow)

    monkeypatch.setattr(FlowRun, "_both", slowly)
    async with clusters() as (source, destination):
        scene(source)
        started = asyncio.Event()

        async def start(_: Relay) -> None:
            started.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(Relay, "start", start)
        async with both(config_of(tmp_path, source, destination, nobody())) as worker:
            await started.wait()
            for _ in range(3):
                worker.channel.send("stop")
            assert await worker.task == 0
            await until(lambda: len(worker.of("stopped")) == 2)
            assert closed == [FIRST]


async def test_told_to_stop_while_a_flow_fails(tmp_path: Path) -> None:
    """
    1. A flow's seat ends by a bug while the destination owes it answers. While it leaves its group, the worker is told
       to stop. The other flow takes longer for that.
    2. It has not drained, and says so, with the number of batches.
    """
    leaving = {FIRST: asyncio.Event(), SECOND: asyncio.Event()}
    may_leave = {FIRST: asyncio.Event(), SECOND: asyncio.Event()}

    class Slow(Seat):
        flow = ""

        async def stop(self) -> None:
            leaving[self.flow].set()
            await may_leave[self.flow].wait()
            await super().stop()

    def seat(flow: str, relay: Relay) -> Seat:
        made = Slow(relay)
        made.flow = flow
        return made

    async with clusters() as (source, destination), clusters() as (_, other):
        scene(source)
        stuck = other.next("Produce", faults.Fault(silent=True, only=("t", 0)))
        async with both(config_of(tmp_path, source, destination, address(other)), seat=seat) as worker:
            await stuck.came.wait()
            worker.seats_of[SECOND][0].failed = ZeroDivisionError("a bug")
            await leaving[SECOND].wait()
            worker.channel.send("stop")
            await leaving[FIRST].wait()
            may_leave[SECOND].set()
            await until(lambda: worker.said_of(SECOND, "stopped"))
            (stopped,) = worker.said_of(SECOND, "stopped")
            assert stopped["drained"] is False
            assert stopped["pending"] > 0
            may_leave[FIRST].set()
            assert await worker.task == 0
            await until(lambda: worker.said_of(FIRST, "stopped"))
            assert worker.said_of(FIRST, "stopped")[0]["drained"] is True
