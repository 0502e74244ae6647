"""``offsets: mapped`` as its users run it: processes that are killed, others that write, and offsets translated."""

import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from mirror.sandbox import Cluster as Sandbox
from tests.relay.mapping import assert_exact, written_map
from tests.service.kafka_side import create_topic, produce, writing
from tests.service.running import MIRROR, Mirror, config_text, mirror

pytestmark = pytest.mark.broker
FLOW = {"offsets": "mapped", "checkpoint.interval.ms": 300, "settle.ms": 1000}


def consumer(sandbox: Sandbox, group: str = "none") -> Consumer:
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


def read_from(sandbox: Sandbox, topic: str, offset: int, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
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
def others_writing(sandbox: Sandbox, topic: str) -> Iterator[None]:
    """Somebody else's records, all the time."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.05):
            produce(sandbox.bootstrap_servers, topic, 7, seed=random.randrange(1 << 30))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


async def test_killed_again_and_again_while_others_write(
    source_cluster: Sandbox, destination_cluster: Sandbox, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Two source topics into one destination topic, which somebody else writes to as well, all of them all the time.
    2. The mirror is killed with SIGKILL several times in the middle, and started again.
    3. It catches up, stops cleanly: every record is there once, and the map that was written down is exact.
    4. Offsets translate both ways, to what plain consumers read there.
    5. A consumer group moves over: it goes on with the very next record of its topic.
    """
    east, west, merged = f"{topic_name}-east", f"{topic_name}-west", f"{topic_name}-all"
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    for topic in (east, west):
        create_topic(source, topic)
    create_topic(destination, merged)
    config = tmp_path / "mirror.yaml"
    flow = {**FLOW, "topic.rename": {f"{topic_name}-(east|west)": merged}}
    text = config_text(source, destination, [east, west], flow=flow)
    with writing(source, east, 1), writing(source, west, 1), others_writing(destination_cluster, merged):
        for _ in range(4):
            with mirror(config, text) as process:
                _wait_for_bytes(process, 20_000)
                process.process.kill()
                process.wait()
    with mirror(config, text) as process:
        process.wait_event("caught_up")
        assert process.stop() == 0
    # async: the comparison runs in this test's loop.
    for topic in (east, west):
        found = await written_map(destination_cluster, topic, into=merged)
        assert await assert_exact(source_cluster, destination_cluster, topic, found, into=merged) > 0
    step = max(1, found.source_end // 12)
    for offset in [*range(0, found.source_end, step), found.source_end - 1]:
        here = read_from(source_cluster, west, offset, 1)
        code, told = translate(config, "--topic", west, "--offset", str(offset))
        assert code == 0, told
        there = read_from(destination_cluster, merged, int(told), 1)
        assert there[0][1:] == here[0][1:]
        code, back = translate(
            config, "--topic", west, "--offset", told.strip(), "--direction", "destination-to-source"
        )
        assert (code, int(back)) == (0, offset)
    assert translate(config, "--topic", west, "--offset", str(found.source_end + 5))[0] == 1
    _move_group(source_cluster, destination_cluster, config, west, merged, found.source_end // 2)


def _wait_for_bytes(process: Mirror, count: int) -> None:
    """Until so many bytes were copied."""
    process.wait_for(lambda: any(line["bytes"] > count for line in process.of("progress")), f"{count} bytes")


def _move_group(source: Sandbox, destination: Sandbox, config: Path, topic: str, merged: str, offset: int) -> None:
    group = f"group-{topic}"
    reader = consumer(source, group)
    reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    reader.close()
    code, told = translate(config, "--group", group, "--apply")
    assert code == 0, told
    assert "committed 1 offsets" in told
    mover = consumer(destination, group)
    (committed,) = mover.committed([TopicPartition(merged, 0)], timeout=60)
    mover.close()
    (here,), (there,) = read_from(source, topic, offset, 1), read_from(destination, merged, committed.offset, 1)
    assert there[1:] == here[1:]
    assert there[0] == committed.offset
    code, told = translate(config, "--group", "never-heard-of")
    assert (code, "no offset" in told) == (1, True), told
