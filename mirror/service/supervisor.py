"""``mirror run``: starts the workers, restarts them when they die, stops them, and reports on all of them.

The supervisor has the settings, the signals, the log and the HTTP server, and copies nothing. Workers join the group
together, once each is ready or has failed, so that partitions are assigned only once. The supervisor gives up only if
waiting cannot help (a worker says so before any has begun), or, with ``fail_fast``, at the first problem that keeps it
from starting. The first signal drains, the second does not wait. No worker outlives it (``service.worker``).
"""

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, replace
from typing import NoReturn

from mirror.service import channel as say
from mirror.service.channel import Message
from mirror.service.child import Child, program
from mirror.service.commands import Commands
from mirror.service.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_HALTED, EXIT_OK
from mirror.service.http.routes import Pages
from mirror.service.http.server import ListenFailed, Server
from mirror.service.log import logs
from mirror.service.log.digest import Digest
from mirror.service.resume.resumption import Resumption
from mirror.service.telemetry.fleet import Fleet, WorkerView
from mirror.service.telemetry.reports import Reports
from mirror.service.worker_settings import Supervision

SIGNALS = (signal.SIGTERM, signal.SIGINT)
WATCH_S = 0.5
STOP_MARGIN_S = 25.0
"""Time beyond the drain for a worker to leave its group and report its end; after that it is killed."""
MISCONFIGURED = frozenset({"SameCluster"})
"""Failures that only another configuration can fix."""
RELOAD = "reloading is not supported yet: a restart reads the configuration again; nothing stops"
ONCE = frozenset({"topic_unknown", "topic_gone"})
"""Events that every worker finds out by itself, and that are logged once."""


