"""A real Prometheus scrapes a real mirror: every expression of the dashboards has data, and no alert fires."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirror.audited import Compared, LastAudit, write
from mirror.sandbox import SandboxCluster
from tests.prometheus.panels import Shown, shown, variables
from tests.prometheus.server import PATIENCE_S, Prometheus
from tests.prometheus.test_rules import RULES, promtool, shipped
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.running import Mirror, address, config_text, get, mirror
from tests.service.telemetry.otlp.collector import Collector, collector

pytestmark = pytest.mark.broker
PARTITIONS = 4
EMPTY = {
    "Halted partitions": "no partition has halted",
    "Skipped offsets": "none were skipped",
    "Topics that are gone at the source": "none is gone",
    "Caught up in": "nothing lags, or not for long enough to see it fall",
    "Certificates end in": "these clusters have no TLS",
    "99 % of pauses are shorter than": "the garbage collector did not run within these seconds",
    "annotation: Worker restarts": "no worker was restarted",
    "annotation: Reloads": "nothing was reloaded",
}
"""Panels that have no data while all is well, each with the reason."""
PENDING = {
    "MirrorCpuSaturated", "MirrorPartitionNotLocated", "MirrorPartitionStalled", "MirrorPartitionsUnassigned",
}  # fmt: skip
"""What may hold for a moment, on a busy machine, which is what ``for`` is for."""


@contextmanager
def writing(bootstrap: str, topic: str) -> Iterator[None]:
    """Writes all the time, so that rates and ratios have values."""
    enough = threading.Event()

    def write() -> None:
        seed = 0
        while not enough.wait(0.2):
            seed += 1
            produce(bootstrap, topic, 200, partitions=PARTITIONS, seed=seed)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        enough.set()
        writer.join()


def test_a_real_prometheus_answers_every_expression(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. A mirror of two workers copies what is written all the time. Prometheus scrapes it every second.
    2. Every expression of every dashboard returns data, with numbers; those of EMPTY may return none. Every
       variable has values.
    3. All rules were evaluated. None fires, and none is pending but what may be for a moment.
    4. The real text of /metrics passes promtool's linter.
    5. A collector has got the same by OTLP: every series, and of what does not change any more, every value.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name, PARTITIONS, retention_ms=str(7 * 86_400_000))
    # An internal topic of its own: others may have skipped offsets on these clusters.
    audited = tmp_path / "audit.prom"
    flow = {
        "flow.id": topic_name, "sync.group.offsets.enabled": True, "sync.group.offsets.interval.ms": 1_000,
        "audit.metrics.file": str(audited),
    }  # fmt: skip
    write(passed(source_cluster, destination_cluster, topic_name), audited)
    top: dict[str, Any] = {"group.id": f"group-{topic_name}", "workers": 2, "otel.metric.export.interval": 1_000}
    produce(source, topic_name, 200, partitions=PARTITIONS)
    with collector() as kept, ExitStack() as stack:
        top["otel.exporter.otlp.endpoint"] = kept.endpoint
        text = config_text(source, destination, [topic_name], flow=flow, top=top)
        process = stack.enter_context(mirror(tmp_path / "mirror.yaml", text))
        # Before it is written to all the time: on a busy machine, there may always be a lag then.
        process.wait_event("caught_up")
        with writing(source, topic_name), Prometheus(tmp_path, address(process), RULES) as prometheus:
            wanted = [each for each in shown() if each.panel not in EMPTY]
            left = list(wanted)

            def answered() -> bool:
                left[:] = [each for each in left if not has_data(prometheus, each)]
                return not left

            prometheus.wait_for(
                answered, lambda: [(each.board, each.panel, prometheus.query(each.sent)) for each in left]
            )
            for each in shown():
                prometheus.query(each.sent)
            assert len(variables()) == 5
            for series, label in variables():
                assert all(label in labels for labels, _ in prometheus.query(series))
                assert prometheus.query(series)
            prometheus.wait_for(lambda: set(prometheus.rules().values()) == {"ok"}, prometheus.rules)
            assert prometheus.rules().keys() == shipped().keys()
            assert prometheus.query('up{job="mirror"}')[0][1] == 1
            states = prometheus.alerts()
            assert {name for name, state in states.items() if state == "firing"} == set()
            assert states.keys() <= PENDING
            code, told = promtool("check", "metrics", text=get(process, "/metrics")[1])
            assert (code, told) == (0, "")
        deadline = time.monotonic() + PATIENCE_S
        while left_over := differing(kept, process):
            assert time.monotonic() < deadline, left_over
            time.sleep(0.2)
        assert kept.resource()["service.instance.id"].endswith(f":{address(process).rpartition(':')[2]}")
        assert process.stop() == 0


def passed(source: SandboxCluster, destination: SandboxCluster, topic: str) -> LastAudit:
    """What an audit leaves that has just found the copy identical."""
    return LastAudit(
        flow="source->destination", at_s=time.time(), success_at_s=time.time(), verdict="identical",
        source_id=source.cluster_id, destination_id=destination.cluster_id, topics={topic: Compared(0, 1_000, 10)},
    )  # fmt: skip


def differing(kept: Collector, process: Mirror) -> set[object]:
    """Series that only one has, the last export or /metrics as it is now; and counts of records and end offsets that
    are not alike."""
    families = text_string_to_metric_families(get(process, "/metrics")[1])
    shown_now = {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples
    }
    sent = kept.samples()
    values = ("mirror_replicated_records_total", "mirror_target_end_offset", "mirror_source_retention_seconds")
    return (sent.keys() ^ shown_now.keys()) | {
        key for key in sent.keys() & shown_now.keys() if key[0] in values and sent[key] != shown_now[key]
    }


def has_data(prometheus: Prometheus, each: Shown) -> bool:
    """Whether an expression returns series, and numbers only."""
    values = [value for _, value in prometheus.query(each.sent)]
    return bool(values) and all(math.isfinite(value) for value in values)


def test_what_is_empty_is_a_panel() -> None:
    assert EMPTY.keys() <= {each.panel for each in shown()}
