"""Destination topics whose broker puts the time of the append into each batch (``destination.timestamps: append``)."""

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from mirror.records.content.raw import placed_records
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from mirror.records.stamped import is_stamped, unstamped
from tests.service.runs.holes.test_holes import consumed, transactions
from tests.service.runs.rewriting.conftest import NEW
from tests.service.runs.rewriting.test_deep_path import Sides, keyed, killed_once, wait_equal
from tests.service.stage.kafka_side import CODECS, PATIENCE_S, create_topic, produce, read_log
from tests.service.stage.running import Mirror, config_text, mirror

pytestmark = pytest.mark.broker
APPEND: dict[str, object] = {"destination.timestamps": "append", "refresh.topics.interval.ms": 500}
STAMPS: Any = {"message_timestamp_type": "LogAppendTime"}
KILLS = 3
Seen = list[tuple[Any, ...]]


both = pytest.mark.parametrize("sides", [NEW, "3.9.2"], indirect=True)
"""Versions of the destination. Only what its broker writes can differ between them."""


def set_config(bootstrap: str, topic: str, **values: str) -> None:
    """Sets configs of the topic."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(PATIENCE_S)


def seen(bootstrap: str, topic: str) -> Seen:
    """What a consumer of committed records has of it, but for the times."""
    return [
        (one.offset, one.key, one.value, tuple(one.headers or ()))
        for one in consumed(bootstrap, topic, "read_committed")
    ]


def times(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """Type and time of each record, as a consumer sees it."""
    return [one.timestamp for one in consumed(bootstrap, topic, "read_committed")]


def payloads(bootstrap: str, topic: str) -> list[bytes]:
    """The records of each batch of data, as they are stored."""
    found = [(BatchHeader.read(batch), batch) for batch in read_log(bootstrap, topic)]
    return [batch[HEADER_SIZE:] for header, batch in found if not header.is_control]


def clean(process: Mirror) -> None:
    """It has stopped, and found all as it has to be."""
    assert process.stop() == 0
    for event in ("halted", "prefix_unproven"):
        assert not process.of(event), process.of(event)


@both
@pytest.mark.parametrize("offsets", ["exact", "mapped"])
def test_all_but_the_time_is_kept(sides: Sides, topic_name: str, tmp_path: Path, offsets: str) -> None:
    """
    1. Batches in every codec, old ones and transactions among them. The mirror is killed again and again meanwhile.
    2. The destination has the same batches, byte for byte behind the header, and consumers see its broker's times.
    """
    source, destination = sides
    create_topic(source, topic_name)
    create_topic(destination, topic_name, **STAMPS)
    began_ms = time.time() * 1000
    text = config_text(source, destination, [topic_name], flow=APPEND | {"offsets": offsets})
    for number in range(KILLS):
        for codec in CODECS:
            produce(source, topic_name, 60, codec=codec, seed=10 * number)
        transactions(source, topic_name, 2, name=f"{topic_name}-{number}")
        killed_once(tmp_path / "mirror.yaml", text, topic_name)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        process.wait_event("caught_up")
        produce(source, topic_name, 50, seed=99)
        process.wait_for(lambda: len(payloads(destination, topic_name)) == len(payloads(source, topic_name)), "all")
        clean(process)
    here, there = seen(source, topic_name), seen(destination, topic_name)
    assert [one[1:] for one in there] == [one[1:] for one in here]
    assert len(here) >= KILLS * 5 * 60
    assert offsets == "mapped" or there == here
    assert payloads(destination, topic_name) == payloads(source, topic_name)
    assert all(
        kind == TIMESTAMP_LOG_APPEND_TIME and began_ms - 1_000 <= at_ms <= time.time() * 1000 + 1_000
        for kind, at_ms in times(destination, topic_name)
    )


@pytest.mark.parametrize("offsets", ["exact", "mapped"])
def test_a_config_that_changes_while_it_runs(sides: Sides, topic_name: str, tmp_path: Path, offsets: str) -> None:
    """In both directions, and the mirror is killed behind each: each batch is judged by its own mark."""
    source, destination = sides
    create_topic(source, topic_name)
    create_topic(destination, topic_name)
    text = config_text(source, destination, [topic_name], flow=APPEND | {"offsets": offsets})
    marked = []
    for number, value in enumerate(("CreateTime", "LogAppendTime", "CreateTime", "LogAppendTime")):
        with mirror(tmp_path / "mirror.yaml", text) as process:
            process.wait_event("located", topic=topic_name)
            for part in range(2):
                if part:
                    set_config(destination, topic_name, message_timestamp_type=value)
                produce(source, topic_name, 40, seed=2 * number + part, codec=CODECS[number])
                process.wait_for(
                    lambda: len(payloads(destination, topic_name)) == len(payloads(source, topic_name)), "all"
                )
            assert not process.of("halted")
            process.process.kill()
            process.wait()
    with mirror(tmp_path / "mirror.yaml", text) as process:
        process.wait_event("caught_up")
        clean(process)
    for one, other in zip(
        [BatchHeader.read(batch) for batch in read_log(source, topic_name)],
        [header for batch in read_log(destination, topic_name) if not (header := BatchHeader.read(batch)).is_control],
        strict=True,
    ):
        marked.append(bool(other.attributes & LOG_APPEND_TIME))
        assert marked[-1] or one.max_timestamp == other.max_timestamp
    assert set(marked) == {True, False}
    assert payloads(destination, topic_name) == payloads(source, topic_name)
    kinds = [kind for kind, _ in times(destination, topic_name)]
    assert {TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME} == set(kinds)


@both
def test_both_sides_put_their_times_in(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """Each batch carries the times of the source's append, which come to light if the topic keeps times again."""
    source, destination = sides
    create_topic(source, topic_name, **STAMPS)
    create_topic(destination, topic_name, **STAMPS)
    text = config_text(source, destination, [topic_name], flow=APPEND)
    for number in range(2):
        for codec in CODECS:
            produce(source, topic_name, 60, codec=codec, seed=number)
        with mirror(tmp_path / "mirror.yaml", text) as process:
            wait_equal(process, sides, topic_name)
            clean(process)
    assert seen(destination, topic_name) == seen(source, topic_name)
    assert [kind for kind, _ in times(destination, topic_name)] == [TIMESTAMP_LOG_APPEND_TIME] * 600
    set_config(destination, topic_name, message_timestamp_type="CreateTime")
    with mirror(tmp_path / "mirror.yaml", text) as process:
        process.wait_event("started")
        produce(source, topic_name, 20, seed=7)
        wait_equal(process, sides, topic_name)
        clean(process)
    assert [at for _, at in times(destination, topic_name)][-20:] == [at for _, at in times(source, topic_name)][-20:]


