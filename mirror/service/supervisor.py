"""``mirror run``: starts the workers, restarts them when they die, stops them, and reports on all of them.

The supervisor has the settings, the signals, the log and the HTTP server, and copies nothing. Everything about a single
flow is in ``service.flows.flow``. Flows share the workers of the pool, unless they have workers of their own. The
supervisor gives up only if waiting does not help any flow, and none has begun; or, with ``fail_fast``, at the first
problem that keeps a flow from starting. The first signal drains, the second does not wait. SIGHUP reloads the
configuration. No worker outlives the supervisor (``service.worker``).
"""

import asyncio
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from mirror.service import channel as say
from mirror.service import first
from mirror.service.channel import Message
from mirror.service.child import Child, NotStarted, ending
from mirror.service.commands import Commands
from mirror.service.exits import EXIT_CONFIG, EXIT_FAILED, EXIT_HALTED, EXIT_OK
from mirror.service.flows.changes import Changes
from mirror.service.flows.draining import Draining
from mirror.service.flows.flow import RunningFlow, told_of
from mirror.service.flows.processes import WorkerProcesses
from mirror.service.flows.reloading import Reloading
from mirror.service.http.guard import Guard
from mirror.service.http.routes import Pages
from mirror.service.http.server import ListenFailed, Server
from mirror.service.log import logs
from mirror.service.telemetry.audits import Audits
from mirror.service.telemetry.otlp.exporting import Exporting
from mirror.service.worker_settings import Handover, Supervision

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from mirror.service.instance.control import Control
    from mirror.service.notify import ServiceManager

WATCH_S = 0.5
STOP_MARGIN_S = 25.0
"""Time that a worker has after the drain to leave its group and report its end; then it is killed."""
MISCONFIGURED = frozenset({"SameCluster"})
"""Failures that only another configuration can fix."""


