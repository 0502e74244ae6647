"""One worker's process from its supervisor's side: real processes, no brokers."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mirror.service.channel import Channel, Message
from mirror.service.child import Child
from mirror.service.config import load
from mirror.service.config.resolve import handover
from tests.fakes.loop import until
from tests.service.stage.running import config_text


def worker(folder: Path, hear: Callable[[Child, Message], None], **how: str) -> Child:
    """A worker for one flow, between two clusters at which nobody listens."""
    path = folder / "mirror.yaml"
    path.write_text(config_text("127.0.0.1:1", "127.0.0.1:2", ["t"]))
    config = load(path)
    made = Child(1, hear, **how)
    made.add(handover(config.enabled_flow(), config).of_worker(1, 1))
    return made


def exists(child: Child) -> bool:
    return Path(f"/proc/{child.pid}").exists()


async def test_a_worker_that_cannot_start_yet(tmp_path: Path) -> None:
    """A real process: it gets its settings, says what it waits for, tries again, and ends when it is told to."""
    said: list[Message] = []

    def hear(child: Child, message: Message) -> None:
        said.append(message)
        if len(waiting()) == 3:
            child.send("stop")

    def waiting() -> list[Message]:
        return [message for message in said if message["kind"] == "waiting"]

    child = worker(tmp_path, hear)
    assert await child.run(lambda _: None) == 0
    assert child.stopped
    assert {each["reason"] for each in waiting()} == {"Unreachable"}
    assert "127.0.0.1:1: Connection refused" in waiting()[0]["detail"]
    assert not [message for message in said if message["kind"] == "failed"]


async def test_processes_one_after_the_other(tmp_path: Path) -> None:
    """Each run is a process of its own, and the pause before the next grows."""
    pids: list[int] = []
    child = worker(tmp_path, lambda started, _: started.kill())
    for _ in range(2):
        assert await child.run(lambda started: pids.append(started.pid)) == -signal.SIGKILL
    assert len(set(pids)) == 2
    assert [child.pause_s() for _ in range(12)][-1] > 20


async def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    """Its exit code is the signal; nothing of it is left."""
    child = worker(tmp_path, lambda _, __: None)
    assert await child.run(lambda started: os.kill(started.pid, signal.SIGKILL)) == -signal.SIGKILL
    assert not exists(child)
    assert not child.send("stop")


async def test_a_stop_while_it_is_being_started(tmp_path: Path) -> None:
    """Told before it can hear: it stops all the same, and not of a failure."""
    said: list[Message] = []
    child = worker(tmp_path, lambda _, message: said.append(message))

    def stop(started: Child) -> None:
        started.send("stop")

    assert await child.run(stop) == 0
    assert child.stopped


async def test_it_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    """The supervisor's own end: the process goes, too."""
    child = worker(tmp_path, lambda _, __: None)
    running = asyncio.get_running_loop().create_task(child.run(lambda _: None))
    await until(lambda: child.pid)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not exists(child)


async def test_a_channel_that_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said again and lines of the log are dropped and counted; what is said once waits for the reader."""
    monkeypatch.setattr("mirror.service.channel.UNSENT_MAX", 1 << 16)
    mine, theirs = socket.socketpair()
    here, there = await Channel.open(mine), await Channel.open(theirs)
    while not here.full:
        here.send("log", text="x" * 1_000)
    for kind in ("log", "alive", "waiting", "traced"):
        here.send(kind)
    assert here.dropped == 4
    lasting = ["ready", "joined", "failed", "stopped", "reply", "join", "stop", "handover", "expel", "limit"]
    for kind in lasting:
        here.send(kind)
    assert here.dropped == 4
    closing = asyncio.get_running_loop().create_task(here.close())
    said = []
    while (message := await there.receive()) is not None:
        said.append(message)
    await asyncio.gather(closing, there.close())
    assert [message["kind"] for message in said if message["kind"] != "log"] == lasting


async def test_no_thread_to_wait_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no thread left in which to wait for the end of a process: it is killed, if it still runs."""

    async def to_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asyncio, "to_thread", to_thread)

    def hear(started: Child, _: Message) -> None:
        started.send("stop")

    child = worker(tmp_path, hear)
    assert await child.run(lambda _: None) in (0, -signal.SIGKILL)
    assert not exists(child)


async def test_a_stop_while_names_are_not_resolved(tmp_path: Path) -> None:
    """The thread that asks for a name hangs, and cannot be ended. The process ends all the same, and as told."""
    said: list[Message] = []

    def hear(child: Child, message: Message) -> None:
        said.append(message)
        if message["kind"] == "alive" and message["clusters"] == {}:
            child.send("stop")

    child = worker(tmp_path, hear, module="tests.service.stage.hanging_names")
    assert await child.run(lambda _: None) == 0
    assert child.stopped
    assert not [message for message in said if message["kind"] == "waiting"]
