"""The data source ``kafka-raw-batches`` as Spark sees it. docs/SPARK.md is its manual."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

from mirror.spark.read.batch import RawBatchReader
from mirror.spark.read.options import read_options
from mirror.spark.read.streaming import RawBatchStreamReader
from mirror.spark.schema import FORMAT, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class KafkaRawBatches(DataSource):
    """See the module's docstring. Spark makes one for each use, in workers of its own."""

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Returns the columns. Spark asks at ``load()``, so that wrong options are told of there.

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


def register(spark: "SparkSession") -> None:
    """Makes the format ``kafka-raw-batches`` known to a Spark session. Its workers need this package installed."""
    spark.dataSource.register(KafkaRawBatches)
