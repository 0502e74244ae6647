"""The data source ``kafka-raw-batches`` as Spark sees it. docs/SPARK.md and docs/SPARK-sink.md are its
manuals."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from mirror.spark.read.batch import RawBatchReader
from mirror.spark.read.options import read_options
from mirror.spark.read.streaming import RawBatchStreamReader
from mirror.spark.schema import FORMAT, SCHEMA
from mirror.spark.sink import RawBatchStreamWriter, RawBatchWriter, checked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KafkaRawBatches(DataSource):
    """See the module's docstring. Spark makes an instance for each use, in its own worker processes."""

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Returns the columns. Spark calls this in ``load()``, so that wrong options raise there already.

        Raises:
            InvalidConfig: an option is wrong.
        """
        read_options(self.options, streaming=None)
        return SCHEMA

    def reader(self, schema: Any) -> RawBatchReader:
        """Returns the reader of one query. Raises InvalidConfig if an option is wrong."""
        return RawBatchReader(read_options(self.options, streaming=False))

    def streamReader(self, schema: Any) -> RawBatchStreamReader:
        """Returns the reader of a stream. Raises InvalidConfig if an option is wrong."""
        return RawBatchStreamReader(read_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> RawBatchWriter:
        """Returns the writer of ``df.write``. Raises an error of ``write.errors`` if an option or a column is wrong."""
        return RawBatchWriter(checked(self.options, schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RawBatchStreamWriter:
        """Returns the writer of ``df.writeStream``. Raises as ``writer``. (``overwrite`` is True in output mode
        ``complete``.)"""
        return RawBatchStreamWriter(checked(self.options, schema, overwrite))


def register(spark: "SparkSession") -> None:
    """Makes the format ``kafka-raw-batches`` known to a Spark session. Its workers need this package installed."""
    spark.dataSource.register(KafkaRawBatches)
