"""What the service manager is told: which messages, when, and what happens while it takes none."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from mirror.service.flows.overview import LATE_S
from mirror.service.flows.processes import WorkerProcesses
from mirror.service.notify import STATUS_MAX, UNSENT_MAX, NotifySocket, ServiceManager
from mirror.service.telemetry.fleet import Fleet
from tests.fakes.loop import until
from tests.service.flows.test_flow import Lines
from tests.service.stage.notices import Listening, listening
from tests.service.telemetry.stage.showing import flow_of

WATCHDOG_US = 20_000
HEADLINE = "not ready: cluster west does not answer (and 1 more); partitions: none; lag: unknown"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Listening]:
    with listening(tmp_path) as found:
        yield found


class Served:
    """A supervisor with one worker, which has reported just now."""

    def __init__(self) -> None:
        self.flows: dict[str, Any] = {"west->east": flow_of(Fleet("west->east"))}
        self.processes = WorkerProcesses()
        self.processes.started(1, 11)
        self.reloading: Any = SimpleNamespace(successful=True)
        self.log: Any = Lines()

    def silent_for(self, seconds: float) -> None:
        self.processes.workers[1].heard_at = time.time() - seconds


class Kept:
    """A manager that is told of a service, as long as the context lasts."""

    def __init__(self, address: str, **environment: str) -> None:
        self.environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(WATCHDOG_US), "HOME": "/"} | environment
        self.told = ServiceManager.taken_from(self.environment)
        self.served = Served()

    async def __aenter__(self) -> "Kept":
        self._task = asyncio.get_running_loop().create_task(self.told.keep(self.served))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def test_a_path_and_an_abstract_name(tmp_path: Path) -> None:
    for address in (str(tmp_path / "notify"), f"@mirror-{uuid4()}"):
        with Listening(address) as manager:
            notify = NotifySocket(address)
            notify.send("READY=1", "STATUS=a b=c")
            assert manager.read() == [{"READY": "1", "STATUS": "a b=c"}]
            assert notify.failed == ""
            notify.close()


def test_nobody_listens(tmp_path: Path) -> None:
    """It says why and goes on. What lasts is sent once somebody does listen, in its order; no more than so much."""
    notify = NotifySocket(str(tmp_path / "notify"))
    notify.send("WATCHDOG=1", lasting=False)
    assert notify.failed == "No such file or directory"
    for number in range(UNSENT_MAX + 2):
        notify.send(f"STATUS={number}")
    with listening(tmp_path) as manager:
        notify.send("WATCHDOG=1", lasting=False)
        assert notify.failed == ""
        assert [each.get("STATUS", "watchdog") for each in manager.read()] == [
            *map(str, range(2, UNSENT_MAX + 2)),
            "watchdog",
        ]
    notify.close()
    notify = NotifySocket("/" + "x" * 200)
    notify.send("READY=1")
    assert "too long" in notify.failed
    notify.close()


def test_a_manager_that_does_not_read(manager: Listening) -> None:
    """Nothing waits for it. What lasts comes once it reads again, and nothing else piles up."""
    notify = NotifySocket(manager.address)
    while not notify.failed:
        notify.send("WATCHDOG=1", lasting=False)
    notify.send("STOPPING=1")
    notify.send("WATCHDOG=1", lasting=False)
    assert notify.failed == os.strerror(11)
    manager.forget()
    notify.send("READY=1")
    assert manager.read() == [{"STOPPING": "1"}, {"READY": "1"}]
    notify.close()


async def test_the_variables_are_its_own(manager: Listening) -> None:
    """No process that the service starts has them. A watchdog for another process is none for this one."""
    async with Kept(manager.address, WATCHDOG_PID=str(os.getpid())) as kept:
        assert kept.environment == {"HOME": "/"}
        await until(lambda: {"WATCHDOG": "1"} in manager.read())
    manager.forget()
    for other in ({"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "often"}, {"WATCHDOG_USEC": "0"}):
        async with Kept(manager.address, **other):
            await until(manager.read)
            assert "WATCHDOG" not in manager.messages[0]
            assert "STATUS" in manager.messages[0]
        manager.forget()


async def test_start_reload_and_end(manager: Listening) -> None:
    async with Kept(manager.address) as kept:
        kept.told.ready()
        kept.told.ready()
        begun = time.monotonic_ns() // 1000
        kept.told.reloading()
        kept.told.reloaded()
        kept.told.stopping(40)
        ended = time.monotonic_ns() // 1000
        await until(lambda: "WATCHDOG" in manager.read()[-1])
    first, second, third, fourth, *rest = manager.messages
    assert [first, third] == [{"READY": "1"}] * 2
    assert second.keys() == {"RELOADING", "MONOTONIC_USEC"}
    assert begun <= int(second["MONOTONIC_USEC"]) <= ended
    assert fourth == {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "45000000", "STATUS": "stopping, within 40 s"}
    assert all(each == {"WATCHDOG": "1"} for each in rest), "the status stays"


async def test_the_watchdog(manager: Listening) -> None:
    """
    1. It hears of a service that lives at least twice in its time.
    2. A worker is late: the watchdog hears nothing, and the status says why.
    3. The worker reports again, and so does the service; and again, while the service stops, whoever is late.
    """
    async with Kept(manager.address) as kept:
        await until(lambda: len(manager.read()) > 10)
        assert {each["WATCHDOG"] for each in manager.messages} == {"1"}
        kept.served.silent_for(LATE_S + 5)
        await until(lambda: {"STATUS": f"no report from worker 1; {HEADLINE}"} in manager.read())
        manager.forget()
        await asyncio.sleep(10 * WATCHDOG_US / 1e6)
        assert manager.read() == []
        kept.served.silent_for(0)
        await until(lambda: {"WATCHDOG": "1", "STATUS": HEADLINE} in manager.read())
        kept.served.silent_for(LATE_S + 5)
        kept.told.stopping(60)
        await until(lambda: manager.read()[-1] == {"WATCHDOG": "1"} and manager.states())


def test_it_speaks_twice_in_the_watchdogs_time() -> None:
    """Whatever that is; and now and then also if there is no watchdog."""
    for watchdog_s, every_s in ((0.0, 5.0), (30.0, 5.0), (4.0, 2.0), (0.5, 0.25)):
        notify = NotifySocket("@")
        assert ServiceManager(notify, watchdog_s=watchdog_s)._every_s == every_s
        notify.close()


async def test_the_status(manager: Listening) -> None:
    """One line of bounded length, whatever is in it, sent when it changes; a failed reload is in it."""
    async with Kept(manager.address, WATCHDOG_USEC="") as kept:
        await until(manager.read)
        told = kept.told
        kept.served.flows["west->east"].started = False
        kept.served.reloading.successful = False
        told._look(kept.served)
        told._look(kept.served)
        broken = Fleet("west->east")
        broken.started(1, 11).waits = "a\nREADY=1\n" + "é" * 10_000
        kept.served.flows["west->east"] = flow_of(broken)
        told._look(kept.served)
    first, second, third = manager.read()
    assert first == {"STATUS": HEADLINE}
    assert second["STATUS"].startswith("not reloaded, see the log; not ready: the workers are starting; ")
    assert third.keys() == {"STATUS"}
    assert third["STATUS"].startswith("not reloaded, see the log; not ready: a READY=1 éé")
    assert len(third["STATUS"]) == STATUS_MAX


async def test_what_lasts_needs_nothing_else_to_say(tmp_path: Path) -> None:
    """It is sent as soon as the manager takes it, also if the status stays and there is no watchdog."""
    with listening(tmp_path) as manager:
        async with Kept(manager.address, WATCHDOG_USEC="") as kept:
            await until(manager.read)
            os.rename(manager.address, tmp_path / "elsewhere")
            kept.told.ready()
            kept.told._look(kept.served)
            os.rename(tmp_path / "elsewhere", manager.address)
            kept.told._look(kept.served)
            kept.told._look(kept.served)
            assert manager.read()[1:] == [{"READY": "1"}]


async def test_a_manager_that_cannot_be_told(tmp_path: Path) -> None:
    """One warning until it can; then it gets the status that it could not be told."""
    path = tmp_path / "notify"
    async with Kept(str(path)) as kept:
        lines = kept.served.log
        await until(lambda: lines.of("service_manager_not_told"))
        await asyncio.sleep(10 * WATCHDOG_US / 1e6)
        (line,) = lines.of("service_manager_not_told")
        assert line["detail"] == "$NOTIFY_SOCKET takes no messages: No such file or directory"
        with listening(tmp_path) as manager:
            await until(lambda: manager.read() and manager.messages[0].get("STATUS") == HEADLINE)
            await asyncio.sleep(5 * WATCHDOG_US / 1e6)
        await until(lambda: len(lines.of("service_manager_not_told")) == 2)


async def test_a_status_that_cannot_be_made(manager: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in the mirror: the log has it, once, and the watchdog goes on to hear of the service."""

    def fail(_: object) -> str:
        raise ZeroDivisionError("a bug\nin two lines")

    monkeypatch.setattr("mirror.service.notify.headline", fail)
    async with Kept(manager.address) as kept:
        await until(lambda: len(manager.read()) > 4)
        first, *more = manager.messages
        assert first == {
            "WATCHDOG": "1",
            "STATUS": "the status cannot be told: ZeroDivisionError: a bug in two lines",
        }
        assert all(each == {"WATCHDOG": "1"} for each in more)
        (line,) = kept.served.log.of("report_failed")
        assert "in fail" in line["exception"]
