"""The PySpark data source ``kafka-raw-batches``, for other programs (docs/SPARK.md). Each row is a record batch as
brokers store it, never decompressed. It needs PySpark, which the extra ``audit`` installs.
"""

from mirror.spark.schema import FORMAT, SCHEMA
from mirror.spark.sink import in_order
from mirror.spark.source import KafkaRawBatches, register

__all__ = ["FORMAT", "SCHEMA", "KafkaRawBatches", "in_order", "register"]
