"""Every metric of ours as OpenTelemetry's data, beside the text of /metrics."""

import pytest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, SummaryMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from mirror.service.telemetry.otlp.convert import metrics_data, resource_of
from mirror.service.telemetry.usage.histograms import add_histogram
from tests.prometheus.exported import exposition
from tests.service.telemetry.otlp.collector import Collector

AT_NS, BEGAN_NS, FLOW_BEGAN_NS = 1_800_000_000_000_000_000, 1_700_000_000_000_000_000, 1_750_000_000_000_000_000


def sent(*families: object, **labels: str) -> Collector:
    """What a collector gets of these families."""
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    data = metrics_data(
        families,  # type: ignore[arg-type]
        resource_of("host:1", "1.2.3"),
        version="1.2.3",
        at_ns=AT_NS,
        began=lambda found: FLOW_BEGAN_NS if labels.items() <= found.items() and labels else BEGAN_NS,
    )
    return Collector(requests=[encode_metrics(data)])


def test_every_sample_of_metrics_is_sent() -> None:
    """By name, labels and value; and nothing else."""
    families = list(text_string_to_metric_families(exposition()))
    expected = {
        (each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples
    }
    assert sent(*families).samples() == expected
    assert {name for name, _ in expected} > {"mirror_ready", "mirror_halts_total", "mirror_gc_pause_seconds_bucket"}


def test_kinds_units_and_times() -> None:
    families = list(text_string_to_metric_families(exposition()))
    found = sent(*families, source="east", target="west").metrics()
    counted = found["mirror_replicated_bytes"]
    assert (counted.sum.is_monotonic, counted.sum.aggregation_temporality, counted.unit) == (True, 2, "By")
    assert counted.sum.data_points[0].start_time_unix_nano == FLOW_BEGAN_NS
    assert counted.sum.data_points[0].time_unix_nano == AT_NS
    assert found["mirror_worker_restarts"].sum.data_points[0].start_time_unix_nano == BEGAN_NS
    durations = found["mirror_request_duration_seconds"]
    assert (durations.histogram.aggregation_temporality, durations.unit) == (2, "s")
    (point,) = durations.histogram.data_points
    assert not point.HasField("min")
    assert not point.HasField("max")
    assert point.start_time_unix_nano == BEGAN_NS
    assert found["mirror_ready"].WhichOneof("data") == "gauge"
    assert found["mirror_ready"].unit == ""
    assert found["mirror_ready"].description.startswith("1 while every flow is ready")


def test_histograms_are_told_apart_and_not_cumulative() -> None:
    family = HistogramMetricFamily("mirror_x_seconds", "x", labels=["api"])
    for api, counts in (("a", {"n/0": 3.0, "n/2": 2.0, "n/sum": 9.0}), ("b", {"n/1": 1.0, "n/sum": 0.5})):
        add_histogram(family, [api], counts, "n", (0.1, 1.0))
    one, other = sent(family).metrics()["mirror_x_seconds"].histogram.data_points
    assert (list(one.bucket_counts), list(one.explicit_bounds), one.count, one.sum) == ([3, 0, 2], [0.1, 1.0], 5, 9.0)
    assert (list(other.bucket_counts), other.count, other.sum) == ([0, 1, 0], 1, 0.5)


def test_what_is_empty_is_left_out_and_what_is_unknown_is_refused() -> None:
    assert sent(CounterMetricFamily("mirror_x", "x")).metrics() == {}
    summary = SummaryMetricFamily("mirror_x", "x", count_value=1, sum_value=1.0)
    with pytest.raises(ValueError, match="mirror_x is a summary"):
        sent(summary)


def test_the_environment_says_more_of_who_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {"service.name": "mirror", "service.instance.id": "host:1", "service.version": "1.2.3"}
    assert ours.items() <= sent(CounterMetricFamily("mirror_x", "x", value=1)).resource().items()
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=prod,service.name=other")
    found = sent(CounterMetricFamily("mirror_x", "x", value=1)).resource()
    assert found["deployment.environment.name"] == "prod"
    assert (found["service.name"], found["service.instance.id"]) == ("other", "host:1")
