"""The metrics of whole flows."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from mirror.net.errors import NetworkError
from mirror.reasons import PAUSED, REASONS, HaltReason
from mirror.records.admit import RewriteWish
from mirror.relay.partition.phases import Phase
from mirror.relay.stats import AGE_BOUNDS_S, BATCHES_BOUNDS, SIZE_BOUNDS_BYTES
from mirror.service.telemetry.families.labels import OF_FLOW, Labelled
from mirror.service.telemetry.usage.histograms import add_histogram

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
_REWRITTEN = tuple(
    each.slug
    for each in (
        HaltReason.LOG_APPEND_TIME,
        HaltReason.MID_BATCH,
        HaltReason.OLD_FORMAT,
        HaltReason.SPARSE_BATCH,
        HaltReason.TOO_LARGE,
        *RewriteWish,
    )
)
"""Reasons for which batches are rewritten: all that ``relay.hot.deep.Rewriter`` counts."""
_CAUSES = tuple(each.slug for each in NetworkError.__subclasses__() if "slug" in vars(each))
"""Network errors that are causes of doubt. Brokers' error codes are added as they occur."""
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
_SAMPLED = "Of Produce requests that are sent together, one is looked at."
_HISTOGRAMS = (
    (
        "mirror_record_age_seconds",
        "record_age_s",
        AGE_BOUNDS_S,
        "Age of records, by their timestamps, when they are sent to the destination; the newest of one batch of a "
        "request.",
    ),
    (
        "mirror_replication_latency_seconds",
        "replication_latency_s",
        AGE_BOUNDS_S,
        "The same when the destination has acknowledged them: how long after its timestamp a record can be read there.",
    ),
    (
        "mirror_batch_size_bytes",
        "batch_bytes",
        SIZE_BOUNDS_BYTES,
        f"Sizes of batches, as stored; one of a request. {_SAMPLED}",
    ),
    (
        "mirror_produce_request_size_bytes",
        "produce_request_bytes",
        SIZE_BOUNDS_BYTES,
        f"Sizes of the batches of a Produce request together. {_SAMPLED}",
    ),
    (
        "mirror_produce_request_batches",
        "produce_request_batches",
        BATCHES_BOUNDS,
        f"Batches of a Produce request, each of another partition. {_SAMPLED}",
    ),
)
"""(metric, name of its counters, bounds, help text)."""
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


def whole_flows(flows: Labelled) -> Iterator[Metric]:
    """Yields the families."""
    partitions = GaugeMetricFamily(
        "mirror_partitions", "Partitions that this process copies, by state.", labels=[*OF_FLOW, "state"]
    )
    whole = GaugeMetricFamily("mirror_flow_partitions", "Partitions of the flow, on all machines.", labels=OF_FLOW)
    unassigned = GaugeMetricFamily(
        "mirror_unassigned_partitions",
        "Partitions of the flow that no worker on any machine holds. Absent while this is unknown.",
        labels=OF_FLOW,
    )
    unmatched = GaugeMetricFamily(
        "mirror_topic_unmatched",
        "1 for each entry of topics (a name or a pattern) that matches no topic of the source.",
        labels=[*OF_FLOW, "pattern"],
    )
    gone = GaugeMetricFamily(
        "mirror_topic_gone",
        "1 for each topic that was copied and no longer exists at the source, while its copy exists.",
        labels=[*OF_FLOW, "topic"],
    )
    batches = CounterMetricFamily(
        "mirror_batches",
        "Batches copied as they are (shallow), or of the source that were opened and rewritten (deep), by reason.",
        labels=[*OF_FLOW, "path", "reason"],
    )
    for fleet, labels in flows:
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
        batches.add_metric([*labels, "shallow", ""], fleet.shallow_batches())
        for reason, count in sorted((dict.fromkeys(_REWRITTEN, 0.0) | fleet.labelled("opened")).items()):
            batches.add_metric([*labels, "deep", reason], count)
    yield from (partitions, whole, unassigned, unmatched, gone, batches)
    for name, counter, text in _FLOW_COUNTERS:
        family = CounterMetricFamily(name, text, labels=OF_FLOW)
        for fleet, labels in flows:
            family.add_metric(labels, fleet.counter(counter))
        yield family
    for name, counter, label, known, text in _FLOW_LABELLED:
        family = CounterMetricFamily(name, text, labels=[*OF_FLOW, label])
        for fleet, labels in flows:
            # Known labels start at 0: rate() does not see the first increase of a counter that begins with 1.
            for value, count in sorted((dict.fromkeys(known, 0.0) | fleet.labelled(counter)).items()):
                family.add_metric([*labels, value], count)
        yield family
    yield from _histograms(flows)
    yield from _synced(flows)
    yield _retention(flows)


def _histograms(flows: Labelled) -> Iterator[Metric]:
    for name, counter, bounds, text in _HISTOGRAMS:
        family = HistogramMetricFamily(name, text, labels=OF_FLOW)
        for fleet, labels in flows:
            found = {f"{counter}/{each}": count for each, count in fleet.labelled(counter).items()}
            add_histogram(family, labels, found, counter, bounds)
        yield family


def _synced(flows: Labelled) -> Iterator[Metric]:
    for name, part, text in _SYNCS:
        syncs = CounterMetricFamily(name, text, labels=[*OF_FLOW, "result"])
        for fleet, labels in flows:
            for result, count in (dict.fromkeys(_SYNC_RESULTS, 0.0) | fleet.labelled(f"syncs/{part}")).items():
                syncs.add_metric([*labels, result], count)
        yield syncs
    for name, counter, text in _SYNC_COUNTERS:
        family = CounterMetricFamily(name, text, labels=OF_FLOW)
        for fleet, labels in flows:
            family.add_metric(labels, fleet.counter(counter))
        yield family
    for name, gauge, text in _SYNC_GAUGES:
        last = GaugeMetricFamily(name, text, labels=OF_FLOW)
        for fleet, labels in flows:
            told = [worker.gauges[gauge] for worker in fleet.workers.values() if gauge in worker.gauges]
            if told:
                last.add_metric(labels, max(told))
        yield last
    groups = GaugeMetricFamily(
        "mirror_synced_groups",
        "Consumer groups by state, as of the last round of copying offsets.",
        labels=[*OF_FLOW, "state"],
    )
    for fleet, labels in flows:
        for state, count in fleet.gauges("synced_groups").items():
            groups.add_metric([*labels, state], count)
    yield groups


def _retention(flows: Labelled) -> Metric:
    retention = GaugeMetricFamily(
        "mirror_source_retention_seconds",
        "How long the source topic keeps records (retention.ms). Absent if that is not limited, or not known.",
        labels=["source", "topic"],
    )
    # Several flows may copy the same topic.
    kept = {(labels[0], topic): s for fleet, labels in flows for topic, s in fleet.retention_s.items()}
    for key, seconds in kept.items():
        retention.add_metric(key, seconds)
    return retention
