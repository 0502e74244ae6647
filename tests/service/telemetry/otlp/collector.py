"""A collector of the test's own: takes OTLP over HTTP on a free port of 127.0.0.1, and keeps what it gets."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


@dataclass
class Collector:
    """What was sent to it, and how it answers."""

    endpoint: str = ""
    status: int = 200
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Cleared: it takes requests and does not answer."""
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def metrics(self, at: int = -1) -> dict[str, Any]:
        """Name -> metric, of one request."""
        ((scope,),) = [each.scope_metrics for each in self.requests[at].resource_metrics]
        return {metric.name: metric for metric in scope.metrics}

    def resource(self, at: int = -1) -> dict[str, str]:
        """The resource's attributes, of one request."""
        (found,) = self.requests[at].resource_metrics
        return {each.key: each.value.string_value for each in found.resource.attributes}

    def samples(self, at: int = -1) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """(name, labels) -> value, as /metrics has them: sums with _total, histograms as _bucket, _sum and _count."""
        found = {}
        for name, metric in self.metrics(at).items():
            kind = metric.WhichOneof("data")
            for point in getattr(metric, kind).data_points:
                labels = {each.key: each.value.string_value for each in point.attributes}
                if kind != "histogram":
                    found[name + "_total" * (kind == "sum"), _sorted(labels)] = point.as_double
                    continue
                count = 0
                for bound, more in zip([*map(str, point.explicit_bounds), "+Inf"], point.bucket_counts, strict=True):
                    count += more
                    found[f"{name}_bucket", _sorted(labels | {"le": bound})] = count
                found[f"{name}_count", _sorted(labels)] = point.count
                found[f"{name}_sum", _sorted(labels)] = point.sum
        return found


def _sorted(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


@contextmanager
def collector() -> Iterator[Collector]:
    """Runs one."""
    kept = Collector()
    kept.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            kept.paths.append(self.path)
            kept.headers.append({name.lower(): value for name, value in self.headers.items()})
            if kept.may_answer.wait(30):
                self.send_response(kept.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
            kept.requests.append(ExportMetricsServiceRequest.FromString(body))

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    kept.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield kept
    finally:
        kept.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()
