"""Every metric of ours, with the figure that belongs to it: no two of what the worker tells are alike."""

import errno
import os
import re
import resource
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from prometheus_client.parser import text_string_to_metric_families

from mirror.audited import Compared, LastAudit, Look
from mirror.net.security.options import SecurityOptions, TlsOptions
from mirror.relay.stats import GivenUp
from mirror.service.log import logs
from mirror.service.telemetry import metrics
from mirror.service.telemetry.families import workers
from mirror.service.telemetry.fleet import Fleet
from mirror.service.telemetry.usage import resources
from tests.net.security.test_certificates import certificate
from tests.service.telemetry.stage.alerts import samples
from tests.service.telemetry.stage.rows import row, stint
from tests.service.telemetry.stage.showing import exposed_of

PARTITION = 'partition="3",source="east",target="west",topic="t"'
FLOW = 'source="east",target="west"'
FLOW_IDS = 'source="east",source_cluster_id="E",target="west",target_cluster_id="W"'
FLOW_STATE = 'source="east",state="active",target="west"'

LAST = LastAudit(
    flow="east->west", at_s=1_700_000_081.0, verdict="different", success_at_s=1_700_000_082.0, source_id="E",
    destination_id="W", topics={"t": Compared(83, 84, 85)},
)  # fmt: skip
EXPECTED = f"""
mirror_build_info{{python="*",version="1.2.3"}} 1
mirror_ready 0
mirror_config_last_reload_successful 0
mirror_config_last_reload_success_timestamp_seconds 1700000007.5
mirror_tls_certificate_expiry_timestamp_seconds{{cluster="west",subject="CN=authority"}} 1900000000
mirror_tls_certificate_expiry_timestamp_seconds{{cluster="west",subject="CN=mirror,O=us"}} 1800000000
mirror_tls_files_usable{{cluster="west"}} 0
mirror_flow_ready{{source="east",target="west"}} 0
mirror_log_lines_lost_total 17
mirror_otlp_exports_total{{result="failed"}} 19
mirror_otlp_exports_total{{result="ok"}} 18
mirror_partitions{{source="east",state="halted",target="west"}} 1
mirror_flow_partitions{{{FLOW}}} 11
mirror_unassigned_partitions{{{FLOW}}} 12
mirror_topic_unmatched{{pattern="logs",{FLOW}}} 1
mirror_topic_gone{{{FLOW},topic="old"}} 1
mirror_source_retention_seconds{{source="east",topic="t"}} 604800
mirror_audit_file_usable{{{FLOW}}} 1
mirror_audit_last_run_timestamp_seconds{{{FLOW}}} 1700000081
mirror_audit_last_success_timestamp_seconds{{{FLOW}}} 1700000082
mirror_audit_differences{{{FLOW},topic="t"}} 83
mirror_audit_compared_bytes{{{FLOW},topic="t"}} 84
mirror_audit_compared_batches{{{FLOW},topic="t"}} 85
mirror_audit_verdict{{{FLOW},verdict="different"}} 1
mirror_audit_info{{{FLOW_IDS}}} 1
mirror_cluster_up{{cluster="east"}} 1
mirror_cluster_up{{cluster="west"}} 0
mirror_request_errors_total{{api="Produce",cluster="west",error="timeout"}} 21
mirror_batches_total{{path="deep",reason="sparse_batch",{FLOW}}} 4
mirror_batches_total{{path="shallow",reason="",{FLOW}}} 17
mirror_request_duration_seconds_count{{api="Produce",cluster="west"}} 5
mirror_request_duration_seconds_sum{{api="Produce",cluster="west"}} 0.75
mirror_record_age_seconds_count{{{FLOW}}} 7
mirror_record_age_seconds_sum{{{FLOW}}} 35.5
mirror_replication_latency_seconds_count{{{FLOW}}} 9
mirror_replication_latency_seconds_sum{{{FLOW}}} 36.5
mirror_batch_size_bytes_count{{{FLOW}}} 91
mirror_batch_size_bytes_sum{{{FLOW}}} 9200
mirror_produce_request_size_bytes_count{{{FLOW}}} 93
mirror_produce_request_size_bytes_sum{{{FLOW}}} 9400
mirror_produce_request_batches_count{{{FLOW}}} 95
mirror_produce_request_batches_sum{{{FLOW}}} 9600
mirror_unproven_positions_total{{{FLOW}}} 22
mirror_oversize_fetches_total{{{FLOW}}} 23
mirror_batch_splits_total{{{FLOW}}} 8
mirror_resyncs_total{{cause="timeout",{FLOW}}} 25
mirror_halts_total{{reason="corrupt",{FLOW}}} 26
mirror_rebalances_total{{event="assigned",{FLOW}}} 27
mirror_rebalances_total{{event="lost",{FLOW}}} 28
mirror_rebalances_total{{event="revoked",{FLOW}}} 29
mirror_offset_commits_total{{result="failed",{FLOW}}} 30
mirror_offset_commits_total{{result="ok",{FLOW}}} 31
mirror_group_offset_syncs_total{{result="failed",{FLOW}}} 71
mirror_group_offset_syncs_total{{result="ok",{FLOW}}} 72
mirror_topic_acl_syncs_total{{result="failed",{FLOW}}} 73
mirror_topic_acl_syncs_total{{result="off",{FLOW}}} 74
mirror_topic_acl_syncs_total{{result="ok",{FLOW}}} 75
mirror_synced_group_offsets_total{{{FLOW}}} 76
mirror_created_topic_acls_total{{{FLOW}}} 77
mirror_group_offsets_last_success_timestamp_seconds{{{FLOW}}} 1700000078
mirror_topic_acls_last_success_timestamp_seconds{{{FLOW}}} 1700000079
mirror_synced_groups{{{FLOW_STATE}}} 80
mirror_throttled_seconds_total{{cluster="east"}} 0
mirror_throttled_seconds_total{{cluster="west"}} 32.5
mirror_replicated_records_total{{{PARTITION}}} 600
mirror_replicated_batches_total{{{PARTITION}}} 24
mirror_replicated_bytes_total{{{PARTITION}}} 70000
mirror_filled_offsets_total{{{PARTITION}}} 33
mirror_replication_lag_records{{{PARTITION}}} 41
mirror_replication_lag_seconds{{{PARTITION}}} *
mirror_source_end_offset{{{PARTITION}}} 841
mirror_target_end_offset{{{PARTITION}}} 800
mirror_committed_offset{{{PARTITION}}} 790
mirror_partition_halted{{partition="3",reason="corrupt",source="east",target="west",topic="t"}} 1
mirror_skipped_offsets_total{{partition="3",reason="unexplained_gap",source="east",target="west",topic="t"}} 15
mirror_last_skip_timestamp_seconds{{{PARTITION}}} 1700000003
mirror_worker_up{{worker="1"}} 1
mirror_worker_restarts_total{{worker="1"}} 2
mirror_worker_dropped_messages_total{{worker="1"}} 55
mirror_assigned_partitions{{{FLOW},worker="1"}} 1
mirror_worker_last_progress_timestamp_seconds{{worker="1"}} *
mirror_fetched_bytes_total{{{FLOW},worker="1"}} 51
mirror_fetch_requests_total{{{FLOW},worker="1"}} 52
mirror_produce_requests_total{{{FLOW},worker="1"}} 53
mirror_buffer_bytes{{worker="1"}} 61
mirror_buffer_limit_bytes{{worker="1"}} 62
"""
"""``*``: another figure each time. What may be 0 for reasons or states that were not met is left out."""


