"""Histograms for Prometheus, from the plain counters of ``net.health.histogram``."""

import itertools
from collections.abc import Mapping, Sequence

from prometheus_client.core import HistogramMetricFamily


def add_histogram(
    family: HistogramMetricFamily,
    labels: Sequence[str],
    found: Mapping[str, float],
    name: str,
    bounds: Sequence[float],
) -> None:
    """Adds the histogram of the counters "name/<index>" and "name/sum" to a family (``net.health.histogram``).

    Args:
        family: the family to which it is added.
        labels: the values of the family's labels.
        found: counters, including those of the histogram. An empty bucket has no counter.
        name: name of the counters.
        bounds: upper bounds of the buckets.
    """
    edges = [*map(str, bounds), "+Inf"]
    counts = itertools.accumulate(found.get(f"{name}/{bucket}", 0.0) for bucket in range(len(edges)))
    family.add_metric(labels, list(zip(edges, counts, strict=True)), found.get(f"{name}/sum", 0.0))
