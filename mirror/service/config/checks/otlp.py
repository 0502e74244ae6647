"""The keys of the export to OpenTelemetry."""

import re
from importlib.util import find_spec

from mirror import DISTRIBUTION
from mirror.net.security.options import Secret
from mirror.service.config.checks.refusal import refused
from mirror.service.telemetry.otlp.settings import PATH, headers_of

LIBRARY = "opentelemetry.exporter.otlp.proto.http"
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")


def check_endpoint(endpoint: str) -> str:
    """Returns the URL of `otel.exporter.otlp.endpoint` as it is. Raises PydanticCustomError if it cannot be used, or if
    the library for the export is not installed."""
    if not endpoint:
        return endpoint
    if not _URL.fullmatch(endpoint):
        raise refused(
            "must be a URL without user and query",
            'write "http://collector:4318", for instance, and what proves who we are in otel.exporter.otlp.headers',
        )
    if endpoint.rstrip("/").endswith(PATH):
        raise refused(f"ends in {PATH}, which is appended", "leave that out")
    if not _is_installed():
        raise refused(
            "needs OpenTelemetry's library, which is not installed here",
            f"pip install '{DISTRIBUTION}[otlp]' (in the project's folder: '.[otlp]'), or leave the key out",
        )
    return endpoint


def _is_installed() -> bool:
    try:
        return find_spec(LIBRARY) is not None and find_spec("opentelemetry.sdk.metrics") is not None
    except ImportError:
        return False


def check_headers(headers: Secret) -> Secret:
    """Returns `otel.exporter.otlp.headers` as it is. Raises PydanticCustomError if it is not "name=value,…"; the error
    does not repeat the value, which is a secret."""
    try:
        headers_of(headers.value)
    except ValueError:
        raise refused(
            "has to be headers", 'write "name=value,name=value", percent-encoded where a value has a comma'
        ) from None
    return headers
