"""A worker process: it runs one flow, or several on its one event loop, and reports to the supervisor.

A flow that fails is tried again in the process, with a growing pause, while the others go on. If it is the only one,
the process ends, and the supervisor starts a new one.

The process is small on purpose: no configuration model, no metrics library, no terminal. Settings come over the
channel, log lines and snapshots go over it. The end of the channel ends the process: a worker does not outlive its
supervisor.
"""

import asyncio
import itertools
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn

from mirror.net.backoff import Backoff
from mirror.parent import die_with
from mirror.service import channel as say
from mirror.service.channel import Channel, ChannelLog
from mirror.service.exits import EXIT_FAILED, EXIT_OK
from mirror.service.flows.collector import sweep
from mirror.service.flows.obeying import obey
from mirror.service.flows.run import CURRENT, FlowFailure, FlowRun, Join, join_group
from mirror.service.telemetry.usage.gc_stats import Pauses
from mirror.service.worker_settings import Handover

AGAIN_LEAST_MS = 200
AGAIN_MOST_MS = 30_000
GOOD_LIFE_S = 10.0
"""After a flow has run for this long since it was ready, the pause before its next attempt is short again."""


class Worker:
    """Runs flows until it has to stop, or cannot go on."""

    def __init__(self, channel: Channel, *, join: Join = join_group) -> None:
        self._channel = channel
        self._join = join
        self._log = ChannelLog(channel)
        self._runs: dict[str, FlowRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._unsafe = False
        """True after a bug that cannot be attributed to a flow: any flow may hang."""
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pauses = Pauses()
        self._stints = itertools.count(1)

    async def run(self) -> int:
        """Runs the worker. Returns the exit code: 0: stopped as requested; 1: could not go on."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._broken)
        obeying = loop.create_task(self._obey())
        self._pauses.watch()
        try:
            return await self._ended
        finally:
            self._pauses.end()
            for task in (obeying, *self._tasks):
                task.cancel()
            await asyncio.gather(obeying, *self._tasks, return_exceptions=True)
            await self._channel.close()

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    # -- flows -------------------------------------------------------------------------------------------------------

    def _add(self, handover: Handover) -> None:
        run = self._runs[handover.flow] = FlowRun(
            handover,
            self._channel,
            join=self._join,
            pauses=self._pauses,
            stints=self._stints,
            is_alone=lambda: len(self._runs) == 1,
        )
        task = asyncio.get_running_loop().create_task(self._keep(run))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def _keep(self, run: FlowRun) -> None:
        """Runs a flow, attempt after attempt, until it has to stop."""
        backoff = Backoff(least_ms=AGAIN_LEAST_MS, most_ms=AGAIN_MOST_MS)
        while (failed := await run.attempt()) is not None:
            if self._is_last(failed):
                run.tell(failed, again_s=None)
                self._end(EXIT_FAILED)
                return
            if run.ready_at is not None and asyncio.get_running_loop().time() - run.ready_at > GOOD_LIFE_S:
                backoff.reset()
            again_s = backoff.next_s()
            run.tell(failed, again_s=again_s)
            if not await run.pause(again_s):
                break
        del self._runs[run.handover.flow]
        run.stopped()
        self._end_if_stopped()

    def _is_last(self, failed: FlowFailure) -> bool:
        """Returns True if a failure ends the process. It does if this is the only flow, because a new process starts
        clean; or if the failure leaves something behind in this process."""
        return self._unsafe or failed.stuck or len(self._runs) == 1

    def _end_if_stopped(self) -> None:
        if self._stopping and not self._runs:
            self._end(EXIT_OK)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._ended.done():
            self._ended.set_exception(error)
        if not self._stopping:  # soon: until this callback has returned, the task still refers to its flow
            asyncio.get_running_loop().call_soon(sweep)

    # -- commands ----------------------------------------------------------------------------------------------------

    async def _obey(self) -> None:
        """Carries out the supervisor's messages. When the supervisor is gone, this process ends, too."""
        while (message := await self._channel.receive()) is not None:
            kind = message["kind"]
            if kind == say.HANDOVER:
                self._add(Handover.unpack(message["settings"]))
            elif kind == say.STOP:
                self.stop()
            elif (run := self._runs.get(message["flow"])) is None:
                continue  # the flow has just ended
            elif kind == say.REMOVE:
                run.stop()
            else:
                obey(run, message)
        self.abandon()

    def abandon(self) -> None:
        """Ends the process at once, because the supervisor is gone. Nothing is lost: the destination's log is the
        position."""
        os._exit(EXIT_FAILED)

    def stop(self) -> None:
        """Stops every flow, and ends with the last one."""
        self._stopping = True
        for run in self._runs.values():
            run.stop()
        self._end_if_stopped()

    def hung_up(self) -> None:
        """Handles SIGHUP by doing nothing: it is meant for the supervisor."""
        self._log.info("not_reloaded", signal="SIGHUP", detail="a worker reads no configuration; nothing stops")

    def _broken(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Passes an exception from a callback, which nothing awaits, to the flow that scheduled the callback; to all
        flows if that is not known."""
        error = context.get("exception")
        found = error if isinstance(error, Exception) else RuntimeError(context["message"])
        variables = getattr(context.get("handle"), "_context", None)
        run = variables.get(CURRENT) if variables is not None else None
        self._unsafe = self._unsafe or run is None
        for each in self._runs.values() if run is None else (run,):
            each.broken(found)


async def _serve(sock: socket.socket) -> NoReturn:
    """Runs the worker, and ends the process. It does not return: the end of the event loop would wait for its threads,
    one of which may wait for a name server that never answers."""
    code = EXIT_FAILED
    try:
        worker = Worker(await Channel.open(sock))
        # SIGINT from a terminal only reaches the supervisor, which sends a message; SIGTERM may reach all processes.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, worker.hung_up)
        code = await worker.run()
    except Exception:
        traceback.print_exc()
    finally:
        # Everything is reported and closed; there is no need to wait for threads of librdkafka.
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def main(descriptor: int, parent_pid: int) -> None:
    """Runs the process. ``descriptor``: its end of the channel, inherited. ``parent_pid``: the supervisor's process
    id."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    die_with(parent_pid, exit_code=EXIT_FAILED)
    asyncio.run(_serve(socket.socket(fileno=descriptor)))
