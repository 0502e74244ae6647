"""Shallow mirroring of Apache Kafka topics. The map of this package is in docs/DESIGN.md#file-map."""

DISTRIBUTION = "kafka-shallow-mirror"
"""What pip calls this; ``mirror`` alone is somebody else's."""
