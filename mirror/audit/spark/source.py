"""``mirror-audit-batches``: a Kafka cluster's batches as a Spark DataFrame: by default a row each, payloads digested.

    spark.dataSource.register(AuditBatches)
    spark.read.format("mirror-audit-batches").option("bootstrap.servers", …).option("ranges", …).load()

The audit's own; ``mirror.spark`` is the public data source. Three rules, each because of a trap that we fell into:

* No ``pushFilters``: its result is kept on an object that all DataFrames of one ``load()`` share, so an audit of one
  cluster against another became an audit of one against itself. Only options choose what is read.
* One ``load()`` per cluster, and every reader checks that it talks to the cluster whose id it was given.
* ``read()`` opens the sockets, because readers are pickled.
"""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace
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


class AuditBatches(DataSource):
    """The data source; the module's docstring describes it."""

    @classmethod
    def name(cls) -> str:
        """Returns the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Returns the columns of all kinds of rows; ``rows.SCHEMA`` describes them."""
        return SCHEMA

    def reader(self, schema: Any) -> "AuditBatchReader":
        """Returns the reader. Spark calls this in a worker of its own."""
        with _told():
            reader = AuditBatchReader(SourceOptions.from_options(dict(self.options)))
        # Spark sends this object to every task, with its options. Each task has its own ranges.
        self.options.pop("ranges", None)
        return reader


class AuditBatchReader(DataSourceReader):
    """Holds options only: it is pickled for every task, without the ranges of all tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a task needs: its partition has the ranges that it reads."""
        return {"options": replace(self.options, tasks=())}

    def partitions(self) -> Sequence[InputPartition]:
        """Returns a partition for each task, as a list: Spark accepts no other sequence."""
        return [TaskPartition(task) for task in self.options.tasks]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yields the task's rows in Arrow batches."""
        _freeze_once()
        if not isinstance(partition, TaskPartition):
            return  # there are no ranges: Spark calls once nevertheless
        with _told():
            # Imported here, so that only workers that read pay for it (half a second each), not those for planning.
            from mirror.audit.read.tasks import read_task

            yield from read_task(self.options, partition.task)


class _told:
    """A context manager: an ``AuditError`` in it reaches the driver whole, whatever Spark wraps around it."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, AuditError):
            raise RuntimeError(error.marked()) from None


_frozen = False


def _freeze_once() -> None:
    """Freezes what is loaded, once. Workers are forked for each task from a warm process, and their garbage collectors
    need not walk what it has loaded. Only on a Spark cluster: locally the daemon has frozen it before the fork."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
