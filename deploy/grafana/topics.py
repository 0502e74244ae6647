"""By topic: how far behind each is, how much of it goes through, and how long the source still keeps it."""

from deploy.grafana.panels import BY_PARTITION, HALF, TOPIC, Query, graph, rate, row, rows

TITLE = "topics"
TEXT = "How far behind each topic and partition is, and how much of it goes through."
VARIABLES = ("source", "target", "topic")

NAME = "{{topic}}"
LAG = f"max {BY_PARTITION} (mirror_replication_lag_records{{{TOPIC}}})"
AGE = f"max {BY_PARTITION} (mirror_replication_lag_seconds{{{TOPIC}}})"
RETENTION = 'max by (source, topic) (mirror_source_retention_seconds{job=~"$job",source=~"$source",topic=~"$topic"})'
SKIPPED = f"sum by (source, target, topic, partition, reason) (mirror_skipped_offsets_total{{{TOPIC}}})"
BYTES = f"sum by (topic) ({rate('mirror_replicated_bytes_total', TOPIC)})"
BATCHES = f"sum by (topic) ({rate('mirror_replicated_batches_total', TOPIC)})"
RECORDS = f"sum by (topic) ({rate('mirror_replicated_records_total', TOPIC)})"

PANELS = (
    row("Lag"),
    graph(
        "Longest wait", "s", Query(f"max by (topic) ({AGE})", NAME),
        text="How long the oldest record that is not copied is known to wait.", alert="MirrorLag",
    ),
    graph("Records that wait", "short", Query(f"sum by (topic) ({LAG})", NAME), text="Over the topic's partitions."),
    graph(
        "Retention used up", "percentunit",
        Query(f"max by (topic) ({AGE} / on (source, topic) group_left () {RETENTION})", NAME),
        text="The longest wait, as a part of the time after which the source deletes records (retention.ms).",
        alert="MirrorRetentionRisk",
    ),
    rows(
        "Partitions with most records that wait", "short", f"topk(20, {LAG})",
        text="The 20 that are furthest behind now.",
    ),
    rows("Partitions that wait longest", "s", f"topk(20, {AGE})", text="The 20 whose oldest record waits longest."),
    row("Traffic"),
    graph("Records per second", "cps", Query(RECORDS, NAME), text="Records that arrive at the destination."),
    graph("Bytes per second", "Bps", Query(BYTES, NAME), text="Bytes of record batches, as stored."),
    graph(
        "Mean batch size", "bytes", Query(f"{BYTES} / {BATCHES}", NAME),
        text="The cost of mirroring is per batch: larger ones are cheaper.",
    ),
    row("Positions"),
    graph(
        "Source offsets behind the group's commit", "short",
        Query(
            f"sum by (topic) (clamp_min(max {BY_PARTITION} (mirror_source_end_offset{{{TOPIC}}})"
            f" - max {BY_PARTITION} (mirror_committed_offset{{{TOPIC}}}), 0))",
            NAME,
        ),
        text="What tools that watch consumer groups show as the mirror's lag: commits come a while after the copy.",
    ),
    graph(
        "Offsets copied per second", "cps",
        Query(f"sum by (topic) (clamp_min(deriv(mirror_target_end_offset{{{TOPIC}}}[$__rate_interval]), 0))", NAME),
        text="Records and holes. At 0 for ten minutes while records wait, MirrorPartitionStalled fires.",
    ),
    graph(
        "Holes filled per second", "cps",
        Query(f"sum by (topic) ({rate('mirror_filled_offsets_total', TOPIC)})", NAME),
        text="Source offsets without a record: markers of transactions, what compaction removed.",
    ),
    rows(
        "Skipped offsets", "short", SKIPPED,
        text="Left out by decision, or accepted without proof. mirror status lists the ranges.", width=HALF,
    ),
    rows(
        "Topics that are gone at the source", "short", f"max by (source, target, topic) (mirror_topic_gone{{{TOPIC}}})",
        text="Copied before, and no longer at the source.", hidden=("Value",), width=HALF,
    ),
)  # fmt: skip
