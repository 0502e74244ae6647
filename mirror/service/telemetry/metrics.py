"""``/metrics``: the workers' last reports, rendered on request by one collector, in Prometheus' text format.

Names and labels are the operator's interface: README, alerts and dashboards use them. All metrics have base units and
a help text.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mirror.net.errors import NetworkError
from mirror.net.health.histogram import REQUEST_BOUNDS_S
from mirror.net.security.certificates import certificates_of
from mirror.net.security.options import SecurityOptions
from mirror.reasons import PAUSED, REASONS, HaltReason
from mirror.relay.partition.phases import Phase
from mirror.relay.stats import AGE_BOUNDS_S
from mirror.service.log import logs
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.readiness import unready
from mirror.service.telemetry.usage.exposition import processes
from mirror.service.telemetry.usage.histograms import add_histogram

if TYPE_CHECKING:
    from mirror.service.flows.processes import WorkerProcesses

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OF_FLOW = ["source", "target"]
_OF_PARTITION = [*_OF_FLOW, "topic", "partition"]

_TOTALS = (
    (
        "mirror_replicated_records",
        "Records that the destination has, by its positions. Includes records that arrived while no worker owned the "
        "partition.",
    ),
    (
        "mirror_replicated_batches",
        "Record batches that the destination has acknowledged to a worker that owned the partition.",
    ),
    ("mirror_replicated_bytes", "Bytes of these record batches, as stored."),
    (
        "mirror_filled_offsets",
        "Source offsets without a record: filled at the destination, or left out with offsets: mapped.",
    ),
)
_FLOW_COUNTERS = (
    (
        "mirror_unproven_positions",
        "unproven",
        "Positions at which the last batch could not be compared with the source.",
    ),
    ("mirror_oversize_fetches", "oversize_frames", "Fetch responses larger than a frame of the buffer pool."),
    (
        "mirror_batch_splits",
        "split_batches",
        "Batches that were built, and split because they were too large (KIP-126).",
    ),
)
REWRITTEN = tuple(
    each.slug
    for each in (HaltReason.LOG_APPEND_TIME, HaltReason.MID_BATCH, HaltReason.SPARSE_BATCH, HaltReason.TOO_LARGE)
)
"""Reasons for which batches are rewritten."""
_CAUSES = tuple(each.slug for each in NetworkError.__subclasses__() if "slug" in vars(each))
"""Causes of doubt that come from the network. Brokers' error codes are added as they occur."""
_FLOW_LABELLED = (
    ("mirror_resyncs", "resyncs", "cause", _CAUSES, "Times that a partition's position became uncertain, by cause."),
    ("mirror_halts", "halts", "reason", REASONS, "Partitions that halted, by reason."),
    (
        "mirror_rebalances",
        "rebalances",
        "event",
        ("assigned", "revoked", "lost"),
        "Rebalance events of the flow's group: partitions assigned, revoked or lost.",
    ),
    (
        "mirror_offset_commits",
        "commits",
        "result",
        ("ok", "failed"),
        "Offset commits of the flow's group at the source, by result.",
    ),
)
_AGES = (
    (
        "mirror_record_age_seconds",
        "record_age_s",
        "Age of records, by their timestamps, when they are sent to the destination; the newest of one batch of a "
        "request.",
    ),
    (
        "mirror_replication_latency_seconds",
        "replication_latency_s",
        "The same when the destination has acknowledged them: how long after its timestamp a record can be read there.",
    ),
)
_SYNC_RESULTS = ("failed", "ok")
_SYNCS = (
    ("mirror_group_offset_syncs", "group_offsets", "Rounds of copying the offsets of consumer groups, by result."),
    (
        "mirror_topic_acl_syncs",
        "topic_acls",
        "Rounds of copying the ACLs of topics, by result; off: a cluster has no authorizer.",
    ),
)
_SYNC_COUNTERS = (
    ("mirror_synced_group_offsets", "synced_offsets", "Offsets committed at the destination for consumer groups."),
    ("mirror_created_topic_acls", "created_acls", "ACLs created at the destination."),
)
_SYNC_GAUGES = (
    (
        "mirror_group_offsets_last_success_timestamp_seconds",
        "synced_at_s/group_offsets",
        "Time of the last successful round of copying group offsets; the start time before the first. Absent where "
        "another process does it.",
    ),
    (
        "mirror_topic_acls_last_success_timestamp_seconds",
        "synced_at_s/topic_acls",
        "Time of the last successful round of copying ACLs; the start time before the first. Absent where another "
        "process does it.",
    ),
)
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


class Reloads(Protocol):
    """What is shown of reloads (``service.flows.reloading.Reloading``)."""

    successful: bool
    succeeded_at: float


