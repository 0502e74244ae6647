"""``mirror audit`` beside ``mirror run``, of one configuration: real brokers, both programs as they are installed."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from mirror.audited import read, write
from mirror.sandbox import SandboxCluster
from tests.service.stage.kafka_side import create_topic
from tests.service.stage.running import MIRROR, Mirror, config_text, get, mirror, status

pytestmark = pytest.mark.broker


def shown(process: Mirror, key: str) -> object:
    return status(process)["flows"][0]["audit"][key]


def test_the_running_mirror_shows_it(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    1. It runs, and no audit was made.
    2. An audit ends (of empty topics: it needs no Spark): its verdict is on the status page, in the text and in the
       metrics.
    3. The file is another cluster's: no pass any more, and it says whose it is.
    """
    config, file = tmp_path / "mirror.yaml", tmp_path / "audit.prom"
    servers = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    for each in servers:
        create_topic(each, topic_name)
    text = config_text(*servers, [topic_name], flow={"audit.metrics.file": file.name})
    with mirror(config, text) as process:
        process.wait_event("started")
        process.wait_for(lambda: status(process)["flows"][0]["audit"], "a look")
        assert "no audit has ended yet" in str(shown(process, "problem"))
        told = subprocess.run([MIRROR, "audit", "-c", config], capture_output=True, text=True, timeout=120, check=False)
        assert told.returncode == 0, told.stderr
        process.wait_for(lambda: shown(process, "passed"), "the audit")
        assert shown(process, "verdict") == "identical"
        assert "<dt>Last audit</dt>" in get(process, "/")[1]
        assert "last audit" in get(process, "/status")[1]
        passed = 'mirror_audit_verdict{source="source",target="destination",verdict="identical"} 1.0'
        assert passed in get(process, "/metrics")[1]
        last = read(file)
        assert last is not None
        write(replace(last, source_id="another"), file)
        process.wait_for(lambda: not shown(process, "passed"), "the other one")
        assert "is of clusters another and" in str(shown(process, "problem"))
        assert "mirror_audit_verdict{" not in get(process, "/metrics")[1]
        assert process.stop() == 0
