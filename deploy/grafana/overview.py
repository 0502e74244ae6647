"""The overview: is it well, how far behind is it, how much goes through, what fails."""

from deploy.grafana.panels import (
    BY_PARTITION,
    FLOW,
    HALF,
    JOB,
    THIRD,
    Query,
    figure,
    graph,
    limit,
    or_zero,
    quantile,
    rate,
    row,
    rows,
)

TITLE = "overview"
TEXT = "Whether the mirror is well, how far behind it is, how much goes through, and what fails."
VARIABLES = ("source", "target")

LAG_RECORDS = f"max {BY_PARTITION} (mirror_replication_lag_records{{{FLOW}}})"
BY_FLOW = "{{source}} → {{target}}"
OF_FLOW = "source, target"
AGE, LATENCY = "mirror_record_age_seconds", "mirror_replication_latency_seconds"
DURATION = "mirror_request_duration_seconds"
PARTS = ((0.5, "50 %"), (0.99, "99 %"))
ERRORS = rate("mirror_request_errors_total", JOB)


def mean(metric: str) -> str:
    """Returns a histogram's mean by flow; none while nothing is counted."""
    total, count = (f"sum by ({OF_FLOW}) ({rate(f'{metric}_{end}', FLOW)})" for end in ("sum", "count"))
    return f"{total} / ({count} > 0)"


