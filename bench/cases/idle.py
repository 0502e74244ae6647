"""Measures the cost of many partitions while nobody writes. Mirror only."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from bench import procfs
from bench.cases import exactness
from bench.copiers.copying import Copier, Job, follow
from bench.copiers.programs import Programs
from bench.copiers.shallow import Mirror
from bench.data.clusters import Side
from bench.data.stored import Stored
from bench.measure import Interval, Window
from bench.plan import Case
from bench.report.results import Cost

__all__ = ["IDLE_S", "measure"]

IDLE_S = 30.0
"""Length of the measurement: it includes what happens every 30 s."""
_QUIET_S = 10.0
"""Pause before it: the work that follows a start is over."""


def measure(
    case: Case, held: Stored, *, source: Side, destination: Side, programs: Programs, flow: Mapping[str, Any],
    say: Callable[[str], None],
) -> Cost:  # fmt: skip
    """Copy the topic, then measure the CPU of all of mirror's processes while nobody writes.

    Raises:
        BenchError: mirror ended, or stood still before all was copied.
    """
    job = Job(
        topic=case.topic, partitions=case.partitions, codec=exactness.CODEC, source=source.bootstrap_servers,
        destination=destination.bootstrap_servers,
    )  # fmt: skip
    copier: Copier = Mirror({**flow, **case.flow})
    destination.delete_all()
    destination.create(job.topic, job.partitions)
    try:
        with programs.running(copier.name, copier.command(job, programs)) as program:
            whole = Interval(held.records, held.bytes, Window())
            follow(program, whole, job, held, destination, lambda _, text: say(text))
            time.sleep(_QUIET_S)
            say(f"idle for {IDLE_S:.0f} s")
            before_s, began_at = procfs.cpu_s(program.pid), time.monotonic()
            time.sleep(IDLE_S)
            program.check()
            share = (procfs.cpu_s(program.pid) - before_s) / (time.monotonic() - began_at)
            peak = program.peak_rss_bytes()
            copier.end(program)
    finally:
        destination.delete_all()
    return Cost(
        case=case.name, what=case.what, partitions=case.partitions, stored_bytes=held.bytes, batches=held.batches,
        records=held.records, core_percent=round(share * 100, 2), peak_rss_mb=round(peak / 1e6, 1),
    )  # fmt: skip