@both
def test_a_copy_that_a_cleaner_has_changed(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """
    1. A compacted topic is copied, and the destination's cleaner takes records out of batches. What it leaves has
       the time of the append in each record: what the producer had written is gone.
    2. The mirror, started again, finds its place by all else of them, and goes on.
    """
    source, destination = sides
    compacted: Any = {"cleanup_policy": "compact", "segment_ms": "100"}
    create_topic(source, topic_name, min_cleanable_dirty_ratio="1.0", **compacted)
    create_topic(
        destination, topic_name, min_cleanable_dirty_ratio="0.01", delete_retention_ms="86400000", **compacted, **STAMPS
    )
    text = config_text(source, destination, [topic_name], flow=APPEND)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        process.wait_event("started")
        for codec in CODECS:  # copied as they are written: each batch begins a segment there, too
            keyed(source, topic_name, codec)
        wait_equal(process, sides, topic_name)
        process.wait_for(lambda: cleaned(destination, topic_name), "the cleaner")
        clean(process)
    keyed(source, topic_name, "lz4", rounds=2, name="again")
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, sides, topic_name)
        clean(process)
    assert set(seen(destination, topic_name)) <= set(seen(source, topic_name))
    assert seen(destination, topic_name)[-30:] == seen(source, topic_name)[-30:]


def cleaned(bootstrap: str, topic: str) -> bool:
    """True if there are stamped batches from the middle of which records were taken. Each record has their time."""
    sparse = []
    for batch in read_log(bootstrap, topic):
        header = BatchHeader.read(batch)
        if 0 < header.record_count <= header.last_offset_delta:
            assert is_stamped(header)
            own = unstamped(header, header.max_timestamp)
            sparse.append({one.timestamp for one in placed_records(own, batch[HEADER_SIZE:])} == {header.max_timestamp})
    assert all(sparse)
    return bool(sparse)


def test_by_default_it_halts_and_names_the_setting(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """With the setting, the copy goes on; without it again, and the config set back, what was stamped is no copy."""
    source, destination = sides
    create_topic(source, topic_name)
    create_topic(destination, topic_name, **STAMPS)
    produce(source, topic_name, 20)
    keep = config_text(source, destination, [topic_name])
    with mirror(tmp_path / "mirror.yaml", keep) as process:
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "destination_rewrites"
        assert "destination.timestamps: append" in line["remedy"]
        assert process.stop() == 2
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name], flow=APPEND)) as process:
        wait_equal(process, sides, topic_name)
        clean(process)
    set_config(destination, topic_name, message_timestamp_type="CreateTime")
    with mirror(tmp_path / "mirror.yaml", keep) as process:
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "not_a_copy"
        assert "with destination.timestamps: append the flow takes that" in line["detail"]
        assert process.stop() == 2
