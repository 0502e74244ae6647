"""The way back on real brokers while things go wrong: the mirror is killed when it begins, and loses what it has
written down. What consumers see is the same on both sides."""

import json
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition

from mirror.audit.folder import SUMMARY
from mirror.offsetmap.internal.memory import state_topic
from mirror.sandbox import SandboxCluster
from mirror.service.cutover.command import AUDIT
from tests.service.cutover.real.test_moving import BACK, FORTH, aborted, cutover
from tests.service.stage.audits import audited
from tests.service.stage.kafka_side import create_topic, delete_topic, end_of
from tests.service.stage.running import PATIENCE_S, cli, config_text, mirror
from tests.service.sync.sides import consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.broker
KILLS = 5


def written(cluster: SandboxCluster, topic: str, first: int, *, transactions: int = 3) -> int:
    """Transactions of some records each, every other one aborted, and records without one. The next number."""
    number = first
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 5, "log_level": 0}
    plain = Producer(settings | {"enable.idempotence": True})
    deciding = Producer(settings | {"transactional.id": f"writes-{topic}"})
    deciding.init_transactions(PATIENCE_S)
    for each in range(transactions):
        deciding.begin_transaction()
        for _ in range(4):
            deciding.produce(topic, value=str(number), partition=0)
            number += 1
        deciding.flush(PATIENCE_S)
        if each % 2:
            deciding.abort_transaction(PATIENCE_S)
        else:
            deciding.commit_transaction(PATIENCE_S)
        plain.produce(topic, value=str(number), partition=0)
        number += 1
        assert plain.flush(PATIENCE_S) == 0
    return number


def seen(cluster: SandboxCluster, topic: str, end: int) -> list[tuple[int, bytes, int]]:
    """Offset, value and time of what consumers get before ``end``, behind which something stands."""
    reader = consumer(cluster, f"looks-{topic}", **{"enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes, int]] = []
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, found[-3:]
        message = reader.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            if reader.position([TopicPartition(topic, 0)])[0].offset >= end or not found:
                break
            continue
        found.append((message.offset(), message.value(), message.timestamp()[1]))
    reader.close()
    return [each for each in found if each[0] < end]


def test_killed_and_forgetful(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. Transactions at the source, the last one aborted. All of it is copied and cut over.
    2. Transactions at the destination. The way back begins, and its mirror is killed again and again as it does.
    3. Both sides show the same, each record once.
    4. The internal topic of the way back is deleted: it halts, and says what to do. Prepared again, it goes on.
    """
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    config, back, folder = (tmp_path / name for name in ("mirror.yaml", "back.yaml", "there"))
    create_topic(source, topic_name)
    flow = {"settle.ms": 1_000, "refresh.topics.interval.ms": 500}
    chance = random.Random(topic_name)
    number = written(source_cluster, topic_name, 0)
    aborted(source_cluster, topic_name)
    with mirror(config, config_text(source, destination, [topic_name], flow=flow)) as process:
        cutover(process, config, folder, FORTH, "--skip-audit")
        assert cli(process, config, "pause", "--all").returncode == 0
        number = written(destination_cluster, topic_name, number)
        cutover(process, config, folder, FORTH, "--reverse", "--skip-audit", "--config-out", str(back))
        assert process.stop() == 0
    for _ in range(KILLS):
        number = written(destination_cluster, topic_name, number)
        with mirror(back, back.read_text()) as backwards:
            backwards.wait_event("located", topic=topic_name)
            time.sleep(0.1 * chance.random())
            backwards.process.kill()
            assert backwards.of("halted") == []

    def same() -> bool:
        return end_of(source, topic_name) == end_of(destination, topic_name)

    with mirror(back, back.read_text()) as backwards:
        backwards.wait_for(same, "the copy")
        end = end_of(source, topic_name)
        assert seen(source_cluster, topic_name, end) == seen(destination_cluster, topic_name, end)
        assert backwards.of("halted") == []
        assert backwards.stop() == 0
    delete_topic(source, state_topic(BACK))
    number = written(destination_cluster, topic_name, number)
    with mirror(back, back.read_text()) as backwards:
        halted = backwards.wait_event("halted", topic=topic_name)
        assert halted["reason"] == "loop"
        assert "run the command again that prepared the way back" in halted["remedy"]
        assert "begins there" in cutover(
            backwards, config, folder, FORTH, "--reverse", "--skip-audit", "--config-out", str(back)
        )
        assert cli(backwards, back, "resume", topic_name).returncode == 0
        backwards.wait_for(same, "the copy")
        end = end_of(source, topic_name)
        assert seen(source_cluster, topic_name, end) == seen(destination_cluster, topic_name, end)


@pytest.mark.spark
def test_there_and_back_and_there(
    source_cluster: SandboxCluster,
    destination_cluster: SandboxCluster,
    topic_name: str,
    tmp_path: Path,
    spark: "SparkSession",
) -> None:
    """
    1. Three moves, with transactions written wherever the producers are; the third goes where the first went. There,
       what the first flow copied, what producers wrote, and markers of both stand below what it adopts.
    2. Each time, both sides show the same, and nothing halts. The audit of the second and of the third finds nothing
       either, and says up to where there was something before.
    3. Somebody writes to where it leads: that halts.
    """
    sides = [source_cluster, destination_cluster]
    config = tmp_path / "0.yaml"
    create_topic(sides[0].bootstrap_servers, topic_name)
    flow = {"settle.ms": 1_000, "refresh.topics.interval.ms": 500}
    text = config_text(sides[0].bootstrap_servers, sides[1].bootstrap_servers, [topic_name], flow=flow)
    number, adopted = 0, 0
    for move, name in enumerate((FORTH, BACK, FORTH)):
        here, there = sides[move % 2], sides[1 - move % 2]
        following, folder = tmp_path / f"{move + 1}.yaml", tmp_path / f"cutover-{move}"
        with mirror(config, text) as process:
            number = written(here, topic_name, number)
            aborted(here, topic_name)

            def same() -> bool:
                return end_of(sides[0].bootstrap_servers, topic_name) == end_of(sides[1].bootstrap_servers, topic_name)

            process.wait_for(same, "the copy")
            end = end_of(here.bootstrap_servers, topic_name)
            assert seen(here, topic_name, end) == seen(there, topic_name, end)
            assert process.of("halted") == []
            if move == 2:
                code, said = audited(spark, config, "--out", str(folder))
                assert code == 0, said
                assert f"was adopted up to offset {adopted}" in said
                assert _adopted(folder) == {(topic_name, 0): adopted}
                break
            skipped = [] if move else ["--skip-audit"]
            told = cutover(process, config, folder, name, *skipped)
            assert ("3 audited: identical" in told) == bool(move)
            if move:
                assert _adopted(folder / AUDIT) == {(topic_name, 0): adopted}
            adopted = end_of(here.bootstrap_servers, topic_name)
            assert cli(process, config, "pause", "--all").returncode == 0
            number = written(there, topic_name, number)
            cutover(process, config, folder, name, "--reverse", *skipped, "--config-out", str(following))
            assert process.stop() == 0
        config, text = following, following.read_text()
    written(there, topic_name, number, transactions=1)
    written(here, topic_name, number, transactions=1)
    with mirror(config, text) as process:
        assert process.wait_event("halted", topic=topic_name)["reason"] == "foreign_writer"


def _adopted(folder: Path) -> dict[tuple[str, int], int]:
    """Up to where an audit's files say that the destination was there before."""
    summary = json.loads((folder / SUMMARY).read_text())
    return {(one["topic"], one["partition"]): one["end"] for one in summary["adopted"]}
