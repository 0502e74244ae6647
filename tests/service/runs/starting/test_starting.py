"""``start.from`` as its users run it: copies that begin inside a batch, at a time, where a group stands, or now."""

import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mirror.sandbox import SandboxCluster
from tests.service.runs.test_mapped import read_from
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import create_topic
from tests.service.stage.running import MIRROR, config_text, mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker

BATCH = 10
"""Records in each batch."""
SECOND_MS = 1_000
LONG_AGO_MS = 1_000_000_000_000


def write(bootstrap: str, topic: str, numbers: Sequence[int], *, codec: str = "zstd", first_ms: int) -> None:
    """Records "0", "1", … with a second between their timestamps, in batches of ten."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "linger.ms": 10_000,
            "batch.num.messages": BATCH,
            "enable.idempotence": True,
        }
    )
    for at, number in enumerate(numbers, 1):
        producer.produce(topic, b"%d" % number, b"key", partition=0, timestamp=first_ms + number * SECOND_MS)
        if at % BATCH == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


def first_offset(sandbox: SandboxCluster, topic: str) -> int:
    """The destination's log start offset."""
    reader = Consumer({"bootstrap.servers": sandbox.bootstrap_servers, "group.id": "none", "log_level": 0})
    try:
        return int(reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[0])
    finally:
        reader.close()


def command(*arguments: str, expect: int = 0) -> str:
    """What a command of ``mirror`` prints."""
    done = subprocess.run([MIRROR, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def caught_up(config: Path, text: str) -> list[dict[str, Any]]:
    """Runs the mirror until it has copied everything; its log lines about where copies begin."""
    with mirror(config, text) as process:
        process.wait_event("caught_up")
        assert process.stop() == 0
        return process.of("copy_begins")


@pytest.mark.spark
@pytest.mark.parametrize("offsets", ["exact", "mapped"])
def test_a_time_inside_a_batch(
    offsets: str,
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    spark: "SparkSession",
) -> None:
    """
    1. Thirty records in three batches, and a start at the time of the fifteenth: inside the second batch.
    2. The plan says so, the copy has the records from there on, with exact offsets at their offsets; only one batch was
       opened. What comes later is copied behind it by the next run, from where this one ended.
    3. The audit finds both the same, and says what was not to be copied.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    first_ms = round(time.time() * SECOND_MS) - 3_600_000
    create_topic(source, topic_name)
    write(source, topic_name, range(30), first_ms=first_ms)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime((first_ms + 14 * SECOND_MS) // 1000))
    start = f"{stamp}.{(first_ms + 14 * SECOND_MS) % 1000:03}+00:00"
    config = tmp_path / "mirror.yaml"
    text = config_text(source, destination, [topic_name], flow={"offsets": offsets, "start.from": start})
    config.write_text(text)
    planned = json.loads(command("plan", "-c", str(config), "--format", "json"))
    findings = planned["flows"][0]["findings"]
    assert [row["detail"] for row in findings if row["line"] == "P38"] == [
        f"the copy begins at offset 14 (start.from: {start}): 14 offsets that the source has before that are not copied"
    ], findings
    assert len(caught_up(config, text)) == 1
    write(source, topic_name, range(30, 40), first_ms=first_ms)
    assert not caught_up(config, text)
    found = read_from(destination_cluster, topic_name, first_offset(destination_cluster, topic_name))
    assert [value for _, _, value in found] == [b"%d" % number for number in range(14, 40)]
    if offsets == "exact":
        assert [at for at, *_ in found] == [*range(14, 40)]
    code, told = audited(spark, config)
    assert code == 0, told
    assert "offsets 0 to 13 of source were not to be copied" in told, told


def test_where_a_group_stands(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. ``committed``: a group that has committed nothing halts the partition.
    2. Once it has, at an offset inside a batch, the next start copies from there on.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    group = f"group-of-{topic_name}"
    create_topic(source, topic_name)
    write(source, topic_name, range(20), codec="lz4", first_ms=LONG_AGO_MS)
    config = tmp_path / "mirror.yaml"
    flow = {"start.from": "committed", "start.group": group}
    text = config_text(source, destination, [topic_name], flow=flow)
    with mirror(config, text) as process:
        assert process.wait_event("halted")["reason"] == "start_unknown"
        assert process.stop() == 2
    reader = Consumer({"bootstrap.servers": source, "group.id": group, "log_level": 0})
    reader.commit(offsets=[TopicPartition(topic_name, 0, 7)], asynchronous=False)
    reader.close()
    (line,) = caught_up(config, text)
    assert "from offset 7 on (start.from: committed)" in line["detail"]
    assert first_offset(destination_cluster, topic_name) == 7
    assert [(at, value) for at, _, value in read_from(destination_cluster, topic_name, 7)] == [
        (number, b"%d" % number) for number in range(7, 20)
    ]


def test_from_now_on(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. ``latest``: what is there at the first start is not copied; what is written then is.
    2. A topic that is created after that is copied from its first record on.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    later = f"{topic_name}-later"
    create_topic(source, topic_name)
    write(source, topic_name, range(15), first_ms=LONG_AGO_MS)
    config = tmp_path / "mirror.yaml"
    text = config_text(source, destination, [topic_name, later], flow={"start.from": "latest", "flow.id": topic_name})
    with mirror(config, text) as process:
        process.wait_event("copy_begins")
        now_ms = round(time.time() * SECOND_MS)
        write(source, topic_name, range(15, 25), first_ms=now_ms)
        process.wait_for(lambda: process.of("progress")[-1]["batches_forwarded"], "what was written then")
        assert process.stop() == 0
    assert first_offset(destination_cluster, topic_name) == 15
    assert [value for _, _, value in read_from(destination_cluster, topic_name, 15)][:1] == [b"15"]
    create_topic(source, later)
    write(source, later, range(5), first_ms=round(time.time() * SECOND_MS))
    assert not caught_up(config, text)
    assert [value for _, _, value in read_from(destination_cluster, later, 0)] == [b"%d" % each for each in range(5)]
