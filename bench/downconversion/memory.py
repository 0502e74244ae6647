"""KIP-283's memory test: a consumer with a large fetch gets real data from a real broker, and converts them within 200
MB.

The result is read by kafka-python's reader of the old formats, and compared with what librdkafka's consumer reads at
the source.
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
"""Sizes of stored batches, for even and for odd partitions: a producer's default, and nearly the maximum of a
broker."""
_RECORD_BYTES = 1_000
_POOL_BYTES = 4_000_000
_SEED = 20_260_103
_QUEUED = 100_000
"""Approximate number of records that wait in the producer's queue."""
_PATIENCE_S = 300
_POLL_S = 0.5
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The contents of a topic that have to be the same on both sides.

    Attributes:
        records: number of records.
        value_bytes: bytes of their values.
        digest: digest of partition, offset, key and value of each record. It does not depend on the order of records.
    """

    records: int = 0
    value_bytes: int = 0
    digest: int = 0

    def with_record(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> "Contents":
        """Returns the contents with one more record."""
        place = zlib.crc32(b"%d-%d" % (partition, offset))
        seen = zlib.crc32(value or b"", zlib.crc32(key or b"", place))
        return Contents(
            records=self.records + 1,
            value_bytes=self.value_bytes + len(value or b""),
            digest=(self.digest + seen) % (1 << 64),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one consumer.

    Attributes:
        way: see ``bench.downconversion.consumer``.
        limit_bytes: limit of the process's memory, which the kernel enforces; 0: no limit.
        out_of_memory: True if the consumer has ended early because of that limit.
        answers: number of Fetch answers that were received, at least in part.
        largest_answer: size of the largest answer in bytes.
        stored_bytes: size of all answers in bytes.
        cpu_s: CPU of the process in seconds.
        before_bytes: memory of the process before the first fetch.
        peak_bytes: peak memory of the process.
        contents: the contents of the converted message sets.
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
    """Fills a topic, and converts it in every way, with and without the limit. Only the way of KIP-283 within its limit
    converts the whole topic; the others convert one answer.

    Returns:
        The contents of the source, and the outcomes, that of the whole topic first.

    Raises:
        BenchError: something could not be measured, or the converted contents are not those of the source.
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
    """Returns a cluster, not started yet, whose broker gives as much in one answer as the consumer asks for. ``quick``:
    see ``SandboxCluster``."""
    return SandboxCluster(
        "source", version=KAFKA_VERSION, heap_mb=_HEAP_MB, quick=quick,
        properties={"fetch.max.bytes": str(test.fetch_max_bytes), "auto.create.topics.enable": "false"},
    )  # fmt: skip


def fill(cluster: SandboxCluster, test: MemoryTest) -> None:
    """Creates the topic, and writes records of 1 KB with librdkafka: small batches into the even partitions, large ones
    into the odd ones.

    Raises:
        BenchError: not all records were written.
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
    """Returns the contents of the source, as librdkafka's consumer reads them.

    Raises:
        BenchError: the consumer has failed, or gets no more records before the end.
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
    """Runs one consumer, and reads what it converts.

    Args:
        cluster: the source.
        test: the sizes.
        way: see ``bench.downconversion.consumer``.
        limit_bytes: limit of the process's memory; 0: no limit.
        answers: maximum number of Fetch answers; 0: until the end of the topic.

    Raises:
        BenchError: the consumer has failed for another reason than its limit.
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
    """Reads the output of a consumer to its end, with kafka-python's reader of the old formats, and returns the
    contents.

    Raises:
        BenchError: the offsets of a partition are not consecutive.
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
