"""Batches that no broker takes as they are, through ``mirror run``: the same records at the same offsets."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from mirror.sandbox import SandboxCluster
from mirror.sandbox.cluster import start_together
from tests.service.runs.holes.test_holes import consumed
from tests.service.stage.kafka_side import (
    CODECS,
    HEADER,
    PATIENCE_S,
    assert_identical,
    create_topic,
    end_of,
    produce,
    read_log,
    start_of,
)
from tests.service.stage.running import Mirror, config_text, get, mirror, status

pytestmark = pytest.mark.broker
QUICK_CLEANER = {"log.cleaner.backoff.ms": "200"}
LAST_DELTA, RECORDS = 6, 12
Sides = tuple[str, str]
Record = tuple[Any, ...]


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """Bootstrap servers of a source whose cleaner is quick, and of a destination."""
    with started(SandboxCluster(properties=QUICK_CLEANER, quick=True), SandboxCluster(quick=True)) as found:
        yield found


@contextmanager
def started(source: SandboxCluster, destination: SandboxCluster) -> Iterator[Sides]:
    """Both, together; their bootstrap servers."""
    try:
        start_together(source, destination)
        yield source.bootstrap_servers, destination.bootstrap_servers
    finally:
        source.close()
        destination.close()


def keyed(bootstrap: str, topic: str, codec: str, *, rounds: int = 3, name: str = "w") -> None:
    """Transactions of records whose keys come again: a cleaner takes some out of the middle of batches. Each begins a
    segment, by its time."""
    chance = random.Random(f"{topic}{codec}")
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{topic}-{name}-{codec}",
            "compression.type": codec,
            "linger.ms": 30_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    for each in range(rounds):
        producer.begin_transaction()
        for number in range(40):
            key = b"%s %d" % (codec.encode(), number if each % 2 else chance.randrange(30))
            value = None if number % 13 == 5 else b"value %d of %d " % (number, each) * 20
            at_ms = round(time.time() * 1000) + number
            headers = [("codec", codec.encode()), ("empty", None)] if number % 3 else None
            producer.produce(topic, value, key, partition=0, timestamp=at_ms, headers=headers)
        producer.flush(PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        time.sleep(0.3)


def sparse_in(bootstrap: str, topic: str) -> set[int]:
    """Codecs of the batches that have lost records and still have some."""
    fields = [HEADER.unpack_from(batch) for batch in read_log(bootstrap, topic)]
    return {one[5] & 7 for one in fields if 0 < one[RECORDS] <= one[LAST_DELTA]}


def limit(bootstrap: str, topic: str, size: str) -> None:
    """Sets the topic's ``max.message.bytes``."""
    entry = ConfigEntry("max.message.bytes", size, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(PATIENCE_S)


def killed_once(config: Path, text: str, topic: str) -> None:
    """The mirror is killed with SIGKILL soon after it has begun to copy the topic."""
    with mirror(config, text) as process:
        process.wait_event("located", topic=topic)
        time.sleep(0.1)
        process.process.kill()
        process.wait()


def wait_equal(process: Mirror, sides: Sides, topic: str) -> None:
    process.wait_event("started")
    process.wait_for(lambda: end_of(sides[0], topic) == end_of(sides[1], topic), "equal ends")


def as_read(bootstrap: str, topic: str) -> list[Record]:
    """What a consumer of committed records has of it, but for which kind of timestamp it is."""
    return [
        (one.offset, one.key, one.value, tuple(one.headers or ()), one.timestamp[1])
        for one in consumed(bootstrap, topic, "read_committed")
    ]


def check_between(before: list[Record], there: list[Record], after: list[Record]) -> None:
    """The copy has what the source had, but for what its cleaner has taken since."""
    assert [one for one in before if one in set(there)] == there
    assert set(after) <= set(there)


def test_holes_inside_of_batches(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """
    1. A compacted topic with batches in all codecs; its cleaner has taken records out of the middle of some of each.
    2. It is copied: consumers of both sides get the same records at the same offsets, none of them from a marker.
    3. The mirror says how many batches it has opened, and why.
    4. Started again, it finds its place behind the last piece, and goes on.
    """
    source, destination = sides
    create_topic(
        source, topic_name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="86400000",
    )  # fmt: skip
    create_topic(destination, topic_name, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    for codec in CODECS:
        keyed(source, topic_name, codec)
    deadline = time.monotonic() + PATIENCE_S
    while len(sparse_in(source, topic_name)) < len(CODECS) - 1:  # what comes last is not cleaned
        assert time.monotonic() < deadline, "not cleaned"
        time.sleep(0.2)
    before = as_read(source, topic_name)
    text = config_text(source, destination, [topic_name])
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, sides, topic_name)
        process.wait_for(
            lambda: status(process)["flows"][0]["opened"].get("sparse_batch", 0) >= 4, "what was opened to be told"
        )
        _, metrics = get(process, "/metrics")
        (line,) = [one for one in metrics.splitlines() if one.startswith("mirror_batches_total") and "sparse" in one]
        assert float(line.split()[-1]) >= 4
        assert process.stop() == 0
        assert not process.of("halted")
    check_between(before, as_read(destination, topic_name), as_read(source, topic_name))
    keyed(source, topic_name, "lz4", name="again")
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, sides, topic_name)
        assert process.stop() == 0
        assert not process.of("halted")
        assert not process.of("prefix_unproven")
    there, after = as_read(destination, topic_name), as_read(source, topic_name)
    assert set(after) <= set(there)
    assert there[-40:] == after[-40:]


def test_append_times(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """The source's broker has put its own times in: they are what consumers of the copy see."""
    source, destination = sides
    create_topic(source, topic_name, message_timestamp_type="LogAppendTime")
    create_topic(destination, topic_name)
    for codec in CODECS:
        produce(source, topic_name, 120, codec=codec)
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])) as process:
        wait_equal(process, sides, topic_name)
        produce(source, topic_name, 50, seed=1)
        wait_equal(process, sides, topic_name)
        assert process.stop() == 0
    found = as_read(destination, topic_name)
    assert found == as_read(source, topic_name)
    assert len(found) == 650


