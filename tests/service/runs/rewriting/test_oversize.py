"""Records that are too large for the destination even alone, through ``mirror run``: dropped, or written as dead
letters, and every other record at its offset. ``mirror audit`` names them."""

import json
import random
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from mirror.sandbox import SandboxCluster
from tests.service.runs.holes.test_holes import consumed
from tests.service.runs.rewriting.test_deep_path import as_read, limit, wait_equal
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import PATIENCE_S, create_topic, end_of
from tests.service.stage.running import Mirror, cli, config_text, get, mirror, status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
LIMIT = 8_000
COUNT = 240
FLOW = {"refresh.topics.interval.ms": 1_000}


def too_large(number: int) -> bool:
    """Every 17th record, and three in a row."""
    return number % 17 == 5 or 100 <= number < 103


OVER = [number for number in range(COUNT) if too_large(number)]


def fill(bootstrap: str, topic: str, codec: str, *, first: int = 0, count: int = COUNT) -> None:
    """Some records alone in their batches, most in batches with others."""
    draw = random.Random(f"{topic}{codec}{first}")
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 10_000, "batch.num.messages": 20,
            "enable.idempotence": True, "log_level": 0, "message.max.bytes": 1_000_000,
        }
    )  # fmt: skip
    for number in range(first, first + count):
        size = draw.randint(20_000, 30_000) if too_large(number) else draw.randint(10, 900)
        headers: Any = [("number", b"%d" % number), ("nothing", None)] if number % 3 else None
        producer.produce(
            topic, draw.randbytes(size), b"key %d" % number, partition=0, timestamp=1_700_000_000_000 + number,
            headers=headers,
        )  # fmt: skip
        if number % 40 == 39 or number == 22:
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0


def topics_for(source: str, destination: str, topic: str, codec: str) -> None:
    create_topic(source, topic)
    create_topic(destination, topic, max_message_bytes=str(LIMIT))
    fill(source, topic, codec)


def _has(bootstrap: str, topic: str, end: int) -> bool:
    return end_of(bootstrap, topic) >= end


def without(source: str, topic: str, over: list[int]) -> list[Any]:
    return [one for one in as_read(source, topic) if one[0] not in over]


def letters_in(bootstrap: str, topic: str) -> dict[int, list[Any]]:
    """Offset at the source -> each dead letter of it, as a consumer reads it: key, value, own headers, time."""
    found: dict[int, list[Any]] = {}
    for one in consumed(bootstrap, topic, "read_committed"):
        headers = one.headers or []
        told = {name: value for name, value in headers if name.startswith("__mirror.errors.")}
        own = tuple(each for each in headers if each[0] not in told)
        assert told["__mirror.errors.partition"] == b"0"
        assert told["__mirror.errors.reason"] == b"oversize"
        assert told["__mirror.errors.flow"] == b"source->destination"
        letter = one.key, one.value, own, one.timestamp[1], told["__mirror.errors.topic"]
        found.setdefault(int(told["__mirror.errors.offset"]), []).append(letter)
    return found


def dropped(process: Mirror, topic: str) -> float:
    """As the metric counts them."""
    _, text = get(process, "/metrics")
    wanted = "mirror_skipped_offsets_total{", 'reason="oversize"', f'topic="{topic}"'
    return sum(float(line.split()[-1]) for line in text.splitlines() if all(part in line for part in wanted))


def audit(spark: "SparkSession", tmp_path: Path, text: str) -> tuple[int, dict[str, Any]]:
    """The exit code of ``mirror audit``, and its summary."""
    config, out = tmp_path / "audit.yaml", tmp_path / "audit"
    config.write_text(text)
    code, told = audited(spark, config, "--out", str(out))
    assert (out / "summary.json").exists(), told
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    summary["shown"] = told
    return code, summary


