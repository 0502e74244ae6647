"""A worker's side of the process that keeps groups' offsets and ACLs in step.

Of all workers of a flow, on any machine, the one that has the flow's first partition runs the process. While that
partition moves to another worker, there may be two processes for a moment, or none: neither does harm.
"""

import asyncio
import time
from collections.abc import Collection
from typing import Protocol

from mirror.relay.assignment import Key
from mirror.service import channel as say
from mirror.service.channel import ChannelLog, Message
from mirror.service.child import Child, ending
from mirror.service.worker_settings import Handover

MODULE, NAME = "mirror.service.sync.process", "mirror-sync"
LOOK_EVERY_S = 1.0
"""How often the worker looks whether it has the first partition."""


class Holder(Protocol):
    """The parts of the relay that are needed here."""

    @property
    def keys(self) -> list[Key]:
        """All partitions of the flow."""

    @property
    def partitions(self) -> Collection[Key]:
        """The partitions of this worker."""


class SyncKeeper:
    """Runs the process while this worker has the flow's first partition, and starts it again if it dies.

    Attributes:
        counters, gauges: those of the process, for the worker's snapshots. Counters include those of earlier processes,
            and one failure for each process that died. Between two processes, the only gauges are the times at which
            each part was last in step: so a process that dies again and again shows as a failure.
    """

    def __init__(self, handover: Handover, log: ChannelLog) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self._base: dict[str, float] = {}
        self._synced_at_s: dict[str, float] = {}
        """Gauges "synced_at_s/part": when each part was last in step (seconds since 1970); at first, when the first
        process was started."""
        self._parts = handover.sync.parts
        self._log = log
        self._child = Child(handover.number, self._hear, module=MODULE, name=NAME)
        self._child.add(handover)
        self._wanted = handover.sync.anything
        self._running: asyncio.Task[None] | None = None

    async def keep(self, relay: Holder) -> None:
        """Starts and ends the process as needed, until cancelled; then ends it. Returns at once if the flow keeps
        nothing in step."""
        if not self._wanted:
            return
        try:
            while True:
                keys = relay.keys
                mine = bool(keys) and min(keys) in relay.partitions
                if mine and self._running is None:
                    self._running = asyncio.get_running_loop().create_task(self._run())
                elif not mine:
                    await self._end()
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            await self._end()

    async def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        self.gauges = {}  # from now on, another worker runs the process

    async def _run(self) -> None:
        """Runs the process, again whenever it ends. If this is cancelled, the process is killed: there is nothing to
        finish."""
        self._synced_at_s = {f"synced_at_s/{part}": time.time() for part in self._parts}
        self.gauges = dict(self._synced_at_s)
        while True:
            self._base = dict(self.counters)
            try:
                detail = f"its process {ending(await self._child.run(self._begun))}"
            except Exception as error:
                # Of any kind: copying must go on.
                detail = f"{type(error).__name__}: {error}"
            self.gauges = dict(self._synced_at_s)
            for name in (f"syncs/{part}/failed" for part in self._parts):
                self.counters[name] = self.counters.get(name, 0) + 1
            pause_s = self._child.pause_s()
            self._log.warning("sync_died", detail=detail, restart_s=round(pause_s, 3))
            await asyncio.sleep(pause_s)

    def _begun(self, child: Child) -> None:
        self._log.info("sync_started", pid=child.pid)

    def _hear(self, _: Child, message: Message) -> None:
        kind = message["kind"]
        if kind == say.LOG:
            getattr(self._log, message["level"])(message["event"], **message["fields"])
        elif kind == say.SNAPSHOT:
            self._synced_at_s |= {name: at for name, at in message["gauges"].items() if name in self._synced_at_s}
            self.gauges = message["gauges"] | self._synced_at_s
            self.counters = {
                name: self._base.get(name, 0) + message["counters"].get(name, 0)
                for name in {**self._base, **message["counters"]}
            }
        elif kind == say.FAILED:
            self._log.error("sync_failed", detail=message["detail"], exception=message["exception"])
