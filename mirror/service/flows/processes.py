"""The worker processes, whichever flows they run: their starts, their last reports, and the resources they use. No I/O.

A flow's view of its workers is in its ``telemetry.fleet.Fleet``. What belongs to a process as a whole (CPU time,
memory, the garbage collector) is in the reports of each of its flows, and counted once, here.
"""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mirror.service.telemetry.fleet import Fleet, WorkerView

OF_PROCESS = ("cpu_s", "gc_", "dropped_messages")
"""Prefixes of the names of counters that belong to the process, not to a flow."""
GAUGES_OF_PROCESS = ("rss_bytes", "open_files", "most_files")
OF_CLUSTERS = ("request_errors", "request_s", "throttled_s")
"""Counters that have clusters as labels. Several flows may count for one cluster."""


class WorkerProcesses:
    """All worker processes of one supervisor, by number."""

    def __init__(self) -> None:
        self.workers: dict[int, WorkerView] = {}
        self._parted: Counter[str] = Counter()
        """The counters of clusters from flows that were removed."""

    def started(self, number: int, pid: int) -> None:
        """Notes that a process of this number was started."""
        worker = self.workers.setdefault(number, WorkerView(number))
        if worker.started_at:
            worker.restarts += 1
        worker.pid, worker.up = pid, True
        worker.started_at = worker.heard_at = time.time()

    def heard(self, number: int, message: Mapping[str, Any]) -> None:
        """Notes that a process has sent a message, and takes its counters if the message has them."""
        worker = self.workers[number]
        worker.heard_at = time.time()
        if "gauges" in message:
            gauges = message["gauges"]
            worker.gauges = {name: gauges[name] for name in GAUGES_OF_PROCESS if name in gauges}
            counters = message["counters"].items()
            worker.counters = {name: value for name, value in counters if name.startswith(OF_PROCESS)}

    def ended(self, number: int) -> None:
        """Notes that the process has ended. Its counters are kept."""
        worker = self.workers[number]
        worker.base.update(worker.counters)
        worker.counters, worker.gauges, worker.up = {}, {}, False

    def retired(self, number: int) -> None:
        """Notes that there will be no further process of this number. (There may never have been one.)"""
        self.workers.pop(number, None)

    def part(self, fleet: Fleet) -> None:
        """Keeps the counters of clusters from a flow that is removed: counters must never decrease."""
        for name in OF_CLUSTERS:
            self._parted.update({f"{name}/{label}": count for label, count in fleet.labelled(name).items()})

    def of_clusters(self, name: str, fleets: "list[Fleet]") -> dict[str, float]:
        """Returns label -> value of one of ``OF_CLUSTERS``, summed over all flows, including removed ones."""
        prefix = f"{name}/"
        found = Counter({key.removeprefix(prefix): n for key, n in self._parted.items() if key.startswith(prefix)})
        for fleet in fleets:
            found.update(fleet.labelled(name))
        return dict(found)