PANELS = (
    row("Now"),
    figure("Hosts up", "short", f"sum(up{{{JOB}}})", text="Mirrors that answer Prometheus.", good_from=1),
    figure("Ready", "bool_yes_no", f"min(mirror_ready{{{JOB}}})", text="No: /-/ready says why.", good_from=1),
    figure(
        "Alerts", "short", or_zero('count(ALERTS{alertname=~"Mirror.+",alertstate="firing"})'),
        text="Alerts of the mirror that fire, whichever flow they are about.", bad_from=1,
    ),
    figure(
        "Halted", "short", f'sum(mirror_partitions{{{FLOW},state="halted"}})',
        text="Partitions that have stopped with a reason. They need somebody.", bad_from=1,
    ),
    figure(
        "Oldest record that waits", "s", f"max(mirror_replication_lag_seconds{{{FLOW}}})",
        text="How long the oldest record that is not copied is known to wait. Absent: not known.",
        bad_from=limit("MirrorLag"),
    ),
    figure("Records that wait", "short", f"sum({LAG_RECORDS})", text="Over all partitions whose lag is known."),
    figure(
        "Records per second", "cps", f"sum({rate('mirror_replicated_records_total', FLOW)})",
        text="Records that arrive at the destination.",
    ),
    figure(
        "Bytes per second", "Bps", f"sum({rate('mirror_replicated_bytes_total', FLOW)})",
        text="Bytes of record batches, as stored, that the destination acknowledges.",
    ),
    row("Partitions and clusters"),
    graph(
        "Partitions by state", "short", Query(f"sum by (state) (mirror_partitions{{{FLOW}}})", "{{state}}"),
        text="States are the words of mirror status.", stacked=True,
    ),
    graph(
        "Partitions that nobody holds", "short",
        Query(f"max by (source, target) (mirror_unassigned_partitions{{{FLOW}}})", BY_FLOW),
        text="On any host. Absent: not known.",
    ),
    graph(
        "Clusters that answer", "bool_yes_no", Query(f"min by (cluster) (mirror_cluster_up{{{JOB}}})", "{{cluster}}"),
        text="As every worker of every flow sees it.",
    ),
    row("Lag"),
    graph(
        "Longest wait", "s",
        Query(f"max by (source, target) (mirror_replication_lag_seconds{{{FLOW}}})", BY_FLOW),
        text="What would be lost if the source's cluster were gone now, in time (RPO). At the line, MirrorLag fires.",
        alert="MirrorLag",
    ),
    graph(
        "Records that wait", "short", Query(f"sum by (source, target) ({LAG_RECORDS})", BY_FLOW),
        text="Source offsets that the destination lacks.",
    ),
    graph(
        "Caught up in", "s",
        Query(
            f"sum by (source, target) ({LAG_RECORDS}) / "
            f"(-sum by (source, target) (deriv(mirror_replication_lag_records{{{FLOW}}}[$__rate_interval])) > 0)",
            BY_FLOW,
        ),
        text="What waits, divided by how fast it becomes less. Nothing is shown while it does not.",
    ),
    row("Traffic"),
    graph(
        "Records per second", "cps",
        Query(f"sum by (source, target) ({rate('mirror_replicated_records_total', FLOW)})", BY_FLOW),
        text="Records that arrive at the destination.",
    ),
    graph(
        "Bytes per second", "Bps",
        Query(f"sum by (source, target) ({rate('mirror_fetched_bytes_total', FLOW)})", f"fetched, {BY_FLOW}"),
        Query(f"sum by (source, target) ({rate('mirror_replicated_bytes_total', FLOW)})", f"replicated, {BY_FLOW}"),
        text="Fetched: in responses of the source. Replicated: acknowledged by the destination.",
    ),
    graph(
        "Throttled by quotas", "percentunit",
        Query(f"sum by (cluster) ({rate('mirror_throttled_seconds_total', JOB)})", "{{cluster}}"),
        text="Seconds in each second that a cluster's quotas make the mirror wait, over all connections.",
    ),
    row("How long it takes"),
    graph(
        "Record age", "s", *(Query(quantile(part, AGE, FLOW, OF_FLOW), f"{name}, {BY_FLOW}") for part, name in PARTS),
        text="Of records when they are sent, by their timestamps. By buckets, so that it is rough.",
    ),
    graph(
        "Replication latency", "s",
        *(Query(quantile(part, LATENCY, FLOW, OF_FLOW), f"{name}, {BY_FLOW}") for part, name in PARTS),
        text="The same when the destination has acknowledged them: how long after its timestamp a record is there.",
    ),
    graph(
        "Mean record age and latency", "s",
        Query(f"{mean(AGE)}", f"age, {BY_FLOW}"), Query(f"{mean(LATENCY)}", f"latency, {BY_FLOW}"),
        text="What lies between them is sending and acknowledging; the age itself is what waited at the source.",
    ),
    graph(
        "Requests, 50 % are shorter than", "s",
        Query(quantile(0.5, DURATION, JOB, "cluster, api"), "{{cluster}} {{api}}"), width=HALF,
        text="From a request to its answer. Fetch waits for records, up to fetch.max.wait.ms.",
    ),
    graph(
        "Requests, 99 % are shorter than", "s",
        Query(quantile(0.99, DURATION, JOB, "cluster, api"), "{{cluster}} {{api}}"), width=HALF,
        text="A slow broker shows here first. By buckets, so that it is rough.",
    ),
    row("What fails"),
    graph(
        "Failed requests per second", "reqps",
        Query(or_zero(f"sum by (cluster, api, error) ({ERRORS})"), "{{cluster}} {{api}} {{error}}"),
        text="Requests, attempts to connect, and error codes in responses. Some are usual when leaders move.",
    ),
    graph(
        "Resyncs per second", "cps",
        Query(f"sum by (source, target) ({rate('mirror_resyncs_total', FLOW)})", BY_FLOW),
        text="Times that a partition's position became uncertain and was read again from the destination.",
    ),
    graph(
        "Halts", "short",
        Query(f"sum by (source, target) (increase(mirror_halts_total{{{FLOW}}}[$__rate_interval]))", BY_FLOW),
        text="Partitions that halted within the interval.",
    ),
    rows(
        "Halted partitions", "short",
        f"max by (source, target, topic, partition, reason) (mirror_partition_halted{{{FLOW}}})",
        text="docs/HALTS.md explains each reason.", hidden=("Value",),
    ),
    rows(
        "Versions", "short", f"max by (instance, version, python) (mirror_build_info{{{JOB}}})",
        text="Of the mirror and of Python.", hidden=("Value",), width=HALF,
    ),
    graph(
        "Groups' offsets carried over per second", "cps",
        Query(f"sum by (source, target) ({rate('mirror_synced_group_offsets_total', FLOW)})", BY_FLOW),
        text="With sync.group.offsets.enabled.", width=THIRD,
    ),
    graph(
        "Last round of carrying groups' offsets over", "s",
        Query(
            f"time() - max by (source, target) (mirror_group_offsets_last_success_timestamp_seconds{{{FLOW}}})", BY_FLOW
        ),
        text="Seconds ago. With sync.group.offsets.enabled.", alert="MirrorGroupOffsetsStale",
    ),
    graph(
        "Certificates end in", "d",
        Query(
            f"(min by (cluster, subject) (mirror_tls_certificate_expiry_timestamp_seconds{{{JOB}}}) - time()) / 86400",
            "{{cluster}} {{subject}}",
        ),
        text="Days, for clusters with TLS. MirrorCertificateExpiry fires 14 days before.",
    ),
    row("Audits"),
    graph(
        "Last audit that passed", "s",
        Query(f"time() - max by (source, target) (mirror_audit_last_success_timestamp_seconds{{{FLOW}}})", BY_FLOW),
        text="Seconds ago. With audit.metrics.file, or from node_exporter.", alert="MirrorAuditStale",
    ),
    graph(
        "Differences at the last audit", "short",
        Query(f"sum by ({OF_FLOW}) (max by ({OF_FLOW}, topic) (mirror_audit_differences{{{FLOW}}}))", BY_FLOW),
        text="As the last audit with a verdict found them.", alert="MirrorAuditFailed",
    ),
    graph(
        "What the last audit said", "short",
        Query(
            f"max by (source, target, verdict) (mirror_audit_verdict{{{FLOW}}}) > 0",
            BY_FLOW + ": {{verdict}}",
        ),
        text="unfinished: it ended without a verdict. Absent: no audit, or its file says nothing about this flow.",
    ),
)  # fmt: skip
