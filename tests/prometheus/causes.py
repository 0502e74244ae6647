"""For each alert its cause as samples, what it says then, and samples of a healthy mirror that come close to it.

Samples come every 30 s from time 0 on, in promtool's notation: ``1x40`` is 1 and 40 times more, ``0+2x40`` grows by 2.
"""

from typing import NamedTuple

EVERY_S = 30
FLOW = 'source="a",target="b"'
FLOW_LABELS = {"source": "a", "target": "b"}
PARTITION = f'{FLOW},topic="t",partition="0"'
PARTITION_LABELS = FLOW_LABELS | {"topic": "t", "partition": "0"}
WORKER = 'job="mirror",worker="1"'
WORKER_LABELS = {"job": "mirror", "worker": "1"}
ALWAYS = 400

Series = dict[str, str]


def steady(*series: tuple[str, float]) -> Series:
    """Series that stay as they are."""
    return {name: f"{value}x{ALWAYS}" for name, value in series}


def growing(name: str, by: float) -> Series:
    """A series that begins at 0, and what is added with each sample."""
    return {name: f"0+{by}x{ALWAYS}"}


def of(instance: str, series: str) -> str:
    """The series as one host's."""
    return f'{series.removesuffix("}")},instance="{instance}"}}'


class Cause(NamedTuple):
    """What makes one alert fire."""

    alert: str
    series: Series
    fires_at_s: int
    """When it fires first: at the evaluation before, it does not."""
    labels: dict[str, str]
    """Those of the alert that fires, without severity."""
    summary: str
    healthy: tuple[Series, ...]
    """Each alone must leave the alert silent, also over an hour and a half."""
    ends_at_s: int | None = None
    """An evaluation at which it does not fire any more."""


def of_topic(cause: Cause) -> Cause:
    """The same cause as a mirror with ``metrics.granularity: topic`` shows it."""

    def without(series: Series) -> Series:
        return {name.replace(',partition="0"', ""): values for name, values in series.items()}

    return cause._replace(
        series=without(cause.series),
        labels={name: value for name, value in cause.labels.items() if name != "partition"},
        summary=cause.summary.replace("t-0", "t"),
        healthy=tuple(map(without, cause.healthy)),
    )


READY = steady(("mirror_ready", 1))
"""For alerts on series that a healthy mirror does not have."""
AUTH = 'mirror_request_errors_total{cluster="a",api="Connect",error="authentication_failed"}'
RETENTION = 'mirror_source_retention_seconds{source="a",topic="t"}'
LAG, AGE, END, HALTED = (
    f"mirror_replication_lag_records{{{PARTITION}}}",
    f"mirror_replication_lag_seconds{{{PARTITION}}}",
    f"mirror_target_end_offset{{{PARTITION}}}",
    f'mirror_partition_halted{{{PARTITION},reason="corrupt"}}',
)
DIFFERENCES = f'mirror_audit_differences{{{FLOW},topic="t"}}'
PASSED, AUDITED, USABLE = (
    f"mirror_audit_last_success_timestamp_seconds{{{FLOW}}}",
    f"mirror_audit_last_run_timestamp_seconds{{{FLOW}}}",
    f"mirror_audit_file_usable{{{FLOW}}}",
)
DAY_S = 86_400
STALE = "No audit of a and b has passed for two days, as far as is known here."
LOCATING = f'mirror_partitions{{{FLOW},state="locating"}}'
CPU = f"process_cpu_seconds_total{{{WORKER}}}"
FDS, MOST_FDS = f"process_open_fds{{{WORKER}}}", f"process_max_fds{{{WORKER}}}"
EXPIRY = 'mirror_tls_certificate_expiry_timestamp_seconds{cluster="a",subject="CN=x"}'
SKIPPED = f"mirror_last_skip_timestamp_seconds{{{PARTITION}}}"
SYNCED = f"mirror_group_offsets_last_success_timestamp_seconds{{{FLOW}}}"
PROGRESS = 'mirror_worker_last_progress_timestamp_seconds{worker="1"}'
RESTARTS = 'mirror_worker_restarts_total{worker="1"}'
TWO_WEEKS_S = 14 * 86_400
YESTERDAY = -86_400

