"""A supervisor in this process, with real workers and no brokers: it keeps its processes going."""

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mirror.service.child import Child
from mirror.service.config import load
from mirror.service.config.resolve import supervision
from mirror.service.flows.changes import changes
from mirror.service.instance.control import Control
from mirror.service.instance.place import Place
from mirror.service.supervisor import Supervisor
from mirror.service.telemetry.reports import Reports
from mirror.service.worker_settings import Supervision
from tests.fakes.loop import until
from tests.service.flows.test_flow import Lines
from tests.service.stage.running import config_text


class Service:
    """A supervisor that runs, and what it has logged."""

    def __init__(self, supervisor: Supervisor, log: Lines) -> None:
        self.supervisor = supervisor
        self.log = log
        self.task = asyncio.get_running_loop().create_task(supervisor.run())

    @property
    def children(self) -> dict[int, Child]:
        return self.supervisor._children

    async def all_run(self) -> None:
        """Waits until every worker has said that it waits for its cluster."""
        (flow,) = self.supervisor.flows.values()
        await until(
            lambda: (
                len(flow.fleet.workers) == len(self.children)
                and all(worker.waits for worker in flow.fleet.workers.values())
            ),
            what=str(self.log.lines),
        )

    async def stop(self) -> int:
        self.supervisor.stop("the test")
        return await self.task


def settings(folder: Path, top: Mapping[str, object], **flow: object) -> Supervision:
    path = folder / "mirror.yaml"
    path.write_text(config_text("127.0.0.1:1", "127.0.0.1:2", ["t"], flow=flow, top=top))
    return supervision(load(path))


@asynccontextmanager
async def running(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    top: Mapping[str, object],
    *,
    control: Control | None = None,
    **flow: object,
) -> AsyncIterator[Service]:
    """The service, between two clusters at which nobody listens; stopped at the end if it still runs."""
    log = Lines()
    monkeypatch.setattr(Supervisor, "log", log)
    service = Service(Supervisor(settings(folder, top, **flow), control=control), log)
    try:
        yield service
    finally:
        if not service.task.done():
            service.task.cancel()
        await asyncio.gather(service.task, return_exceptions=True)


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[], bool]) -> None:
    """No process can be started while ``fails``: the machine has too many."""
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        if fails():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return popen(*arguments, **options)

    monkeypatch.setattr("mirror.service.child.subprocess.Popen", start)


async def test_a_worker_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. One of two workers dies while the machine can start no process. The service says so, again and again, and goes on
       with the other one.
    2. Once a process can be started, there are two again. The stop is clean, and nothing of the attempts is left open.
    """
    async with running(tmp_path, monkeypatch, {"workers": 2}) as service:
        await service.all_run()
        pids = {number: child.pid for number, child in service.children.items()}
        open_files = len(os.listdir("/proc/self/fd"))
        full = True
        failing(monkeypatch, lambda: full)
        os.kill(pids[1], signal.SIGKILL)
        await until(lambda: len(service.log.of("worker_not_started")) == 3, what=str(service.log.lines))
        assert len(os.listdir("/proc/self/fd")) < open_files, "with the dead worker's channel"
        line = service.log.of("worker_not_started")[0]
        assert (line["worker"], line["detail"]) == (1, "Resource temporarily unavailable")
        assert line["restart_s"] > 0
        (died,) = service.log.of("worker_died")
        assert (died["worker"], died["pid"]) == (1, pids[1])
        full = False
        await until(lambda: len(service.log.of("worker_started")) == 3, what=str(service.log.lines))
        await service.all_run()
        assert service.children[1].pid != pids[1]
        assert service.children[2].pid == pids[2]
        assert len(service.log.of("worker_died")) == 1
        assert await service.stop() == 0


async def test_a_service_that_cannot_start_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start on: it tries on, and can be stopped meanwhile."""
    failing(monkeypatch, lambda: True)
    async with running(tmp_path, monkeypatch, {}) as service:
        await until(lambda: len(service.log.of("worker_not_started")) == 2, what=str(service.log.lines))
        assert not service.task.done()
        assert await service.stop() == 0
        assert not service.log.of("worker_died")


async def test_a_report_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in what the supervisor logs is told once, with the trace. The workers run on and stop as told."""

    tried = 0

    def fail(*_: object, **__: object) -> None:
        nonlocal tried
        tried += 1
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Reports, "look", fail)
    monkeypatch.setattr(Reports, "progress", fail)
    async with running(tmp_path, monkeypatch, {}) as service:
        await service.all_run()
        for flow in service.supervisor.flows.values():
            flow.started = True  # of which it makes reports of progress
        before = tried
        await until(lambda: tried > before + 4 or service.task.done())
        assert await service.stop() == 0
        (line,) = service.log.of("report_failed")
        assert line["detail"] == "ZeroDivisionError: a bug"
        assert "in fail" in line["exception"]


async def test_a_worker_that_does_not_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, what it had sent may not be acknowledged, and the exit code says so, as `mirror stop` does."""
    monkeypatch.setattr("mirror.service.supervisor.STOP_MARGIN_S", 0.2)
    async with running(tmp_path, monkeypatch, {"drain.timeout.ms": 10}) as service:
        await service.all_run()
        os.kill(service.children[1].pid, signal.SIGSTOP)
        assert await service.stop() == 1
        assert service.log.of("worker_killed")
        assert service.log.of("stopped")[0]["drained"] is False


async def test_a_reload_while_a_worker_waits_for_its_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has crashed, and is started again only in a while. A flow that has it to itself is restarted meanwhile:
    nobody waits for that; its number is free at once, and the next one has it."""
    for name in ("LEAST", "MOST"):
        monkeypatch.setattr(f"mirror.service.child.RESTART_{name}_MS", 3_600_000)
    monkeypatch.setattr("mirror.service.supervisor.STOP_MARGIN_S", 0.5)
    top = {"drain.timeout.ms": 10}
    async with running(tmp_path, monkeypatch, top, workers=1) as service:
        await service.all_run()
        os.kill(service.children[1].pid, signal.SIGKILL)
        await until(lambda: service.log.of("worker_died"))
        supervisor = service.supervisor
        wanted = changes(supervisor.settings, settings(tmp_path, top, workers=1, **{"mode": "auto"}))
        assert wanted.restarted
        await supervisor.apply(wanted)
        assert service.log.of("worker_stopped")
        assert sorted(service.children) == [1]
        await service.all_run()
        assert len(service.log.of("worker_started")) == 2
        monkeypatch.setattr("mirror.service.supervisor.STOP_MARGIN_S", 60.0)
        assert await service.stop() == 0


async def test_a_control_socket_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is gone: one line says so, and no worker is started."""
    gone = tmp_path / "gone"
    async with running(tmp_path, monkeypatch, {}, control=Control(Place(tmp_path / "mirror.yaml", gone))) as service:
        assert await service.task == 1
        (line,) = service.log.of("failed")
        assert line["reason"] == "ListenFailed"
        assert line["detail"].startswith(f"{gone} cannot be used: No such file or directory; ")
        assert not service.log.of("worker_started")
