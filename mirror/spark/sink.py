"""``df.write`` and ``df.writeStream`` with the format ``kafka-raw-batches``. docs/SPARK-sink.md is the manual."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from mirror.raw.model import TopicPartition
from mirror.spark.write.errors import Reason, SinkError
from mirror.spark.write.options import SinkOptions
from mirror.spark.write.rows import BASE_OFFSET, PARTITION, TOPIC, check_columns
from mirror.spark.write.task import Written, write_rows

LOG = logging.getLogger("mirror.spark")


def in_order(frame: DataFrame, partitions: int | None = None) -> DataFrame:
    """Returns the rows as the sink wants them: those of a partition in one task, in the order of their offsets.

    Args:
        frame: rows of the source. Not of a stream: Spark sorts none (use it in ``foreachBatch``).
        partitions: number of tasks; None: as Spark decides.
    """
    keys = [name for name in (TOPIC, PARTITION) if name in frame.columns]
    gathered = frame.repartition(*keys) if partitions is None else frame.repartition(partitions, *keys)
    return gathered.sortWithinPartitions(*keys, BASE_OFFSET)


def checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    """Returns the options of a writer.

    Raises:
        SinkError: they are wrong; columns are missing; the mode is not append.
    """
    read = SinkOptions.read(options)
    if overwrite:
        raise SinkError(Reason.OPTIONS, "a topic is appended to, and not overwritten", 'write with mode("append")')
    check_columns({each.name: each.dataType.simpleString() for each in schema.fields}, read.topic)
    return read


@dataclass
class Message(WriterCommitMessage):
    """What a task reports to the driver."""

    written: Written


def committed(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Returns what all tasks have done, in words.

    Raises:
        SinkError: rows of a partition were in more than one task, so that nobody has kept their order.
    """
    seen: dict[TopicPartition, int] = {}
    written = [each.written for each in messages if isinstance(each, Message)]
    for report in written:
        for at in report.partitions:
            seen[at] = seen.get(at, 0) + 1
    twice = sorted(at for at, count in seen.items() if count > 1)
    if twice:
        told = ", ".join(f"{at.topic}-{at.partition}" for at in twice[:5])
        raise SinkError(Reason.NOT_IN_ORDER, f"rows of these partitions were written by more than one task: {told}")
    counts = [each for report in written for each in report.partitions.values()]
    return (
        f"{len(seen)} partitions: {sum(each.appended for each in counts)} batches "
        f"({sum(each.appended_bytes for each in counts)} bytes) appended, {sum(each.there for each in counts)} were "
        f"there, {sum(each.left_out for each in counts)} without records left out"
    )


class RawBatchWriter(DataSourceArrowWriter):
    """``df.write``. Holds options only: it is pickled for every task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        """Writes the rows of one task."""
        return Message(write_rows(self._options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All is in the log by now. Checks that tasks did not share a partition."""
        LOG.info("%s", committed(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was written stays: nobody can take it out of a log. The next try leaves it as it is."""


class RawBatchStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``. Likewise."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        """Writes the rows of one task of a micro-batch."""
        return Message(write_rows(self._options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """As ``RawBatchWriter.commit``."""
        LOG.info("micro-batch %d: %s", batchId, committed(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """As ``RawBatchWriter.abort``."""
