"""``kafka-raw-batches``: the sink's half."""

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from mirror.spark.sink import RawBatchStreamWriter, RawBatchWriter, checked

FORMAT = "kafka-raw-batches"


class KafkaRawBatches(DataSource):
    """Raw batches of Kafka topics."""

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> RawBatchWriter:
        """Returns what ``df.write`` uses."""
        return RawBatchWriter(checked(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RawBatchStreamWriter:
        """Returns what ``df.writeStream`` uses. (Output mode ``complete`` overwrites.)"""
        return RawBatchStreamWriter(checked(self.options, schema, overwrite))


def register(spark: SparkSession) -> None:
    """Makes the format known to a session."""
    spark.dataSource.register(KafkaRawBatches)
