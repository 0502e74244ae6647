"""Sends the metrics of ``/metrics`` to a collector at regular intervals, if that is configured.

They are collected in the supervisor's event loop, as for a scrape, and sent by a thread (``otlp.sending``). So an
endpoint that is down, slow, or answers errors does not slow down the supervisor; workers are not involved. Exports that
fail are not kept: values are cumulative, so the next export has everything.
"""

import asyncio
import socket
import time
from collections import Counter
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Protocol

from mirror import DISTRIBUTION
from mirror.service.flows.flow import RunningFlow, protection
from mirror.service.telemetry.otlp.sending import Export, Sender
from mirror.service.telemetry.otlp.settings import PATH, OtlpSettings

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from mirror.service.flows.processes import WorkerProcesses
    from mirror.service.flows.reloading import Reloading
    from mirror.service.worker_settings import Supervision

LOOK_S = 0.5
"""Time between two looks at whether an export is due: a reload may have changed that."""
LATE_S = 5.0
"""An export that takes longer than its timeout by this much counts as failed. The next one begins only after it has
ended."""
TELL_EVERY_S = 600.0
"""While exports fail, this is logged at this interval."""
OK, FAILED = "ok", "failed"

results: Counter[str] = Counter()
"""Number of this process's exports by result; empty until exports are configured."""


class Service(Protocol):
    """The parts of the supervisor that are needed here."""

    settings: "Supervision"
    flows: dict[str, RunningFlow]
    processes: "WorkerProcesses"
    reloading: "Reloading"
    address: str
    """The host:port of its HTTP server."""

    @property
    def log(self) -> "FilteringBoundLogger":
        """The log for lines about the service."""


class Exporting:
    """Exports the metrics of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._began_ns = time.time_ns()
        self._sender: Sender | None = None
        self._failures = 0
        """Number of exports that have failed in a row, including the last one."""
        self._failing_since = 0.0
        self._told_at = 0.0

    async def keep(self) -> None:
        """Exports whenever an export is due, until cancelled. It raises no errors."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            told, now = self._service.settings.otlp, time.monotonic()
            if told is None:
                last = now
                continue
            results.update({OK: 0, FAILED: 0})  # 0 from the start, so that the first failure shows as an increase
            if now - last >= told.interval_ms / 1000:
                last = now
                try:
                    why_not = await self._export(told)
                except Exception as error:  # of any kind: metrics must not stop the service
                    why_not = f"{type(error).__name__}: {error}"
                self._note(told, why_not)

    async def _export(self, told: OtlpSettings) -> str:
        """Makes one export. Returns the reason if it failed; otherwise an empty string."""
        sender = self._sender = self._sender or Sender()
        most_s = told.timeout_ms / 1000 + LATE_S
        if sender.is_busy:
            return "the export before this one has not ended: the endpoint answers too slowly"
        from mirror.service.telemetry.usage import files

        await files.look_at(protection(self._service.flows.values()))
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str] = loop.create_future()

        def ended(why_not: str) -> None:
            if not done.done():
                done.set_result(why_not)

        def answer(why_not: str) -> None:
            with suppress(RuntimeError):  # the event loop is closed: the service has ended meanwhile
                loop.call_soon_threadsafe(ended, why_not)

        sender.send(self._collected(told), answer)
        try:
            return await asyncio.wait_for(done, most_s)
        except TimeoutError:
            return f"not ended within {most_s:g} s: the endpoint answers too slowly"

    def _collected(self, told: OtlpSettings) -> Export:
        # Imported at the first export, as for a scrape.
        from mirror.service.telemetry.families.labels import flow_labels
        from mirror.service.telemetry.metrics import ServiceCollector

        service, own_version = self._service, version(DISTRIBUTION)
        flows = list(service.flows.values())
        collector = ServiceCollector(
            flows, service.processes, own_version, reloads=service.reloading, clusters=protection(flows)
        )
        _, _, port = service.address.rpartition(":")
        return Export(
            families=list(collector.collect()),
            at_ns=time.time_ns(),
            flows_began_ns={
                (source, target): flow.fleet.began_ns for flow in flows for source, target in [flow_labels(flow.fleet)]
            },
            began_ns=self._began_ns,
            instance=f"{socket.gethostname()}:{port}",
            version=own_version,
            told=told,
        )

    def _note(self, told: OtlpSettings, why_not: str) -> None:
        """Counts an export. Of a series of failures, it logs the first, further ones every ``TELL_EVERY_S``, and the
        end."""
        results.update({OK: not why_not, FAILED: bool(why_not)})
        now = time.monotonic()
        if not why_not:
            if self._failures:
                failing_s = round(now - self._failing_since, 3)
                self._service.log.info("metrics_exported_again", failed=self._failures, duration_s=failing_s)
            self._failures = 0
            return
        self._failures += 1
        if self._failures == 1:
            self._failing_since = now
        elif now - self._told_at < TELL_EVERY_S:
            return
        self._told_at = now
        self._service.log.warning(
            "metrics_not_exported",
            endpoint=told.endpoint.rstrip("/") + PATH,
            failed=self._failures,
            detail=why_not,
            remedy="look at the collector, and at the keys otel.exporter.otlp.*; copying goes on",
        )
