"""Real topics for the tests of the data source: read as Spark's workers do it, and by librdkafka."""

from typing import Any

from mirror.records.content.opening import opened
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.sandbox import SandboxCluster
from mirror.spark.read.batch import RawBatchReader
from mirror.spark.read.options import read_options
from tests.raw.real import Read

Row = dict[str, Any]


def given(cluster: SandboxCluster, topic: str, **options: str) -> dict[str, str]:
    """The options for a topic of a cluster, with dots for the underscores of ``kafka_``."""
    named = {name.replace("_", ".") if name.startswith("kafka_") else name: value for name, value in options.items()}
    return {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, **named}


def tasks_of(options: dict[str, str]) -> list[list[Row]]:
    """The rows of each Spark partition, without Spark."""
    reader = RawBatchReader(read_options(options, streaming=False))
    return [[row for batch in reader.read(each) for row in batch.to_pylist()] for each in reader.partitions()]


def rows_of(options: dict[str, str]) -> list[Row]:
    """All rows, in the order of partitions and offsets, without Spark."""
    rows = [row for task in tasks_of(options) for row in task]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["base_offset"]))


def records_of(rows: list[Row]) -> list[Read]:
    """The records in these batches."""
    return [
        Read(row["partition"], each.offset, each.timestamp, each.key, each.value, each.headers)
        for row in rows
        if not row["is_control"]
        for each in opened(BatchHeader.read(row["batch"]), row["batch"][HEADER_SIZE:])
    ]
