"""Converts the families of ``/metrics`` to OpenTelemetry's data: counters become cumulative monotonic sums, and
histograms have explicit bounds. It imports the OpenTelemetry library, so import it only where metrics are sent.

Names are those of ``/metrics`` without ``_total``, which receivers for Prometheus add again. Every value is a double,
so that no series ever changes its type.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

SERVICE = "mirror"
_UNITS = {"_seconds": "s", "_bytes": "By"}
"""End of a metric's name -> its unit in UCUM."""
_CUMULATIVE = AggregationTemporality.CUMULATIVE

Began = Callable[[Mapping[str, str]], int]
"""Labels -> when the counters with these labels were at 0, in nanoseconds since 1970."""


def resource_of(instance: str, version: str) -> Resource:
    """Returns the attributes of the sender: ``service.name``, ``service.instance.id`` and ``service.version``. The
    environment variables ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` have precedence."""
    ours = {"service.name": SERVICE, "service.instance.id": instance, "service.version": version}
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def metrics_data(
    families: Iterable[Family], resource: Resource, *, version: str, at_ns: int, began: Began
) -> MetricsData:
    """Converts the families to one message.

    Args:
        families: counters, gauges and histograms, as ``telemetry.metrics`` collects them; those without samples are
            left out.
        resource: the sender's attributes.
        version: version of the mirror.
        at_ns: when they were collected, in nanoseconds since 1970.
        began: returns when the counters were at 0.

    Raises:
        ValueError: a family is of another type.
    """
    made = [_metric(family, at_ns, began) for family in families if family.samples]
    scope = ScopeMetrics(scope=InstrumentationScope(SERVICE, version), metrics=made, schema_url="")
    return MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")])


def _metric(family: Family, at_ns: int, began: Began) -> Metric:
    data: Sum | Gauge | Histogram
    match family.type:
        case "counter":
            data = Sum(_points(family, at_ns, began), aggregation_temporality=_CUMULATIVE, is_monotonic=True)
        case "gauge":
            data = Gauge(_points(family, at_ns, None))
        case "histogram":
            data = Histogram(_histograms(family, at_ns, began), aggregation_temporality=_CUMULATIVE)
        case other:
            raise ValueError(f"{family.name} is a {other}")
    unit = next((unit for end, unit in _UNITS.items() if family.name.endswith(end)), "")
    return Metric(name=family.name, description=family.documentation, unit=unit, data=data)


def _points(family: Family, at_ns: int, began: Began | None) -> list[NumberDataPoint]:
    return [
        NumberDataPoint(
            attributes=each.labels,
            start_time_unix_nano=began(each.labels) if began else 0,
            time_unix_nano=at_ns,
            value=float(each.value),
        )
        for each in family.samples
    ]


@dataclass
class _Buckets:
    """One histogram, collected from its samples."""

    bounds: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Number of values up to each bound; the last one is the number of all values."""
    total: float = 0.0


def _histograms(family: Family, at_ns: int, began: Began) -> list[HistogramDataPoint]:
    found: dict[tuple[tuple[str, str], ...], _Buckets] = {}
    for each in family.samples:
        labels = tuple((name, value) for name, value in each.labels.items() if name != "le")
        buckets = found.setdefault(labels, _Buckets())
        if each.name.endswith("_bucket"):
            buckets.counts.append(int(each.value))
            if (bound := float(each.labels["le"])) != float("inf"):
                buckets.bounds.append(bound)
        elif each.name.endswith("_sum"):
            buckets.total = float(each.value)
    return [
        HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=began(dict(labels)),
            time_unix_nano=at_ns,
            count=each.counts[-1],
            sum=each.total,
            bucket_counts=[count - before for before, count in zip([0, *each.counts], each.counts, strict=False)],
            explicit_bounds=each.bounds,
            min=None,  # type: ignore[arg-type]  # not known, and optional in the protocol
            max=None,  # type: ignore[arg-type]
        )
        for labels, each in found.items()
    ]
