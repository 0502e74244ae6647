"""Small batches that become larger ones (``mode``), through ``mirror run``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from mirror.audit.judge.changed.rebatched import REBATCHED
from mirror.records.header import BatchHeader
from tests.service.runs.holes.test_holes import transactions
from tests.service.runs.rewriting.conftest import NEW
from tests.service.runs.rewriting.test_append_times import clean
from tests.service.runs.rewriting.test_deep_path import Sides, as_read, killed_once, wait_equal
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import CODECS, create_topic, read_log
from tests.service.stage.running import config_text, get, mirror, status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]
KILLS = 3
RECORDS = 400


def one_by_one(bootstrap: str, topic: str, count: int, *, codec: str, name: str, size: int = 40) -> None:
    """A batch for each record."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "log_level": 0,
        }
    )
    for number in range(count):
        value = f"{name} {number} ".encode() * (size // 10)
        producer.produce(topic, value, key=None if number % 5 else b"key", headers=[("n", b"%d" % number)])
        producer.poll(0)
    assert producer.flush(60) == 0


def batches(bootstrap: str, topic: str) -> list[BatchHeader]:
    """Those of data."""
    headers = [BatchHeader.read(batch) for batch in read_log(bootstrap, topic)]
    return [header for header in headers if not header.is_control]


@pytest.mark.parametrize(("sides", "mode"), [(NEW, "auto"), ("3.9.2", "deep")], indirect=["sides"])
def test_tiny_batches(sides: Sides, topic_name: str, tmp_path: Path, spark: "SparkSession", mode: str) -> None:
    """
    1. A batch for each record, in each codec; transactions among them, and batches that are larger than 1 KiB. The
       mirror is killed three times in the middle.
    2. Consumers of both sides get the same records at the same offsets, of far fewer batches. The audit says so.
    3. Without the mode, it goes on behind them, and nothing is opened.
    """
    source, destination = sides
    for side in sides:
        create_topic(side, topic_name)
    text = config_text(source, destination, [topic_name], flow={"mode": mode})
    for number in range(KILLS):
        for codec in CODECS:
            one_by_one(source, topic_name, RECORDS, codec=codec, name=f"{codec} {number}")
        one_by_one(source, topic_name, 20, codec="none", name=f"large {number}", size=4_000)
        transactions(source, topic_name, 2, name=f"{topic_name}-{number}")
        killed_once(tmp_path / "mirror.yaml", text, topic_name)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, sides, topic_name)
        one_by_one(source, topic_name, RECORDS, codec="lz4", name="last")
        wait_equal(process, sides, topic_name)
        process.wait_for(lambda: status(process)["flows"][0]["opened"].get("rebatched", 0) > 0, "what was opened")
        assert 'reason="rebatched"' in get(process, "/metrics")[1]
        clean(process)
    assert as_read(destination, topic_name) == as_read(source, topic_name)
    here, there = batches(source, topic_name), batches(destination, topic_name)
    assert len(there) < len(here) / 4
    large = [header.size for header in here if header.size > 4_000]
    if mode == "auto":
        assert [header.size for header in there if header.size in large] == large
    code, told = audited(spark, tmp_path / "mirror.yaml")
    assert code == 0, told
    assert "identical" in told
    assert REBATCHED in told
    text = config_text(source, destination, [topic_name])
    with mirror(tmp_path / "mirror.yaml", text) as process:
        one_by_one(source, topic_name, 30, codec="zstd", name="shallow")
        wait_equal(process, sides, topic_name)
        opened: dict[str, Any] = status(process)["flows"][0]["opened"]
        assert opened.get("rebatched", 0) == 0
        clean(process)
    assert as_read(destination, topic_name) == as_read(source, topic_name)
    assert len(batches(destination, topic_name)) == len(there) + 30
