"""``spark.read.format("kafka-raw-batches")``: the reader of one query."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from mirror.loop_thread import driven
from mirror.spark.read.options import ReadOptions
from mirror.spark.read.ranges import RangesPartition


class RawBatchReader(DataSourceReader):
    """The reader of one batch query. It holds only options, because Spark pickles it for every task.

    It has no ``pushFilters``: Spark would keep pushed filters on an object that all DataFrames of one ``load()`` share.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Asks the brokers what there is to read, and returns the Spark partitions. (They are a list: Spark accepts no
        other sequence.)

        Raises:
            RawError: the options do not fit the cluster's topics, or the brokers do not answer.
        """
        (found,) = driven(_planned(self._options))
        return found

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yields the rows of a Spark partition in Arrow batches."""
        return read_partition(self._options, partition)


def read_partition(options: ReadOptions, partition: InputPartition | None) -> Iterator[Any]:
    """Yields the rows of a Spark partition in Arrow batches. ``partition``: one of ``partitions()``. (If there are
    none, Spark calls once with something else.)

    Raises:
        RawError: the partition cannot be read to its end.
    """
    if not isinstance(partition, RangesPartition):
        return
    # Imported here, so that only workers that read load it, not those that plan.
    from mirror.spark.read.tasks import read_ranges

    yield from read_ranges(options, partition.ranges)


async def _planned(options: ReadOptions) -> AsyncGenerator[list[RangesPartition], None]:
    from mirror.spark.read.bounds import Bounds
    from mirror.spark.read.fetching import Fetcher

    async with await Fetcher.open(options.settings) as fetcher:
        bounds = Bounds(fetcher, options)
        partitions = await bounds.partitions()
        starts = await bounds.starts(partitions)
        ends = await bounds.ends(partitions)
        yield await bounds.tasks(starts, ends, first=lambda _: True)
