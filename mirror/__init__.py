"""Shallow mirroring of Apache Kafka topics. The map of this package is in docs/DESIGN.md#10-file-map."""

DISTRIBUTION = "kafka-shallow-mirror"
"""The name of the package on PyPI, where ``mirror`` is somebody else's."""
