"""The PySpark data source ``kafka-raw-batches``, for other programs (docs/SPARK.md): record batches as brokers store
them, a row each, never decompressed. It needs PySpark, which the extra ``audit`` brings.
"""

from mirror.spark.schema import FORMAT, SCHEMA
from mirror.spark.sink import in_order
from mirror.spark.source import KafkaRawBatches, register

__all__ = ["FORMAT", "SCHEMA", "KafkaRawBatches", "in_order", "register"]
