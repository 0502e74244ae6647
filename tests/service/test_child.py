"""One worker's process from its supervisor's side: real processes, no brokers."""

import asyncio
import os
import signal
from pathlib import Path

from mirror.service.channel import Message
from mirror.service.child import Child
from mirror.service.config import load
from mirror.service.handover import Handover
from mirror.service.resolve import handover
from tests.fakes.loop import until
from tests.service.running import config_text


def settings(folder: Path) -> Handover:
    path = folder / "mirror.yaml"
    path.write_text(config_text("127.0.0.1:1", "127.0.0.1:2", ["t"]))
    return handover(load(path), 1)


def exists(child: Child) -> bool:
    return Path(f"/proc/{child.pid}").exists()


async def test_a_worker_that_cannot_run(tmp_path: Path) -> None:
    """A real process: it gets its settings, says why it fails, and ends with exit code 1; so does the next one."""
    said: list[Message] = []
    pids: list[int] = []
    child = Child(settings(tmp_path), lambda _, message: said.append(message))
    for _ in range(2):
        assert await child.run(lambda started: pids.append(started.pid)) == 1
    failures = [message for message in said if message["kind"] == "failed"]
    assert [failed["reason"] for failed in failures] == ["Unreachable"] * 2
    assert "127.0.0.1:1: Connection refused" in failures[0]["detail"]
    assert len(set(pids)) == 2
    assert child.pause_s() < child.pause_s() * 2


async def test_a_worker_that_is_killed(tmp_path: Path) -> None:
    """Its exit code is the signal; nothing of it is left."""
    child = Child(settings(tmp_path), lambda _, __: None)
    assert await child.run(lambda started: os.kill(started.pid, signal.SIGKILL)) == -signal.SIGKILL
    assert not exists(child)
    assert not child.send("stop")


async def test_a_stop_while_it_is_being_started(tmp_path: Path) -> None:
    """Told before it can hear: it stops all the same, and not of a failure."""
    said: list[Message] = []
    child = Child(settings(tmp_path), lambda _, message: said.append(message))

    def stop(started: Child) -> None:
        started.send("stop")

    code = await child.run(stop)
    assert code in (0, 1)  # it may have found the cluster away first
    assert child.stopped or said[-1]["kind"] == "failed"


async def test_it_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    """The supervisor's own end: the process goes, too."""
    child = Child(settings(tmp_path), lambda _, __: None)
    running = asyncio.get_running_loop().create_task(child.run(lambda _: None))
    await until(lambda: child.pid)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not exists(child)
