"""KIP-283's memory test: real data on a real broker, one consumer with a large fetch, converted within 200 MB.

What comes out is read by kafka-python's own reader of the old formats, and compared with what librdkafka's consumer
reads at the source.
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from typing import IO, Any

from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.record.memory_records import MemoryRecords

from bench.data import payload
from bench.data.clusters import Side
from bench.downconversion.consumer import END, HEAD, WAYS
from bench.downconversion.plan import ROOT, MemoryTest, Plan
from bench.errors import BenchError
from mirror.legacy import CHUNK_BYTES
from mirror.sandbox import SandboxCluster

__all__ = ["Contents", "Outcome", "measure", "read_back", "source"]

TOPIC = "downconversion"
KAFKA_VERSION = "4.3.0"
_HEAP_MB = 1536
_BATCHES = (16_384, 900_000)
"""Bytes of a stored batch, by turns: a producer's default, and nearly as many as a broker takes."""
_RECORD_BYTES = 1_000
_POOL_BYTES = 4_000_000
_SEED = 20_260_103
_QUEUED = 100_000
"""Records that wait in the producer's queue, about."""
_PATIENCE_S = 300
_POLL_S = 0.5
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Records of a topic, so far as they have to be the same on both sides. ``digest``: of each one's partition,
    offset, key and value, in whatever order the partitions come."""

    records: int = 0
    value_bytes: int = 0
    digest: int = 0

    def with_record(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> "Contents":
        """Returns what it is with one more."""
        place = zlib.crc32(b"%d-%d" % (partition, offset))
        seen = zlib.crc32(value or b"", zlib.crc32(key or b"", place))
        return Contents(
            records=self.records + 1,
            value_bytes=self.value_bytes + len(value or b""),
            digest=(self.digest + seen) % (1 << 64),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One consumer, from its beginning to its end.

    Attributes:
        way: see ``bench.downconversion.consumer``.
        limit_bytes: memory that the kernel refuses to go beyond; 0: none.
        out_of_memory: True if it did not come to its end because of that.
        answers: to Fetch, that were read or begun.
        largest_answer: the largest of them, in bytes.
        stored_bytes: of all of them.
        cpu_s: seconds of the process's CPU.
        before_bytes: its memory before anything was fetched.
        peak_bytes: its memory at its peak.
        contents: what it made.
    """

    way: str
    limit_bytes: int
    out_of_memory: bool
    answers: int
    largest_answer: int
    stored_bytes: int
    cpu_s: float
    before_bytes: int
    peak_bytes: int
    contents: Contents


def measure(plan: Plan, say: Say) -> tuple[Contents, list[Outcome]]:
    """Fill a topic, and have it converted in every way: without a limit for the first answer, and within the limit.

    Returns:
        What the source has, and the outcomes: the way of KIP-283 under its limit and to the end first.

    Raises:
        BenchError: something could not be measured, or what was made is not what the source has.
    """
    test = plan.memory
    with source(test, quick=plan.quick) as cluster:
        say("filling the source")
        fill(cluster, test)
        has = read_source(cluster, test)
        say(f"{has.records} records, {has.value_bytes / 1e9:.2f} GB of values in {test.partitions} partitions")
        outcomes = []
        for way in WAYS:
            for limit_bytes in (test.limit_bytes, 0):
                whole = way == "streamed" and bool(limit_bytes)
                outcome = consume(cluster, test, way, limit_bytes=limit_bytes, answers=0 if whole else 1)
                outcomes.append(outcome)
                say(_told(outcome))
                if whole and outcome.contents != has:
                    raise BenchError(
                        f"what was made is {outcome.contents}, and the source has {has}", "a fault: report it"
                    )
    return has, outcomes


def source(test: MemoryTest, *, quick: bool) -> SandboxCluster:
    """Returns a broker that gives as much in one answer as the consumer asks for; not started."""
    return SandboxCluster(
        "source", version=KAFKA_VERSION, heap_mb=_HEAP_MB, quick=quick,
        properties={"fetch.max.bytes": str(test.fetch_max_bytes), "auto.create.topics.enable": "false"},
    )  # fmt: skip


