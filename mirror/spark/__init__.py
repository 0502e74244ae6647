"""Raw record batches in PySpark. docs/SPARK-sink.md describes the writing half."""

from mirror.spark.sink import in_order

__all__ = ["in_order"]
