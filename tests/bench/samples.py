"""Results to print, draw and judge."""

from bench.data.stored import Stored
from bench.measure import Measured
from bench.plan import SYSTEMS, all_workloads
from bench.report.machine import Machine
from bench.report.results import Cost, Latency, Results, row

COSTS = {"floor": 0.25, "mirror": 0.5, "mm2": 16.0, "mm1": 20.0}
MACHINE = Machine(
    date="2026-01-01 00:00 UTC", cpu="A processor", cores=2, memory_gb=25.2, kernel="6.1", python="3.11.2",
    inner_loop="compiled", java="17", data="disk", load_average=0.2,
)  # fmt: skip


def measured(cost: float) -> Measured:
    """At 125 MB/s for 20 s, after as many, with 50 MB of memory; ``cost``: CPU-s per GB."""
    return Measured(
        bytes=2_500_000_000, seconds=20.0, cpu_s=cost * 2.5, start_cpu_s=0.4, peak_rss_bytes=50_000_000,
        all_seconds=42.0, warm_s=20.0,
    )  # fmt: skip


def results(costs: dict[str, float] = COSTS, only: str = "") -> Results:
    """Every workload whose name contains ``only``, with these costs; MirrorMaker 1 failed on 1 KB batches."""
    made = Results(kind="selection", complete=True, machine=MACHINE, settings={"mm2": {"tasks.max": "1"}})
    for workload in all_workloads():
        if only not in workload.name:
            continue
        held = Stored(bytes=10**9, batches=10**9 // workload.batch_bytes, records=10**6)
        for system in SYSTEMS:
            if (workload.tls or workload.far) and system == "mm1":
                continue
            if system == "mm1" and workload.size == "1KB":
                made.rows.append(row(system, workload, held, error="stood still"))
                continue
            made.rows.append(row(system, workload, held, runs=[measured(costs[system])] * 2))
    made.latency = [
        Latency(system="source", mb_per_s=5.0, samples=100, median_ms=2.0, p99_ms=9.0, max_ms=11.0),
        Latency(system="mirror", mb_per_s=5.0, error="ended"),
    ]
    made.costs = [
        Cost(case="exact-old", what="old", partitions=8, mb_per_s=21.04, offsets_per_s=21_000, cpu_s_per_gb=1.5),
        Cost(case="exact-txn-10", what="markers", partitions=8, error="halted"),
        Cost(
            case="idle-2000p",
            what="idle",
            partitions=2_000,
            core_percent=2.04,
            active_s=24.2,
            p99_ms=80.0,
            peak_rss_mb=99.6,
        ),
    ]
    return made