@pytest.mark.spark
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_dropped(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    spark: "SparkSession",
    codec: str,
) -> None:
    """
    1. Records over the limit, alone and among others, in a row too: all others come, at their offsets.
    2. Each is logged with topic, partition, offset, size and limit, counted, and shown by status.
    3. Started again, right behind such a record and further on, it goes on.
    4. The audit: nothing else differs; exit code 3 with as many records, and 0 if the configuration accepts it.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    topics_for(source, destination, topic_name, codec)
    text = config_text(source, destination, [topic_name], flow=FLOW | {"oversize.record": "drop"})
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, (source, destination), topic_name)
        process.wait_for(lambda: dropped(process, topic_name) == len(OVER), "the metric")
        (row,) = [each for each in status(process)["skipped"] if each["topic"] == topic_name]
        assert (row["topic"], row["records"], row["first"], row["next"]) == (
            topic_name, len(OVER), OVER[0], OVER[-1] + 1,
        )  # fmt: skip
        assert process.stop() == 0
        lines = process.of("oversize_record")
        assert [(one["topic"], one["partition"], one["offset"], one["limit"]) for one in lines] == [
            (topic_name, 0, offset, LIMIT) for offset in OVER
        ]
        assert all(20_000 < one["size"] < 31_000 for one in lines)
    assert as_read(destination, topic_name) == without(source, topic_name, OVER)
    over = [number for number in range(270) if too_large(number)]
    fill(source, topic_name, codec, first=COUNT, count=21)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, (source, destination), topic_name)
        assert process.stop() == 0
    assert end_of(destination, topic_name) == 261
    fill(source, topic_name, codec, first=261, count=9)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, (source, destination), topic_name)
        process.wait_for(lambda: dropped(process, topic_name) == len(over), "the metric")
        assert process.stop() == 0
        assert not process.of("halted")
        assert not process.of("prefix_unproven")
    assert as_read(destination, topic_name) == without(source, topic_name, over)
    if codec == "none":
        return
    code, found = audit(spark, tmp_path, text)
    assert (code, found["verdict"], found["findings"]) == (3, "oversize", {"oversize": len(over)})
    assert f"differ nowhere but in {len(over)} records (" in found["shown"]
    accepted = config_text(source, destination, [topic_name], flow=FLOW | {"audit.accept": ["oversize"]})
    assert audit(spark, tmp_path, accepted)[0] == 0


@pytest.mark.spark
def test_dead_letters_through_kills(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    spark: "SparkSession",
) -> None:
    """
    1. ``mirror run`` is killed (-9) five times, each time when a dead letter is written and its offset is not passed
       over yet, as far as can be told from outside.
    2. The copy has every other record once, at its offset. Each record that is too large is a dead letter, as it was;
       some may be there twice.
    3. The audit says what was passed over, and nothing else.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    topics_for(source, destination, topic_name, "lz4")
    letters = f"{topic_name}-letters"
    create_topic(destination, letters)
    flow = FLOW | {"oversize.record": "deadletter", "oversize.record.topic": letters}
    text = config_text(source, destination, [topic_name], flow=flow)
    for _ in range(5):
        enough = end_of(destination, letters) + 2
        with mirror(tmp_path / "mirror.yaml", text) as process:
            process.wait_for(partial(_has, destination, letters, enough), "dead letters")
            process.process.kill()
            assert process.wait() == -signal.SIGKILL
            process.check_clean()
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, (source, destination), topic_name)
        assert process.stop() == 0
        assert not process.of("halted")
    assert as_read(destination, topic_name) == without(source, topic_name, OVER)
    wanted = {
        one.offset: (one.key, one.value, tuple(one.headers or ()), one.timestamp[1], topic_name.encode())
        for one in consumed(source, topic_name, "read_committed")
    }
    found = letters_in(destination, letters)
    assert sorted(found) == OVER
    for offset, some in found.items():
        assert set(some) == {wanted[offset]}
        assert len(some) <= 6
    code, summary = audit(spark, tmp_path, text)
    assert (code, summary["findings"]) == (3, {"oversize": len(OVER)})


def test_a_dead_letter_topic_that_takes_less(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """It halts in front of the record, with the reason; the limit is raised, the partition resumed, and it goes on."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    topics_for(source, destination, topic_name, "none")
    letters = f"{topic_name}-letters"
    create_topic(destination, letters, max_message_bytes="10000")
    flow = FLOW | {"oversize.record": "deadletter", "oversize.record.topic": letters}
    config = tmp_path / "mirror.yaml"
    with mirror(config, config_text(source, destination, [topic_name], flow=flow)) as process:
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "dead_letter_refused"
        assert "MESSAGE_TOO_LARGE (10)" in line["detail"]
        assert letters in line["detail"]
        assert end_of(destination, topic_name) == OVER[0]
        limit(destination, letters, "100000")
        resumed = cli(process, config, "resume", topic_name, "0")
        assert resumed.returncode == 0, resumed.stdout + resumed.stderr
        wait_equal(process, (source, destination), topic_name)
        assert process.stop() == 0
    assert sorted(letters_in(destination, letters)) == OVER
