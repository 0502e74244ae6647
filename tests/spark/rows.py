"""Rows of raw batches, as the source gives them, for the tests of the sink."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from mirror.raw.model import TopicPartition
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.sandbox import SandboxCluster
from mirror.spark.write.options import SinkOptions
from mirror.spark.write.rows import Row
from tests.audit.clusters import batches_of
from tests.raw.real import raw_consumer, to_the_end

COLUMNS = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("base_offset", pa.int64()), ("batch", pa.binary())]
)


def row(topic: str, partition: int, batch: bytes) -> Row:
    """A row of one batch."""
    return Row(TopicPartition(topic, partition), BatchHeader.read(batch).base_offset, memoryview(batch))


def arrow(rows: Iterable[Row]) -> pa.RecordBatch:
    """An Arrow batch of rows."""
    listed = [
        {
            "topic": each.at.topic,
            "partition": each.at.partition,
            "base_offset": each.base_offset,
            "batch": bytes(each.batch),
        }
        for each in rows
    ]
    return pa.RecordBatch.from_pylist(listed, schema=COLUMNS)


def stored(cluster: SandboxCluster, topic: str, partitions: int = 1) -> list[Row]:
    """All batches of a topic, markers among them, partition by partition."""
    return [row(topic, at, batch) for at in range(partitions) for batch in batches_of(cluster, topic, at)]


def committed(cluster: SandboxCluster, topic: str, partitions: int = 1) -> list[Row]:
    """Those that a read_committed consumer gets."""
    with raw_consumer(cluster) as consumer:
        consumer.assign([TopicPartition(topic, at) for at in range(partitions)])
        found = [row(topic, each.partition, each.value) for each in to_the_end(consumer)]
    return sorted(found, key=lambda each: (each.at.partition, each.base_offset))


def options(cluster: SandboxCluster, **named: str) -> SinkOptions:
    """The sink's options; names with underscores."""
    given = {name.replace("_", "."): value for name, value in named.items()}
    return SinkOptions.read({"kafka.bootstrap.servers": cluster.bootstrap_servers, "flow": "copy", **given})


def contents(batches: Iterable[bytes]) -> list[bytes]:
    """What stands behind the headers."""
    return [batch[HEADER_SIZE:] for batch in batches]


def one_by_one(rows: Sequence[Row], *, fails_before: int = -1) -> Iterator[Any]:
    """An Arrow batch for each row, as Spark gives a task its rows; a failure instead of one of them."""
    for number, each in enumerate(rows):
        if number == fails_before:
            raise ConnectionError("the task is lost")
        yield arrow([each])