class Watched(Protocol):
    """A flow, as far as it is measured (``service.flows.flow.Flow``)."""

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
        self._flows = [(flow, _labels(flow.fleet)) for flow in flows]
        self._fleets = [(flow.fleet, labels) for flow, labels in self._flows]
        self._processes_here = processes
        self._version = version
        self._reloads = reloads

    def describe(self) -> list[Metric]:
        """Returns nothing, so that the registry need not collect just to know the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all metric families."""
        yield from self._partitions()
        yield from self._whole_flow()
        yield self._retention()
        yield from self._clusters()
        yield from self._workers()
        yield from processes(self._processes_here.workers.values())
        build = GaugeMetricFamily(
            "mirror_build_info", "The versions of mirror and Python; always 1.", labels=["version", "python"]
        )
        build.add_metric([self._version, ".".join(map(str, sys.version_info[:3]))], 1)
        yield build
        ready = GaugeMetricFamily("mirror_ready", "1 while every flow is ready. If not, /-/ready says why.")
        of_flow = GaugeMetricFamily("mirror_flow_ready", "1 while the flow is ready.", labels=_OF_FLOW)
        are_ready = [not unready(flow.fleet, started=flow.started) for flow, _ in self._flows]
        ready.add_metric([], int(all(are_ready)))
        for (_, labels), is_ready in zip(self._flows, are_ready, strict=True):
            of_flow.add_metric(labels, int(is_ready))
        yield from (ready, of_flow)
        yield from self._of_reloads()
        yield from self._certificates()
        lost = CounterMetricFamily("mirror_log_lines_lost", "Log lines that could not be written to standard output.")
        lost.add_metric([], logs.lines_lost())
        yield lost

    def _certificates(self) -> Iterator[Metric]:
        ends = GaugeMetricFamily(
            "mirror_tls_certificate_expiry_timestamp_seconds",
            "When a certificate ends that the cluster's settings name: ours (ssl.certificate.location), or an "
            "authority's (ssl.ca.location). Of several with one subject, the first to end.",
            labels=["cluster", "subject"],
        )
        found: dict[tuple[str, str], float] = {}
        for cluster, tls in self._protected.items():
            for each in certificates_of(tls):
                key = cluster, each.subject
                found[key] = min(each.ends_at, found.get(key, each.ends_at))
        for (cluster, subject), ends_at in found.items():
            ends.add_metric([cluster, subject], ends_at)
        usable = GaugeMetricFamily(
            "mirror_tls_files_usable",
            "0 while no connection can be made with the cluster's certificate, key and authorities as their files are. "
            "Connections are then made with the former ones, which processes that start do not have.",
            labels=["cluster"],
        )
        if self._protected:
            # Otherwise the supervisor needs none of what connections are made of.
            from mirror.net.security.tls import are_usable

            for cluster, tls in self._protected.items():
                usable.add_metric([cluster], int(are_usable(tls)))
        yield from (ends, usable)

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

    def _partitions(self) -> Iterator[Metric]:
        totals = [(labels, sorted(fleet.totals().items())) for fleet, labels in self._fleets]
        for at, (name, text) in enumerate(_TOTALS):
            family = CounterMetricFamily(name, text, labels=_OF_PARTITION)
            for labels, found in totals:
                for (topic, index), counts in found:
                    family.add_metric([*labels, topic, str(index)], counts[at])
            yield family
        lag = _gauge(
            "mirror_replication_lag_records",
            "Source offsets that the destination is known to lack. Absent while this is unknown. 0 only while the "
            "source reports where it ends.",
        )
        age = _gauge(
            "mirror_replication_lag_seconds",
            "Seconds since this process first saw the oldest record that the destination lacks. Absent while the lag "
            "is unknown, and while the partition is paused.",
        )
        source_end = _gauge(
            "mirror_source_end_offset",
            "Source offset up to which records can be copied, as last reported by the source.",
        )
        target_end = _gauge(
            "mirror_target_end_offset", "Source offset up to which everything is copied, as last known."
        )
        committed = _gauge("mirror_committed_offset", "The offset that the flow's group has committed at the source.")
        halted = GaugeMetricFamily(
            "mirror_partition_halted",
            "1 for each partition that has halted, with the reason.",
            labels=[*_OF_PARTITION, "reason"],
        )
        now = time.time()
        for fleet, flow, row in [(each, flow, row) for each, flow in self._fleets for _, row in each.rows]:
            labels = [*flow, row.topic, str(row.partition)]
            known: list[tuple[GaugeMetricFamily, float | None]] = [
                (lag, row.lag_records), (age, fleet.lag_seconds(row, now) if row.state != PAUSED else None),
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
            "Source offsets that were skipped, or accepted as copied without proof, by reason.",
            labels=[*_OF_PARTITION, "reason"],
        )
        last = GaugeMetricFamily(
            "mirror_last_skip_timestamp_seconds",
            "Time of the last decision to skip offsets of the partition, or to accept them without proof.",
            labels=_OF_PARTITION,
        )
        for fleet, labels in self._fleets:
            sums: dict[tuple[str, int, str], int] = {}
            newest: dict[tuple[str, int], int] = {}
            for each in fleet.skipped:
                key = each.topic, each.partition, each.reason
                sums[key] = sums.get(key, 0) + each.offsets
                newest[key[:2]] = max(each.at_ms, newest.get(key[:2], 0))
            for (topic, index, reason), count in sums.items():
                skipped.add_metric([*labels, topic, str(index), reason], count)
            for (topic, index), at_ms in newest.items():
                last.add_metric([*labels, topic, str(index)], at_ms / 1000)
        yield from (skipped, last)

    def _whole_flow(self) -> Iterator[Metric]:
        partitions = GaugeMetricFamily(
            "mirror_partitions", "Partitions that this process copies, by state.", labels=[*_OF_FLOW, "state"]
        )
        whole = GaugeMetricFamily("mirror_flow_partitions", "Partitions of the flow, on all machines.", labels=_OF_FLOW)
        unassigned = GaugeMetricFamily(
            "mirror_unassigned_partitions",
            "Partitions of the flow that no worker on any machine holds. Absent while this is unknown.",
            labels=_OF_FLOW,
        )
        unmatched = GaugeMetricFamily(
            "mirror_topic_unmatched",
            "1 for each entry of topics (a name or a pattern) that matches no topic of the source.",
            labels=[*_OF_FLOW, "pattern"],
        )
        gone = GaugeMetricFamily(
            "mirror_topic_gone",
            "1 for each topic that was copied and no longer exists at the source, while its copy exists.",
            labels=[*_OF_FLOW, "topic"],
        )
        batches = CounterMetricFamily(
            "mirror_batches",
            "Batches copied as they are (shallow), or of the source that were opened and rewritten (deep), by reason.",
            labels=[*_OF_FLOW, "path", "reason"],
        )
        for fleet, labels in self._fleets:
            states = fleet.states
            for state in (*(phase.value for phase in Phase), PAUSED):
                partitions.add_metric([*labels, state], states.get(state, 0))
            whole.add_metric(labels, fleet.flow_partitions)
            if fleet.unassigned is not None:
                unassigned.add_metric(labels, fleet.unassigned)
            for entry in fleet.unmatched:
                unmatched.add_metric([*labels, entry], 1)
            for topic in fleet.gone_topics:
                gone.add_metric([*labels, topic], 1)
            # What was built and is not acknowledged yet, or was built again, is no batch at the destination.
            shallow = max(0, fleet.replicated.batches - fleet.counter("built_batches"))
            batches.add_metric([*labels, "shallow", ""], shallow)
            for reason, count in sorted((dict.fromkeys(REWRITTEN, 0.0) | fleet.labelled("opened")).items()):
                batches.add_metric([*labels, "deep", reason], count)
        yield from (partitions, whole, unassigned, unmatched, gone, batches)
        for name, counter, text in _FLOW_COUNTERS:
            family = CounterMetricFamily(name, text, labels=_OF_FLOW)
            for fleet, labels in self._fleets:
                family.add_metric(labels, fleet.counter(counter))
            yield family
        for name, counter, label, known, text in _FLOW_LABELLED:
            family = CounterMetricFamily(name, text, labels=[*_OF_FLOW, label])
            for fleet, labels in self._fleets:
                # Known labels start at 0: a rate over time does not see a counter that begins with 1.
                for value, count in sorted((dict.fromkeys(known, 0.0) | fleet.labelled(counter)).items()):
                    family.add_metric([*labels, value], count)
            yield family
        yield from self._ages()
        yield from self._synced()

    def _ages(self) -> Iterator[Metric]:
        for name, counter, text in _AGES:
            ages = HistogramMetricFamily(name, text, labels=_OF_FLOW)
            for fleet, labels in self._fleets:
                found = {f"{counter}/{each}": count for each, count in fleet.labelled(counter).items()}
                add_histogram(ages, labels, found, counter, AGE_BOUNDS_S)
            yield ages

    def _retention(self) -> Metric:
        retention = GaugeMetricFamily(
            "mirror_source_retention_seconds",
            "How long the source topic keeps records (retention.ms). Absent if that is not limited, or not known.",
            labels=["source", "topic"],
        )
        # Several flows may copy one topic.
        kept = {(labels[0], topic): s for fleet, labels in self._fleets for topic, s in fleet.retention_s.items()}
        for key, seconds in kept.items():
            retention.add_metric(key, seconds)
        return retention

    def _clusters(self) -> Iterator[Metric]:
        fleets = [fleet for fleet, _ in self._fleets]
        up = GaugeMetricFamily(
            "mirror_cluster_up", "1 while the cluster answers every worker of every flow.", labels=["cluster"]
        )
        answers: dict[str, bool] = {}
        for fleet in fleets:
            for name, is_up in fleet.clusters.items():
                answers[name] = answers.get(name, True) and is_up
        for name, is_up in answers.items():
            up.add_metric([name], int(is_up))
        yield up
        errors = CounterMetricFamily(
            "mirror_request_errors",
            "Failed requests, failed connection attempts, and error codes in responses.",
            labels=["cluster", "api", "error"],
        )
        for label, count in self._processes_here.of_clusters("request_errors", fleets).items():
            errors.add_metric(label.rsplit("/", 2), count)
        yield errors
        throttled = CounterMetricFamily(
            "mirror_throttled_seconds", "Seconds that the quotas of a cluster made the mirror wait.", labels=["cluster"]
        )
        seconds = dict.fromkeys(answers, 0.0) | self._processes_here.of_clusters("throttled_s", fleets)
        for cluster, count in seconds.items():
            throttled.add_metric([cluster], count)
        yield throttled
        durations = HistogramMetricFamily(
            "mirror_request_duration_seconds",
            "Time from sending a request to its answer. Fetch requests wait for records, up to fetch.max.wait.ms.",
            labels=["cluster", "api"],
        )
        found = self._processes_here.of_clusters("request_s", fleets)
        for names in sorted({tuple(label.split("/")[:2]) for label in found}):
            add_histogram(durations, names, found, "/".join(names), REQUEST_BOUNDS_S)
        yield durations

    def _synced(self) -> Iterator[Metric]:
        for name, part, text in _SYNCS:
            syncs = CounterMetricFamily(name, text, labels=[*_OF_FLOW, "result"])
            for fleet, labels in self._fleets:
                for result, count in (dict.fromkeys(_SYNC_RESULTS, 0.0) | fleet.labelled(f"syncs/{part}")).items():
                    syncs.add_metric([*labels, result], count)
            yield syncs
        for name, counter, text in _SYNC_COUNTERS:
            family = CounterMetricFamily(name, text, labels=_OF_FLOW)
            for fleet, labels in self._fleets:
                family.add_metric(labels, fleet.counter(counter))
            yield family
        for name, gauge, text in _SYNC_GAUGES:
            last = GaugeMetricFamily(name, text, labels=_OF_FLOW)
            for fleet, labels in self._fleets:
                told = [worker.gauges[gauge] for worker in fleet.workers.values() if gauge in worker.gauges]
                if told:
                    last.add_metric(labels, max(told))
            yield last
        groups = GaugeMetricFamily(
            "mirror_synced_groups",
            "Consumer groups by state, as of the last round of copying offsets.",
            labels=[*_OF_FLOW, "state"],
        )
        for fleet, labels in self._fleets:
            for state, count in fleet.gauges("synced_groups").items():
                groups.add_metric([*labels, state], count)
        yield groups

    def _workers(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("mirror_worker_up", "1 while the worker's process runs.", labels=["worker"])
        restarts = CounterMetricFamily("mirror_worker_restarts", "Restarts of the worker's process.", labels=["worker"])
        assigned = GaugeMetricFamily(
            "mirror_assigned_partitions", "Partitions assigned to the worker.", labels=[*_OF_FLOW, "worker"]
        )
        heard = GaugeMetricFamily(
            "mirror_worker_last_progress_timestamp_seconds",
            "Time of the last report from the worker's event loop, idle or not.",
            labels=["worker"],
        )
        for worker in self._processes_here.workers.values():
            name = str(worker.number)
            up.add_metric([name], int(worker.up))
            restarts.add_metric([name], worker.restarts)
            heard.add_metric([name], worker.heard_at)
        shares = [(labels, worker) for fleet, labels in self._fleets for worker in fleet.workers.values()]
        for labels, worker in shares:
            if worker.up:
                assigned.add_metric([*labels, str(worker.number)], len(worker.rows))
        yield from (up, restarts, assigned, heard)
        for metric, counter, text in _WORKER_COUNTERS:
            family = CounterMetricFamily(metric, text, labels=[*_OF_FLOW, "worker"])
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


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_OF_PARTITION)


def _labels(fleet: Fleet) -> list[str]:
    here, _, there = fleet.flow.partition("->")
    return [here, there]


def render(
    flows: Sequence[Watched],
    processes: "WorkerProcesses",
    version: str,
    *,
    reloads: Reloads | None = None,
    clusters: Mapping[str, SecurityOptions] | None = None,
) -> bytes:
    """Returns the text that Prometheus scrapes (``CONTENT_TYPE``). ``clusters``: how each is protected."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServiceCollector(flows, processes, version, reloads=reloads, clusters=clusters or {}))
    return generate_latest(registry)
