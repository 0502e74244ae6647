"""Clusters that keep their metadata themselves (KRaft): every node is broker and controller."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path

from mirror.sandbox import logs
from mirror.sandbox.broker import Broker
from mirror.sandbox.children.process import Processes
from mirror.sandbox.errors import SandboxError
from mirror.sandbox.jvm import Jvm

__all__ = ["format_storage", "new_cluster_id", "properties"]

_FORMAT_TIMEOUT_S = 120.0


def properties(*, node_id: int, address: str, controller_ports: list[int], data_dir: Path) -> dict[str, str]:
    """Returns the properties that place one node in its cluster.

    Args:
        node_id: the node's id, from 1.
        address: the node's ``host:port`` for clients.
        controller_ports: quorum ports of all nodes, in the order of their ids.
        data_dir: the node's log directory.
    """
    controller_port = controller_ports[node_id - 1]
    voters = ",".join(f"{voter}@127.0.0.1:{at}" for voter, at in enumerate(controller_ports, start=1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data_dir),
    }


def new_cluster_id() -> str:
    """Returns a random cluster id in Kafka's format: 16 bytes in URL-safe base64, 22 characters.

    It never begins with a dash (one in 64 would): Kafka's tools would read it as an option, so Kafka avoids it as well.
    """
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return made


def format_storage(
    brokers: list[Broker], *, cluster_id: str, processes: Processes, jvm: Jvm, classpath: str, folder: Path
) -> None:
    """Format the brokers' data folders with Kafka's own tool, all at the same time.

    Raises:
        SandboxError: the tool failed, usually because of a property that it does not accept.
    """
    runs = []
    for broker in brokers:
        arguments = ["format", "-t", cluster_id, "-c", str(broker.write_config())]
        command = jvm.command(classpath, "kafka.tools.StorageTool", arguments, folder=folder, small=True)
        log = broker.log_path.with_name("format.log")
        runs.append((broker, log, processes.spawn(command, log)))
    for broker, log, run in runs:
        code = run.wait(_FORMAT_TIMEOUT_S)
        if code != 0:
            outcome = "did not end" if code is None else f"ended with exit code {code}"
            raise SandboxError(
                f"formatting the storage of broker {broker.node_id} {outcome}; its output:\n{logs.excerpt(log)}",
                "look at the first error above; a property that was passed through may not suit this version",
            )
