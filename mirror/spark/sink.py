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
    """Returns the rows in the order that the sink requires: those of a partition in one task, by ascending offsets.

    Args:
        frame: rows of the source. A stream must use it inside ``foreachBatch``, because Spark does not sort streams.
        partitions: number of tasks; None: Spark decides.
    """
    keys = [name for name in (TOPIC, PARTITION) if name in frame.columns]
    gathered = frame.repartition(*keys) if partitions is None else frame.repartition(partitions, *keys)
    return gathered.sortWithinPartitions(*keys, BASE_OFFSET)


def checked(options: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    """Returns the checked options of a writer. ``overwrite``: True if the mode is overwrite.

    Raises:
        SinkError: an option is wrong, a column is missing, or the mode is not append.
    """
    read = SinkOptions.read(options)
    if overwrite:
        raise SinkError(Reason.OPTIONS, "a topic is appended to, and not overwritten", 'write with mode("append")')
    check_columns({each.name: each.dataType.simpleString() for each in schema.fields}, read.topic)
    return read


@dataclass
class Message(WriterCommitMessage):
    """The message with which a task reports to the driver what it has written."""

    written: Written


def committed(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Returns a summary of all tasks' reports for the log.

    Raises:
        SinkError: rows of a partition were in more than one task, so their order was not guaranteed.
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
    """The writer of ``df.write``. It holds only options, because Spark pickles it for every task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Message:
        """Writes the rows of one task."""
        return Message(write_rows(self._options, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Checks that no two tasks had rows of the same partition. All rows are in the log already."""
        LOG.info("%s", committed(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: written batches cannot be removed from a log. The next try recognises them and leaves them
        out."""


class RawBatchStreamWriter(DataSourceStreamArrowWriter):
    """The writer of ``df.writeStream``. It holds only options, because Spark pickles it for every task."""

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