class Supervisor:
    """Runs one flow until a signal, or until it cannot start and never will.

    With ``fail_fast``, for scripts, it also ends if it cannot start for now, or if every partition has halted.
    """

    def __init__(
        self,
        told: Supervision,
        *,
        commands: Commands = Commands(),  # noqa: B008 (frozen)
    ) -> None:
        """``commands``: the mirror's commands as they are typed here."""
        self._settings = told
        self.commands = commands
        self._count = len(told.workers)
        self._fail_fast = told.fail_fast
        self._log = logs.get_logger(flow=told.flow)
        self.fleet = Fleet(told.flow, flow_id=told.flow_id)
        self._children = [Child(worker, self._hear) for worker in told.workers]
        self._stop = asyncio.Event()
        self.group = told.group.group_id
        self.address = ""
        self.started = False
        """True once the workers were told to join the group: both clusters were reached, with something to copy."""
        self._begun_with: Message | None = None
        """The last READY message from before the workers were told to join the group."""
        self._died: set[int] = set()
        """Numbers of workers whose process has ended at least once: the others do not wait for them."""
        self._waits: dict[str, float] = {}
        """Reason why workers wait -> since when (monotonic). Each is logged once, until no worker waits any more."""
        self._failed: Message | None = None
        self._reports = Reports(self.fleet, self._log)
        self._digest: Digest | None = None
        self._told: set[str] = set()
        self.resumption = Resumption(self.fleet, {child.number: child for child in self._children})
        self._pending = 0
        self._drained = True
        self._orphans: list[str] = []
        """Members whose process died while no worker could have them leave the group."""

    # -- life --------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Runs the flow. Returns the exit code: 0 stopped cleanly, 1 could not run, 2 stopped with halted partitions,
        78 misconfigured."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        self.digest()
        server = Server(self._settings.http_listen, Pages(self).answer, loop)
        try:
            server.open()
            self.address = server.address
            self._show_commands()
            self._log.info("listening", address=self.address)
            return await self._run()
        except ListenFailed as error:
            self._log.error("failed", reason="ListenFailed", detail=str(error))
            return EXIT_FAILED
        finally:
            server.close()
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _show_commands(self) -> None:
        """Adds the address to the commands if the port was any free one, and shares them with the reports."""
        if not self._settings.http_listen[1]:
            self.commands = replace(self.commands, at=self.address)
        self._reports.commands = self.commands

    def digest(self) -> None:
        """From now on, condenses workers' lines about many partitions into their number; not at level debug."""
        if self._settings.log_level != "debug":
            self._digest = Digest(self._log)

    async def _run(self) -> int:
        keeping = [asyncio.get_running_loop().create_task(self._keep(child)) for child in self._children]
        try:
            await self._watch(keeping)
            for child in self._children:
                child.send(say.STOP)
            await self._wait_ended(keeping)
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            if self._digest is not None:
                self._digest.close()
        return self._end()

    def _end(self) -> int:
        if self._failed is not None:
            return EXIT_CONFIG if self._failed["reason"] in MISCONFIGURED else EXIT_FAILED
        halted = len(self.fleet.halted)
        if self.started:
            self._reports.progress()
        self._log.info(logs.STOPPED, drained=self._drained, pending=self._pending, halted=halted)
        return EXIT_HALTED if halted else EXIT_OK

    async def _watch(self, keeping: "list[asyncio.Task[None]]") -> None:
        """Waits until there is a reason to stop; logs reports meanwhile."""
        interval_s = self._settings.progress_interval_ms / 1000
        report_at = time.monotonic() + interval_s
        while not self._stop.is_set() and self._failed is None:
            for task in keeping:
                if task.done():
                    task.result()
            if self._fail_fast and self.fleet.all_halted:
                self._log.error("failed", reason="all_halted", detail="every partition is halted; see the lines above")
                return
            self._reports.look(started=self.started)
            if self.started and time.monotonic() >= report_at:
                report_at = time.monotonic() + interval_s
                self._reports.progress()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(WATCH_S, interval_s))

    async def _wait_ended(self, keeping: "list[asyncio.Task[None]]") -> None:
        """Waits until every worker has ended by itself; kills those that do not."""
        self._stop.set()
        timeout_s = self._settings.drain_timeout_ms / 1000 + STOP_MARGIN_S
        _, late = await asyncio.wait(keeping, timeout=timeout_s)
        if late:
            self._drained = False
            for child in self._children:
                if child.code is None:
                    self._log.warning("worker_killed", worker=child.number, detail=f"did not stop in {timeout_s:.0f} s")
                    child.kill()
            await asyncio.wait(late)

    # -- workers -----------------------------------------------------------------------------------------------------

    async def _keep(self, child: Child) -> None:
        """Runs one worker, process after process, until the supervisor stops."""
        while True:
            code = await child.run(self._begun)
            member = self.fleet.workers[child.number].member
            if self._stop.is_set() or self._failed is not None:
                # Its last report, from after the drain, stays in the fleet: it is the final one on its partitions.
                self._drained = self._drained and child.stopped
                return
            self.fleet.ended(child.number)
            self._died.add(child.number)
            self._begin_together()
            pause_s = child.pause_s()
            self._log.warning(
                "worker_died",
                worker=child.number,
                pid=child.pid,
                detail=_ending(code),
                restart_s=round(pause_s, 3),
            )
            self._expel(member)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)
            if self._stop.is_set():
                return

    def _begun(self, child: Child) -> None:
        self.fleet.started(child.number, child.pid)
        self._log.info("worker_started", worker=child.number, pid=child.pid)

    def _expel(self, member: str) -> None:
        """Has another worker expel a dead member from the group, so that its partitions need not wait for its session
        to end."""
        if not member or self._settings.group.instance_id:
            return
        for child in self._children:
            if self.fleet.workers[child.number].ready and child.send(say.EXPEL, member=member):
                return
        self._orphans.append(member)

    def _hear(self, child: Child, message: Message) -> None:
        worker = self.fleet.heard_of(child.number)
        match message["kind"]:
            case say.LOG:
                self._write(child, message)
            case say.ALIVE:
                self.fleet.alive(child.number, message)
            case say.SNAPSHOT:
                self.fleet.heard(child.number, message)
            case say.WAITING:
                self._worker_waits(worker, message)
            case say.READY:
                worker.ready = True
                self._waits_no_more(worker)
                while self._orphans:
                    child.send(say.EXPEL, member=self._orphans.pop())
                self.fleet.flow_partitions = message["partitions"]
                self._join(child, message)
            case say.JOINED:
                worker.member = message["member"]
            case say.REPLY:
                self.resumption.answered(message)
            case say.FAILED:
                self._worker_failed(child, message)
            case say.STOPPED:
                self._drained = self._drained and message["drained"]
                self._pending += message["pending"]

    def _join(self, child: Child, message: Message) -> None:
        """Has workers join the group: the first time all at once, later each as soon as it is ready."""
        if self.started:
            child.send(say.JOIN)
            return
        self._begun_with = message
        self._begin_together()

    def _begin_together(self) -> None:
        """Has the ready workers join once every other one has ended at least once: those join later."""
        message, workers = self._begun_with, self.fleet.workers.values()
        if self.started or message is None or not any(worker.ready for worker in workers):
            return
        if all(worker.ready or worker.number in self._died for worker in workers):
            self.started = True
            self._log.info(
                logs.STARTED,
                partitions=message["partitions"],
                source_id=message["source_id"],
                destination_id=message["destination_id"],
                workers=self._count,
            )
            for child in self._children:
                if self.fleet.workers[child.number].ready:
                    child.send(say.JOIN)

    def _worker_waits(self, worker: WorkerView, message: Message) -> None:
        """Notes that a worker cannot start yet and tries again. Each reason is logged once for all workers."""
        reason, detail = message["reason"], message["detail"]
        worker.waits = f"{reason}: {detail}"
        if self._fail_fast and not self.started:
            self._fail(message)
        elif worker.waits not in self._waits and not self._stop.is_set():
            self._waits[worker.waits] = time.monotonic()
            told = self.commands.rendered(detail)
            self._log.warning("waiting", reason=reason, detail=f"{told}; tried again until it succeeds")

    def _waits_no_more(self, worker: WorkerView) -> None:
        worker.waits = ""
        if self._waits and not any(each.waits for each in self.fleet.workers.values()):
            waited_s = time.monotonic() - min(self._waits.values())
            self._waits.clear()
            self._log.info("waiting_over", duration_s=round(waited_s, 3))

    def _write(self, child: Child, message: Message) -> None:
        """Writes a worker's line to our log."""
        event, fields = message["event"], message["fields"]
        if event in ONCE:
            told = f"{event} {fields}"
            if told in self._told:
                return
            self._told.add(told)
        write = getattr(self._digest or self._log, message["level"])
        write(event, worker=child.number, **self.commands.line(fields))

    def _worker_failed(self, child: Child, message: Message) -> None:
        """Handles a worker that cannot go on. If no wait heals that (or with ``fail_fast``), and none has begun to
        copy, the run ends; else the worker is restarted."""
        if not self.started and (message.get("final") or self._fail_fast):
            self._fail(message)
        else:
            self._log.error("worker_failed", worker=child.number, **self.commands.line(_told(message)))

    def _fail(self, message: Message) -> None:
        """Ends the run with this failure."""
        if self._failed is None and not self._stop.is_set():
            self._failed = message
            self._log.error("failed", **self.commands.line(_told(message)))

    # -- signals -----------------------------------------------------------------------------------------------------

    def _signalled(self, number: signal.Signals) -> None:
        """Handles a signal: the first asks for a clean stop, the second kills the workers and does not wait."""
        if self._stop.is_set():
            self._log.warning("killed", signal=number.name, detail="second signal: not drained")
            for child in self._children:
                child.kill()
            logs.flush()
            os._exit(EXIT_FAILED)
        self._log.info("stopping", signal=number.name)
        self._stop.set()

    def _hung_up(self) -> None:
        """Handles SIGHUP, from a terminal that is closed or as a wish to reload: neither ends what copies."""
        self._log.warning("not_reloaded", signal="SIGHUP", detail=RELOAD, remedy="restart the mirror")


