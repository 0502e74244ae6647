"""Logs in old formats, written by real clients into real brokers, and read by librdkafka's consumer."""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from mirror.legacy import LegacySpan, cut, messages
from mirror.records.content.opening import Record, opened
from mirror.records.header import HEADER_SIZE, MAGIC
from mirror.sandbox import SandboxCluster
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars
from mirror.wire.fetch import FetchPartition, read_fetch_response
from tests.vectors import load
from tests.vectors.client import Client

OLD = "0.10.2.2"
CODECS = ("none", "gzip", "snappy", "lz4")
MIB = 1 << 20
ROUNDS = 2
AS_0_9: dict[str, Any] = {"api_version_request": "false", "broker_version_fallback": "0.9.0"}
"""librdkafka then writes magic 0."""
CLEANED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
TOPICS: dict[str, tuple[int, load.Config]] = {
    "magic-0": (len(CODECS), {"message.format.version": "0.9.0"}),
    "magic-1": (len(CODECS), {}),
    "append-time": (len(CODECS), {"message.timestamp.type": "LogAppendTime"}),
    "cleaned": (1, CLEANED),
    **{f"java-{codec}": (1, {}) for codec in CODECS},
}


def fill_old(cluster: SandboxCluster, folder: Path) -> None:
    """Topics of magic 0 and 1 in every codec, with append times, and one that its cleaner makes holes into."""
    servers = cluster.bootstrap_servers
    load.create_topics(servers, TOPICS)
    for topic in ("magic-0", "magic-1", "append-time"):
        for partition, codec in enumerate(CODECS):
            options: dict[str, Any] = AS_0_9 if topic == "magic-0" else {}
            load.produce(servers, topic, ROUNDS, partition=partition, headers=False, compression_type=codec, **options)
    produce_cleanable(servers)
    produce_with_old_java(servers, [(f"java-{codec}", codec) for codec in CODECS], folder)


def produce_cleanable(servers: str) -> None:
    """Wrappers of three whose middle key comes again, over segments: the cleaner makes a hole inside each but the
    last."""
    writer = load.Writer(servers, compression_type="lz4")
    for round_at in range(4):
        for key in (f"first-{round_at}", "again", f"last-{round_at}"):
            writer.producer.produce(
                "cleaned", key=key, value=b"value " * 12, partition=0, timestamp=load.START_MS + round_at * 60_000
            )
        writer.flush()


def produce_with_old_java(servers: str, topics: Sequence[tuple[str, str]], folder: Path) -> None:
    """Messages from the console producer of Kafka 0.10 (Java), (topic, codec) each, with keys."""
    lines = "".join(f"key-{at}\tvalue {at} {'of the Java producer ' * 4}\n" for at in range(5))
    for topic, codec in topics:
        arguments = ["--broker-list", servers, "--topic", topic, "--compression-codec", codec]
        arguments += ["--property", "parse.key=true"]
        command = Jvm().command(
            jars.classpath(OLD), "kafka.tools.ConsoleProducer", arguments, folder=folder, small=True
        )
        done = subprocess.run(
            command, input=lines, text=True, capture_output=True, timeout=load.WAIT_S * 2, check=False
        )
        if done.returncode:
            raise RuntimeError(f"console producer ended with {done.returncode}: {done.stderr[-500:]}")


def await_cleaned(cluster: SandboxCluster) -> None:
    """Wait until the cleaner has taken records out of the first wrapper."""
    deadline_at = time.monotonic() + 3 * load.WAIT_S
    while True:
        with Client(cluster.brokers[0].port) as client:
            view = memoryview(client.fetch_old(2, "cleaned", MIB))
        first = next(cut(view))
        assert isinstance(first, LegacySpan)
        if [record.offset for record in messages(view, first, most=MIB)] == [0, 2]:
            return
        if time.monotonic() > deadline_at:
            raise TimeoutError("nothing was cleaned")
        time.sleep(0.2)


def set_format(cluster: SandboxCluster, topic: str, version: str) -> None:
    """What is written into the topic from now on has the format of this Kafka version."""
    entry = ConfigEntry("message.format.version", version, incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(load.WAIT_S)


def await_format(cluster: SandboxCluster, topic: str, magic: int) -> None:
    """Write records until one is stored with this magic: a broker hears of a change a moment later."""
    deadline_at = time.monotonic() + load.WAIT_S
    while True:
        load.produce(cluster.bootstrap_servers, topic, 1, records=1, headers=False)
        last = list(cut(memoryview(raw(cluster, topic, 0, version=4))))[-1]
        if (last.magic if isinstance(last, LegacySpan) else MAGIC) == magic:
            return
        if time.monotonic() > deadline_at:
            raise TimeoutError(f"{topic} is not written with magic {magic}")
        time.sleep(0.1)


def raw(cluster: SandboxCluster, topic: str, partition: int, version: int = 11) -> bytes:
    """A partition's record set as it is stored."""
    with Client(cluster.brokers[0].port) as client:
        frame = client.fetch(version, [FetchPartition(topic, partition, 0, MIB)])
    (fetched,) = read_fetch_response(version, frame).partitions
    assert fetched.error == 0
    return bytes(frame[fetched.start : fetched.end])


def fetched_old(cluster: SandboxCluster, version: int, topic: str, partition: int, *, end: int) -> bytes:
    """A partition's log up to ``end`` by a Fetch older than ours.

    It takes several: an answer does not reach past a segment, and a converted one has no more bytes than what is
    stored, so that often not everything that becomes larger in the old format has room.
    """
    found, offset = b"", 0
    with Client(cluster.brokers[0].port) as client:
        while offset < end:
            error, piece = client.fetch_old_or_error(version, topic, MIB, partition, offset)
            assert error == 0
            spans = list(cut(memoryview(piece)))
            found += piece[: spans[-1].at + spans[-1].size]
            offset = spans[-1].last_offset + 1
    return found


def consumed(servers: str, topic: str, partition: int = 0) -> list[Record]:
    """All records of a partition as librdkafka's consumer reads them; timestamp -1 where there is none."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "x", "enable.auto.commit": False, "enable.partition.eof": True,
         "auto.offset.reset": "earliest",
         "check.crcs": True, "log_level": 2}
    )  # fmt: skip
    found: list[Record] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(load.WAIT_S)
            if message is None:
                raise TimeoutError(f"{topic}-{partition}: nothing for {load.WAIT_S} s behind {len(found)} records")
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            kind, timestamp = message.timestamp()
            offset, headers = message.offset(), tuple(message.headers() or ())
            assert offset is not None
            found.append(
                Record(
                    offset,
                    -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
                    message.key(),
                    message.value(),
                    headers,
                )
            )
    finally:
        consumer.close()


def records_in(record_set: bytes) -> list[Record]:
    """All records of a record set of any formats, by our own readers."""
    view = memoryview(record_set)
    found: list[Record] = []
    for span in cut(view):
        if isinstance(span, LegacySpan):
            found.extend(messages(view, span, most=MIB))
        elif not span.header.is_control:
            found.extend(opened(span.header, record_set[span.at + HEADER_SIZE : span.at + span.size]))
    return found
