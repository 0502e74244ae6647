"""``identity: strict``: bit for bit from byte 16 on, and what it refuses."""

from pathlib import Path

import pytest

from mirror.sandbox import SandboxCluster
from tests.service.runs.holes.test_holes import plain, transactions, wait_for_equal_ends
from tests.service.stage.kafka_side import create_topic, produce, read_log
from tests.service.stage.running import Mirror, config_text, mirror

pytestmark = pytest.mark.broker

STRICT = {"identity": "strict", "isolation.level": "read_uncommitted"}
MAGIC_AT = 16


def test_bit_for_bit(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """Idempotent and plain producers, a kill in between: the logs differ in offsets' place and leader epoch only."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    plain(source, topic_name, 100)
    text = config_text(source, destination, [topic_name], flow=STRICT)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        process.process.kill()
    produce(source, topic_name, 200, codec="zstd")
    plain(source, topic_name, 100)
    with mirror(tmp_path / "mirror.yaml", text) as process:
        wait_for_equal_ends(process, source, destination, topic_name)
        assert process.of("halted") == []
        assert process.stop() == 0
    here, there = read_log(source, topic_name), read_log(destination, topic_name)
    assert [batch[:12] + batch[MAGIC_AT:] for batch in there] == [batch[:12] + batch[MAGIC_AT:] for batch in here]


def test_a_transaction_halts(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """What was before it is copied."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    plain(source, topic_name, 10)
    transactions(source, topic_name, 1)
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name], flow=STRICT)) as process:
        assert halted(process)["reason"] == "not_strict"
    assert len(read_log(destination, topic_name)) == len(read_log(source, topic_name)) - 2


def test_a_compacted_topic_halts(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name, cleanup_policy="compact")
    with mirror(tmp_path / "mirror.yaml", config_text(source, destination, [topic_name], flow=STRICT)) as process:
        assert halted(process)["reason"] == "not_strict"


def halted(process: Mirror) -> dict[str, object]:
    """The line of the partition that stopped."""
    return process.wait_event("halted")
