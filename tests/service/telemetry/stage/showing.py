"""What the service's pages show of one fleet, as of a flow with workers of its own."""

import asyncio
from types import SimpleNamespace
from typing import Any

from mirror.net.security.options import SecurityOptions
from mirror.service.commands import Commands
from mirror.service.flows.overview import Status, status
from mirror.service.flows.processes import WorkerProcesses
from mirror.service.telemetry.families.partitions import PARTITION
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.metrics import render
from mirror.service.telemetry.usage import files


def flow_of(found: Fleet, *, started: bool = True, group: str = "g", commands: Commands | None = None) -> Any:
    return SimpleNamespace(fleet=found, started=started, group=group, commands=commands or Commands())


def processes_of(found: Fleet) -> WorkerProcesses:
    processes = WorkerProcesses()
    processes.workers = found.workers
    return processes


def exposed_of(found: Fleet, version: str, *, granularity: str = PARTITION, **clusters: SecurityOptions) -> bytes:
    """The text of /metrics. ``clusters``: how they are protected."""
    if clusters:
        asyncio.run(files.look_at(clusters))
    reloads = SimpleNamespace(successful=False, succeeded_at=1_700_000_007.5, granularity=granularity)
    return render([flow_of(found)], processes_of(found), version, reloads=reloads, clusters=clusters)


def status_of(found: Fleet, commands: Commands | None = None) -> Status:
    """The object of /api/v1/status."""
    return status([flow_of(found, commands=commands)], found.workers, version="1", address="127.0.0.1:1", pid=1)
