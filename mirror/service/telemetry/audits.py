"""Looks at the files in which ``mirror audit`` leaves what it said, and again when they change."""

import asyncio
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from mirror.audited import Look
from mirror.service.telemetry.fleet import Fleet

LOOK_S = 5.0
Stamp = tuple[int, int, int]


class Audited(Protocol):
    """A flow, as far as its audits matter (``service.flows.flow.RunningFlow``)."""

    @property
    def fleet(self) -> Fleet:
        """Where the last look is kept."""


class Files(Protocol):
    """The settings in effect."""

    @property
    def audit_files(self) -> Mapping[str, str]:
        """Flow -> the file of its last audit."""


class Service(Protocol):
    """The supervisor, as far as this needs it."""

    @property
    def settings(self) -> Files:
        """The settings in effect."""

    @property
    def flows(self) -> Mapping[str, Audited]:
        """The flows, by name."""


class Audits:
    """The last audits of a service's flows."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._seen: dict[str, tuple[Stamp | None, Look]] = {}

    async def keep(self) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Looks at the files of all flows once. Those that have not changed are not read."""
        files = self._service.settings.audit_files
        if files:
            known = {path: self._seen.get(path) for path in files.values()}
            self._seen = await _beside(known)
        for name, flow in self._service.flows.items():
            flow.fleet.audit = self._seen[files[name]][1] if name in files else None


def _stamp(path: str) -> Stamp | None:
    """Returns what changes with the file; None: it cannot be looked at. It is taken before the file is read, so that a
    change meanwhile is seen the next time."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


Known = Mapping[str, tuple[Stamp | None, Look] | None]


def _looked(known: Known) -> dict[str, tuple[Stamp | None, Look]]:
    made = {}
    for path, before in known.items():
        stamp = _stamp(path)
        made[path] = before if before and stamp and before[0] == stamp else (stamp, Look.at(path))
    return made


async def _beside(known: Known) -> dict[str, tuple[Stamp | None, Look]]:
    """Looks in a thread that nobody waits for at the end: a volume that hangs must keep nothing from its work, nor from
    its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[dict[str, tuple[Stamp | None, Look]]] = loop.create_future()

    def tell(found: dict[str, tuple[Stamp | None, Look]]) -> None:
        if not done.done():
            done.set_result(found)

    def work() -> None:
        found = _looked(known)
        with suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(tell, found)

    threading.Thread(target=work, name="audits", daemon=True).start()
    return await done
