"""The writers, without Spark: what the driver checks and says."""

import pickle

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from mirror.raw.model import TopicPartition
from mirror.spark.sink import Message, RawBatchWriter, checked, committed
from mirror.spark.write.errors import SinkError
from mirror.spark.write.task import Counts, Written

SCHEMA = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("base_offset", LongType())
    .add("batch", BinaryType())
)
GIVEN = {"kafka.bootstrap.servers": "k:1", "flow": "copy"}


def report(*partitions: int) -> Message:
    return Message(Written({TopicPartition("t", at): Counts(0, 9, 2, 100, 1, 1) for at in partitions}))


def test_checked_in_the_driver() -> None:
    writer = pickle.loads(pickle.dumps(RawBatchWriter(checked(GIVEN, SCHEMA, overwrite=False))))
    assert isinstance(writer, RawBatchWriter)
    assert writer.write(iter([])) == Message(Written({}))  # nothing is connected to for nothing
    with pytest.raises(SinkError, match=r'^options: a topic is appended to, .*; write with mode\("append"\)'):
        checked(GIVEN, SCHEMA, overwrite=True)
    with pytest.raises(SinkError, match=r"^columns: there is no column topic"):
        checked(GIVEN, StructType(SCHEMA.fields[1:]), overwrite=False)


def test_what_was_done() -> None:
    told = "3 partitions: 6 batches (300 bytes) appended, 3 were there, 3 without records left out"
    assert committed([report(0, 1), None, report(2)]) == told


def test_a_partition_belongs_to_one_task() -> None:
    with pytest.raises(SinkError, match=r"^not_in_order: .* by more than one task: t-1; write mirror.spark.in_order"):
        committed([report(0, 1), report(1)])
