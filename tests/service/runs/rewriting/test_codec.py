"""A codec on purpose (``compression.type`` of the flow), through ``mirror run``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror.audit.judge.changed.reencoded import RECODED
from mirror.records.header import BatchHeader, Codec
from tests.service.runs.holes.test_holes import transactions
from tests.service.runs.rewriting.conftest import NEW
from tests.service.runs.rewriting.test_append_times import clean, set_config
from tests.service.runs.rewriting.test_deep_path import Sides, as_read, killed_once, wait_equal
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import CODECS, create_topic, produce, read_log
from tests.service.stage.running import config_text, get, mirror, status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]
KILLS = 1


OLD = "3.9.2"
CASES = [(NEW, "snappy", True), (NEW, "lz4", True), (NEW, "zstd", False), (OLD, "gzip", True), (OLD, "none", False)]
"""Version of the destination; codec of the flow; whether the topic has it, too. Each codec once: what each of them
writes is tried in ``tests/records``."""


def codecs(bootstrap: str, topic: str) -> set[int]:
    """Those of its batches of data."""
    headers = [BatchHeader.read(batch) for batch in read_log(bootstrap, topic)]
    return {header.codec_bits for header in headers if not header.is_control}


@pytest.mark.parametrize(("sides", "codec", "own"), CASES, indirect=["sides"])
def test_each_codec(
    sides: Sides, topic_name: str, tmp_path: Path, spark: "SparkSession", codec: str, own: bool
) -> None:
    """
    1. Batches in every codec, transactions among them; some are larger than the topic takes when they are compressed
       anew. The mirror is killed in the middle.
    2. Consumers of both sides get the same records at the same offsets. All batches have the codec, as the topic's own
       config has it, or not; so says the audit.
    """
    source, destination = sides
    create_topic(source, topic_name)
    topics: Any = {"max_message_bytes": "20000"}
    if own:
        topics["compression_type"] = "uncompressed" if codec == "none" else codec
    create_topic(destination, topic_name, **topics)
    text = config_text(source, destination, [topic_name], flow={"compression.type": codec})
    for number in range(KILLS):
        for each in CODECS:
            produce(source, topic_name, 60, codec=each, seed=number, size=1_500)
        transactions(source, topic_name, 2, name=f"{topic_name}-{number}")
        killed_once(tmp_path / "mirror.yaml", text, topic_name)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, sides, topic_name)
        for each in CODECS:
            produce(source, topic_name, 20, codec=each, seed=77)
        wait_equal(process, sides, topic_name)
        process.wait_for(lambda: status(process)["flows"][0]["opened"].get("other_codec", 0) >= 4, "what was opened")
        assert 'reason="other_codec"' in get(process, "/metrics")[1]
        clean(process)
    assert as_read(destination, topic_name) == as_read(source, topic_name)
    assert codecs(destination, topic_name) == {Codec[codec.upper()]}
    if not own:
        code, told = audited(spark, tmp_path / "mirror.yaml")
        assert code == 0, told
        assert "identical" in told
        assert RECODED in told


@pytest.mark.parametrize("sides", [NEW, OLD], indirect=True)
def test_a_topic_that_recompresses_from_now_on(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """
    1. A topic gets the codec of the flow, and then another one: that halts, with both named, before much is changed.
    2. It is set back, and the copy goes on behind what the broker has compressed anew meanwhile.
    """
    source, destination = sides
    create_topic(source, topic_name)
    create_topic(destination, topic_name)
    flow = {"compression.type": "lz4", "refresh.topics.interval.ms": 500}
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name], flow=flow)) as process:
        produce(source, topic_name, 40, codec="gzip")
        wait_equal(process, sides, topic_name)
        set_config(destination, topic_name, compression_type="lz4")
        produce(source, topic_name, 40, codec="zstd", seed=1)
        wait_equal(process, sides, topic_name)
        set_config(destination, topic_name, compression_type="gzip")
        produce(source, topic_name, 40, codec="none", seed=2)
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "destination_rewrites"
        assert "compression.type=gzip" in line["detail"]
        assert "compression.type of the flow" in line["remedy"]
        set_config(destination, topic_name, compression_type="producer")
        process.wait_event("healed", topic=topic_name)
        produce(source, topic_name, 20, codec="snappy", seed=3)
        wait_equal(process, sides, topic_name)
        assert process.stop() == 0
        assert {line["reason"] for line in process.of("halted")} == {"destination_rewrites"}
    assert as_read(destination, topic_name) == as_read(source, topic_name)