def fill(cluster: SandboxCluster, test: MemoryTest) -> None:
    """Write the records with librdkafka, as messages of 1 KB: small batches into the even partitions, large ones into
    the odd ones.

    Raises:
        BenchError: the broker did not take all of them.
    """
    Side(cluster.name, cluster.bootstrap_servers, cluster.brokers[0].data_dir).create(TOPIC, test.partitions)
    values = payload.pool(_RECORD_BYTES, seed=_SEED, total_bytes=_POOL_BYTES)
    each = max(1, test.total_bytes // _RECORD_BYTES // test.partitions)
    for number, batch_bytes in enumerate(_BATCHES):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "batch.size": batch_bytes, "linger.ms": 50,
             "queue.buffering.max.messages": 2 * _QUEUED + each, "queue.buffering.max.kbytes": 1_000_000,
             "message.timeout.ms": 120_000, "log_level": 2}
        )  # fmt: skip
        for partition in range(number, test.partitions, len(_BATCHES)):
            at = partition * each % len(values)
            messages = [{"value": values[(at + index) % len(values)]} for index in range(each)]
            producer.produce_batch(TOPIC, messages, partition)
            while len(producer) > _QUEUED:
                producer.poll(0.01)
        if producer.flush(_PATIENCE_S):
            raise BenchError(f"{len(producer)} records were not written", "see the broker's log")


def read_source(cluster: SandboxCluster, test: MemoryTest) -> Contents:
    """Returns what librdkafka's consumer reads.

    Raises:
        BenchError: it reads no more, and is not at the end.
    """
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "x", "enable.auto.commit": False,
         "enable.partition.eof": True, "log_level": 2}
    )  # fmt: skip
    contents, ended, idle_s = Contents(), set[int](), 0.0
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(test.partitions)])
        while len(ended) < test.partitions:
            found = consumer.consume(1_000, _POLL_S)
            idle_s = 0.0 if found else idle_s + _POLL_S
            if idle_s > _PATIENCE_S:
                raise BenchError(
                    f"a consumer of the source stands still behind {contents.records} records", "try again"
                )
            for message in found:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if message.error() is None:
                    contents = contents.with_record(partition, offset, message.key(), message.value())
                elif message.error().name() == "_PARTITION_EOF":
                    ended.add(partition)
                else:
                    raise BenchError(f"a consumer of the source failed: {message.error()}", "see its broker's log")
    finally:
        consumer.close()
    return contents


def consume(cluster: SandboxCluster, test: MemoryTest, way: str, *, limit_bytes: int, answers: int) -> Outcome:
    """Run one consumer, and read what it makes.

    Raises:
        BenchError: it failed, other than by its limit.
    """
    arguments = {
        "port": cluster.brokers[0].port, "topic": TOPIC, "partitions": test.partitions, "way": way, "magic": 1,
        "chunk_bytes": CHUNK_BYTES, "limit_bytes": limit_bytes, "answers": answers,
        "fetch_max_bytes": test.fetch_max_bytes, "max_partition_fetch_bytes": test.max_partition_fetch_bytes,
    }  # fmt: skip
    command = [sys.executable, "-m", "bench.downconversion.consumer", json.dumps(arguments)]
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors) as process:
            assert process.stdout is not None
            try:
                contents = read_back(process.stdout)
            except BaseException:
                process.kill()
                raise
        errors.seek(0)
        told = errors.read().decode(errors="replace")
    if process.returncode:
        raise BenchError(
            f"the consumer ({way}) ended with {process.returncode}: {told[-500:]}", "see its last lines above"
        )
    figures: dict[str, Any] = json.loads(told.splitlines()[-1])
    return Outcome(way=way, limit_bytes=limit_bytes, contents=contents, **figures)


def read_back(stream: IO[bytes]) -> Contents:
    """Reads what a consumer makes up to its end, with kafka-python's reader of the old formats.

    Raises:
        BenchError: offsets do not follow one on another.
    """
    contents, reached = Contents(), dict[int, int]()
    while head := stream.read(HEAD.size):
        partition, next_offset, size = HEAD.unpack(head)
        if partition == END:
            break
        records = MemoryRecords(stream.read(size))
        while (batch := records.next_batch()) is not None:
            for record in batch:
                if record.offset != reached.get(partition, 0):
                    raise BenchError(
                        f"partition {partition}: offset {record.offset} behind {reached.get(partition, 0) - 1}",
                        "a fault: report it",
                    )
                reached[partition] = record.offset + 1
                contents = contents.with_record(partition, record.offset, record.key, record.value)
        if reached.get(partition, 0) != next_offset:
            raise BenchError(
                f"partition {partition}: {reached.get(partition)}, told {next_offset}", "a fault: report it"
            )
    return contents


def _told(outcome: Outcome) -> str:
    limit = f"within {outcome.limit_bytes / 1e6:.0f} MB" if outcome.limit_bytes else "without a limit"
    ended = "OUT OF MEMORY" if outcome.out_of_memory else f"peak {outcome.peak_bytes / 1e6:.0f} MB"
    return (
        f"{outcome.way}, {limit}: {ended}, {outcome.contents.records} records, "
        f"answers of up to {outcome.largest_answer / 1e6:.0f} MB"
    )
