"""The metrics of clusters: whether they answer, durations and failures of requests, and certificates."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from mirror.net.health.histogram import REQUEST_BOUNDS_S
from mirror.net.security.options import TlsOptions
from mirror.service.telemetry.families.labels import Labelled
from mirror.service.telemetry.usage.files import tls_of
from mirror.service.telemetry.usage.histograms import add_histogram

if TYPE_CHECKING:
    from mirror.service.flows.processes import WorkerProcesses


def clusters(flows: Labelled, processes: "WorkerProcesses") -> Iterator[Metric]:
    """Yields the families of clusters, as workers see them."""
    fleets = [fleet for fleet, _ in flows]
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
    for label, count in processes.of_clusters("request_errors", fleets).items():
        errors.add_metric(label.rsplit("/", 2), count)
    yield errors
    throttled = CounterMetricFamily(
        "mirror_throttled_seconds", "Seconds that the quotas of a cluster made the mirror wait.", labels=["cluster"]
    )
    seconds = dict.fromkeys(answers, 0.0) | processes.of_clusters("throttled_s", fleets)
    for cluster, count in seconds.items():
        throttled.add_metric([cluster], count)
    yield throttled
    durations = HistogramMetricFamily(
        "mirror_request_duration_seconds",
        "Time from sending a request to its answer. Fetch requests wait for records, up to fetch.max.wait.ms.",
        labels=["cluster", "api"],
    )
    found = processes.of_clusters("request_s", fleets)
    for names in sorted({tuple(label.split("/")[:2]) for label in found}):
        add_histogram(durations, names, found, "/".join(names), REQUEST_BOUNDS_S)
    yield durations


def certificates(protected: Mapping[str, TlsOptions]) -> Iterator[Metric]:
    """Yields the families of certificates, as of the last look (``usage.files``). ``protected``: name of a cluster ->
    its settings, for clusters with TLS."""
    ends = GaugeMetricFamily(
        "mirror_tls_certificate_expiry_timestamp_seconds",
        "When a certificate ends that the cluster's settings name: ours (ssl.certificate.location), or an "
        "authority's (ssl.ca.location). Of several with one subject, the first to end.",
        labels=["cluster", "subject"],
    )
    found: dict[tuple[str, str], float] = {}
    looks = {cluster: look for cluster, tls in protected.items() if (look := tls_of(tls)) is not None}
    for cluster, look in looks.items():
        for each in look.certificates:
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
    for cluster, look in looks.items():
        usable.add_metric([cluster], int(look.usable))
    yield from (ends, usable)
