"""Makes one export at a time, each in its own thread. The OpenTelemetry library is imported there, at the first one."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mirror.service.telemetry.otlp.settings import PATH, OtlpSettings, headers_of

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from prometheus_client.core import Metric

    from mirror.service.telemetry.otlp.attempts import Attempts

DETAIL_MAX = 300
"""Most characters of an error message of the library."""


class Export(NamedTuple):
    """The data of one export, and its destination."""

    families: Sequence["Metric"]
    at_ns: int
    """When they were collected, in nanoseconds since 1970."""
    flows_began_ns: Mapping[tuple[str, str], int]
    """(source, target) -> when the flow's counters were at 0, in nanoseconds since 1970."""
    began_ns: int
    """When all other counters were at 0, in nanoseconds since 1970."""
    instance: str
    """Identifies this mirror: host:port."""
    version: str
    told: OtlpSettings

    def began(self, labels: Mapping[str, str]) -> int:
        """Returns when the counters of these labels were at 0, in nanoseconds since 1970."""
        return self.flows_began_ns.get((labels.get("source", ""), labels.get("target", "")), self.began_ns)


class Sender:
    """Makes exports, each in a new daemon thread: the end of the program does not wait for it."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._exporter: OTLPMetricExporter | None = None
        self._made_for: object = None
        self._attempts: Attempts | None = None
        # The library's own log lines say less about failures than ``Attempts``, and have another format.
        logging.getLogger("opentelemetry").propagate = False
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())

    @property
    def is_busy(self) -> bool:
        """True while an export is under way."""
        return self._thread is not None and self._thread.is_alive()

    def send(self, export: Export, answer: Callable[[str], None]) -> None:
        """Begins an export; no other one may be under way. ``answer``: called in the thread at the end, with the reason
        if it failed, otherwise with an empty string."""
        self._thread = threading.Thread(target=self._run, args=(export, answer), name="mirror-otlp", daemon=True)
        self._thread.start()

    def _run(self, export: Export, answer: Callable[[str], None]) -> None:
        try:
            why_not = self._sent(export)
        except Exception as error:  # of any kind: it is reported as a failed export
            why_not = f"{type(error).__name__}: {error}"
        answer(why_not[:DETAIL_MAX])

    def _sent(self, export: Export) -> str:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from mirror.service.telemetry.otlp.convert import metrics_data, resource_of

        data = metrics_data(
            export.families,
            resource_of(export.instance, export.version),
            version=export.version,
            at_ns=export.at_ns,
            began=export.began,
        )
        exporter = self._exporter_for(export.told)
        if exporter.export(data) is MetricExportResult.SUCCESS:
            return ""
        why_not = self._attempts.why_not if self._attempts is not None else ""
        return why_not or "the library does not say why"

    def _exporter_for(self, told: OtlpSettings) -> "OTLPMetricExporter":
        """Returns the exporter for these settings. Secrets in files are read again for each export."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        from mirror.service.telemetry.otlp.attempts import Attempts

        headers = headers_of(told.headers.read())
        wanted = told.endpoint, headers, told.timeout_ms
        if self._exporter is None or self._made_for != wanted:
            if self._exporter is not None:
                self._exporter.shutdown()
            self._attempts = Attempts()
            self._exporter = OTLPMetricExporter(
                endpoint=told.endpoint.rstrip("/") + PATH,
                headers=headers,
                timeout=told.timeout_ms / 1000,
                session=self._attempts,
            )
            self._made_for = wanted
        return self._exporter
