"""The metrics of the flows' last audits, from the files that ``mirror audit`` writes."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from mirror import audited
from mirror.service.telemetry.families.labels import OF_FLOW, Labelled


def audits(flows: Labelled) -> Iterator[Metric]:
    """Yields the families. A flow without a result in its file has only the family that says whether there is one."""
    usable = GaugeMetricFamily(
        "mirror_audit_file_usable",
        "0 while the file that audit.metrics.file names is not there, is damaged, or is of another flow or of other "
        "clusters.",
        labels=OF_FLOW,
    )
    looks = [(fleet.last_audit, labels) for fleet, labels in flows]
    for look, labels in looks:
        if look is not None:
            usable.add_metric(labels, int(look.audit is not None))
    yield usable
    yield from audited.families(look.audit for look, _ in looks if look and look.audit)