class Supervisor:
    """Runs the flows until a signal, or until it is certain that no flow can ever start.

    With ``fail_fast``, for scripts, it also ends if a flow cannot start now, or if every partition has halted.
    """

    def __init__(
        self,
        told: Supervision,
        *,
        commands: Commands = Commands(),  # noqa: B008 (frozen)
        manager: "ServiceManager | None" = None,
        control: "Control | None" = None,
        alone: bool = False,
    ) -> None:
        """
        Args:
            told: the settings.
            commands: the mirror's commands as they are typed here.
            manager: the service manager, if there is one that wants reports.
            control: the socket for ``mirror stop``, if there is one.
            alone: True if nothing else runs in this process.
        """
        self.settings = told
        self._manager = manager
        self._control = control
        self.commands = commands
        self._fail_fast = told.fail_fast
        self._alone = alone
        self.flows: dict[str, RunningFlow] = {}
        self.processes = WorkerProcesses()
        self._children: dict[int, Child] = {}
        self._pool: list[Child] = []
        """The workers that flows share; empty if each flow has its own."""
        self._retired: set[int] = set()
        """Numbers of workers that no flow needs any more: they stop for good."""
        self._keeping: dict[int, asyncio.Task[None]] = {}
        self._running = False
        """True once processes are started."""
        self._stop = asyncio.Event()
        self.address = ""
        self._failed: Message | None = None
        self._has_begun = False
        """True once any flow has started: from then on, the service ends only when it is asked to stop."""
        self._digests = False
        self._drained = True
        self._report_failed = ""
        """The failure of a report that was logged last."""
        self._draining = Draining(())
        self.reloading = Reloading(self, manager)
        self._exporting = Exporting(self)
        self._audits = Audits(self)
        for handover in told.flows:
            self._add(handover)
        self._show_commands()

    @property
    def log(self) -> "FilteringBoundLogger":
        """The log for lines about the service. If there is only one flow, the lines name it."""
        names = list(self.flows)
        return logs.get_logger(flow=names[0]) if len(names) == 1 else logs.get_logger()

    # -- life --------------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Runs the flows. Returns the exit code: 0: stopped cleanly; 1: could not run, or not drain everything; 2:
        stopped with halted partitions; 78: misconfigured."""
        loop = asyncio.get_running_loop()
        for number in first.STOPPING:
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        first.let_signals()
        self.digest()
        listen = self.settings.http_listen
        server = Server(listen, Guard(Pages(self), host=listen[0], token=lambda: self.settings.http_token))
        try:
            server.open()
            self.address = server.address
            self._show_commands()
            self.log.info("listening", address=self.address)
            if self._control is not None:
                await self._control.open(self)
            return await self._run(server)
        except ListenFailed as error:
            self.log.error("failed", reason="ListenFailed", detail=str(error))
            return EXIT_FAILED
        finally:
            if self._control is not None:
                await self._control.close()
            server.close()
            for number in first.STOPPING:
                loop.remove_signal_handler(number)

    @property
    def _watchers(self) -> "list[ServiceManager | Control]":
        """The recipients of notices that the service is ready, or stops."""
        return [each for each in (self._manager, self._control) if each is not None]

    def _show_commands(self) -> None:
        """Passes the commands to the flows, with the address if the port was chosen at the start, and with the flow's
        name if there are several."""
        if self.address and not self.settings.http_listen[1]:
            self.commands = replace(self.commands, at=self.address)
        for name, flow in self.flows.items():
            flow.typed_as(replace(self.commands, flow=name if len(self.flows) > 1 else ""))

    def digest(self) -> None:
        """From now on, condenses workers' lines about many partitions into their number; not at level debug."""
        self._digests = self.settings.log_level != "debug"
        for flow in self.flows.values() if self._digests else ():
            flow.digest()

    async def _run(self, server: Server) -> int:
        self._running = True
        for child in self._children.values():
            self._start(child)
        loop = asyncio.get_running_loop()
        serving = loop.create_task(server.serve())
        reloading = loop.create_task(self.reloading.keep())
        exporting = loop.create_task(self._exporting.keep())
        auditing = loop.create_task(self._audits.keep())
        telling = [] if self._manager is None else [loop.create_task(self._manager.keep(self))]
        try:
            await self._watch(reloading, exporting, auditing, *telling)
            reloading.cancel()
            for each in self._watchers:
                each.stopping(self._stop_s)
            self._draining = Draining(self.flows.values())
            for child in self._children.values():
                child.send(say.STOP)
            await self._wait_ended()
        finally:
            tasks = [serving, reloading, exporting, auditing, *telling, *self._keeping.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for flow in self.flows.values():
                flow.close()
        return self._end()

    def _end(self) -> int:
        if self._failed is not None:
            return EXIT_CONFIG if self._failed["reason"] in MISCONFIGURED else EXIT_FAILED
        flows = self.flows.values()
        for flow in flows:
            if flow.started:
                self._report(flow.reports.progress)
        result = self._draining.over(flows, drained=self._drained)
        result.log(self.log)
        if self._control is not None:
            self._control.ended(asdict(result))
        if not result.drained:
            return EXIT_FAILED
        return EXIT_HALTED if result.halted else EXIT_OK

    async def _watch(self, *tasks: "asyncio.Task[None]") -> None:
        """Waits until there is a reason to stop; logs reports meanwhile. Raises the exception of one of the tasks, or
        of the tasks that run workers."""
        report_at = time.monotonic() + self.settings.progress_interval_ms / 1000
        while not self._stop.is_set() and self._failed is None:
            interval_s = self.settings.progress_interval_ms / 1000
            for task in (*tasks, *self._keeping.values()):
                if task.done():
                    task.result()
            flows = self.flows.values()
            if self._fail_fast and flows and all(flow.fleet.all_halted for flow in flows):
                self.log.error("failed", reason="all_halted", detail="every partition is halted; see the lines above")
                return
            for flow in flows:
                self._report(partial(flow.reports.look, started=flow.started))
            if self._alone and not self.reloading.reads:
                first.reap({child.pid for child in self._children.values()})
            if time.monotonic() >= report_at:
                report_at = time.monotonic() + interval_s
                for flow in flows:
                    if flow.started:
                        self._report(flow.reports.progress)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), min(WATCH_S, interval_s))

    def _report(self, report: Callable[[], None]) -> None:
        """Makes a report. A failure is a bug in the mirror: it is logged once, and copying goes on."""
        try:
            report()
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            if detail != self._report_failed:
                self._report_failed = detail
                self.log.error("report_failed", detail=detail, exception=traceback.format_exc())

    async def _wait_ended(self) -> None:
        """Waits until every worker has ended by itself; kills those that have not after ``_stop_s``."""
        self._stop.set()
        if not self._keeping:
            return
        _, late = await asyncio.wait(self._keeping.values(), timeout=self._stop_s)
        if late:
            self._drained = False
            for child in self._children.values():
                if child.code is None:
                    self._kill(child)
            await asyncio.wait(late)

    @property
    def _stop_s(self) -> float:
        """Seconds that a worker has to stop."""
        return self.settings.drain_timeout_ms / 1000 + STOP_MARGIN_S

    def _kill(self, child: Child) -> None:
        detail = f"did not stop in {self._stop_s:.0f} s"
        self.log.warning("worker_killed", worker=child.number, detail=detail)
        child.kill()

    # -- flows -------------------------------------------------------------------------------------------------------

    def _add(self, told: Handover) -> None:
        """Makes workers run a flow: those of the pool, or new ones."""
        if told.flow in self.flows:
            self.processes.part(self.flows[told.flow].fleet)
        flow = self.flows[told.flow] = RunningFlow(told, commands=self.commands, fail_fast=self._fail_fast)
        if self._digests:
            flow.digest()
        if told.own_workers:
            workers = self._new_children(told.own_workers)
        else:
            self._pool = self._pool or self._new_children(self.settings.pool)
            workers = self._pool
        for seat, child in enumerate(workers, start=1):
            flow.put(child, seat)
        if self._running:
            for child in workers:
                self._start(child)

    def _new_children(self, count: int) -> list[Child]:
        """Makes new workers, with the lowest free numbers."""
        free = (number for number in range(1, len(self._children) + count + 1) if number not in self._children)
        made = [Child(number, self._hear) for number, _ in zip(free, range(count), strict=False)]
        self._children.update({child.number: child for child in made})
        return made

    async def apply(self, wanted: Changes) -> None:
        """See ``reloading.Service``."""
        self.settings = wanted.told
        told = {flow.flow: flow for flow in wanted.told.flows}
        for name in wanted.limited:
            self.flows[name].limit(told[name])
        leaving = [self.flows[name] for name in (*wanted.removed, *wanted.restarted)]
        await asyncio.gather(*(self._part(flow) for flow in leaving))
        if self._stop.is_set():
            return
        for name in wanted.removed:
            self.processes.part(self.flows.pop(name).fleet)
        for name in (*wanted.added, *wanted.restarted):
            self._add(told[name])
        self._show_commands()
        if self._pool and all(flow.told.own_workers for flow in self.flows.values()):
            pool, self._pool = self._pool, []
            self._retire(pool)

    async def _part(self, flow: RunningFlow) -> None:
        """Stops one flow. Until it is removed or added again, it is shown as not ready."""
        own = list(flow.children.values()) if flow.told.own_workers else []
        flow.leave()
        with suppress(TimeoutError):
            await asyncio.wait_for(flow.left.wait(), self._stop_s)
        for child in list(flow.children.values()):
            self._kill(child)
        await flow.left.wait()
        self._retire(own)
        ending = [self._keeping[child.number] for child in own if child.number in self._keeping]
        if ending:  # wait, so that their numbers are free again
            await asyncio.wait(ending, timeout=self._stop_s)
        flow.close()
        flow.log.info("flow_stopped", drained=flow.drained, pending=flow.pending)

    # -- workers -----------------------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        """Starts a worker that does not run yet."""
        if child.number not in self._keeping:
            self._keeping[child.number] = asyncio.get_running_loop().create_task(self._keep(child))

    def _retire(self, children: Iterable[Child]) -> None:
        """Stops workers for good: they run no flow any more."""
        for child in children:
            self._retired.add(child.number)
            child.send(say.STOP)

    async def _keep(self, child: Child) -> None:
        """Runs one worker, process after process, until the supervisor stops or no flow needs the worker any more."""
        while True:
            not_started = ""
            try:
                code = await child.run(self._begun)
            except NotStarted as error:
                not_started = str(error)
            else:
                if self._stop.is_set() or self._failed is not None:
                    if code and not child.killed and self._failed is None:
                        self.log.warning("worker_died", worker=child.number, pid=child.pid, detail=ending(code))
                    # Its last report, from after the drain, stays in the fleets: it is final.
                    self._drained = self._drained and child.stopped
                    return
                self.processes.ended(child.number)
                for flow in list(self.flows.values()):
                    flow.ended(child)
            if child.number in self._retired:
                self._forget(child)
                return
            pause_s = child.pause_s()
            restart_s = round(pause_s, 3)
            if not_started:
                self.log.warning("worker_not_started", worker=child.number, detail=not_started, restart_s=restart_s)
            else:
                self.log.warning(
                    "worker_died", worker=child.number, pid=child.pid, detail=ending(code), restart_s=restart_s
                )
            with suppress(TimeoutError):
                await asyncio.wait_for(child.stop_asked.wait(), pause_s)
            if self._stop.is_set():
                return
            if child.number in self._retired:
                self._forget(child)
                return

    def _forget(self, child: Child) -> None:
        self._retired.discard(child.number)
        self.processes.retired(child.number)
        del self._children[child.number], self._keeping[child.number]
        self.log.info("worker_stopped", worker=child.number, pid=child.pid)

    def _begun(self, child: Child) -> None:
        self.processes.started(child.number, child.pid)
        for flow in self.flows.values():
            if child.number in flow.children:
                flow.begun(child)
        self.log.info("worker_started", worker=child.number, pid=child.pid)
        if self.processes.workers.keys() >= self._children.keys():
            for each in self._watchers:
                each.ready()

    def _hear(self, child: Child, message: Message) -> None:
        self.processes.heard(child.number, message)
        # Any message shows that the worker's event loop runs, and so all of its flows.
        for each in self.flows.values():
            if child.number in each.fleet.workers:
                each.fleet.heard_of(child.number)
        flow = self.flows.get(message.get("flow", ""))
        if flow is None:
            if message["kind"] == say.LOG:
                write = getattr(self.log, message["level"])
                write(message["event"], worker=child.number, **message["fields"])
            return
        flow.hear(child, message)
        if self._fails(flow):
            return
        if message["kind"] == say.FAILED:
            flow.failure(child, message)

    def _fails(self, flow: RunningFlow) -> bool:
        """Ends the run if a flow cannot start: with ``fail_fast`` at once, otherwise if no flow ever can. Returns True
        if the run ends."""
        if flow.impatient is not None:
            return self._fail(flow, flow.impatient)
        self._has_begun = self._has_begun or flow.started
        if self._has_begun or flow.refused is None or any(each.refused is None for each in self.flows.values()):
            return False
        return self._fail(flow, flow.refused)

    def _fail(self, flow: RunningFlow, message: Message) -> bool:
        """Ends the run with this failure. Returns True."""
        if self._failed is None and not self._stop.is_set():
            self._failed = message
            flow.log.error("failed", **self.commands.line(told_of(message)))
        return True

    # -- signals -----------------------------------------------------------------------------------------------------

    def _signalled(self, number: signal.Signals) -> None:
        """Handles a signal: the first one asks for a clean stop; the second kills the workers and ends at once."""
        if self._stop.is_set():
            self.log.warning("killed", signal=number.name, detail="second signal: not drained")
            for child in self._children.values():
                child.kill()
            logs.flush()
            os._exit(EXIT_FAILED)
        self.stop(number.name)

    def stop(self, asked: str) -> None:
        """Asks for a clean stop, once. ``asked``: the signal or the command, for the log."""
        if not self._stop.is_set():
            self.log.info("stopping", signal=asked)
            self._stop.set()

    def _hung_up(self) -> None:
        """Handles SIGHUP: reloads. It may also come from a terminal that is closed; with an unchanged configuration,
        the reload changes nothing."""
        self.reloading.ask()
