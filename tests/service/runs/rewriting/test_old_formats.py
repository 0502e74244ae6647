"""Sources that hold messages of magic 0 and 1, through ``mirror run``: the same records at the same offsets."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from mirror.legacy import LegacySpan, Span, cut, messages
from mirror.sandbox import SandboxCluster
from mirror.wire.fetch import FetchPartition, read_fetch_response
from tests.legacy.logs import (
    AS_0_9,
    CODECS,
    MIB,
    OLD,
    TOPICS,
    await_cleaned,
    await_format,
    consumed,
    fill_old,
    set_format,
)
from tests.patience import PATIENT
from tests.service.runs.rewriting.test_deep_path import as_read, check_between, limit, wait_equal
from tests.service.runs.test_mapped import FLOW
from tests.service.stage.kafka_side import PATIENCE_S, create_topic, end_of, read_log, start_of
from tests.service.stage.running import config_text, get, mirror, status
from tests.vectors import load
from tests.vectors.client import Client

pytestmark = pytest.mark.broker
VERSION = "2.8.2"
"""The last but one that still writes old formats, where a topic's ``message.format.version`` says so."""
AS_0_10: Any = {"message_format_version": "0.10.2"}
KILLS = 3


@pytest.fixture(scope="module")
def source() -> Iterator[SandboxCluster]:
    properties = {**PATIENT, "auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "200"}
    with SandboxCluster(name="source", version=VERSION, properties=properties, quick=True, heap_mb=512) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def there() -> Iterator[str]:
    with SandboxCluster(name="destination", quick=True) as cluster:
        yield cluster.bootstrap_servers


def write(cluster: SandboxCluster, topic: str, rounds: int = 3, **options: Any) -> None:
    """Batches in every codec that the old formats have."""
    for codec in CODECS:
        load.produce(cluster.bootstrap_servers, topic, rounds, headers=False, compression_type=codec, **options)


def delete_before(servers: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for deleted in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        deleted.result(PATIENCE_S)


def stored(cluster: SandboxCluster, topic: str) -> tuple[memoryview, list[Span]]:
    """The whole log as it is stored, over all segments, and what is in it."""
    found, offset, end = b"", 0, end_of(cluster.bootstrap_servers, topic)
    with Client(cluster.brokers[0].port) as client:
        while offset < end:
            frame = client.fetch(11, [FetchPartition(topic, 0, offset, MIB)])
            (fetched,) = read_fetch_response(11, frame).partitions
            assert fetched.error == 0
            spans = list(cut(frame[fetched.start : fetched.end]))
            found += bytes(frame[fetched.start : fetched.start + spans[-1].at + spans[-1].size])
            offset = spans[-1].last_offset + 1
    return memoryview(found), list(cut(memoryview(found)))


def magics_in(cluster: SandboxCluster, topic: str) -> set[int]:
    return {span.magic if isinstance(span, LegacySpan) else 2 for span in stored(cluster, topic)[1]}


def test_every_format_and_codec(source: SandboxCluster, there: str, topic_name: str, tmp_path: Path) -> None:
    """
    1. Messages of magic 1 and of magic 0 in every codec, and batches of magic 2 with headers behind them.
    2. The mirror is killed with SIGKILL again and again while more comes.
    3. Consumers of both sides get the same records at the same offsets. It says how many messages it has opened.
    4. The destination's records expire. The mirror, started again, knows its place by what is written down.
    """
    create_topic(source.bootstrap_servers, topic_name, **AS_0_10)
    write(source, topic_name)
    set_format(source, topic_name, "0.9.0")
    await_format(source, topic_name, 0)
    write(source, topic_name, **AS_0_9)
    sides = source.bootstrap_servers, there
    text = config_text(*sides, [topic_name], top={"session.timeout.ms": 6000})
    for number in range(KILLS):
        with mirror(tmp_path / "mirror.yaml", text) as process:
            process.wait_event("located", topic=topic_name)
            write(source, topic_name, 1)
            time.sleep(number * 0.2)
            process.process.kill()
            process.wait()
    with mirror(tmp_path / "mirror.yaml", text) as process:
        write(source, topic_name, 1)
        wait_equal(process, sides, topic_name)
        set_format(source, topic_name, "2.8")
        await_format(source, topic_name, 2)
        for codec in load.CODECS:
            load.produce(source.bootstrap_servers, topic_name, 2, compression_type=codec)
        wait_equal(process, sides, topic_name)
        process.wait_for(lambda: status(process)["flows"][0]["opened"].get("old_format", 0) >= 4, "what was opened")
        _, metrics = get(process, "/metrics")
        assert 'reason="old_format"' in metrics
        assert process.stop() == 0
        assert not process.of("halted")
    assert magics_in(source, topic_name) == {0, 1, 2}
    assert consumed(there, topic_name) == consumed(source.bootstrap_servers, topic_name)


def test_a_copy_that_was_emptied(source: SandboxCluster, there: str, topic_name: str, tmp_path: Path) -> None:
    """The destination's records are gone. What is written down shows that the source is what was copied."""
    create_topic(source.bootstrap_servers, topic_name, **AS_0_10)
    write(source, topic_name)
    sides = source.bootstrap_servers, there
    text = config_text(*sides, [topic_name])
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, sides, topic_name)
        assert process.stop() == 0
    end = end_of(there, topic_name)
    delete_before(there, topic_name, end)
    write(source, topic_name, 1)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, sides, topic_name)
        assert process.stop() == 0
        assert not process.of("halted")
    copied = as_read(there, topic_name)
    assert copied == [one for one in as_read(source.bootstrap_servers, topic_name) if one[0] >= end]
    assert copied