def _told(message: Message) -> dict[str, object]:
    """Returns the fields of a failure that go into the log."""
    return {key: message[key] for key in ("reason", "detail", "exception") if key in message}


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def become(told: Supervision, *, commands: Commands) -> NoReturn:
    """Replaces this program by the supervisor, in the same process. The new program has not read the configuration: the
    memory that this takes (YAML, pydantic) would stay for as long as the service runs.

    Args:
        told: the supervisor's settings.
        commands: the mirror's commands as they are typed here.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is an event loop that can log it
    descriptor = os.memfd_create("supervision", 0)
    with os.fdopen(os.dup(descriptor), "w", encoding="utf-8") as file:
        json.dump({"told": told.pack(), "commands": asdict(commands)}, file)
    typed = f"mirror run -c {commands.config}"
    os.execv(sys.executable, program("mirror.service.supervisor", descriptor, name=typed))


def main(descriptor: int) -> NoReturn:
    """Runs the supervisor. ``descriptor``: of the file with its settings, inherited."""
    with os.fdopen(descriptor, encoding="utf-8") as file:
        file.seek(0)
        data = json.load(file)
    told, commands = Supervision.unpack(data["told"]), Commands(**data["commands"])
    logs.configure(told.log_level)
    try:
        code = asyncio.run(Supervisor(told, commands=commands).run())
    finally:
        logs.flush()
    sys.exit(code)
