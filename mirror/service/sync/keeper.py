"""A worker's side of the process that keeps groups' offsets and ACLs in step.

Of all workers of a flow, on one machine or on many, the one that has the flow's first partition runs it. While a
partition changes hands, two may run for a moment, or none: neither does harm.
"""

import asyncio
from collections.abc import Collection
from typing import Protocol

from mirror.relay.assignment import Key
from mirror.service import channel as say
from mirror.service.channel import ChannelLog, Message
from mirror.service.child import Child
from mirror.service.worker_settings import Handover

MODULE, NAME = "mirror.service.sync.process", "mirror-sync"
LOOK_EVERY_S = 1.0
"""How often the worker looks whether it has the first partition."""


class Holder(Protocol):
    """The relay, as far as it matters here."""

    @property
    def keys(self) -> list[Key]:
        """All partitions of the flow."""

    @property
    def partitions(self) -> Collection[Key]:
        """Those of this worker."""


class SyncKeeper:
    """Runs the process while this worker is the one to do so, and starts it again if it dies.

    Attributes:
        counters, gauges: the process's own, for the worker's snapshots; counters include those of former processes.
            Without a process, there are no gauges.
    """

    def __init__(self, handover: Handover, log: ChannelLog) -> None:
        self.counters: dict[str, float] = {}
        self.gauges: dict[str, float] = {}
        self._base: dict[str, float] = {}
        self._log = log
        self._child = Child(handover.number, self._hear, module=MODULE, name=NAME)
        self._child.add(handover)
        self._wanted = handover.sync.anything
        self._running: asyncio.Task[None] | None = None

    async def keep(self, relay: Holder) -> None:
        """Keeps the process running, or not, until cancelled; then ends it. Returns at once if nothing is wanted."""
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
        self.gauges = {}

    async def _run(self) -> None:
        """Runs one process after the other. Cancelled, it kills the one that runs: there is nothing to finish."""
        while True:
            self._base = dict(self.counters)
            try:
                detail = f"its process ended with exit code {await self._child.run(self._begun)}"
            except Exception as error:
                # Copying goes on, whatever this is.
                detail = f"{type(error).__name__}: {error}"
            self.gauges = {}
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
            self.gauges = message["gauges"]
            self.counters = {
                name: self._base.get(name, 0) + message["counters"].get(name, 0)
                for name in {**self._base, **message["counters"]}
            }
        elif kind == say.FAILED:
            self._log.error("sync_failed", detail=message["detail"], exception=message["exception"])