def told() -> dict[str, Any]:
    """What the one worker tells."""
    one = row(
        partition=3, state="halted", reason="corrupt", detail="d", remedy="r", lag_records=41, source_end=841,
        position=800, committed=790,
        stint=stint(begun=167, position=800, records=600, batches=24, bytes=70_000, filled=33),
    )  # fmt: skip
    return {
        "at": time.time(),
        "counters": {
            "request_s/west/Produce/0": 3, "request_s/west/Produce/4": 2, "request_s/west/Produce/sum": 0.75,
            "record_age_s/5": 7, "record_age_s/sum": 35.5,
            "replication_latency_s/6": 9, "replication_latency_s/sum": 36.5,
            "batch_bytes/1": 91, "batch_bytes/sum": 9_200, "produce_request_bytes/2": 93,
            "produce_request_bytes/sum": 9_400, "produce_request_batches/3": 95, "produce_request_batches/sum": 9_600,
            "request_errors/west/Produce/timeout": 21, "opened_batches": 4, "opened/sparse_batch": 4,
            "built_batches": 7, "split_batches": 8, "unproven": 22, "oversize_frames": 23,
            "resyncs/timeout": 25, "halts/corrupt": 26, "rebalances/assigned": 27, "rebalances/lost": 28,
            "rebalances/revoked": 29, "commits/failed": 30, "commits/ok": 31, "throttled_s/west": 32.5,
            "fetched_bytes": 51, "fetch_requests": 52, "produce_requests": 53, "cpu_s": 54.5, "dropped_messages": 55,
            "syncs/group_offsets/failed": 71, "syncs/group_offsets/ok": 72, "syncs/topic_acls/failed": 73,
            "syncs/topic_acls/off": 74, "syncs/topic_acls/ok": 75, "synced_offsets": 76, "created_acls": 77,
        },
        "gauges": {
            "rss_bytes": 60, "open_files": 63, "most_files": 64, "joined": 1,
            "buffer_bytes": 61, "buffer_limit_bytes": 62,
            "synced_at_s/group_offsets": 1_700_000_078, "synced_at_s/topic_acls": 1_700_000_079,
            "synced_groups/active": 80,
        },
        "flow_partitions": 11,
        "clusters": {"east": True, "west": False},
        "unassigned": 12,
        "silent": [],
        "unreached": {},
        "partitions": [list(one)],
        "gone": [],
        "skipped": [
            list(GivenUp("t", 3, first, first + count, "unexplained_gap", 1_700_000_000_000 + count * 300))
            for first, count in ((100, 10), (120, 5))
        ],
        "unmatched": ["logs"],
        "gone_topics": ["old"],
        "retention_s": {"t": 604_800.0},
    }  # fmt: skip


