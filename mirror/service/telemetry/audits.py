"""Looks at the files in which ``mirror audit`` leaves what it said, and again when they change."""

import asyncio
import os
from collections.abc import Mapping
from typing import Protocol

from mirror.audited import Look
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.usage.files import Beside

LOOK_S = 5.0
Stamp = tuple[int, int, int]
Seen = tuple[Stamp | None, Look]


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
        self._looks: Beside[str, Seen] = Beside(_looked, _not_looked, name="audits")

    async def keep(self) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Looks at the files of all flows once. Those that have not changed are not read. Of one whose volume hangs,
        what was seen stays."""
        files = self._service.settings.audit_files
        await self._looks.look(files.values())
        for name, flow in self._service.flows.items():
            path = files.get(name)
            flow.fleet.audit = None if path is None else self._seen(path)[1]

    def _seen(self, path: str) -> Seen:
        return self._looks.known.get(path) or _not_looked(path, "its volume does not answer")


def _stamp(path: str) -> Stamp | None:
    """Returns what changes with the file; None: it cannot be looked at. It is taken before the file is read, so that a
    change meanwhile is seen the next time."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _looked(path: str, before: Seen | None) -> Seen:
    stamp = _stamp(path)
    return before if before and stamp and before[0] == stamp else (stamp, Look.at(path))


def _not_looked(path: str, why: object) -> Seen:
    return None, Look(path, None, f"{path} cannot be looked at: {why}")