CAUSES = (
    Cause(
        "MirrorAbsent", steady(('up{job="other"}', 1)), 300, {"job": "mirror"},
        'Prometheus scrapes no mirror (job="mirror"); nothing else here can fire.',
        (steady(('up{job="mirror",instance="one"}', 1)), steady(('up{job="mirror",instance="one"}', 0))),
    ),
    Cause(
        "MirrorDown", steady(('up{job="mirror",instance="one"}', 0), ('up{job="mirror",instance="two"}', 1)), 120,
        {"job": "mirror", "instance": "one"}, "Nobody answers at one; nothing else here can fire.",
        (steady(('up{job="mirror",instance="one"}', 1), ('up{job="other",instance="one"}', 0)),),
    ),
    Cause(
        "MirrorNotReady", steady(("mirror_ready", 0)), 300, {},
        "The mirror does not do its work; /-/ready and mirror status say why.",
        (READY,),
    ),
    Cause(
        "MirrorReloadFailed", steady(("mirror_config_last_reload_successful", 0)), 60, {},
        "The mirror's configuration has changed and is wrong; the log says where (not_reloaded).",
        (steady(("mirror_config_last_reload_successful", 1)),),
    ),
    Cause(
        "MirrorCertificateExpiry", steady((EXPIRY, TWO_WEEKS_S + 100)), 120 + 300, {"cluster": "a", "subject": "CN=x"},
        "A certificate for cluster a ends within two weeks, or has ended: CN=x",
        (steady((EXPIRY, TWO_WEEKS_S + 12_000)),),
    ),
    Cause(
        "MirrorTlsFilesUnusable", steady(('mirror_tls_files_usable{cluster="a"}', 0)), 300, {"cluster": "a"},
        "The certificate, key and authorities for cluster a cannot be used as they are; a restarted worker cannot "
        "connect.",
        (steady(('mirror_tls_files_usable{cluster="a"}', 1)),),
    ),
    Cause(
        # The third within ten minutes comes at 90 s.
        "MirrorAuthErrors", growing(AUTH, 1), 90 + 120, {"cluster": "a", "error": "authentication_failed"},
        "Brokers of cluster a do not accept the mirror, or the mirror them: authentication_failed",
        (
            {AUTH: f"0 1 2 2x{ALWAYS}"},
            growing(AUTH.replace("authentication_failed", "unreachable"), 5),
            # A right that is missing is told by what waits for it, or has halted.
            growing(AUTH.replace("authentication_failed", "topic_authorization_failed"), 5),
        ),
    ),
    Cause(
        "MirrorClusterAway", steady(('mirror_cluster_up{cluster="a"}', 0), ('mirror_cluster_up{cluster="b"}', 1)), 60,
        {"cluster": "a"}, "Cluster a does not answer the mirror.",
        (steady(('mirror_cluster_up{cluster="a"}', 1)),),
    ),
    Cause(
        "MirrorWorkerDown", steady(('mirror_worker_up{worker="1"}', 0)), 120, {"worker": "1"},
        "Worker 1 of the mirror does not run.",
        (steady(('mirror_worker_up{worker="1"}', 1)),),
    ),
    Cause(
        "MirrorWorkerCrashLooping", growing(RESTARTS, 1), 120, {"worker": "1"},
        "Worker 1 of the mirror dies again and again; worker_died in the log says how.",
        ({RESTARTS: f"0 1 2 3 3x{ALWAYS}"},),
    ),
    Cause(
        "MirrorWorkerStuck", steady((PROGRESS, 0)), 90 + 60, {"worker": "1"},
        "The event loop of worker 1 was not heard of for a minute.",
        (growing(PROGRESS, EVERY_S),),
    ),
    Cause(
        "MirrorPartitionsUnassigned", steady((f"mirror_unassigned_partitions{{{FLOW}}}", 3)), 120, FLOW_LABELS,
        "Nobody copies 3 partitions of a->b.",
        (steady((f"mirror_unassigned_partitions{{{FLOW}}}", 0)),),
    ),
    Cause(
        # Gone at 150 s, and kept firing for ten minutes from there.
        "MirrorPartitionHalted", {HALTED: "1x4 stale"}, 60, PARTITION_LABELS | {"reason": "corrupt"},
        "t-0 has halted: corrupt; mirror status says what to do.",
        (READY,), 750,
    ),
    Cause(
        "MirrorOffsetsSkipped", steady((SKIPPED, 0)), 0, PARTITION_LABELS,
        "Offsets of t-0 were skipped, or taken on trust; mirror status has them.",
        (steady((SKIPPED, YESTERDAY)),), 3_600,
    ),
    Cause(
        "MirrorTopicUnmatched", steady((f'mirror_topic_unmatched{{{FLOW},pattern="x.*"}}', 1)), 900,
        FLOW_LABELS | {"pattern": "x.*"}, "No topic of a matches x.*: misspelt, deleted, or not to be described?",
        (READY,),
    ),
    Cause(
        "MirrorTopicGone", steady((f'mirror_topic_gone{{{FLOW},topic="t"}}', 1)), 900, FLOW_LABELS | {"topic": "t"},
        "a has no topic t any more, and it was copied: deleted on purpose?",
        (READY,),
    ),
    Cause(
        "MirrorGroupOffsetsStale", steady((SYNCED, 0)), 630 + 300, FLOW_LABELS,
        "Groups' offsets are not carried over to b; group_offsets_not_synced in the log says why.",
        (growing(SYNCED, EVERY_S),),
    ),
    Cause(
        # Told by node_exporter, too.
        "MirrorAuditFailed", steady((DIFFERENCES, 1), (of("two", DIFFERENCES), 1)), 0, FLOW_LABELS,
        "The audit of a and b has found differences.",
        (steady((DIFFERENCES, 0)), READY),
    ),
    Cause(
        "MirrorAuditStale", steady((PASSED, -2 * DAY_S)), EVERY_S + 3_600, FLOW_LABELS, STALE,
        (
            # Up to two days ago; or one of those who tell it knows of a later one.
            steady((PASSED, 5_400 - 2 * DAY_S)),
            steady((PASSED, -3 * DAY_S), (of("two", PASSED), 0)),
            # Set up just now: no audit has ended, or none has passed.
            steady((USABLE, 0)),
            steady((USABLE, 1), (AUDITED, 0)),
            # Never set up.
            READY,
        ),
    ),
    Cause(
        # No audit was ever made, or the file is damaged; over when the key is taken away.
        "MirrorAuditStale", {USABLE: "0x5900 stale"}, 2 * DAY_S + 3_600, FLOW_LABELS, STALE, (READY,),
        ends_at_s=5_901 * EVERY_S,
    ),
    Cause(
        # Every night it could not audit; over with the first that passes.
        "MirrorAuditStale", {AUDITED: "0x6000", PASSED: f"_x5900 {2 * DAY_S}x99"}, 2 * DAY_S + 3_600, FLOW_LABELS,
        STALE, (READY,), ends_at_s=5_900 * EVERY_S,
    ),
    Cause(
        "MirrorPartitionNotLocated", steady((LOCATING, 2)), 600,
        FLOW_LABELS | {"state": "locating"},
        "Where 2 partitions go on cannot be found out; their lag may be unknown.",
        (steady((LOCATING, 0), (LOCATING.replace("locating", "active"), 5)),),
    ),
    Cause(
        "MirrorLag", steady((AGE, 301)), 60, PARTITION_LABELS, "Records of t-0 have waited for 301 s.",
        (steady((AGE, 300)),),
    ),
    Cause(
        "MirrorPartitionStalled", steady((LAG, 5), (AGE, 9), (END, 100)), 300, PARTITION_LABELS,
        "t-0 lacks 5 records, and nothing of it was copied in 10 minutes.",
        (
            steady((LAG, 5), (AGE, 9)) | growing(END, 1),
            steady((LAG, 0), (AGE, 0), (END, 100)),
            steady((LAG, 5), (AGE, 9), (END, 100), (HALTED, 1)),
            # Paused: its age is not told.
            steady((LAG, 5), (END, 100)),
            # Another host took it over, and needs a while to begin: what the former one did last counts.
            steady((LAG, 5), (AGE, 9)) | {of("one", END): "0+1x10 stale", of("two", END): f"_x11 10x13 11+1x{ALWAYS}"},
        ),
    ),
    Cause(
        # Told by two hosts.
        "MirrorRetentionRisk",
        steady((AGE, 2_250), (RETENTION, 3_600), (of("two", RETENTION), 3_600)), 600,
        PARTITION_LABELS,
        "Records of t-0 have waited for 62.5% of the time after which a deletes them.",
        (steady((AGE, 1_800), (RETENTION, 3_600)), steady((AGE, 9_999)), steady((AGE, 9_999), (RETENTION, 604_800))),
    ),
    Cause(
        # 28 of 30 s. The first five minutes begin with nothing.
        "MirrorCpuSaturated", growing(CPU, 28), 300 + 900, WORKER_LABELS,
        "1 (a worker's number, or the supervisor) has used a whole core for a quarter of an hour.",
        (growing(CPU, 26), growing(CPU.replace("mirror", "other"), 30)),
    ),
    Cause(
        "MirrorFileDescriptors", steady((FDS, 81), (MOST_FDS, 100)), 600, WORKER_LABELS,
        "1 (a worker's number, or the supervisor) has 81% of its file descriptors open.",
        (steady((FDS, 80), (MOST_FDS, 100)),),
    ),
)  # fmt: skip
BY_TOPIC = tuple(of_topic(cause) for cause in CAUSES if "partition" in cause.labels)
"""What of them is told of topics with ``metrics.granularity: topic``."""
