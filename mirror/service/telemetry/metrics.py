"""``/metrics``: the workers' last reports, rendered on request by one collector, in Prometheus' text format.

Names and labels are the operator's interface: README, alerts and dashboards use them. All metrics have base units and
a help text.
"""

import gc
import itertools
import sys
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mirror.net.errors import NetworkError
from mirror.reasons import REASONS
from mirror.relay.partition.phases import Phase
from mirror.service.log import logs
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.gc_stats import BOUNDS_S, GENERATIONS
from mirror.service.telemetry.readiness import unready
from mirror.service.telemetry.rows import resident_bytes

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OF_FLOW = ["source", "target"]
_OF_PARTITION = [*_OF_FLOW, "topic", "partition"]
SUPERVISOR = "supervisor"
"""The value of ``worker`` for the supervisor's own process."""

_TOTALS = (
    (
        "mirror_replicated_records",
        "Source offsets with a record that the destination has, by its positions: also what landed while a partition "
        "had no owner.",
    ),
    ("mirror_replicated_batches", "Record batches that the destination has acknowledged to an owner."),
    ("mirror_replicated_bytes", "Bytes of these record batches, as stored."),
    ("mirror_filled_offsets", "Offsets without a record at the source that were filled at the destination."),
)
_FLOW_COUNTERS = (
    ("mirror_unproven_positions", "unproven", "Positions where the last batch could not be compared with the source."),
    ("mirror_oversize_fetches", "oversize_frames", "Fetch answers larger than a frame of the pool."),
)
_CAUSES = tuple(each.slug for each in NetworkError.__subclasses__() if "slug" in vars(each))
"""Causes of doubt that come from the network. Brokers' error codes are added as they occur."""
_FLOW_LABELLED = (
    ("mirror_resyncs", "resyncs", "cause", _CAUSES, "Doubts about a partition's position, by what caused them."),
    ("mirror_halts", "halts", "reason", REASONS, "Partitions that halted, by reason."),
    (
        "mirror_rebalances",
        "rebalances",
        "event",
        ("assigned", "revoked", "lost"),
        "What the group told our members: assigned, revoked, lost.",
    ),
    ("mirror_offset_commits", "commits", "result", ("ok", "failed"), "Commits of the group's offsets at the source."),
)
_SYNC_RESULTS = ("failed", "ok")
_SYNCS = (
    ("mirror_group_offset_syncs", "group_offsets", "Looks at the groups whose offsets are carried over, by result."),
    ("mirror_topic_acl_syncs", "topic_acls", "Looks at the ACLs of topics, by result; off: a cluster has no ACLs."),
)
_SYNC_COUNTERS = (
    ("mirror_synced_group_offsets", "synced_offsets", "Offsets committed at the destination for groups."),
    ("mirror_created_topic_acls", "created_acls", "ACLs created at the destination."),
)
_SYNC_GAUGES = (
    (
        "mirror_group_offsets_last_success_timestamp_seconds",
        "synced_at_s/group_offsets",
        "When groups' offsets were last carried over without a failure, or this began. Absent where another process "
        "does it.",
    ),
    (
        "mirror_topic_acls_last_success_timestamp_seconds",
        "synced_at_s/topic_acls",
        "When ACLs were last carried over without a failure, or this began. Absent where another process does it.",
    ),
)
_WORKER_COUNTERS = (
    ("mirror_fetched_bytes", "fetched_bytes", "Bytes received in fetch answers."),
    ("mirror_fetch_requests", "fetch_requests", "Fetch requests sent to the source."),
    ("mirror_produce_requests", "produce_requests", "Produce requests sent to the destination."),
)
_WORKER_GAUGES = (
    ("mirror_buffer_bytes", "buffer_bytes", "Bytes fetched and not yet acknowledged, with the room reserved."),
    ("mirror_buffer_limit_bytes", "buffer_limit_bytes", "The most that mirror_buffer_bytes can be (buffer.memory)."),
    ("process_resident_memory_bytes", "rss_bytes", "Resident memory of the process."),
)
_GC_COUNTERS = (
    ("python_gc_collections", "gc_collections", "Runs of the garbage collector."),
    ("python_gc_objects_collected", "gc_collected", "Objects that it collected."),
    ("python_gc_objects_uncollectable", "gc_uncollectable", "Objects that it found uncollectable."),
)


