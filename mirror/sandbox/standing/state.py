"""The state file of the sandbox that is up, for ``status`` and ``down``: its keeper, and its brokers' ports and
folders."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from mirror.sandbox.children import guardian
from mirror.sandbox.cluster import SandboxCluster
from mirror.sandbox.errors import SandboxError

__all__ = [
    "BrokerState", "ClusterState", "SandboxState",
    "already_up", "describe", "exclusive", "keeper_alive", "none_up", "path", "read", "write",
]  # fmt: skip


class BrokerState(TypedDict):
    """A broker that was started."""

    node_id: int
    pid: int
    port: int
    data_dir: str
    log: str


class ClusterState(TypedDict):
    """A cluster that was started."""

    name: str
    version: str
    cluster_id: str
    bootstrap_servers: str
    zookeeper_pid: int | None
    brokers: list[BrokerState]


class SandboxState(TypedDict):
    """The contents of the state file, as JSON of this shape.

    ``keeper_started`` (clock ticks since boot) distinguishes the keeper from a later process with the same id.
    """

    keeper_pid: int
    keeper_started: str
    clusters: list[ClusterState]


def path() -> Path:
    """Returns the path of the state file: in ``MIRROR_RUNTIME``, or else ``XDG_RUNTIME_DIR``/mirror, or else a folder
    in the temp dir.

    Raises:
        SandboxError: the folder cannot be made, or belongs to another user.
    """
    if named := os.environ.get("MIRROR_RUNTIME"):
        folder = Path(named).expanduser().absolute()
    elif base := os.environ.get("XDG_RUNTIME_DIR"):
        folder = Path(base) / "mirror"
    else:
        folder = Path(tempfile.gettempdir()) / f"mirror-{os.getuid()}"
    remedy = "set MIRROR_RUNTIME to a folder of yours"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as error:
        raise SandboxError(f"the runtime folder cannot be used: {error}", remedy) from error
    if owner != os.getuid():
        raise SandboxError(f"the runtime folder {folder} belongs to user {owner}", remedy)
    return folder / "sandbox.json"


def describe(clusters: list[SandboxCluster]) -> SandboxState:
    """Returns the state of running clusters that this process keeps."""
    return {
        "keeper_pid": os.getpid(),
        "keeper_started": guardian.start_time(os.getpid()) or "",
        "clusters": [
            {
                "name": cluster.name,
                "version": cluster.version,
                "cluster_id": cluster.cluster_id,
                "bootstrap_servers": cluster.bootstrap_servers,
                "zookeeper_pid": cluster.zookeeper_pid,
                "brokers": [
                    {
                        "node_id": broker.node_id,
                        "pid": broker.pid,
                        "port": broker.port,
                        "data_dir": str(broker.data_dir),
                        "log": str(broker.log_path),
                    }
                    for broker in cluster.brokers
                ],
            }
            for cluster in clusters
        ],
    }


def write(state: SandboxState) -> None:
    """Write the state file atomically."""
    target = path()
    made = target.with_suffix(".new")
    made.write_text(json.dumps(state, indent=2) + "\n")
    made.replace(target)


def read() -> SandboxState | None:
    """Returns the state of the sandbox that is up; None if there is none. (A file whose keeper was killed is ignored.)

    Raises:
        SandboxError: the file is not one of ours.
    """
    target = path()
    try:
        state: SandboxState = json.loads(target.read_text())
        return state if keeper_alive(state) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SandboxError(f"{target} is not the state of a sandbox: {error}", "remove that file") from error


def keeper_alive(state: SandboxState) -> bool:
    """Returns True if the process that keeps the clusters still runs."""
    return guardian.start_time(state["keeper_pid"]) == state["keeper_started"]


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock that only one keeper at a time can have; the kernel releases it when this process dies. Removes the
    state file at the end.

    Raises:
        SandboxError: another keeper holds the lock.
    """
    lock = path().with_suffix(".lock")
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise already_up() from None
        try:
            yield
        finally:
            path().unlink(missing_ok=True)


def none_up() -> SandboxError:
    """Returns the error for a command that needs a sandbox."""
    return SandboxError(f"no sandbox is up (no keeper for {path()})", "start one with `mirror sandbox up`")


def already_up() -> SandboxError:
    """Returns the error for a second sandbox."""
    return SandboxError(
        f"a sandbox is up already ({path()})", "see `mirror sandbox status`; end it with `mirror sandbox down`"
    )
