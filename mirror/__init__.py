"""Shallow mirroring of Apache Kafka topics. The map of this package is in docs/DESIGN.md#10-file-map."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror.raw import RawConsumer, RawProducer

__all__ = ["DISTRIBUTION", "RawConsumer", "RawProducer"]

DISTRIBUTION = "kafka-shallow-mirror"
"""The name of the package on PyPI, where ``mirror`` is somebody else's."""


def __getattr__(name: str) -> object:
    """Imports the raw clients (docs/RAW.md) when they are asked for: a worker's start pays nothing for them."""
    if name in ("RawConsumer", "RawProducer"):
        from mirror import raw

        return getattr(raw, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
