"""``offsets: mapped`` with batches that no broker takes as they are: killed in the middle, while others write."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror.service.config import load
from mirror.service.config.resolve import flow_sides
from mirror.service.offsets.translate import Translator
from tests.service.runs.rewriting.test_deep_path import Sides, as_read, keyed, limit, sides, sparse_in
from tests.service.runs.test_mapped import FLOW
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import CODECS, PATIENCE_S, create_topic, produce, read_log
from tests.service.stage.running import config_text, mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["sides"]

pytestmark = [pytest.mark.broker, pytest.mark.spark]
KILLS = 3


def content(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """What the flow's records say, in order, without their offsets."""
    return [record[1:] for record in as_read(bootstrap, topic)]


async def check_map(config: Path, source: str, destination: str, topic: str) -> None:
    """Each record of the copy is where the map says, and translates back."""
    there = {record[0]: record[1:] for record in as_read(destination, topic)}
    async with Translator(flow_sides(load(config, {}).enabled_flow())) as translator:
        for offset, *record in as_read(source, topic):
            place = await translator.to_destination(topic, 0, offset)
            assert place is not None
            assert place.exact
            assert there[place.offset] == tuple(record)
            assert await translator.to_source(topic, 0, place.offset) == (offset, True)


async def test_holes_inside_of_batches(sides: Sides, topic_name: str, tmp_path: Path, spark: "SparkSession") -> None:
    """
    1. A compacted topic with batches in all codecs; its cleaner has taken records out of the middle of some of each.
    2. The destination takes only small batches. The mirror is killed with SIGKILL again and again.
    3. In the end, each record that the source has is there once, in order, where the map says; so says the audit.
    """
    source, destination = sides
    create_topic(
        source, topic_name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="86400000",
    )  # fmt: skip
    create_topic(destination, topic_name, max_message_bytes="2000")
    for codec in CODECS:
        keyed(source, topic_name, codec)
    deadline = time.monotonic() + PATIENCE_S
    while len(sparse_in(source, topic_name)) < len(CODECS) - 1:  # what comes last is not cleaned
        assert time.monotonic() < deadline, "not cleaned"
        await asyncio.sleep(0.2)
    before = content(source, topic_name)
    config = tmp_path / "mirror.yaml"
    text = config_text(source, destination, [topic_name], flow=FLOW, top={"session.timeout.ms": 6000})
    for _ in range(KILLS):
        with mirror(config, text) as process:
            process.wait_event("located", topic=topic_name)
            await asyncio.sleep(0.2)
            process.process.kill()
            process.wait()
    with mirror(config, text) as process:
        process.wait_event("caught_up")
        assert process.stop() == 0
        assert not process.of("halted")
    there, after = content(destination, topic_name), content(source, topic_name)
    assert [one for one in before if one in set(there)] == there
    assert set(after) <= set(there)
    await check_map(config, source, destination, topic_name)
    code, told = await asyncio.to_thread(audited, spark, config)
    assert code == 0, told
    assert "identical" in told


@pytest.mark.parametrize("kind", ["append times", "over the limit"])
async def test_every_codec(sides: Sides, topic_name: str, tmp_path: Path, spark: "SparkSession", kind: str) -> None:
    """The broker's times, and batches that are cut where another limit than before has them cut."""
    source, destination = sides
    if kind == "append times":
        create_topic(source, topic_name, message_timestamp_type="LogAppendTime")
        create_topic(destination, topic_name)
    else:
        create_topic(source, topic_name)
        create_topic(destination, topic_name, max_message_bytes="8000")
    for number, codec in enumerate(CODECS):
        produce(source, topic_name, 120, codec=codec, size=2_000, seed=number)
    config = tmp_path / "mirror.yaml"
    text = config_text(source, destination, [topic_name], flow=FLOW, top={"session.timeout.ms": 6000})
    with mirror(config, text) as process:
        process.wait_event("located", topic=topic_name)
        process.process.kill()
        process.wait()
    if kind == "over the limit":
        limit(destination, topic_name, "5000")
    with mirror(config, text) as process:
        process.wait_event("caught_up")
        assert process.stop() == 0
        assert not process.of("halted")
    assert content(destination, topic_name) == content(source, topic_name)
    assert len(content(source, topic_name)) == 120 * len(CODECS)
    if kind == "over the limit":
        assert max(len(batch) for batch in read_log(destination, topic_name)) <= 8_000
    await check_map(config, source, destination, topic_name)
    code, told = await asyncio.to_thread(audited, spark, config)
    assert code == 0, told
    assert "identical" in told
