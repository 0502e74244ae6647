"""``mirror-audit-batches``: a Kafka cluster's batches as a Spark DataFrame. By default, each batch is a row, with a
digest of its payload.

    spark.dataSource.register(AuditBatches)
    spark.read.format("mirror-audit-batches").option("bootstrap.servers", …).option("ranges", …).load()

This data source is for the audit only; ``mirror.spark`` is the public one. Three rules hold here:

* No ``pushFilters``: Spark keeps its result on an object that all DataFrames of one ``load()`` share. An audit of two
  clusters once became an audit of one cluster against itself because of that. Only options choose what is read.
* One ``load()`` per cluster, and every reader checks that it is connected to the cluster whose id it was given.
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
        """Returns the reader. Spark calls this in a separate worker.

        Raises:
            RuntimeError: an option is missing or invalid. It carries the ``AuditError``.
        """
        with _told():
            reader = AuditBatchReader(SourceOptions.from_options(dict(self.options)))
        # Spark sends this object with its options to every task, and a task needs only its own ranges.
        self.options.pop("ranges", None)
        return reader


class AuditBatchReader(DataSourceReader):
    """The reader. It holds only options, because it is pickled for every task, without the ranges of all tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state that is pickled: the options without ranges. A task gets its ranges as its partition."""
        return {"options": replace(self.options, tasks=())}

    def partitions(self) -> Sequence[InputPartition]:
        """Returns a partition for each task. It must be a list: Spark accepts no other sequence."""
        return [TaskPartition(task) for task in self.options.tasks]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Yields the task's rows in Arrow batches.

        Raises:
            RuntimeError: a range cannot be read. It carries the ``AuditError``.
        """
        _freeze_once()
        if not isinstance(partition, TaskPartition):
            return  # without any ranges, Spark still calls this once
        with _told():
            # Imported here, so that only workers that read spend the half second that it takes, not those for planning.
            from mirror.audit.read.tasks import read_task

            yield from read_task(self.options, partition.task)


class _told:
    """A context manager that replaces an ``AuditError`` by a RuntimeError with its marked text, so that the driver can
    restore it from whatever Spark wraps around it (``AuditError.unmarked``)."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, AuditError):
            raise RuntimeError(error.marked()) from None


_frozen = False


def _freeze_once() -> None:
    """Freezes all loaded objects, once in a process, so that its garbage collector does not traverse them. This matters
    on a Spark cluster: in a local session, the daemon has frozen them before the fork."""
    global _frozen
    if not _frozen:
        gc.collect()
        gc.freeze()
        _frozen = True
