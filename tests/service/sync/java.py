"""Kafka's own consumers in Java, each a JVM: they read so many records, commit, and leave their group."""

import json
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mirror.demo.data.writers import KAFKA_TOOLS
from mirror.sandbox import SandboxCluster
from mirror.sandbox.jvm import Jvm
from mirror.sandbox.kafka import jars

TIMEOUT_S = 240.0
CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
SHARE_CONSUMER = "org.apache.kafka.tools.VerifiableShareConsumer"


class Record(NamedTuple):
    """A record as a Java consumer has printed it."""

    partition: int
    offset: int
    key: str | None
    value: str | None


def read(
    cluster: SandboxCluster, topic: str, group: str, count: int, folder: Path, *, protocol: str = "classic",
    main: str = CONSUMER, **settings: str,
) -> list[Record]:  # fmt: skip
    """Reads so many records as a member of the group, from what it has committed on, or from the earliest; all of them
    are committed, and it has left, when this returns. ``settings``: more of the consumer's, underscores for dots."""
    own = folder / f"java-{uuid.uuid4().hex[:8]}"
    own.mkdir()
    config: Mapping[str, str] = {name.replace("_", "."): value for name, value in settings.items()}
    file = own / "consumer.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    arguments = [
        "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--group-id", group,
        "--max-messages", str(count), "--verbose", "--command-config", str(file),
    ]  # fmt: skip
    if main == CONSUMER:
        arguments += ["--group-protocol", protocol, "--reset-policy", "earliest"]
    else:
        arguments += ["--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest"]
    command = Jvm().command(jars.classpath_of([KAFKA_TOOLS]), main, arguments, folder=own, small=True)
    with (own / "log").open("wb") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, timeout=TIMEOUT_S, check=False)
    said = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
    found = [
        Record(each["partition"], each["offset"], each["key"], each["value"])
        for each in said
        if each["name"] == "record_data" and each["topic"] == topic
    ]
    assert (done.returncode, len(found)) == (0, count), (done.returncode, len(found), (own / "log").read_text()[-3000:])
    return found
