"""Reloads the configuration of a running service: reads it, decides what changes, and makes the supervisor do it.

The new configuration is checked as a whole first. If anything is wrong with it, nothing changes. Flows whose settings
are unchanged are not touched: their workers get no message, so their partitions stay where they are.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from mirror.service.child import program
from mirror.service.commands import Commands
from mirror.service.flows.changes import Changes, changes
from mirror.service.worker_settings import Supervision

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

READ_S = 60.0
"""Longest time that reading the file may take."""
ENDS_S = 1.0
"""Longest wait for the end of the process that reads the file, once it was killed."""
UNCHANGED = "nothing was changed: all flows go on under the former configuration"


class NotRead(Exception):
    """The configuration cannot be used; the message says why."""


class Service(Protocol):
    """The parts of the supervisor that are needed here."""

    settings: Supervision
    commands: Commands

    @property
    def log(self) -> FilteringBoundLogger:
        """The log for lines about the service."""

    async def apply(self, wanted: Changes) -> None:
        """Adds, removes and restarts flows, and changes their limits. Returns when that is done."""


class Told(Protocol):
    """The recipient of notices about reloads (``service.notify``)."""

    def reloading(self) -> None:
        """Called before each reload."""

    def reloaded(self) -> None:
        """Called after each reload, whether or not it succeeded, unless the service ends meanwhile."""


class Reloading:
    """Makes the reloads of one service, one at a time. Requests during a reload are combined into one further
    reload."""

    def __init__(self, service: Service, manager: Told | None = None) -> None:
        """``manager``: the service manager, if there is one that wants notices about reloads."""
        self._service = service
        self._manager = manager
        self._asked = asyncio.Event()
        self._waiting: list[asyncio.Future[Changes]] = []
        """The futures of callers that wait for the end of the next reload."""
        self.reads = False
        """True while another process reads the configuration."""
        self.successful = True
        """True if the last reload succeeded; True before the first one."""
        self.succeeded_at = time.time()
        """When the configuration was last read and used, in seconds since 1970."""

    @property
    def granularity(self) -> str:
        """``metrics.granularity`` in the configuration in effect."""
        return self._service.settings.metrics_granularity

    def ask(self) -> None:
        """Requests a reload, and does not wait for it."""
        self._asked.set()

    async def reload(self) -> Changes:
        """Requests a reload, and waits until it is done. Returns what has changed.

        Raises:
            NotRead: the configuration cannot be used, and nothing was changed.
        """
        waiting: asyncio.Future[Changes] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self.ask()
        return await waiting

    async def keep(self) -> None:
        """Reloads whenever a reload was requested, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            waiting, self._waiting = self._waiting, []
            if self._manager is not None:
                self._manager.reloading()
            done = await self._reload()
            if self._manager is not None:
                self._manager.reloaded()
            for each in waiting:
                if each.done():  # its caller does not wait any more
                    continue
                if isinstance(done, NotRead):
                    each.set_exception(done)
                else:
                    each.set_result(done)

    async def _reload(self) -> Changes | NotRead:
        service = self._service
        self.reads = True
        try:
            wanted = changes(service.settings, await read(service.commands.config, service.settings))
        except NotRead as error:
            self.successful = False
            remedy = "correct the configuration, and reload it again (SIGHUP, or mirror reload)"
            service.log.error("not_reloaded", detail=f"{error}; {UNCHANGED}", remedy=remedy)
            return error
        finally:
            self.reads = False
        service.log.info(
            "reloading",
            added=list(wanted.added),
            removed=list(wanted.removed),
            restarted=list(wanted.restarted),
            limited=list(wanted.limited),
            untouched=list(wanted.untouched),
        )
        if wanted.need_restart:
            service.log.warning(
                "reload_needs_restart",
                keys=list(wanted.need_restart),
                detail=f"changed, but not in effect until the service is restarted: {', '.join(wanted.need_restart)}",
            )
        await service.apply(wanted)
        self.successful, self.succeeded_at = True, time.time()
        service.log.info("reloaded", flows=[flow.flow for flow in wanted.told.flows])
        return wanted


async def read(config: str, running: Supervision) -> Supervision:
    """Returns the settings in the file now, combined with the options with which the service was started. ``running``:
    the settings in effect.

    Raises:
        NotRead: the configuration cannot be used.
    """
    if not config:
        raise NotRead("this mirror was started without a configuration file")
    asked = {"config": config, "workers": running.workers_option, "fail_fast": running.fail_fast}
    answer = await _ask(json.dumps(asked))
    found = json.loads(answer)
    if "wrong" in found:
        raise NotRead(found["wrong"])
    return Supervision.unpack(found["told"])


async def _begun(command: list[str]) -> Process:
    """Starts a process, in a way that can be cancelled: asyncio itself would then wait for the end of pipes that other
    processes may hold open."""
    beginning = asyncio.ensure_future(asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE))
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        with suppress(OSError):  # it could not be started
            await _ended(await beginning)
        raise


async def _ended(process: Process) -> None:
    """Kills the process. It does not wait long for its end: a process that waits for a disk cannot be killed."""
    with suppress(ProcessLookupError):
        process.kill()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.communicate(), ENDS_S)
    process._transport.close()  # type: ignore[attr-defined] # no public method closes pipes that others hold open


async def _ask(asked: str) -> str:
    """Reads the file in another process, and returns its answer. ``asked``: the request, as JSON. If this is cancelled,
    the process is killed: the service must be able to stop while a file system hangs."""
    command = program("mirror.service.config.reread", name="mirror-reload")
    try:
        process = await _begun(command)
    except OSError as error:
        raise NotRead(f"the process that reads the configuration failed: {error}") from error
    try:
        answer, errors = await asyncio.wait_for(process.communicate(asked.encode()), READ_S)
    except TimeoutError as error:
        raise NotRead(f"the process that reads the configuration did not finish within {READ_S:g} s") from error
    finally:
        await _ended(process)
    if process.returncode:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise NotRead(f"{sys.executable} cannot read the configuration: {last[0]}")
    return answer.decode()
