"""Looks at a mirror from outside: at its status and metrics, and at its processes as the kernel shows them."""

import urllib.request
from contextlib import suppress
from typing import Any

from chaos.play.mirrors import MirrorProcess
from chaos.soak.samples import Sample
from chaos.waiting import until
from chaos.witness import kernel
from lab import procfs
from mirror.service.http import client

__all__ = ["LIVES", "RESTARTED", "Looks", "granularity", "workers"]

RESTARTED, LIVES = 1, 2
"""Number of the worker that is restarted, and of the one that is not. Only the latter shows what a worker leaks. Both
have the same flow, so the one that lives takes over the other's partitions each minute, and gives them back."""
_WORKER = "mirror-worker-"
_TIMEOUT_S = 10.0
_PER_PARTITION = 'partition="'


def workers(supervisor: int) -> dict[int, int]:
    """Returns number of the worker -> process id, of all workers that are alive. ``supervisor``: its process id."""
    found = {}
    for pid in kernel.children(supervisor):
        _, called, number = kernel.command(pid).rstrip("\0").rpartition(_WORKER)
        if called and number.isdigit() and kernel.alive(pid):
            found[int(number)] = pid
    return found


def granularity(metrics: str) -> str:
    """Returns the ``metrics.granularity`` with which a page of metrics was made."""
    return "partition" if _PER_PARTITION in metrics else "topic"


class Looks:
    """Looks at one ``mirror run`` with two workers.

    Args:
        mirror: its process.

    Attributes:
        address: host and port of its HTTP server.
        supervisor, lives: process ids of the supervisor and of the worker that is not restarted. They must not change.
    """

    def __init__(self, mirror: MirrorProcess) -> None:
        listening = until(lambda: mirror.of("listening"), "the mirror's HTTP server")
        host, _, port = listening[0]["address"].rpartition(":")
        self.address = host, int(port)
        self.supervisor = mirror.pid
        self.lives = until(lambda: workers(mirror.pid).get(LIVES, 0), "the second worker")

    def restarted(self) -> int:
        """Returns the present process id of the worker that is restarted; 0: there is none."""
        return workers(self.supervisor).get(RESTARTED, 0)

    def lives_on(self) -> bool:
        """Returns True if the supervisor and the worker that is not restarted are still the same processes."""
        return workers(self.supervisor).get(LIVES) == self.lives

    def metrics(self) -> str:
        """Returns the page of metrics."""
        host, port = self.address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=_TIMEOUT_S) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        """Returns the status; empty if the mirror does not answer."""
        with suppress(client.NotAnswered):
            return client.fetch_status(self.address)
        return {}

    def quiet(self) -> bool:
        """Returns True if both workers have joined the groups, every partition is active, and the supervisor has no
        other child processes."""
        now = self.status()
        mine = set(workers(self.supervisor).values())
        return (
            bool(now.get("ready"))
            and {each["pid"] for each in now["workers"] if each["up"] and each["joined"]} == mine
            and len(mine) == LIVES
            and {each["state"] for each in now["partitions"]} == {"active"}
            and set(kernel.children(self.supervisor)) == mine
        )

    def sample(self, *, minute: int, phase: int, at_s: float) -> Sample:
        """Returns a sample of the processes. Arguments: see ``Sample``.

        Raises:
            ProcessLookupError: a process has just ended.
        """
        return Sample(
            minute=minute,
            phase=phase,
            at_s=round(at_s, 1),
            # Not the proportional set size: it depends on which other processes run the same interpreter.
            total_bytes=sum(map(procfs.rss_bytes, (self.supervisor, *workers(self.supervisor).values()))),
            supervisor_bytes=procfs.rss_bytes(self.supervisor),
            worker_bytes=procfs.rss_bytes(self.lives),
            supervisor_descriptors=dict(procfs.descriptors(self.supervisor)),
            worker_descriptors=dict(procfs.descriptors(self.lives)),
        )
