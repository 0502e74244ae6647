"""What the tests of the reading half share: options, scripted clusters, and rows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mirror.spark.read.fetching import Fetcher
from mirror.spark.read.options import ReadOptions, read_options
from mirror.spark.read.ranges import OffsetRange
from mirror.spark.read.rows import gathered
from mirror.spark.read.tasks import RangeReading
from tests.fakes.broker import FakeCluster
from tests.records.builders import raw_batch

Row = dict[str, Any]


def options(streaming: bool = False, /, **given: str) -> ReadOptions:
    """Options for topic ``t`` of a cluster that is nowhere; underscores stand for dots in names with ``kafka_``."""
    named = {name.replace("_", ".") if name.startswith("kafka_") else name: value for name, value in given.items()}
    chosen = {} if {"subscribePattern", "assign"} & set(named) else {"subscribe": "t"}
    return read_options({"kafka.bootstrap.servers": "127.0.0.1:1", **chosen, **named}, streaming=streaming)


def batches(*bases: int, **header: int) -> list[bytes]:
    """Of five records each."""
    return [raw_batch(b"p" * 50, base_offset=base, **header) for base in bases]


@asynccontextmanager
async def scripted(*stored: bytes, partitions: int = 1, brokers: int = 1) -> AsyncIterator[FakeCluster]:
    """A cluster with topic ``t``, and these batches in its first partition."""
    async with FakeCluster(brokers=brokers) as fake:
        fake.add_topic("t", partitions=partitions)
        fake.store("t", 0, *stored)
        yield fake


def of(fake: FakeCluster, streaming: bool = False, /, **given: str) -> ReadOptions:
    """Options for a scripted cluster, with short pauses."""
    pauses = {"kafka_reconnect_backoff_ms": "1", "kafka_reconnect_backoff_max_ms": "10"}
    servers = fake.options().bootstrap_servers
    return options(streaming, kafka_bootstrap_servers=servers, **pauses, **given)


async def rows(
    fake: FakeCluster, start: int, end: int, *, first: bool = True, topic_id: str = "", **given: str
) -> list[Row]:
    """The rows of one range of ``t-0``."""
    found = of(fake, **given)
    async with await Fetcher.open(found.settings) as fetcher:
        reading = RangeReading(fetcher, found, OffsetRange("t", 0, start, end, first, topic_id))
        return [row async for batch in gathered(reading.rows()) for row in batch.to_pylist()]


async def bases(fake: FakeCluster, start: int, end: int, *, first: bool = True, **given: str) -> list[int]:
    """The base offsets of one range of ``t-0``."""
    return [row["base_offset"] for row in await rows(fake, start, end, first=first, **given)]
