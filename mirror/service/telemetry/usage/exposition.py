"""The metrics of processes, all with the label ``worker``: ``process_*``, ``python_gc_*``, the collector's pauses."""

import gc
import time
from collections.abc import Callable, Collection, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from mirror.service.telemetry.fleet import WorkerView
from mirror.service.telemetry.usage.gc_stats import BOUNDS_S, GENERATIONS
from mirror.service.telemetry.usage.histograms import add_histogram
from mirror.service.telemetry.usage.resources import most_files, open_files, resident_bytes

SUPERVISOR = "supervisor"
"""The value of ``worker`` for the supervisor's own process."""

_GAUGES: tuple[tuple[str, str, str, Callable[[], float | None]], ...] = (
    ("process_resident_memory_bytes", "rss_bytes", "Resident memory of the process.", resident_bytes),
    ("process_open_fds", "open_files", "Open file descriptors of the process.", open_files),
    ("process_max_fds", "most_files", "File descriptors that the process may have open.", most_files),
)
"""(metric, name in a worker's report, help text, function for the supervisor's own value)."""
_GC_COUNTERS = (
    ("python_gc_collections", "gc_collections", "Runs of the garbage collector."),
    ("python_gc_objects_collected", "gc_collected", "Objects that the garbage collector freed."),
    ("python_gc_objects_uncollectable", "gc_uncollectable", "Objects that the garbage collector could not free."),
)


def processes(workers: Collection[WorkerView]) -> Iterator[Metric]:
    """Yields the families of these workers' processes and of the supervisor's process, which is this one."""
    for metric, name, text, own in _GAUGES:
        family = GaugeMetricFamily(metric, text, labels=["worker"])
        for worker in workers:
            if name in worker.gauges:
                family.add_metric([str(worker.number)], worker.gauges[name])
        if (value := own()) is not None:
            family.add_metric([SUPERVISOR], value)
        yield family
    cpu = CounterMetricFamily("process_cpu_seconds", "User and system time of the process.", labels=["worker"])
    for worker in workers:
        cpu.add_metric([str(worker.number)], worker.counter("cpu_s"))
    cpu.add_metric([SUPERVISOR], time.process_time())
    yield cpu
    yield from _collections(workers)


def _collections(workers: Collection[WorkerView]) -> Iterator[Metric]:
    labels = ["worker", "generation"]
    own_stats = [[stats["collections"], stats["collected"], stats["uncollectable"]] for stats in gc.get_stats()]
    for at, (name, counter, text) in enumerate(_GC_COUNTERS):
        family = CounterMetricFamily(name, text, labels=labels)
        for generation in range(GENERATIONS):
            for worker in workers:
                value = worker.counter(f"{counter}/{generation}")
                family.add_metric([str(worker.number), str(generation)], value)
            family.add_metric([SUPERVISOR, str(generation)], own_stats[generation][at])
        yield family
    pauses = HistogramMetricFamily(
        "mirror_gc_pause_seconds", "Duration of the garbage collector's runs.", labels=labels
    )
    for worker in workers:
        found = {f"gc_pauses/{each}": count for each, count in worker.labelled("gc_pauses").items()}
        for generation in range(GENERATIONS):
            labelled = [str(worker.number), str(generation)]
            add_histogram(pauses, labelled, found, f"gc_pauses/{generation}", BOUNDS_S)
    yield pauses
