"""What processes use is counted once, whichever flows they run, and never goes back."""

from typing import Any

from mirror.service.flows.processes import WorkerProcesses
from mirror.service.telemetry.fleet import Fleet


def snapshot(**counters: float) -> dict[str, Any]:
    return {"kind": "snapshot", "counters": counters, "gauges": {"rss_bytes": 5, "open_files": 6, "buffer_bytes": 7}}


def test_two_flows_in_one_process() -> None:
    """Each reports the same CPU time: it counts once. What a flow counts of itself is not the process's."""
    found = WorkerProcesses()
    found.started(1, 11)
    for reported in (1.0, 1.5):
        found.heard(1, snapshot(cpu_s=reported, fetch_requests=9) | {"flow": f"flow-{reported}"})
    found.heard(1, {"kind": "log"})
    worker = found.workers[1]
    assert (worker.counter("cpu_s"), worker.counter("fetch_requests"), worker.gauges) == (
        *(1.5, 0),
        {"rss_bytes": 5, "open_files": 6},
    )


def test_a_process_after_the_other() -> None:
    found = WorkerProcesses()
    found.started(1, 11)
    found.heard(1, snapshot(**{"cpu_s": 2.0, "gc_collections/0": 3}))
    found.ended(1)
    assert (found.workers[1].up, found.workers[1].gauges) == (False, {})
    found.started(1, 12)
    found.heard(1, snapshot(**{"cpu_s": 0.5, "gc_collections/0": 1}))
    worker = found.workers[1]
    assert (worker.pid, worker.restarts, worker.counter("cpu_s")) == (12, 1, 2.5)
    assert worker.counter("gc_collections/0") == 4
    found.retired(1)
    assert found.workers == {}


def test_flows_of_one_cluster() -> None:
    """Failed requests are counted by cluster, over all flows, also those that were removed."""
    found = WorkerProcesses()
    fleets = [Fleet("west->east"), Fleet("west->hub")]
    for fleet, count in zip(fleets, (1, 2), strict=True):
        fleet.started(1, 11).counters = {"request_errors/west/Fetch/timeout": count, "throttled_s/west": 0.5}
    assert found.of_clusters("request_errors", fleets) == {"west/Fetch/timeout": 3}
    found.part(fleets.pop())
    assert found.of_clusters("request_errors", fleets) == {"west/Fetch/timeout": 3}
    assert found.of_clusters("throttled_s", fleets) == {"west": 1.0}
