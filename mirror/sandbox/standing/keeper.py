"""The process that owns the clusters of ``mirror sandbox up``: the command itself in the foreground, or a separate
process in the background.

Run as a module, it reads a ``Wish`` as JSON from standard input, and answers with one JSON line on standard output:
the ``SandboxState`` once the clusters serve, or ``{"problem": TEXT, "remedy": TEXT}``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from mirror.sandbox import logs
from mirror.sandbox.cluster import SandboxCluster, start_together
from mirror.sandbox.errors import SandboxError
from mirror.sandbox.kafka import jars
from mirror.sandbox.standing import requests, state
from mirror.sandbox.standing.state import SandboxState

__all__ = ["Wish", "keep", "launch", "shut_down"]

_END_TIMEOUT_S = 60.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The clusters that the user asked for.

    Attributes:
        clusters: name -> version of Kafka.
        brokers: number of brokers in each cluster.
        properties: properties of every broker.
        heap_mb: heap of every broker, in MiB.
    """

    clusters: dict[str, str]
    brokers: int
    properties: dict[str, str]
    heap_mb: int

    def build(self) -> list[SandboxCluster]:
        """Returns the clusters, not started.

        Raises:
            SandboxError: a value in the wish is invalid.
        """
        return [
            SandboxCluster(
                name=name, version=version, brokers=self.brokers, properties=self.properties, heap_mb=self.heap_mb
            )
            for name, version in self.clusters.items()
        ]


class _EndedBySignal(BaseException):
    """Raised by SIGTERM or SIGINT, wherever the keeper is, so that everything is closed while it unwinds."""


def keep(wish: Wish, *, ready: Callable[[SandboxState], None]) -> None:
    """Start the clusters, call ``ready``, and keep them until SIGTERM or SIGINT, answering requests (``requests``).
    Main thread only.

    Raises:
        SandboxError: a sandbox is up already, or a cluster did not start.
    """
    clusters = wish.build()
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    with contextlib.suppress(_EndedBySignal), state.exclusive(), contextlib.ExitStack() as closing:
        for cluster in clusters:
            closing.callback(cluster.close)
        start_together(*clusters)
        described = state.describe(clusters)
        state.write(described)
        requests.serve(clusters, ready=lambda: ready(described))


def _end(*_: object) -> None:
    # One signal is enough: another must not interrupt the closing that this one begins.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise _EndedBySignal


def launch(wish: Wish) -> SandboxState:
    """Start a keeper in the background and wait until its clusters serve.

    Raises:
        SandboxError: a sandbox is up already, or a cluster did not start.
    """
    wish.build()  # raises before anything is fetched
    if state.read() is not None:  # a sandbox that starts at the same moment is noticed by the keeper
        raise state.already_up()
    for version in dict.fromkeys(wish.clusters.values()):
        jars.classpath(version)  # here, where the user sees the progress
    log = state.path().with_suffix(".log")
    with log.open("w") as errors:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "mirror.sandbox.standing.keeper"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,  # Ctrl-C in this terminal must not reach it
        )  # fmt: skip
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError), keeper.stdin as wishes:
            wishes.write(json.dumps(dataclasses.asdict(wish)))
        with keeper.stdout as answers:
            line = answers.readline()
    except BaseException:
        keeper.terminate()  # otherwise it would stay up unnoticed
        keeper.wait()
        raise
    if not line:
        code = keeper.wait()
        raise SandboxError(f"the keeper ended with exit code {code}:\n{logs.excerpt(log)}", "look at the error above")
    answer: dict[str, Any] = json.loads(line)
    if "problem" in answer:
        keeper.wait()
        raise SandboxError(answer["problem"], answer["remedy"])
    up: SandboxState = json.loads(line)
    return up


def shut_down() -> SandboxState:
    """End the sandbox that is up: its keeper, its brokers and their data. Returns its last state.

    Raises:
        SandboxError: no sandbox is up, or its keeper does not end.
    """
    up = state.read()
    if up is None:
        raise state.none_up()
    pid = up["keeper_pid"]
    for number in (signal.SIGTERM, signal.SIGKILL):  # after a kill, the guardians and the kernel clean up
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline_at = time.monotonic() + _END_TIMEOUT_S
        while time.monotonic() < deadline_at:
            if not state.keeper_alive(up):
                state.path().unlink(missing_ok=True)
                return up
            time.sleep(0.02)
    raise SandboxError(f"the sandbox's keeper (process {pid}) does not end", "look at what holds it up")


def main() -> None:
    """Keep the clusters that standard input asks for; see the module's docstring."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nobody reads standard output after the one answer

    def answer(message: object) -> None:
        with contextlib.suppress(BrokenPipeError), answers:
            answers.write(json.dumps(message) + "\n")

    try:
        keep(Wish(**json.load(sys.stdin)), ready=answer)
    except SandboxError as error:
        answer({"problem": error.problem, "remedy": error.remedy})
        sys.exit(1)


if __name__ == "__main__":
    main()
