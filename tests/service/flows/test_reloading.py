"""Reloads: the file is read in another process, checked as a whole, and applied; a wrong one changes nothing."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from mirror.cli import main
from mirror.service.commands import Commands
from mirror.service.config import load
from mirror.service.config.resolve import supervision
from mirror.service.flows import reloading
from mirror.service.flows.changes import Changes
from mirror.service.flows.reloading import NotRead, Reloading, read
from mirror.service.http import client, routes
from mirror.service.http.routes import Pages
from mirror.service.worker_settings import Supervision
from tests.fakes.loop import until
from tests.service.config.test_across import text
from tests.service.flows.test_flow import EAST, HUB, Lines
from tests.service.http.asking import asked


class Service:
    """What was applied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write({EAST: {}})
        self.settings = supervision(load(path), workers=2)
        self.commands = Commands(config=str(path))
        self.lines = Lines()
        self.applied: list[Changes] = []
        self.may_apply = asyncio.Event()
        self.may_apply.set()

    def write(self, flows: dict[str, dict[str, Any]], **top: object) -> None:
        self.path.write_text(text(flows, **top))

    @property
    def log(self) -> Any:
        return self.lines

    async def apply(self, wanted: Changes) -> None:
        self.applied.append(wanted)
        self.settings = wanted.told
        await self.may_apply.wait()


@asynccontextmanager
async def reloads(folder: Path, manager: "Told | None" = None) -> AsyncIterator[tuple[Service, Reloading]]:
    service = Service(folder / "mirror.yaml")
    found = Reloading(service, manager)
    task = asyncio.get_running_loop().create_task(found.keep())
    try:
        yield service, found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_reload(tmp_path: Path) -> None:
    """Read by another process, with the options of the command line, and said: what comes, what needs a restart."""
    async with reloads(tmp_path) as (service, found):
        assert found.granularity == "partition"
        service.write({EAST: {}, HUB: {}}, workers=9, log_level="debug", metrics_granularity="topic")
        begun = found.succeeded_at
        found.ask()
        await until(lambda: service.lines.of("reloaded"))
        (wanted,) = service.applied
        assert (wanted.added, wanted.untouched, wanted.told.pool) == ((HUB,), (EAST,), 2)
        (line,) = service.lines.of("reloading")
        assert (line["added"], line["removed"], line["restarted"], line["untouched"]) == ([HUB], [], [], [EAST])
        (restart,) = service.lines.of("reload_needs_restart")
        assert restart["keys"] == ["log.level"]
        assert restart["detail"] == "changed, but not in effect until the service is restarted: log.level"
        assert found.successful
        assert found.succeeded_at > begun
        assert found.granularity == "topic"


async def test_a_wrong_file(tmp_path: Path) -> None:
    """1. Everything that is wrong is said, and nothing is applied. 2. Once it is corrected, the next one succeeds."""
    async with reloads(tmp_path) as (service, found):
        before = found.succeeded_at
        service.write({EAST: {"settle.ms": 1}, HUB: {"topic": "x"}})
        found.ask()
        await until(lambda: service.lines.of("not_reloaded"))
        (line,) = service.lines.of("not_reloaded")
        assert f"{service.path}:1: flows.{EAST}.settle.ms: must be from 1000" in line["detail"]
        assert f"flows.{HUB}.topic: is unknown" in line["detail"]
        assert line["detail"].endswith("nothing was changed: all flows go on under the former configuration")
        assert (service.applied, found.successful, found.succeeded_at) == ([], False, before)
        service.write({EAST: {}})
        found.ask()
        await until(lambda: found.successful)
        assert service.applied[0].untouched == (EAST,)


async def test_asked_for_while_one_is_under_way(tmp_path: Path) -> None:
    """However often: one more follows, with the file as it is then."""
    async with reloads(tmp_path) as (service, found):
        service.may_apply.clear()
        found.ask()
        await until(lambda: service.applied)
        service.write({HUB: {}})
        for _ in range(3):
            found.ask()
        service.may_apply.set()
        await until(lambda: len(service.lines.of("reloaded")) == 2)
        assert [each.added for each in service.applied] == [(), (HUB,)]


async def test_whoever_asks_may_wait(tmp_path: Path) -> None:
    """For what has changed, or for what is wrong; those who ask meanwhile get the answer to the one that follows."""
    async with reloads(tmp_path) as (service, found):
        service.write({EAST: {}, HUB: {}})
        service.may_apply.clear()
        first = asyncio.create_task(found.reload())
        await until(lambda: service.applied)
        service.write({HUB: {}})
        others = [asyncio.create_task(found.reload()) for _ in range(2)]
        others[0].cancel()
        service.may_apply.set()
        assert (await first).added == (HUB,)
        assert (await others[1]).removed == (EAST,)
        service.write({HUB: {"topic": "x"}})
        with pytest.raises(NotRead, match="topic: is unknown"):
            await found.reload()


