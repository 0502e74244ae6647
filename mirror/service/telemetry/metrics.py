"""``/metrics``: renders the workers' last reports on request, in Prometheus' text format.

Names and labels are an interface: docs, alerts and dashboards use them. All metrics have base units and a help text.
The families are in ``telemetry.families``; those of processes in ``telemetry.usage``.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mirror.net.security.options import SecurityOptions
from mirror.service.log import logs
from mirror.service.telemetry.families.audits import audits
from mirror.service.telemetry.families.clusters import certificates, clusters
from mirror.service.telemetry.families.flows import whole_flows
from mirror.service.telemetry.families.labels import OF_FLOW, flow_labels
from mirror.service.telemetry.families.partitions import PARTITION, partitions
from mirror.service.telemetry.families.workers import workers
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.otlp.exporting import results
from mirror.service.telemetry.readiness import unready
from mirror.service.telemetry.usage.exposition import processes

if TYPE_CHECKING:
    from mirror.service.flows.processes import WorkerProcesses

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Reloads(Protocol):
    """The configuration that is in effect, and its reloads (``service.flows.reloading.Reloading``)."""

    successful: bool
    succeeded_at: float

    @property
    def granularity(self) -> str:
        """``metrics.granularity``."""


class Watched(Protocol):
    """The parts of a flow that are needed here (``service.flows.flow.RunningFlow``)."""

    fleet: Fleet
    started: bool


class ServiceCollector(Collector):
    """Collects all metrics: those of each flow, and those of the processes."""

    def __init__(
        self,
        flows: Sequence[Watched],
        processes: "WorkerProcesses",
        version: str,
        *,
        reloads: Reloads | None,
        clusters: Mapping[str, SecurityOptions],
    ) -> None:
        self._protected = {name: security.tls for name, security in clusters.items() if security.tls is not None}
        self._flows = [(flow, flow_labels(flow.fleet)) for flow in flows]
        self._processes_here = processes
        self._version = version
        self._reloads = reloads

    def describe(self) -> list[Metric]:
        """Returns an empty list, so that the registry does not collect all metrics just to learn their names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all metric families."""
        flows = [(flow.fleet, labels) for flow, labels in self._flows]
        yield from partitions(flows, PARTITION if self._reloads is None else self._reloads.granularity)
        yield from whole_flows(flows)
        yield from audits(flows)
        yield from clusters(flows, self._processes_here)
        yield from workers(flows, self._processes_here)
        yield from processes(self._processes_here.workers.values())
        yield from self._of_service()
        yield from self._of_reloads()
        yield from certificates(self._protected)

    def _of_service(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "mirror_build_info", "The versions of mirror and Python; always 1.", labels=["version", "python"]
        )
        build.add_metric([self._version, ".".join(map(str, sys.version_info[:3]))], 1)
        yield build
        ready = GaugeMetricFamily("mirror_ready", "1 while every flow is ready. If not, /-/ready says why.")
        of_flow = GaugeMetricFamily("mirror_flow_ready", "1 while the flow is ready.", labels=OF_FLOW)
        are_ready = [not unready(flow.fleet, started=flow.started) for flow, _ in self._flows]
        ready.add_metric([], int(all(are_ready)))
        for (_, labels), is_ready in zip(self._flows, are_ready, strict=True):
            of_flow.add_metric(labels, int(is_ready))
        yield from (ready, of_flow)
        lost = CounterMetricFamily("mirror_log_lines_lost", "Log lines that could not be written to standard output.")
        lost.add_metric([], logs.lines_lost())
        yield lost
        exports = CounterMetricFamily(
            "mirror_otlp_exports",
            "Exports to an OpenTelemetry collector, by result.",
            labels=["result"],
        )
        for result, count in sorted(results.items()):
            exports.add_metric([result], count)
        yield exports

    def _of_reloads(self) -> Iterator[Metric]:
        if self._reloads is None:
            return
        successful = GaugeMetricFamily(
            "mirror_config_last_reload_successful", "1 if the last reload of the configuration succeeded."
        )
        successful.add_metric([], int(self._reloads.successful))
        at = GaugeMetricFamily(
            "mirror_config_last_reload_success_timestamp_seconds",
            "Time when the configuration was last loaded successfully, at the start or by a reload.",
        )
        at.add_metric([], self._reloads.succeeded_at)
        yield from (successful, at)


def render(
    flows: Sequence[Watched],
    processes: "WorkerProcesses",
    version: str,
    *,
    reloads: Reloads | None = None,
    clusters: Mapping[str, SecurityOptions] | None = None,
) -> bytes:
    """Returns the text that Prometheus scrapes (``CONTENT_TYPE``). ``clusters``: name -> security settings."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServiceCollector(flows, processes, version, reloads=reloads, clusters=clusters or {}))
    return generate_latest(registry)
