"""The keys of OpenTelemetry: endpoints and headers that cannot be used, and the library that is not there."""

import json
from pathlib import Path

import pytest

from mirror.net.security.options import Secret
from mirror.service.config import load
from mirror.service.config.checks import otlp
from mirror.service.config.resolve import supervision
from mirror.service.telemetry.otlp.settings import OtlpSettings
from mirror.service.worker_settings import Supervision
from tests.service.config.loading import Load, base

KEYS = """
otel.exporter.otlp.endpoint: "https://collector:4318/otlp/"
otel.exporter.otlp.headers: "${file:token}"
otel.exporter.otlp.timeout: 500
otel.metric.export.interval: 2000
"""


def test_what_reaches_the_supervisor(tmp_path: Path) -> None:
    """Through JSON, with the secret's file; without an endpoint, nothing."""
    path = tmp_path / "mirror.yaml"
    (tmp_path / "token").write_text("api-key=x")
    path.write_text(base(top=KEYS))
    told = supervision(load(path))
    assert told.otlp == OtlpSettings(
        endpoint="https://collector:4318/otlp/", headers=Secret("api-key=x", str(tmp_path / "token")), timeout_ms=500,
        interval_ms=2_000,
    )  # fmt: skip
    assert Supervision.unpack(json.loads(json.dumps(told.pack()))).otlp == told.otlp
    path.write_text(base(top="otel.metric.export.interval: 2000"))
    told = supervision(load(path))
    assert told.otlp is Supervision.unpack(told.pack()).otlp is None


@pytest.mark.parametrize(
    "endpoint",
    ["collector:4318", "grpc://collector:4317", "http://", "http://me:pw@collector", "http://c?x=1", "http://a b"],
)
def test_what_is_no_url(loading: Load, endpoint: str) -> None:
    (error,) = loading.errors(base(top=f'otel.exporter.otlp.endpoint: "{endpoint}"'))
    assert "must be a URL without user and query" in error
    assert 'write "http://collector:4318", for instance' in error


def test_a_path_that_is_appended(loading: Load) -> None:
    (error,) = loading.errors(base(top='otel.exporter.otlp.endpoint: "http://c:4318/v1/metrics/"'))
    assert "ends in /v1/metrics, which is appended; leave that out" in error


def test_the_library_is_not_installed(loading: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told with the command, and without an endpoint nothing is asked of it."""
    monkeypatch.setattr(otlp, "LIBRARY", "opentelemetry.exporter.nothing.http")
    (error,) = loading.errors(base(top='otel.exporter.otlp.endpoint: "http://c:4318"'))
    assert "otel.exporter.otlp.endpoint" in error
    assert "pip install 'kafka-shallow-mirror[otlp]'" in error
    loading(base(top="otel.exporter.otlp.timeout: 10"))


@pytest.mark.parametrize("headers", ["s3cret", "a=${env:s3cret}${x"])
def test_headers_that_are_none(loading: Load, headers: str) -> None:
    """Nothing of them is told, wherever they are from."""
    (error,) = loading.errors(base(top=f'otel.exporter.otlp.headers: "{headers}"'))
    assert "otel.exporter.otlp.headers" in error
    assert "s3cret" not in error


def test_headers_are_hidden(loading: Load) -> None:
    assert "s3cret" not in repr(loading(base(top='otel.exporter.otlp.headers: "a=s3cret"')))