@pytest.mark.parametrize("codec", CODECS)
def test_batches_over_the_limit(sides: Sides, topic_name: str, tmp_path: Path, codec: str) -> None:
    """The destination takes less than the source: larger batches are split, the others go as they are."""
    source, destination = sides
    create_topic(source, topic_name)
    create_topic(destination, topic_name, max_message_bytes="8000")
    produce(source, topic_name, 50, codec=codec, size=60)
    produce(source, topic_name, 300, codec=codec, size=3_000, seed=1)
    sizes = [len(batch) for batch in read_log(source, topic_name)]
    assert min(sizes) <= 8_000 < max(sizes)
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])) as process:
        wait_equal(process, sides, topic_name)
        assert process.stop() == 0
    assert max(len(batch) for batch in read_log(destination, topic_name)) <= 8_000
    assert as_read(destination, topic_name) == as_read(source, topic_name)


def test_a_limit_that_falls_while_it_runs(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """MESSAGE_TOO_LARGE is answered by a look at the limit, and a split."""
    source, destination = sides
    create_topic(source, topic_name)
    create_topic(destination, topic_name)
    produce(source, topic_name, 50)
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])) as process:
        wait_equal(process, sides, topic_name)
        limit(destination, topic_name, "5000")
        produce(source, topic_name, 300, size=3_000, codec="zstd", seed=1)
        wait_equal(process, sides, topic_name)
        assert process.stop() == 0
        assert not process.of("halted")
    assert as_read(destination, topic_name) == as_read(source, topic_name)


def test_a_record_over_the_limit_halts_where_it_stands(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """
    1. A record that fits into no batch that the destination takes: the partition halts there, with its size.
    2. The limit is raised, and the copy goes on by itself behind the last piece.
    """
    source, destination = sides
    create_topic(source, topic_name)
    create_topic(destination, topic_name, max_message_bytes="8000")
    produce(source, topic_name, 100, size=3_000)
    produce(source, topic_name, 2, size=30_000, least=25_000, seed=2)
    text = config_text(source, destination, [topic_name], flow={"refresh.topics.interval.ms": 1_000})
    with mirror(tmp_path / "mirror.yaml", text) as process:
        line = process.wait_event("halted", topic=topic_name)
        assert line["reason"] == "too_large"
        assert "the record at offset 101 makes a batch of" in line["detail"]
        assert end_of(destination, topic_name) == 101
        limit(destination, topic_name, "100000")
        wait_equal(process, sides, topic_name)
        assert process.stop() == 0
    assert as_read(destination, topic_name) == as_read(source, topic_name)


def test_switched_off_it_halts(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    source, destination = sides
    create_topic(source, topic_name, message_timestamp_type="LogAppendTime")
    produce(source, topic_name, 20)
    text = config_text(source, destination, [topic_name], flow={"deep.path.enable": False})
    with mirror(tmp_path / "mirror.yaml", text) as process:
        assert process.wait_event("halted", topic=topic_name)["reason"] == "log_append_time"
        assert process.stop() == 2


def test_other_batches_stay_identical(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """Nothing is opened that the destination takes as it is."""
    source, destination = sides
    create_topic(source, topic_name)
    for codec in CODECS:
        produce(source, topic_name, 200, codec=codec)
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])) as process:
        wait_equal(process, sides, topic_name)
        assert status(process)["flows"][0]["opened"] == {}
        assert process.stop() == 0
    assert assert_identical(source, destination, [topic_name]) > 5


def test_a_source_that_begins_inside_of_a_batch_that_is_cut(sides: Sides, topic_name: str, tmp_path: Path) -> None:
    """Consumers of the copy find the same first record, although its batch came in several pieces before that."""
    source, destination = sides
    create_topic(source, topic_name)
    create_topic(destination, topic_name, max_message_bytes="1500")
    produce(source, topic_name, 40, size=1_000, least=900)
    produce(source, topic_name, 40, size=60, seed=1)
    first = HEADER.unpack_from(read_log(source, topic_name)[0])
    floor = first[LAST_DELTA] - 1
    assert floor > 4
    admin = AdminClient({"bootstrap.servers": source})
    for deleted in admin.delete_records([TopicPartition(topic_name, 0, floor)]).values():
        deleted.result(PATIENCE_S)
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name])) as process:
        wait_equal(process, sides, topic_name)
        process.wait_for(lambda: start_of(destination, topic_name) == floor, "the same first record")
        assert process.stop() == 0
        assert not process.of("halted")
    assert as_read(destination, topic_name) == as_read(source, topic_name)
