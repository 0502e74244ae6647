"""What the audit's reader takes for due, held against what Kafka's own consumer reads from the same broker."""

import asyncio
import struct
import subprocess
from pathlib import Path

import pytest
import xxhash

from mirror.audit.model.request import Endpoint
from mirror.audit.model.rows import RecordRow
from mirror.audit.prepare.plan import Range
from mirror.audit.read import ranges
from mirror.audit.read.holes import Rules
from mirror.audit.read.ranges import RangeCoverage
from mirror.audit.read.reader import Reader
from mirror.sandbox import SandboxCluster
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars
from tests.audit.clusters import create, endpoint, fill
from tests.audit.exact import transactions
from tests.audit.independent.tools import JVM_S, all_but, stored, varint
from tests.vectors.load import TOOLS, produce_with_java


def consumed(cluster: SandboxCluster, topic: str, folder: Path) -> dict[int, bytes]:
    """What Kafka's own consumer reads, read committed: offset -> digest of the record's text. A busy machine may take
    long for its first record."""
    return _consumed(cluster, topic, folder, quiet_s=8) or _consumed(cluster, topic, folder, quiet_s=60)


def _consumed(cluster: SandboxCluster, topic: str, folder: Path, *, quiet_s: int) -> dict[int, bytes]:
    """It ends when nothing has come for so long."""
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--partition", "0"]
    arguments += ["--offset", "earliest", "--timeout-ms", f"{quiet_s}000", "--isolation-level", "read_committed"]
    for name in ("print.offset", "print.timestamp", "print.headers", "print.key"):
        arguments += ["--formatter-property", f"{name}=true"]
    for name in ("key.separator=\x1f", "headers.separator=\x1e"):
        arguments += ["--formatter-property", name]
    command = Jvm().command(
        jars.classpath_of([TOOLS]), "org.apache.kafka.tools.consumer.ConsoleConsumer", arguments, folder=folder,
        small=True,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=JVM_S, check=False)
    found = {}
    for line in done.stdout.splitlines():
        time, offset, headers, key, value = line.split(b"\x1f")
        found[int(offset.removeprefix(b"Offset:"))] = b"\x1f".join(
            (time.removeprefix(b"CreateTime:"), headers, key, value)
        )
    assert found, done.stderr[-2_000:]
    return found


def audited(at: Endpoint, cluster: SandboxCluster, topic: str, end: int) -> dict[int, RecordRow]:
    """The records of the batches that the audit's reader takes for due."""

    async def rows() -> list[RecordRow]:
        reader = Reader(
            at, cluster_id=cluster.cluster_id, topic_ids={}, digest="xxh3_128", rules=Rules(committed=True), opens=True,
            fetch_bytes=2_000,
        )  # fmt: skip
        await reader.open({topic})
        try:
            whole = Range(topic, 0, 0, end, first=True, width=1 << 20)
            return [row async for block in reader.blocks(whole, RangeCoverage()) for row in block.records]
        finally:
            await reader.close()

    return {row.offset: row for row in asyncio.run(rows())}


@pytest.mark.broker
def test_records_as_kafkas_own_consumer_reads_them(
    source_cluster: SandboxCluster, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. Written by librdkafka and by Java, with transactions that commit and abort: the same records, in all they hold.
    2. Mutation: the shared code passes over a batch of each answer.
    """
    create(source_cluster, topic_name)
    transactions(source_cluster, topic_name)
    fill(source_cluster, topic_name, codec="zstd")
    produce_with_java(source_cluster.bootstrap_servers, [(topic_name, "gzip")], tmp_path)
    theirs = consumed(source_cluster, topic_name, tmp_path)
    ours = audited(endpoint(source_cluster, "source"), source_cluster, topic_name, max(theirs) + 1)
    assert ours.keys() == theirs.keys()
    assert len(ours) > 40
    for offset, told in theirs.items():
        assert ours[offset].digest == _digest(told), (offset, told)
    monkeypatch.setattr(ranges, "scan", all_but(1))
    assert (
        audited(endpoint(source_cluster, "source"), source_cluster, topic_name, max(theirs) + 1).keys() < theirs.keys()
    )


def _digest(told: bytes) -> bytes:
    """The audit's digest of a record, from the consumer's text of it."""
    time, headers, key, value = (None if part == b"null" else part for part in told.split(b"\x1f"))
    assert time is not None
    found = [] if headers == b"NO_HEADERS" or headers is None else headers.split(b"\x1e")
    parts = [struct.pack(">qB", int(time), 0), stored(key), stored(value), varint(len(found))]
    for header in found:
        name, _, content = header.partition(b":")
        parts += [stored(name), stored(None if content == b"null" else content)]
    return xxhash.xxh3_128_digest(b"".join(parts))