class FleetCollector(Collector):
    """Collects all metrics from one fleet."""

    def __init__(self, fleet: Fleet, version: str, *, started: bool) -> None:
        self._fleet = fleet
        self._started = started
        self._version = version
        here, _, there = fleet.flow.partition("->")
        self._flow = [here, there]

    def describe(self) -> list[Metric]:
        """Returns nothing, so that the registry need not collect just to know the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all metric families."""
        yield from self._partitions()
        yield from self._whole_flow()
        yield from self._workers()
        yield from self._processes()
        build = GaugeMetricFamily("mirror_build_info", "Of what this is.", labels=["version", "python"])
        build.add_metric([self._version, ".".join(map(str, sys.version_info[:3]))], 1)
        yield build
        ready = GaugeMetricFamily("mirror_ready", "1 while /-/ready says yes; it says why not.")
        ready.add_metric([], int(not unready(self._fleet, started=self._started)))
        yield ready
        lost = CounterMetricFamily("mirror_log_lines_lost", "Log lines that stdout did not take.")
        lost.add_metric([], logs.lines_lost())
        yield lost

    def _partitions(self) -> Iterator[Metric]:
        totals = sorted(self._fleet.totals().items())
        for at, (name, text) in enumerate(_TOTALS):
            family = CounterMetricFamily(name, text, labels=_OF_PARTITION)
            for (topic, index), counts in totals:
                family.add_metric([*self._flow, topic, str(index)], counts[at])
            yield family
        lag = _gauge(
            "mirror_replication_lag_records",
            "Source offsets that the destination is known to lack. Absent while that is not known; 0 only while the "
            "source's end is heard of.",
        )
        age = _gauge(
            "mirror_replication_lag_seconds",
            "How long the oldest record that the destination lacks is known to wait, since this process first saw it. "
            "Absent while the lag is not known.",
        )
        source_end = _gauge("mirror_source_end_offset", "What of the source can be copied, as last heard.")
        target_end = _gauge("mirror_target_end_offset", "Source offset up to which all is copied, as last known.")
        committed = _gauge("mirror_committed_offset", "The offset that the flow's group has committed at the source.")
        halted = GaugeMetricFamily(
            "mirror_partition_halted", "1 for a partition that has halted.", labels=[*_OF_PARTITION, "reason"]
        )
        now = time.time()
        for _, row in self._fleet.rows:
            labels = [*self._flow, row.topic, str(row.partition)]
            known: list[tuple[GaugeMetricFamily, float | None]] = [
                (lag, row.lag_records), (age, self._fleet.lag_seconds(row, now)),
                (source_end, row.source_end), (target_end, row.position), (committed, row.committed),
            ]  # fmt: skip
            for gauge, value in known:
                if value is not None and value >= 0:
                    gauge.add_metric(labels, value)
            if row.reason:
                halted.add_metric([*labels, row.reason], 1)
        yield from (lag, age, source_end, target_end, committed, halted)
        skipped = CounterMetricFamily(
            "mirror_skipped_offsets",
            "Source offsets never copied, or taken on trust, by decision.",
            labels=[*_OF_PARTITION, "reason"],
        )
        sums: dict[tuple[str, int, str], int] = {}
        for each in self._fleet.skipped:
            key = each.topic, each.partition, each.reason
            sums[key] = sums.get(key, 0) + each.next - each.first
        for (topic, index, reason), count in sums.items():
            skipped.add_metric([*self._flow, topic, str(index), reason], count)
        yield skipped
        last = GaugeMetricFamily(
            "mirror_last_skip_timestamp_seconds",
            "When it was last decided that offsets of the partition are not copied, or are taken on trust.",
            labels=_OF_PARTITION,
        )
        newest: dict[tuple[str, int], int] = {}
        for each in self._fleet.skipped:
            newest[each.topic, each.partition] = max(each.at_ms, newest.get((each.topic, each.partition), 0))
        for (topic, index), at_ms in newest.items():
            last.add_metric([*self._flow, topic, str(index)], at_ms / 1000)
        yield last

    def _whole_flow(self) -> Iterator[Metric]:
        fleet = self._fleet
        partitions = GaugeMetricFamily(
            "mirror_partitions", "Partitions that are copied here, by state.", labels=[*_OF_FLOW, "state"]
        )
        states = fleet.states
        for phase in Phase:
            partitions.add_metric([*self._flow, phase.value], states.get(phase.value, 0))
        yield partitions
        whole = GaugeMetricFamily("mirror_flow_partitions", "Partitions of the flow, whoever copies.", labels=_OF_FLOW)
        whole.add_metric(self._flow, fleet.flow_partitions)
        yield whole
        unassigned = GaugeMetricFamily(
            "mirror_unassigned_partitions",
            "Partitions of the flow that no worker holds, on any machine. Absent while that is not known.",
            labels=_OF_FLOW,
        )
        if fleet.unassigned is not None:
            unassigned.add_metric(self._flow, fleet.unassigned)
        yield unassigned
        unmatched = GaugeMetricFamily(
            "mirror_topic_unmatched",
            "1 for an entry of topics, a name or a pattern, that no topic of the source matches.",
            labels=[*_OF_FLOW, "pattern"],
        )
        for entry in fleet.unmatched:
            unmatched.add_metric([*self._flow, entry], 1)
        yield unmatched
        gone = GaugeMetricFamily(
            "mirror_topic_gone",
            "1 for a topic that was copied and that the source has no more, while the destination still has the copy.",
            labels=[*_OF_FLOW, "topic"],
        )
        for topic in fleet.gone_topics:
            gone.add_metric([*self._flow, topic], 1)
        yield gone
        up = GaugeMetricFamily("mirror_cluster_up", "1 while the cluster answers every worker.", labels=["cluster"])
        for name, answers in fleet.clusters.items():
            up.add_metric([name], int(answers))
        yield up
        errors = CounterMetricFamily(
            "mirror_request_errors",
            "Requests without an answer, connections that could not be had, and error codes in answers.",
            labels=["cluster", "api", "error"],
        )
        for labels, count in fleet.labelled("request_errors").items():
            errors.add_metric(labels.rsplit("/", 2), count)
        yield errors
        batches = CounterMetricFamily(
            "mirror_batches", "Batches copied as they are (shallow) or opened (deep).", labels=[*_OF_FLOW, "path"]
        )
        opened = fleet.counter("opened_batches")
        batches.add_metric([*self._flow, "shallow"], fleet.replicated.batches - opened)
        batches.add_metric([*self._flow, "deep"], opened)
        yield batches
        for name, counter, text in _FLOW_COUNTERS:
            family = CounterMetricFamily(name, text, labels=_OF_FLOW)
            family.add_metric(self._flow, fleet.counter(counter))
            yield family
        for name, counter, label, known, text in _FLOW_LABELLED:
            family = CounterMetricFamily(name, text, labels=[*_OF_FLOW, label])
            # Known labels start at 0: a rate over time does not see a counter that begins with 1.
            for value, count in sorted((dict.fromkeys(known, 0.0) | fleet.labelled(counter)).items()):
                family.add_metric([*self._flow, value], count)
            yield family
        yield from self._synced()
        throttled = CounterMetricFamily(
            "mirror_throttled_seconds", "Time that a cluster's quotas told us to wait.", labels=["cluster"]
        )
        for cluster, seconds in (dict.fromkeys(self._flow, 0.0) | fleet.labelled("throttled_s")).items():
            throttled.add_metric([cluster], seconds)
        yield throttled

    def _synced(self) -> Iterator[Metric]:
        for name, part, text in _SYNCS:
            syncs = CounterMetricFamily(name, text, labels=[*_OF_FLOW, "result"])
            for result, count in (dict.fromkeys(_SYNC_RESULTS, 0.0) | self._fleet.labelled(f"syncs/{part}")).items():
                syncs.add_metric([*self._flow, result], count)
            yield syncs
        for name, counter, text in _SYNC_COUNTERS:
            family = CounterMetricFamily(name, text, labels=_OF_FLOW)
            family.add_metric(self._flow, self._fleet.counter(counter))
            yield family
        for name, gauge, text in _SYNC_GAUGES:
            last = GaugeMetricFamily(name, text, labels=_OF_FLOW)
            told = [worker.gauges[gauge] for worker in self._fleet.workers.values() if gauge in worker.gauges]
            if told:
                last.add_metric(self._flow, max(told))
            yield last
        groups = GaugeMetricFamily(
            "mirror_synced_groups", "Groups by what the last look has found.", labels=[*_OF_FLOW, "state"]
        )
        for state, count in self._fleet.gauges("synced_groups").items():
            groups.add_metric([*self._flow, state], count)
        yield groups

    def _workers(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("mirror_worker_up", "1 while the worker's process runs.", labels=["worker"])
        restarts = CounterMetricFamily("mirror_worker_restarts", "Starts after the first.", labels=["worker"])
        assigned = GaugeMetricFamily(
            "mirror_assigned_partitions", "Partitions that the worker has.", labels=[*_OF_FLOW, "worker"]
        )
        heard = GaugeMetricFamily(
            "mirror_worker_last_progress_timestamp_seconds",
            "When the worker's event loop was last heard of, idle or not.",
            labels=["worker"],
        )
        for worker in self._fleet.workers.values():
            name = str(worker.number)
            up.add_metric([name], int(worker.up))
            restarts.add_metric([name], worker.restarts)
            heard.add_metric([name], worker.heard_at)
            if worker.up:
                assigned.add_metric([*self._flow, name], len(worker.rows))
        yield from (up, restarts, assigned, heard)
        for metric, counter, text in _WORKER_COUNTERS:
            family = CounterMetricFamily(metric, text, labels=[*_OF_FLOW, "worker"])
            for worker in self._fleet.workers.values():
                family.add_metric([*self._flow, str(worker.number)], worker.counter(counter))
            yield family

    def _processes(self) -> Iterator[Metric]:
        workers = self._fleet.workers.values()
        for name, gauge, text in _WORKER_GAUGES:
            family = GaugeMetricFamily(name, text, labels=["worker"])
            for worker in workers:
                if gauge in worker.gauges:
                    family.add_metric([str(worker.number)], worker.gauges[gauge])
            if gauge == "rss_bytes":
                family.add_metric([SUPERVISOR], resident_bytes())
            yield family
        cpu = CounterMetricFamily("process_cpu_seconds", "User and system time of the process.", labels=["worker"])
        for worker in workers:
            cpu.add_metric([str(worker.number)], worker.counter("cpu_s"))
        cpu.add_metric([SUPERVISOR], time.process_time())
        yield cpu
        yield from self._collections()

    def _collections(self) -> Iterator[Metric]:
        workers = self._fleet.workers.values()
        labels = ["worker", "generation"]
        own = [[stats["collections"], stats["collected"], stats["uncollectable"]] for stats in gc.get_stats()]
        for at, (name, counter, text) in enumerate(_GC_COUNTERS):
            family = CounterMetricFamily(name, text, labels=labels)
            for generation in range(GENERATIONS):
                for worker in workers:
                    value = worker.counter(f"{counter}/{generation}")
                    family.add_metric([str(worker.number), str(generation)], value)
                family.add_metric([SUPERVISOR, str(generation)], own[generation][at])
            yield family
        pauses = HistogramMetricFamily(
            "mirror_gc_pause_seconds", "What the garbage collector's runs took.", labels=labels
        )
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        for worker in workers:
            for generation in range(GENERATIONS):
                counts = [worker.counter(f"gc_pauses/{generation}/{bucket}") for bucket in range(len(bounds))]
                pauses.add_metric(
                    [str(worker.number), str(generation)],
                    list(zip(bounds, itertools.accumulate(counts), strict=True)),
                    worker.counter(f"gc_pause_s/{generation}"),
                )
        yield pauses


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_OF_PARTITION)


def render(fleet: Fleet, version: str, *, started: bool = True) -> bytes:
    """Returns the text that Prometheus scrapes (``CONTENT_TYPE``). ``started``: the workers have begun to copy."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FleetCollector(fleet, version, started=started))
    return generate_latest(registry)
