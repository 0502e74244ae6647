"""The metrics of workers. Memory, CPU time and the like of processes are in ``service.telemetry.usage.exposition``."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mirror.service.telemetry.families.labels import OF_FLOW, Labelled

if TYPE_CHECKING:
    from mirror.service.flows.processes import WorkerProcesses

_WORKER_COUNTERS = (
    ("mirror_fetched_bytes", "fetched_bytes", "Bytes received in Fetch responses."),
    ("mirror_fetch_requests", "fetch_requests", "Fetch requests sent to the source."),
    ("mirror_produce_requests", "produce_requests", "Produce requests sent to the destination."),
)
_BUFFER_GAUGES = (
    (
        "mirror_buffer_bytes",
        "buffer_bytes",
        "Bytes that are fetched and not yet acknowledged, and room reserved for responses.",
    ),
    (
        "mirror_buffer_limit_bytes",
        "buffer_limit_bytes",
        "Upper limit of mirror_buffer_bytes: the sum of buffer.memory over the worker's flows.",
    ),
)


def workers(flows: Labelled, processes: "WorkerProcesses") -> Iterator[Metric]:
    """Yields the families."""
    up = GaugeMetricFamily("mirror_worker_up", "1 while the worker's process runs.", labels=["worker"])
    restarts = CounterMetricFamily("mirror_worker_restarts", "Restarts of the worker's process.", labels=["worker"])
    assigned = GaugeMetricFamily(
        "mirror_assigned_partitions", "Partitions assigned to the worker.", labels=[*OF_FLOW, "worker"]
    )
    heard = GaugeMetricFamily(
        "mirror_worker_last_progress_timestamp_seconds",
        "Time of the last report from the worker's event loop, idle or not.",
        labels=["worker"],
    )
    dropped = CounterMetricFamily(
        "mirror_worker_dropped_messages",
        "Log lines and signs of life of the worker that were lost because the supervisor did not read.",
        labels=["worker"],
    )
    for worker in processes.workers.values():
        name = str(worker.number)
        up.add_metric([name], int(worker.up))
        restarts.add_metric([name], worker.restarts)
        heard.add_metric([name], worker.heard_at)
        dropped.add_metric([name], worker.counter("dropped_messages"))
    shares = [(labels, worker) for fleet, labels in flows for worker in fleet.workers.values()]
    for labels, worker in shares:
        if worker.up:
            assigned.add_metric([*labels, str(worker.number)], len(worker.rows))
    yield from (up, restarts, assigned, heard, dropped)
    for metric, counter, text in _WORKER_COUNTERS:
        family = CounterMetricFamily(metric, text, labels=[*OF_FLOW, "worker"])
        for labels, worker in shares:
            family.add_metric([*labels, str(worker.number)], worker.counter(counter))
        yield family
    for metric, gauge, text in _BUFFER_GAUGES:
        bytes_here = GaugeMetricFamily(metric, text, labels=["worker"])
        sums: dict[str, float] = {}
        for _, worker in shares:
            if gauge in worker.gauges:
                sums[str(worker.number)] = sums.get(str(worker.number), 0.0) + worker.gauges[gauge]
        for name, value in sums.items():
            bytes_here.add_metric([name], value)
        yield bytes_here