def test_holes_that_a_cleaner_made(source: SandboxCluster, there: str, topic_name: str, tmp_path: Path) -> None:
    """
    1. A cleaner has taken messages out of wrappers of each codec, and some of those on their own.
    2. They are copied; then it takes more, the mirror is started again, and finds its place by the records.
    """
    here = source.bootstrap_servers
    create_topic(
        here, topic_name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", **AS_0_10
    )
    create_topic(there, topic_name, cleanup_policy="compact", min_cleanable_dirty_ratio="1.0")
    keyed(here, topic_name)
    await_holes(source, topic_name)
    before = as_read(here, topic_name)
    text = config_text(here, there, [topic_name])
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, (here, there), topic_name)
        assert process.stop() == 0
        assert not process.of("halted")
    check_between(before, as_read(there, topic_name), as_read(here, topic_name))
    keyed(here, topic_name, name="again")
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_equal(process, (here, there), topic_name)
        assert process.stop() == 0
        assert not process.of("halted")
    assert set(as_read(here, topic_name)) <= set(as_read(there, topic_name))


def keyed(servers: str, topic: str, *, name: str = "w") -> None:
    """Records whose keys come again, a segment for each batch by its time. The last one is not cleaned."""
    for codec in (*CODECS, CODECS[0]):
        chance = random.Random(f"{topic}{codec}{name}")
        writer = load.Writer(servers, compression_type=codec, linger_ms="30000")
        for each in range(3):
            for number in range(40):
                key = f"{codec} {number if each % 2 else chance.randrange(30)}"
                at_ms = round(time.time() * 1000) + number
                writer.producer.produce(topic, key=key, value=b"value %d " % each * 20, partition=0, timestamp=at_ms)
            writer.flush()
            time.sleep(0.3)


def await_holes(cluster: SandboxCluster, topic: str) -> None:
    """Wait until wrappers of all codecs have holes inside."""
    deadline = time.monotonic() + 3 * PATIENCE_S
    while True:
        view, spans = stored(cluster, topic)
        sparse = set[int]()
        for span in spans:
            assert isinstance(span, LegacySpan)
            offsets = [record.offset for record in messages(view, span, most=MIB)]
            if offsets[-1] - offsets[0] >= len(offsets):
                sparse.add(span.codec_bits)
        if len(sparse) == len(CODECS) - 1:
            return
        assert time.monotonic() < deadline, f"not cleaned: {sparse}"
        time.sleep(0.2)


def test_append_times(source: SandboxCluster, there: str, topic_name: str, tmp_path: Path) -> None:
    """The source's broker has put its own times in: they are what consumers of the copy see."""
    here = source.bootstrap_servers
    create_topic(here, topic_name, message_timestamp_type="LogAppendTime", **AS_0_10)
    create_topic(there, topic_name)
    write(source, topic_name)
    with mirror(tmp_path / "mirror.yaml", config_text(here, there, [topic_name])) as process:
        wait_equal(process, (here, there), topic_name)
        assert process.stop() == 0
    assert as_read(there, topic_name) == as_read(here, topic_name)


def test_wrappers_over_the_limit(source: SandboxCluster, there: str, topic_name: str, tmp_path: Path) -> None:
    """The destination takes less than what is gathered, or stands in a wrapper."""
    here = source.bootstrap_servers
    create_topic(here, topic_name, **AS_0_10)
    create_topic(there, topic_name, max_message_bytes="500")
    write(source, topic_name, 10)
    with mirror(tmp_path / "mirror.yaml", config_text(here, there, [topic_name])) as process:
        process.wait_event("located", topic=topic_name)
        process.process.kill()
        process.wait()
    limit(there, topic_name, "400")
    with mirror(tmp_path / "mirror.yaml", config_text(here, there, [topic_name])) as process:
        wait_equal(process, (here, there), topic_name)
        assert process.stop() == 0
        assert not process.of("halted")
    assert max(len(batch) for batch in read_log(there, topic_name)) <= 500
    assert as_read(there, topic_name) == as_read(here, topic_name)


