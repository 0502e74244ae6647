"""Requests to a keeper while its clusters run: one JSON object a line, over a Unix socket beside the state file.

    {"do": "start" | "restart", "cluster": NAME, "broker": N}      answered with the new ``SandboxState``

or with ``{"problem": TEXT, "remedy": TEXT}``. The socket, like its folder, belongs to this user alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

from mirror.sandbox.broker import START_TIMEOUT_S, STOP_TIMEOUT_S, Broker
from mirror.sandbox.cluster import SandboxCluster
from mirror.sandbox.errors import SandboxError
from mirror.sandbox.standing import state
from mirror.sandbox.standing.state import SandboxState

__all__ = ["SandboxRequest", "ask", "serve"]

_MARGIN_S = 10.0


class SandboxRequest(TypedDict):
    """One request. ``do``: ``start``, or ``restart``."""

    do: str
    cluster: str
    broker: int


@contextlib.contextmanager
def _short_path() -> Iterator[str]:
    """Yields a path to the socket that is short even if the folder's path is long: the kernel's limit is 108 bytes."""
    path = state.path().with_suffix(".socket")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def serve(clusters: list[SandboxCluster], *, ready: Callable[[], None]) -> None:
    """Call ``ready`` once the socket listens, then answer requests one at a time until a signal's exception ends it."""
    with contextlib.ExitStack() as closing, socket.socket(socket.AF_UNIX) as server:
        with _short_path() as path:
            closing.callback(state.path().with_suffix(".socket").unlink, missing_ok=True)
            state.path().with_suffix(".socket").unlink(missing_ok=True)
            server.bind(path)
        server.listen()
        ready()
        while True:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError, ValueError):  # the client is gone, or sent no valid request
                connection.settimeout(_MARGIN_S)
                with connection.makefile("rw") as lines:
                    lines.write(json.dumps(_answer(clusters, json.loads(lines.readline()))) + "\n")


def _answer(clusters: list[SandboxCluster], request: SandboxRequest) -> object:
    try:
        _do(request["do"], _broker(clusters, request["cluster"], request["broker"]))
    except SandboxError as error:
        return {"problem": error.problem, "remedy": error.remedy}
    described = state.describe(clusters)
    state.write(described)
    return described


def _do(what: str, broker: Broker) -> None:
    if what == "restart" and broker.running:
        broker.stop()
    broker.start()


def _broker(clusters: list[SandboxCluster], name: str, node_id: int) -> Broker:
    brokers = {(cluster.name, broker.node_id): broker for cluster in clusters for broker in cluster.brokers}
    found = brokers.get((name, node_id))
    if found is None:
        known = ", ".join(f"{cluster} {number}" for cluster, number in sorted(brokers))
        raise SandboxError(f"there is no broker {node_id} in a cluster {name}", f"the brokers are: {known}")
    return found


def ask(request: SandboxRequest) -> SandboxState:
    """Send a request to the keeper of the sandbox that is up; returns the state afterwards.

    Raises:
        SandboxError: no sandbox is up, or the keeper refuses.
    """
    if state.read() is None:
        raise state.none_up()
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(START_TIMEOUT_S + STOP_TIMEOUT_S + _MARGIN_S)
            with _short_path() as path:
                connection.connect(path)
            with connection.makefile("rw") as lines:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                answer: Any = json.loads(lines.readline())
    except (OSError, ValueError) as error:
        raise SandboxError(f"the sandbox's keeper does not answer: {error}", "see `mirror sandbox status`") from error
    if "problem" in answer:
        raise SandboxError(answer["problem"], answer["remedy"])
    up: SandboxState = answer
    return up
