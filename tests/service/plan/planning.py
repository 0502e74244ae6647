"""``mirror plan`` as its users run it, and what brokers hold before and after."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from mirror.sandbox import SandboxCluster
from tests.service.stage.kafka_side import end_of
from tests.service.stage.running import MIRROR

Found = dict[str, Any]

PATIENCE_S = 300
"""A plan that takes longer hangs."""


class Planned:
    """The JSON of one run."""

    def __init__(self, done: "subprocess.CompletedProcess[str]") -> None:
        self.code = done.returncode
        self.errors = done.stderr
        self.document: Found = json.loads(done.stdout) if done.stdout.startswith("{") else {}

    @property
    def flow(self) -> Found:
        """The only flow."""
        (flow,) = self.document["flows"]
        found: Found = flow
        return found

    def rows(self, topic: str | None, *, least: str = "told") -> dict[str, Found]:
        """Line -> its gravest finding of a topic (None: of the flow), from this level on."""
        levels = ("told", "warns", "unknown", "refused")
        found: dict[str, Found] = {}
        for row in self.flow["findings"]:  # the gravest come first
            if row["topic"] == topic and levels.index(row["level"]) >= levels.index(least):
                found.setdefault(row["line"], row)
        return found

    def state(self, topic: str) -> str:
        """Of a topic."""
        (row,) = [row for row in self.flow["by_topic"] if row["topic"] == topic]
        state: str = row["state"]
        return state


def run(config: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Runs ``mirror plan``."""
    command = [str(MIRROR), "plan", "-c", str(config), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def plan(config: Path, *options: str) -> Planned:
    """Runs ``mirror plan --format json``; it must say nothing else."""
    done = run(config, "--format", "json", *options)
    assert done.stderr == "", done.stderr
    return Planned(done)


def stamped(bootstrap: str, topic: str, at_ms: int, *, key: str | None = "k", value: str = "v") -> None:
    """A record with this timestamp."""
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 2_000_000, "log_level": 0})
    producer.produce(topic, value, key, timestamp=at_ms, partition=0)
    assert producer.flush(30) == 0


def now_ms() -> int:
    """This host's clock."""
    return round(time.time() * 1000)


def everything(cluster: SandboxCluster) -> dict[str, Any]:
    """All that a plan could have changed: topics, those of Kafka's own among them, their configs, where their logs
    end, and groups."""
    bootstrap = cluster.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.list_topics(timeout=30).topics
    wanted = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    configs = {
        resource.name: {name: entry.value for name, entry in future.result(30).items()}
        for resource, future in admin.describe_configs(wanted).items()
    } if wanted else {}  # fmt: skip
    ends = {(name, index): end_of(bootstrap, name, index) for name in topics for index in topics[name].partitions}
    groups = sorted(group.group_id for group in (admin.list_consumer_groups().result(30).valid or ()))
    return {"configs": configs, "ends": ends, "groups": groups}
