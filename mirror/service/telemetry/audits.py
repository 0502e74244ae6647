"""Reads the files in which ``mirror audit`` leaves its results, again whenever they change."""

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
    """The parts of a flow that are needed here (``service.flows.flow.RunningFlow``)."""

    @property
    def fleet(self) -> Fleet:
        """The fleet, which keeps the last look."""


class Files(Protocol):
    """The parts of the settings that are needed here."""

    @property
    def audit_files(self) -> Mapping[str, str]:
        """Flow -> path of the file of its last audit."""


class Service(Protocol):
    """The parts of the supervisor that are needed here."""

    @property
    def settings(self) -> Files:
        """The settings in effect."""

    @property
    def flows(self) -> Mapping[str, Audited]:
        """The flows, by name."""


class Audits:
    """Watches the files of the last audits of a service's flows."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._looks: Beside[str, Seen] = Beside(_looked, _not_looked, name="audits")

    async def keep(self) -> None:
        """Looks at the files regularly, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Looks at the files of all flows once. Files that have not changed are not read. If a file's volume hangs, the
        last result stays."""
        files = self._service.settings.audit_files
        await self._looks.look(files.values())
        for name, flow in self._service.flows.items():
            path = files.get(name)
            flow.fleet.audit = None if path is None else self._seen(path)[1]

    def _seen(self, path: str) -> Seen:
        return self._looks.known.get(path) or _not_looked(path, "its volume does not answer")


def _stamp(path: str) -> Stamp | None:
    """Returns a value that changes with the file; None if there is none, because stat fails. It is taken before the
    file is read, so that a change during the reading is noticed the next time."""
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