def protected(folder: Path) -> SecurityOptions:
    """One certificate of ours. Of an authority two, of which the first to end counts."""
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "us"), x509.NameAttribute(NameOID.COMMON_NAME, "mirror")]
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    made = [(x509.Name(parts), 1_800_000_000), (authority, 1_950_000_000), (authority, 1_900_000_000)]
    ours, *both = [
        certificate(name, datetime.fromtimestamp(ends, UTC)).public_bytes(Encoding.PEM) for name, ends in made
    ]
    (folder / "ours.pem").write_bytes(ours)
    (folder / "both.pem").write_bytes(b"".join(both))
    tls = TlsOptions(ca_file=str(folder / "both.pem"), certificate_file=str(folder / "ours.pem"))
    return SecurityOptions(tls=tls)


def exposed(monkeypatch: pytest.MonkeyPatch) -> str:
    """The text, of a worker that was started three times."""
    monkeypatch.setattr(logs, "lines_lost", lambda: 17)
    monkeypatch.setattr(metrics, "results", Counter(ok=18, failed=19))
    found = Fleet("east->west")
    for pid in (1, 2, 3):
        found.started(1, pid)
    found.heard(1, told())
    found.cluster_ids = "E", "W"
    found.audit = Look("audit.prom", LAST)
    with TemporaryDirectory() as folder:
        return exposed_of(found, "1.2.3", west=protected(Path(folder)), east=SecurityOptions()).decode()


