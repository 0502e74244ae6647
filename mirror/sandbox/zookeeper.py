"""Clusters that keep their metadata in ZooKeeper. Each has a ZooKeeper of its own, run from the broker's jars."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from mirror.sandbox import logs
from mirror.sandbox.children.process import Process, Processes
from mirror.sandbox.errors import SandboxError
from mirror.sandbox.jvm import Jvm

__all__ = ["properties", "start"]

_START_TIMEOUT_S = 60.0


def properties(*, node_id: int, address: str, zookeeper_port: int, data_dir: Path) -> dict[str, str]:
    """Returns the properties that place one broker in its cluster."""
    return {
        "broker.id": str(node_id),
        "zookeeper.connect": f"127.0.0.1:{zookeeper_port}",
        "zookeeper.connection.timeout.ms": "30000",
        "zookeeper.session.timeout.ms": "5000",  # after this, a killed broker's id is free again
        "listeners": f"PLAINTEXT://{address}",
        "advertised.listeners": f"PLAINTEXT://{address}",
        "log.dirs": str(data_dir),
    }


def start(*, port: int, processes: Processes, jvm: Jvm, classpath: str, folder: Path) -> Process:
    """Start a ZooKeeper and wait until it takes connections.

    Raises:
        SandboxError: it ended, or took no connections in time; with an excerpt of its log.
    """
    folder.mkdir()  # no parents: if the cluster is closed meanwhile, they are removed and must not come back
    config = folder / "zookeeper.properties"
    config.write_text(
        f"dataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
        "tickTime=1000\nadmin.enableServer=false\n"
    )
    log = folder / "zookeeper.log"
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    process = processes.spawn(jvm.command(classpath, main, [str(config)], folder=folder, small=True), log)
    deadline_at = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_at and process.poll() is None:
        if _serves(port):
            return process
        time.sleep(0.05)
    raise SandboxError(f"ZooKeeper did not start; from its log:\n{logs.excerpt(log)}", "look at the error above")


def _serves(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