async def test_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Done, refused, and not done yet."""
    async with reloads(tmp_path) as (service, found):
        served: Any = SimpleNamespace(reloading=found, commands=service.commands, flows={})

        async def ask() -> tuple[int, Any]:
            answer = await asked(Pages(served), "POST", "/api/v1/reload")
            return answer.status, answer.data

        service.write({EAST: {}, HUB: {}}, log_level="debug")
        assert await ask() == (
            200,
            {
                "added": [HUB], "removed": [], "restarted": [], "limited": [], "untouched": [EAST],
                "need_restart": ["log.level"],
            },
        )  # fmt: skip
        service.write({HUB: {"topic": "x"}})
        code, body = await ask()
        assert code == 409
        assert "topic: is unknown" in body["error"]
        assert body["error"].endswith("nothing was changed: all flows go on under the former configuration")
        service.write({HUB: {}})
        service.may_apply.clear()
        monkeypatch.setattr(routes, "RELOAD_S", 0.1)
        monkeypatch.setattr(reloading, "READ_S", 60.0)
        code, body = await ask()
        assert (code, body) == (202, {})


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ({"added": [HUB], "untouched": [EAST], "need_restart": []}, 0, f"added: {HUB}\nuntouched: {EAST}\n"),
        (
            {"restarted": [EAST], "need_restart": ["log.level"]},
            0,
            "changed, but not in effect until the service is restarted: log.level",
        ),
        (
            None,
            0,
            "the reload was not finished within 60 s and goes on; the log says `reloaded` or `not_reloaded`",
        ),
        (client.NotDone("x.yaml:1: wrong"), 78, "not reloaded: x.yaml:1: wrong"),
        (client.NotAnswered("no mirror answers"), 1, "no mirror answers"),
        (client.NotAllowed("changes need a token"), 1, "not reloaded: changes need a token"),
    ],
)
def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, code: int, said: str
) -> None:
    config = tmp_path / "mirror.yaml"
    config.write_text(text({EAST: {}}))

    def reload(_: object, token: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(client, "reload", reload)
    result = CliRunner().invoke(main, ["reload", "-c", str(config)])
    assert (result.exit_code, said in result.output) == (code, True)


def test_a_wrong_file_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror is not even asked; what is wrong is said first, and then what that means."""
    monkeypatch.setattr(client, "reload", lambda *_, **__: pytest.fail("it was asked"))
    config = tmp_path / "mirror.yaml"
    config.write_text(text({EAST: {"topic": "x"}}))
    result = CliRunner().invoke(main, ["reload", "-c", str(config)])
    assert result.exit_code == 78
    assert result.stderr.startswith(f"{config}:")
    assert result.stderr.endswith("\nnot reloaded: the mirror goes on under the former configuration\n")


class Told:
    """What a service manager is told of reloads."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def reloading(self) -> None:
        self.said.append("reloading")

    def reloaded(self) -> None:
        self.said.append("reloaded")


async def test_who_is_told(tmp_path: Path) -> None:
    """
    1. The service manager is told of each reload's beginning and end, also if it changes nothing.
    2. Of one that the service's end cuts short, only of the beginning: a service that stops is not ready any more.
    """
    told = Told()
    async with reloads(tmp_path, told) as (service, found):
        service.write({EAST: {"settle.ms": 1}})
        found.ask()
        await until(lambda: service.lines.of("not_reloaded"))
        assert told.said == ["reloading", "reloaded"]
        service.write({HUB: {}})
        service.may_apply.clear()
        found.ask()
        await until(lambda: service.applied)
    assert told.said == ["reloading", "reloaded", "reloading"]


async def test_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, a file that is gone, and a process that fails: each is said, and raises nothing else."""
    service = Service(tmp_path / "mirror.yaml")
    told: Supervision = service.settings
    with pytest.raises(NotRead, match="started without a configuration file"):
        await read("", told)
    with pytest.raises(NotRead, match="cannot be read: No such file or directory"):
        await read(str(tmp_path / "gone.yaml"), told)
    monkeypatch.setattr(reloading, "program", lambda *_, **__: ["/bin/sh", "-c", "echo a broken disk >&2; exit 3"])
    with pytest.raises(NotRead, match="a broken disk"):
        await read(str(service.path), told)
    monkeypatch.setattr(reloading, "program", lambda *_, **__: [str(tmp_path / "no-such-program")])
    with pytest.raises(NotRead, match="the process that reads the configuration failed"):
        await read(str(service.path), told)


@pytest.mark.parametrize("turns", range(3, 8))
async def test_told_to_stop_while_that_process_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """asyncio, cancelled while it begins a process, waits for the end of its pipes: here another one holds them."""
    monkeypatch.setattr(reloading, "ENDS_S", 0.05)
    service = Service(tmp_path / "mirror.yaml")
    pid = tmp_path / "pid"
    hangs = ["/bin/sh", "-c", f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"]
    monkeypatch.setattr(reloading, "program", lambda *_, **__: hangs)
    task = asyncio.get_running_loop().create_task(read(str(service.path), service.settings))
    for _ in range(turns):
        await asyncio.sleep(0)
    while not pid.exists():
        time.sleep(0.01)  # noqa: ASYNC251 - the loop stands still meanwhile: that is the point
    task.cancel()
    try:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), 30)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


async def test_told_to_stop_while_the_file_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that reads it is killed, and nobody waits long for its end: another one holds its pipes here, as a
    process does that waits for a disk. One that is never done is given up."""
    monkeypatch.setattr(reloading, "ENDS_S", 0.05)
    service = Service(tmp_path / "mirror.yaml")
    pid = tmp_path / "pid"
    hangs = ["/bin/sh", "-c", f"sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"]
    monkeypatch.setattr(reloading, "program", lambda *_, **__: hangs)
    task = asyncio.get_running_loop().create_task(read(str(service.path), service.settings))
    await until(pid.exists)
    task.cancel()
    try:
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(task), 30)
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    monkeypatch.setattr(reloading, "program", lambda *_, **__: ["/bin/sleep", "600"])
    monkeypatch.setattr(reloading, "READ_S", 0.05)
    with pytest.raises(NotRead, match="did not finish within"):
        await read(str(service.path), service.settings)