def lines_of(text: str) -> list[str]:
    """Samples of ours with their labels in order, but those of 0 that only say that something was not met."""
    made = []
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(each.labels.items()))
            unmet = each.value == 0 and {"reason", "cause", "state", "verdict"} & each.labels.keys()
            if each.name.startswith("mirror_gc_pause") or each.name.endswith("_bucket"):
                continue
            if each.name.startswith("mirror_") and not unmet:
                made.append(
                    f"{each.name}{{{labels}}} {each.value:.15g}" if labels else f"{each.name} {each.value:.15g}"
                )
    return made


def differing(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Samples that were not expected, and those expected that are not there."""
    left = lines_of(exposed(monkeypatch))
    missing = []
    for line in EXPECTED.split("\n")[1:-1]:
        pattern = re.compile(re.escape(line).replace(r"\*", "[0-9.e+-]+"))
        match = next((each for each in left if pattern.fullmatch(each)), None)
        if match is None:
            missing.append(line)
        else:
            left.remove(match)
    return left, missing


def test_every_metric_has_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert differing(monkeypatch) == ([], [])


def test_every_process_has_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's as it tells them; the supervisor's are this process's own, as the kernel has them."""
    told = samples(exposed(monkeypatch))
    found = {
        (name, labels["worker"]): value
        for name in ("resident_memory_bytes", "open_fds", "max_fds", "cpu_seconds_total")
        for labels, value in told[f"process_{name}"]
    }
    workers = {name: value for (name, worker), value in found.items() if worker == "1"}
    assert workers == {"resident_memory_bytes": 60, "open_fds": 63, "max_fds": 64, "cpu_seconds_total": 54.5}
    assert found["max_fds", "supervisor"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    before = resources.open_files()
    assert before is not None
    with open("/dev/null", "rb"):
        assert resources.open_files() == before + 1
    assert 0 < found["open_fds", "supervisor"] < found["max_fds", "supervisor"]
    assert found["resident_memory_bytes", "supervisor"] > 1_000_000


def test_what_the_kernel_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many files are open: the supervisor's own figures are missing, and all others are there."""

    def no_more_files(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = samples(exposed(monkeypatch))
    monkeypatch.setattr("mirror.service.telemetry.usage.resources.open", no_more_files, raising=False)
    monkeypatch.setattr("mirror.service.telemetry.usage.resources.os.listdir", no_more_files)
    told = samples(exposed(monkeypatch))
    assert told.keys() == before.keys()
    for name in ("process_resident_memory_bytes", "process_open_fds"):
        assert [labels["worker"] for labels, _ in told[name]] == ["1"]


def test_every_family_is_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric that is added is added here."""
    families = {family.name for family in text_string_to_metric_families(exposed(monkeypatch))}
    ours = {name for name in families if name.startswith("mirror_")} - {"mirror_gc_pause_seconds"}
    suffix = re.compile(r"_(total|count|sum)$")
    listed = {suffix.sub("", re.split(r"[ {]", line)[0]) for line in EXPECTED.split("\n")[1:-1]}
    assert {name.removesuffix("_total") for name in ours} == listed


def test_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cumulative, with the bound that a value may have at most; those above all bounds are in the last one only."""
    found = {
        each.labels["le"]: each.value
        for family in text_string_to_metric_families(exposed(monkeypatch))
        for each in family.samples
        if each.name == "mirror_request_duration_seconds_bucket"
    }
    assert (found["0.001"], found["0.05"], found["0.1"], found["+Inf"]) == (3, 3, 5, 5)


@pytest.mark.parametrize("at", range(len(workers._WORKER_COUNTERS)))
def test_a_figure_in_another_s_place_is_seen(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of a kind are exchanged."""
    kinds = list(workers._WORKER_COUNTERS)
    other = (at + 1) % len(kinds)
    names = [kind[0] for kind in kinds]
    names[at], names[other] = names[other], names[at]
    monkeypatch.setattr(
        workers, "_WORKER_COUNTERS", tuple((name, *kind[1:]) for name, kind in zip(names, kinds, strict=True))
    )
    left, missing = differing(monkeypatch)
    assert len(left) == len(missing) == 2
