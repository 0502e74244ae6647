"""One flow at the supervisor: handles its workers' reports, and decides when they join its group.

Workers of a flow join its group together, once each is ready or has failed, so that partitions are assigned only once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mirror.net.security.options import SecurityOptions
from mirror.service import channel as say
from mirror.service.channel import Message
from mirror.service.commands import Commands
from mirror.service.flows.processes import OF_PROCESS
from mirror.service.log import logs
from mirror.service.log.digest import Digest
from mirror.service.resume.resumption import Resumption
from mirror.service.telemetry.fleet import Fleet, WorkerView
from mirror.service.telemetry.reports import Reports
from mirror.service.tracing.following import Traces
from mirror.service.worker_settings import Handover

if TYPE_CHECKING:
    from mirror.service.child import Child

ONCE = frozenset({"topic_unknown", "topic_gone"})
"""Events that every worker detects by itself, and that are logged only once."""
MOST_TOLD = 1_000
"""Most such lines that are remembered."""


class _Line:
    """The connection to a worker, for messages about one flow."""

    def __init__(self, child: Child, flow: str) -> None:
        self._child = child
        self._flow = flow

    def send(self, kind: str, **fields: object) -> bool:
        """Sends the worker a message. Returns False if it is not running."""
        return self._child.send(kind, flow=self._flow, **fields)


class RunningFlow:
    """One flow, from its start until it is removed."""

    def __init__(self, told: Handover, *, commands: Commands, fail_fast: bool = False) -> None:
        self.told = told
        self.name = told.flow
        self.log = logs.get_logger(flow=told.flow)
        self.fleet = Fleet(told.flow, flow_id=told.flow_id)
        self.reports = Reports(self.fleet, self.log)
        self.typed_as(commands)
        self.children: dict[int, Child] = {}
        """Number -> worker, for the flow's workers: shared ones, or its own."""
        self.started = False
        """True once its workers were told to join the group: both clusters were reached, with something to copy."""
        self.refused: Message | None = None
        """The failure that keeps the flow from starting, if waiting does not help."""
        self.impatient: Message | None = None
        """With ``fail_fast``: the first failure that kept the flow from starting."""
        self.drained = True
        self.pending = 0
        self.leaving = False
        """True once the flow is being stopped for good."""
        self.left = asyncio.Event()
        """Set once no worker runs the flow any more, if it is ``leaving``."""
        self._lines: dict[int, _Line] = {}
        self.resumption = Resumption(self.fleet, self._lines)
        self.traces = Traces(self._lines)
        self._fail_fast = fail_fast
        self._begun_with: Message | None = None
        """The last READY message from before the workers were told to join the group."""
        self._died: set[int] = set()
        """Numbers of workers in which the flow has failed at least once: the others do not wait for them."""
        self._waits: dict[str, float] = {}
        """Reason why workers wait -> since when (monotonic). Each is logged once, until no worker waits any more."""
        self._told: dict[str, None] = {}
        """The last lines of the events in ``ONCE`` that were logged; the oldest first."""
        self._digest: Digest | None = None
        self._orphans: list[str] = []
        """Group members whose process died while no worker was ready to expel them."""

    @property
    def group(self) -> str:
        """Name of the flow's consumer group."""
        return self.told.group.group_id

    @property
    def commands(self) -> Commands:
        """The mirror's commands as they are typed here."""
        return self.reports.commands

    def typed_as(self, commands: Commands) -> None:
        """Sets how the mirror's commands about this flow are typed here."""
        self.reports.commands = commands.towards(self.told.destination, self.told.selection)

    def digest(self) -> None:
        """From now on, condenses workers' lines about many partitions into their number."""
        self._digest = Digest(self.log)

    def close(self) -> None:
        """Logs the lines that are held back. To be called last."""
        if self._digest is not None:
            self._digest.close()

    # -- workers -----------------------------------------------------------------------------------------------------

    def put(self, child: Child, seat: int) -> None:
        """Makes a worker run the flow. ``seat``: the worker's number among the flow's workers, from 1."""
        self.children[child.number] = child
        self._lines[child.number] = _Line(child, self.name)
        child.add(self.told.of_worker(child.number, seat))
        if child.pid and child.code is None:
            self.begun(child)

    def limit(self, told: Handover) -> None:
        """Makes every worker go on with the limits in these settings."""
        self.told = told
        for child in self.children.values():
            child.limit(told)

    def leave(self) -> None:
        """Makes every worker stop the flow: drain, commit, leave the group. ``left`` is set when that is done."""
        self.leaving = True
        for child in list(self.children.values()):
            if not child.remove(self.name):
                self._has_left(child)

    def _has_left(self, child: Child) -> None:
        self.children.pop(child.number, None)
        if child.number in self.fleet.workers:
            self.fleet.ended(child.number)
        if self.leaving and not self.children:
            self.started = False
            self.left.set()

    def begun(self, child: Child) -> None:
        """Notes that a new process of the worker runs the flow."""
        self.fleet.started(child.number, child.pid)

    def ended(self, child: Child) -> None:
        """Notes that the worker's process has ended."""
        if child.number not in self.children or child.number not in self.fleet.workers:
            return
        member = self.fleet.workers[child.number].member
        self.fleet.ended(child.number)
        self._failed_once(child)
        self._expel(member)
        if self.leaving:
            self.drained = False
            self._has_left(child)

    def _failed_once(self, child: Child) -> None:
        self._died.add(child.number)
        self._begin_together()

    def _expel(self, member: str) -> None:
        """Makes another worker expel a dead member from the group, so that its partitions do not wait for the end of
        its session."""
        if not member or self.told.group.instance_id:
            return
        for number in self._ready:
            if self._lines[number].send(say.EXPEL, member=member):
                return
        self._orphans.append(member)

    # -- what workers say --------------------------------------------------------------------------------------------

    def hear(self, child: Child, message: Message) -> None:
        """Handles a worker's message about this flow."""
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
                worker.ready, self.refused = True, None
                self._waits_no_more(worker)
                while self._orphans:
                    self._lines[child.number].send(say.EXPEL, member=self._orphans.pop())
                self.fleet.flow_partitions = message["partitions"]
                self.fleet.cluster_ids = message["source_id"], message["destination_id"]
                self._join(child, message)
            case say.JOINED:
                worker.member = message["member"]
            case say.REPLY | say.TRACED:
                self._told_what_was_asked(child, message)
            case say.FAILED:
                self._worker_failed(child, message)
            case say.STOPPED:
                self.drained = self.drained and message["drained"]
                self.pending += message["pending"]
                if self.leaving:
                    self._has_left(child)

    def _told_what_was_asked(self, child: Child, message: Message) -> None:
        if message["kind"] == say.TRACED:
            self.traces.heard(child.number, message)
        else:
            self.resumption.answered(message)

    def _join(self, child: Child, message: Message) -> None:
        """Makes workers join the group: the first time all together, later each as soon as it is ready. ``message``:
        the worker's READY."""
        if self.started:
            self._lines[child.number].send(say.JOIN)
            return
        self._begun_with = message
        self._begin_together()

    def _begin_together(self) -> None:
        """Makes the ready workers join, once every other worker has failed at least once. Those join later."""
        message, workers = self._begun_with, self.fleet.workers.values()
        if self.started or message is None or not any(worker.ready for worker in workers):
            return
        if all(worker.ready or worker.number in self._died for worker in workers):
            self.started = True
            self.log.info(
                logs.STARTED,
                partitions=message["partitions"],
                source_id=message["source_id"],
                destination_id=message["destination_id"],
                workers=len(self.children),
            )
            for number in self._ready:
                self._lines[number].send(say.JOIN)

    @property
    def _ready(self) -> list[int]:
        """Numbers of the workers that are ready. (A worker whose process was dead when it got the flow is not in the
        fleet yet.)"""
        workers = self.fleet.workers
        return [number for number in self.children if number in workers and workers[number].ready]

    def _worker_waits(self, worker: WorkerView, message: Message) -> None:
        """Notes that a worker cannot start yet and tries again. Each reason is logged once for all workers."""
        reason, detail = message["reason"], message["detail"]
        worker.waits = f"{reason}: {detail}"
        if self._fail_fast and not self.started:
            self.impatient = self.impatient or message
        elif worker.waits not in self._waits and not self.leaving:
            self._waits[worker.waits] = time.monotonic()
            told = self.commands.rendered(detail)
            self.log.warning("waiting", reason=reason, detail=f"{told}; tried again until it succeeds")

    def _waits_no_more(self, worker: WorkerView) -> None:
        worker.waits = ""
        if self._waits and not any(each.waits for each in self.fleet.workers.values()):
            waited_s = time.monotonic() - min(self._waits.values())
            self._waits.clear()
            self.log.info("waiting_over", duration_s=round(waited_s, 3))

    def _write(self, child: Child, message: Message) -> None:
        """Writes a worker's line to the supervisor's log."""
        event, fields = message["event"], message["fields"]
        if event in ONCE:
            told = f"{event} {fields}"
            if told in self._told:
                return
            self._told[told] = None
            if len(self._told) > MOST_TOLD:
                del self._told[next(iter(self._told))]
        write = getattr(self._digest or self.log, message["level"])
        write(event, worker=child.number, **self.commands.line(fields))

    def _worker_failed(self, child: Child, message: Message) -> None:
        """Handles a failure of the flow in a worker. If waiting does not help (or with ``fail_fast``), and no worker
        has begun to copy, the supervisor may end the run. Otherwise the worker tries the flow again, or is
        restarted."""
        if not self.started and message.get("final"):
            self.refused = message
        if not self.started and self._fail_fast:
            self.impatient = self.impatient or message
        again = "again_s" in message
        if again:
            # The process goes on with its other flows, and starts this one again. Only the flow's counters start at 0
            # again, not those of the process.
            view = self.fleet.workers[child.number]
            view.counters = {name: n for name, n in view.counters.items() if not name.startswith(OF_PROCESS)}
            self.fleet.ended(child.number)
            self.begun(child)
            self._failed_once(child)
            self.fleet.workers[child.number].waits = f"{message['reason']}: {message['detail']}"

    def failure(self, child: Child, message: Message) -> None:
        """Logs a failure that does not end the run."""
        event, more = "worker_failed", {}
        if "again_s" in message:
            event, more = "flow_failed", {"restart_s": round(message["again_s"], 3)}
        self.log.error(event, worker=child.number, **self.commands.line(told_of(message)), **more)


def protection(flows: Iterable[RunningFlow]) -> dict[str, SecurityOptions]:
    """Returns cluster -> the security settings of its connections."""
    found: dict[str, SecurityOptions] = {}
    for flow in flows:
        here, _, there = flow.name.partition("->")
        found[here] = flow.told.source.connection.security
        found[there] = flow.told.destination.connection.security
    return found


def told_of(message: Message) -> dict[str, object]:
    """Returns the fields of a failure that go into the log."""
    return {key: message[key] for key in ("reason", "detail", "exception") if key in message}
