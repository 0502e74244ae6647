"""The settings of the export, as plain data: the supervisor has them, and loads the library only if they are set."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from mirror.net.security.options import Secret

PATH = "/v1/metrics"
"""What follows the endpoint, as the specification has it for ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSettings:
    """Where metrics are sent, and how.

    Attributes:
        endpoint: the collector's URL, without ``PATH`` (``otel.exporter.otlp.endpoint``).
        headers: as ``headers_of`` reads them (``otel.exporter.otlp.headers``).
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
    """Returns the headers of "name=value,name=value", the notation of ``OTEL_EXPORTER_OTLP_HEADERS``: values are
    percent-encoded where they have a comma, blanks or the like.

    Raises:
        ValueError: it is something else. The message has nothing of the text, which is a secret.
    """
    found = {}
    for at, part in enumerate(filter(None, map(str.strip, text.split(","))), start=1):
        name, equals, value = part.partition("=")
        value = unquote(value.strip())
        if not equals or not _HEADER.fullmatch(name.strip()) or not value.isprintable() or not value.isascii():
            raise ValueError(f"header {at} is not name=value")
        found[name.strip().lower()] = value
    return found