def test_a_source_that_begins_inside_of_a_wrapper(
    source: SandboxCluster, there: str, topic_name: str, tmp_path: Path
) -> None:
    """Consumers of the copy find the same first record."""
    here = source.bootstrap_servers
    create_topic(here, topic_name, **AS_0_10)
    load.produce(here, topic_name, 3, records=10, headers=False, compression_type="gzip")
    floor = 14
    delete_before(here, topic_name, floor)
    with mirror(tmp_path / "mirror.yaml", config_text(here, there, [topic_name])) as process:
        wait_equal(process, (here, there), topic_name)
        process.wait_for(lambda: start_of(there, topic_name) == floor, "the same first record")
        assert process.stop() == 0
        assert not process.of("halted")
    assert as_read(there, topic_name) == as_read(here, topic_name)


def test_switched_off_it_halts(source: SandboxCluster, there: str, topic_name: str, tmp_path: Path) -> None:
    here = source.bootstrap_servers
    create_topic(here, topic_name, **AS_0_10)
    write(source, topic_name, 1)
    text = config_text(here, there, [topic_name], flow={"deep.path.enable": False})
    with mirror(tmp_path / "mirror.yaml", text) as process:
        assert process.wait_event("halted", topic=topic_name)["reason"] == "old_format"
        assert process.stop() == 2


def test_a_source_of_kafka_0_10(there: str, tmp_path: Path) -> None:
    """
    1. All that clients of that time wrote: librdkafka, Java, every codec, both magics, append times; a cleaned topic.
    2. It cannot be asked whether a topic is compacted: gaps are passed over because that is configured.
    3. The mirror is killed in the middle. Consumers of both sides get the same records at the same offsets.
    """
    properties = {**PATIENT, "auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "200"}
    with SandboxCluster(name="source", version=OLD, properties=properties, quick=True, heap_mb=512) as cluster:
        here = cluster.bootstrap_servers
        fill_old(cluster, tmp_path)
        await_cleaned(cluster)
        for topic, (count, _) in TOPICS.items():
            create_topic(there, topic, count)
        partitions = [(topic, at) for topic, (count, _) in TOPICS.items() for at in range(count)]
        text = config_text(here, there, [*TOPICS], flow={"on.gap": "continue"}, top={"session.timeout.ms": 6000})
        with mirror(tmp_path / "mirror.yaml", text) as process:
            process.wait_event("located")
            process.process.kill()
            process.wait()
        with mirror(tmp_path / "mirror.yaml", text) as process:
            process.wait_event("caught_up")
            assert process.stop() == 0
            assert not process.of("halted")
        for topic, at in partitions:
            expected = consumed(here, topic, at)
            assert consumed(there, topic, at) == expected
            assert len(expected) >= 5


@pytest.mark.parametrize("codec", CODECS)
def test_in_another_order_of_offsets(
    source: SandboxCluster, there: str, topic_name: str, tmp_path: Path, codec: str
) -> None:
    """``offsets: mapped``, killed again and again while others write: the same records in the same order, once."""
    create_topic(source.bootstrap_servers, topic_name, **AS_0_10)
    create_topic(there, topic_name)
    load.produce(there, topic_name, 1, headers=False)
    limit(there, topic_name, "500")
    load.produce(source.bootstrap_servers, topic_name, 6, headers=False, compression_type=codec)
    text = config_text(source.bootstrap_servers, there, [topic_name], flow=FLOW, top={"session.timeout.ms": 6000})
    for _ in range(KILLS):
        with mirror(tmp_path / "mirror.yaml", text) as process:
            process.wait_event("located", topic=topic_name)
            load.produce(source.bootstrap_servers, topic_name, 1, headers=False, compression_type=codec)
            time.sleep(0.2)
            process.process.kill()
            process.wait()
    with mirror(tmp_path / "mirror.yaml", text) as process:
        process.wait_event("caught_up")
        assert process.stop() == 0
        assert not process.of("halted")
    mine = [record._replace(offset=0) for record in consumed(there, topic_name)][5:]
    assert mine == [record._replace(offset=0) for record in consumed(source.bootstrap_servers, topic_name)]


def test_a_compacted_topic_is_refused_with_mapped_offsets(
    source: SandboxCluster, there: str, topic_name: str, tmp_path: Path
) -> None:
    """Nothing shows which copy is of what a cleaner has left."""
    create_topic(source.bootstrap_servers, topic_name, cleanup_policy="compact", **AS_0_10)
    create_topic(there, topic_name)
    load.produce(source.bootstrap_servers, topic_name, 1, headers=False, records=1)
    with mirror(tmp_path / "mirror.yaml", config_text(source.bootstrap_servers, there, [topic_name], flow=FLOW)) as run:
        assert run.wait_event("halted", topic=topic_name)["reason"] == "old_format"
        assert run.stop() == 2
