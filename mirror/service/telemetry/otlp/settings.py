"""The settings of the export, as plain data. The supervisor imports the OpenTelemetry library only if they are set."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from mirror.net.security.options import Secret

PATH = "/v1/metrics"
"""Path behind the endpoint, as the specification defines it for ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSettings:
    """The settings of the export.

    Attributes:
        endpoint: the collector's URL, without ``PATH`` (``otel.exporter.otlp.endpoint``).
        headers: the headers, in the notation of ``headers_of`` (``otel.exporter.otlp.headers``).
        timeout_ms: longest time for one export, repeated attempts included (``otel.exporter.otlp.timeout``).
        interval_ms: time from one export to the next (``otel.metric.export.interval``).
    """

    endpoint: str
    headers: Secret = field(default_factory=Secret)
    timeout_ms: int = 10_000
    interval_ms: int = 60_000

    @classmethod
    def unpack(cls, data: Mapping[str, Any]) -> Self:
        """Restores what ``dataclasses.asdict`` returned, also through JSON."""
        return cls(**{**data, "headers": Secret(**data["headers"])})


def headers_of(text: str) -> dict[str, str]:
    """Parses headers in the notation of ``OTEL_EXPORTER_OTLP_HEADERS``, "name=value,name=value". Commas, blanks and the
    like in values are percent-encoded.

    Raises:
        ValueError: the text has another notation. The message does not repeat it, because it is a secret.
    """
    found = {}
    for at, part in enumerate(filter(None, map(str.strip, text.split(","))), start=1):
        name, equals, value = part.partition("=")
        value = unquote(value.strip())
        if not equals or not _HEADER.fullmatch(name.strip()) or not value.isprintable() or not value.isascii():
            raise ValueError(f"header {at} is not name=value")
        found[name.strip().lower()] = value
    return found
