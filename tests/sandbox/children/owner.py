"""Owners for the tests to kill: the program starts what its argument names, prints it, and waits.

One JSON line: ``{"pids": [...], "folder": PATH, "guardian": PID}``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mirror.sandbox import SandboxCluster
from mirror.sandbox.children.process import Processes

SLEEP = ["sleep", "600"]


def tell(pids: list[int], folder: Path, guardian: int) -> None:
    print(json.dumps({"pids": pids, "folder": str(folder), "guardian": guardian}), flush=True)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def stay() -> None:
    """Wait to be ended. In short pieces: a Ctrl-C that comes just before a sleep begins is seen after it."""
    ends_at = time.monotonic() + 600
    while time.monotonic() < ends_at:
        time.sleep(0.1)


def brokers() -> None:
    cluster = SandboxCluster(version="2.8.2", quick=True)
    cluster.start()
    pids = [cluster.brokers[0].pid, cluster.zookeeper_pid or 0]
    tell(pids, cluster.brokers[0].data_dir.parent.parent, parent_of(pids[0]))
    stay()


def sleepers(in_fork: Callable[[Processes], object] | None = None) -> None:
    """Two sleepers; a forked child, if any, inherits the socket to the guardian."""
    processes = Processes()
    log = processes.folder / "log"
    pids = [processes.spawn(SLEEP, log).pid for _ in range(2)]
    if in_fork and os.fork() == 0:
        in_fork(processes)
        os._exit(0)
    tell(pids, processes.folder, parent_of(pids[0]))
    stay()


def closing(processes: Processes) -> None:
    processes.close()


def thread() -> None:
    """Start everything in a thread that ends."""
    made: list[Processes] = []
    pids: list[int] = []

    def run() -> None:
        made.append(Processes())
        pids.append(made[0].spawn(SLEEP, made[0].folder / "log").pid)

    worker = threading.Thread(target=run)
    worker.start()
    worker.join()
    tell(pids, made[0].folder, parent_of(pids[0]))
    stay()


if __name__ == "__main__":
    match sys.argv[1]:
        case "brokers":
            brokers()
        case "sleepers":
            sleepers()
        case "forked":
            sleepers(lambda _: time.sleep(20))  # outlives the owner by a little: the guardian sees no end-of-file
        case "closing-fork":
            sleepers(closing)
        case "thread":
            thread()
