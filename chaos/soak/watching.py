"""Looks at a mirror from outside: its status and metrics, and what the kernel says of its processes."""

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
"""Numbers of the worker that is restarted and of the one that is not: what a worker leaks is seen only in the latter.
Both are of one flow, so the one that lives takes over the other's partitions each minute, and gives them back."""
_WORKER = "mirror-worker-"
_TIMEOUT_S = 10.0
_PER_PARTITION = 'partition="'


def workers(supervisor: int) -> dict[int, int]:
    """Returns the process id of each worker that lives, by its number."""
    found = {}
    for pid in kernel.children(supervisor):
        _, called, number = kernel.command(pid).rstrip("\0").rpartition(_WORKER)
        if called and number.isdigit() and kernel.alive(pid):
            found[int(number)] = pid
    return found


def granularity(metrics: str) -> str:
    """Returns the ``metrics.granularity`` that a page of metrics shows."""
    return "partition" if _PER_PARTITION in metrics else "topic"


class Looks:
    """Looks at one `mirror run` with two workers.

    Args:
        mirror: its process.

    Attributes:
        address: host and port of its HTTP server.
        supervisor, lives: process ids that have to stay what they are.
    """

    def __init__(self, mirror: MirrorProcess) -> None:
        listening = until(lambda: mirror.of("listening"), "the mirror's HTTP server")
        host, _, port = listening[0]["address"].rpartition(":")
        self.address = host, int(port)
        self.supervisor = mirror.pid
        self.lives = until(lambda: workers(mirror.pid).get(LIVES, 0), "the second worker")

    def restarted(self) -> int:
        """Returns the process id of the worker that is restarted, as it is now; 0: there is none."""
        return workers(self.supervisor).get(RESTARTED, 0)

    def lives_on(self) -> bool:
        """Returns True if the supervisor and the worker that is not restarted are the processes that they were."""
        return workers(self.supervisor).get(LIVES) == self.lives

    def metrics(self) -> str:
        """Returns its page of metrics."""
        host, port = self.address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=_TIMEOUT_S) as answer:
            return str(answer.read().decode())

    def status(self) -> dict[str, Any]:
        """Returns its status; empty if it does not answer."""
        with suppress(client.NotAnswered):
            return client.fetch_status(self.address)
        return {}

    def quiet(self) -> bool:
        """Returns True if both workers are in the groups, every partition is copied, and nothing else is running."""
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
        """Returns what the processes hold now. ``minute``, ``phase``, ``at_s``: see ``Sample``.

        Raises:
            ProcessLookupError: one has just ended.
        """
        return Sample(
            minute=minute,
            phase=phase,
            at_s=round(at_s, 1),
            # Not the proportional set size, which depends on who else runs the same interpreter on the machine.
            total_bytes=sum(map(procfs.rss_bytes, (self.supervisor, *workers(self.supervisor).values()))),
            supervisor_bytes=procfs.rss_bytes(self.supervisor),
            worker_bytes=procfs.rss_bytes(self.lives),
            supervisor_descriptors=dict(procfs.descriptors(self.supervisor)),
            worker_descriptors=dict(procfs.descriptors(self.lives)),
        )
