"""``kafka-raw-batches``: the batches of a Kafka cluster as a Spark DataFrame, one row each, payloads as digests.

    spark.dataSource.register(KafkaRawBatches)
    spark.read.format("kafka-raw-batches").option("bootstrap.servers", …).option("ranges", …).load()

Three rules, each for a trap that was met:

* No ``pushFilters``: what it returns is kept on an object that all DataFrames of one ``load()`` share, and an audit of
  one cluster against another became an audit of one against itself. What is read is chosen by options only.
* One ``load()`` per cluster, and every reader asserts that it talks to the cluster whose id it was given.
* Sockets are opened in ``read()``: readers are pickled.
"""

import gc
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from mirror.audit.errors import AuditError
from mirror.audit.prepare.plan import Task
from mirror.audit.spark.options import FORMAT, SCHEMA, SourceOptions


class TaskPartition(InputPartition):
    """The ranges that one Spark task reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class KafkaRawBatches(DataSource):
    """See the module's text."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """One row per batch, and one coverage row per range."""
        return SCHEMA

    def reader(self, schema: Any) -> "RawBatchReader":
        """Called by Spark, in a worker of its own."""
        with _told():
            return RawBatchReader(SourceOptions.from_options(dict(self.options)))


class RawBatchReader(DataSourceReader):
    """Holds options only: it is pickled for every task."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One for each task. A list: Spark wants no other sequence."""
        return [TaskPartition(task) for task in self.options.tasks]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Arrow batches of the task's rows."""
        _freeze_once()
        if not isinstance(partition, TaskPartition):
            return  # no ranges at all: Spark calls once all the same
        with _told():
            # Imported by the workers that read, not by those that Spark plans with: half a second each.
            from mirror.audit.read.tasks import read_task

            yield from read_task(self.options, partition.task)


class _told:
    """An ``AuditError`` in here reaches the driver whole, through whatever Spark wraps around it."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, AuditError):
            raise RuntimeError(error.marked()) from None


_frozen = False


def _freeze_once() -> None:
    """Workers are forked for each task from a warm process: what is loaded need not be walked by their collectors."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
