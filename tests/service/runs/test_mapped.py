"""``offsets: mapped`` as its users run it: processes that are killed, others that write, and offsets translated."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from mirror.sandbox import SandboxCluster
from mirror.service.config import load
from mirror.service.config.resolve import flow_sides
from mirror.service.offsets.translate import Translator
from tests.relay.stage.mapping import assert_exact, written_map
from tests.service.stage.kafka_side import CODECS, create_topic, produce, repeated
from tests.service.stage.running import MIRROR, Mirror, config_text, mirror

pytestmark = pytest.mark.broker
KILLS = 3
FLOW = {"offsets": "mapped", "checkpoint.interval.ms": 300, "settle.ms": 1000}


def consumer(sandbox: SandboxCluster, group: str = "none") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": sandbox.bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
        }
    )


def read_from(
    sandbox: SandboxCluster, topic: str, offset: int, count: int = 1 << 30
) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of the first records that a plain consumer gets there; fewer at the end."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    reader = consumer(sandbox)
    reader.assign([TopicPartition(topic, 0, offset)])
    try:
        while len(found) < count:
            message = reader.poll(60)
            assert message is not None
            if message.error():
                break
            at = message.offset()
            assert at is not None
            key, value = message.key(), message.value()
            assert not isinstance(key, str)
            assert not isinstance(value, str)
            found.append((at, key, value))
    finally:
        reader.close()
    return found


def translate(config: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [MIRROR, "offsets", "translate", "-c", str(config), *arguments], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@contextmanager
def writing(sandbox: SandboxCluster, *topics: str) -> Iterator[None]:
    """Somebody writes to these topics all the time, a batch now and then."""

    def write(number: int) -> None:
        for topic in topics:
            produce(sandbox.bootstrap_servers, topic, 9, codec=CODECS[number % len(CODECS)], seed=number)

    with repeated(write, pause_s=0.05):
        yield


async def test_killed_again_and_again_while_others_write(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Two source topics into one destination topic, which somebody else writes to as well, all of them all the time.
    2. The mirror is killed with SIGKILL several times in the middle, and started again.
    3. It catches up, stops cleanly: every record is there once, and the map that was written down is exact.
    4. Every record's offset translates both ways, to the record that a plain consumer reads there.
    5. A consumer group moves over: it goes on with the very next record of its topic.
    """
    east, west, merged = f"{topic_name}-east", f"{topic_name}-west", f"{topic_name}-all"
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    for topic in (east, west):
        create_topic(source, topic)
    create_topic(destination, merged)
    config = tmp_path / "mirror.yaml"
    flow = {**FLOW, "topic.rename": {f"{topic_name}-(east|west)": merged}}
    text = config_text(source, destination, [east, west], flow=flow, top={"session.timeout.ms": 6000})
    with writing(source_cluster, east, west), writing(destination_cluster, merged):
        for _ in range(KILLS):
            with mirror(config, text) as process:
                _wait_for_bytes(process, 5_000)
                process.process.kill()
                process.wait()
    with mirror(config, text) as process:
        process.wait_event("caught_up")
        assert process.stop() == 0
    there = {at: rest for at, *rest in read_from(destination_cluster, merged, 0)}
    async with Translator(flow_sides(load(config, {}).enabled_flow())) as translator:
        for topic in (east, west):
            found = await written_map(destination_cluster, topic, into=merged)
            assert await assert_exact(source_cluster, destination_cluster, topic, found, into=merged) > 0
            for offset, *record in read_from(source_cluster, topic, 0):
                place = await translator.to_destination(topic, 0, offset)
                assert place is not None
                assert place.exact
                assert there[place.offset] == record
                assert await translator.to_source(topic, 0, place.offset) == (offset, True)
    _move_group(source_cluster, destination_cluster, config, west, east, merged, found.source_end)


def _wait_for_bytes(process: Mirror, count: int) -> None:
    """Until so many bytes were copied."""
    process.wait_for(lambda: any(line["bytes"] > count for line in process.of("progress")), f"{count} bytes")


def _move_group(
    source: SandboxCluster, destination: SandboxCluster, config: Path, topic: str, other: str, merged: str, end: int
) -> None:
    """By the command line, as an operator would. The group has read one of the topics, and where it reads the other one
    is to be said: what it has not read of that may lie before."""
    offset, group = end // 2, f"group-{topic}"
    reader = consumer(source, group)
    reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    code, told = translate(config, "--group", group, "--apply")
    assert (code, f"no offset of {other}:0" in told) == (1, True), told
    mover = consumer(destination, group)
    assert mover.committed([TopicPartition(merged, 0)], timeout=60)[0].offset < 0
    _, end_of_other = reader.get_watermark_offsets(TopicPartition(other, 0), timeout=60)
    reader.commit(offsets=[TopicPartition(other, 0, end_of_other)], asynchronous=False)
    reader.close()
    mover.close()
    code, told = translate(config, "--group", group, "--apply")
    assert code == 0, told
    assert "committed 1 offset for" in told
    mover = consumer(destination, group)
    (committed,) = mover.committed([TopicPartition(merged, 0)], timeout=60)
    mover.close()
    (here,), (there,) = read_from(source, topic, offset, 1), read_from(destination, merged, committed.offset, 1)
    assert there[1:] == here[1:]
    assert there[0] == committed.offset
    code, told = translate(config, "--topic", topic, "--offset", str(offset))
    assert (code, told) == (0, f"{committed.offset}\n")
    code, told = translate(config, "--topic", topic, "--offset", told.strip(), "--direction", "destination-to-source")
    assert (code, told) == (0, f"{offset}\n")
    code, told = translate(config, "--topic", topic, "--offset", str(end + 1))
    assert (code, f"copied up to offset {end}" in told) == (1, True), told
    code, told = translate(config, "--group", "never-heard-of")
    assert (code, "no offset" in told) == (1, True), told
