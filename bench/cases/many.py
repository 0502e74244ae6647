"""Measures many partitions: the time until all are active, and the cost while few records are written, or none.

Mirror only. The topic is copied first, so that no backlog is measured.
"""

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.cases import exactness, latency
from bench.copiers.copying import Job, follow
from bench.copiers.programs import Program, Programs, python_module
from bench.copiers.shallow import Mirror
from bench.data import steady
from bench.data.clusters import Side
from bench.data.stored import Stored
from bench.measure import Interval, Window
from bench.plan import Case
from bench.report.results import Cost
from lab import procfs

__all__ = ["MEASURED_S", "measure"]

MEASURED_S = 30.0
"""Length of the measurement in seconds. It includes what mirror does every 30 s."""
_QUIET_S = 10.0
"""Pause in seconds before the measurement, until the work that follows a start is over."""
_ACTIVE_TIMEOUT_S = 600.0
_ASK_EVERY_S = 0.25


def measure(
    case: Case, held: Stored, *, source: Side, destination: Side, programs: Programs, flow: Mapping[str, Any],
    say: Callable[[str], None],
) -> Cost:  # fmt: skip
    """Copies the topic, then measures the CPU of all of mirror's processes at the case's rate of records.

    Args:
        case: the case.
        held: the topic's contents at the source.
        source: the source.
        destination: the destination.
        programs: starts the programs.
        flow: further settings of mirror's flow.
        say: called with the progress, in words.

    Raises:
        BenchError: mirror has ended, or stood still before everything was copied.
    """
    job = Job(
        topic=case.topic, partitions=case.partitions, codec=exactness.CODEC, source=source.bootstrap_servers,
        destination=destination.bootstrap_servers, prompt=True,
    )  # fmt: skip
    address = _free_address()
    copier = Mirror({**flow, **case.flow}, http=address)
    destination.delete_all()
    destination.create(job.topic, job.partitions)
    try:
        began_at = time.monotonic()
        command = copier.command(job, programs)
        with programs.running(copier.name, command, supervises=copier.supervises) as program:
            active_s = _until_active(program, address, case.partitions, began_at)
            say(f"all active after {active_s:.1f} s")
            follow(
                program, Interval(held.records, held.bytes, Window()), job, held, destination, lambda _, text: say(text)
            )
            with _writing(case, job, programs) as writers:
                time.sleep(_QUIET_S)
                say(f"measuring for {MEASURED_S:.0f} s")
                before_s, from_at = procfs.cpu_s(program.pid), time.monotonic()
                times = _times(case, destination, [program, *writers])
                share = (procfs.cpu_s(program.pid) - before_s) / (time.monotonic() - from_at)
            program.check()
            peak = program.peak_rss_bytes()
            copier.end(program)
    finally:
        destination.delete_all()
    return Cost(
        case=case.name, what=case.what, partitions=case.partitions, stored_bytes=held.bytes, batches=held.batches,
        records=held.records, core_percent=round(share * 100, 2), peak_rss_mb=round(peak / 1e6, 1),
        active_s=round(active_s, 1), p99_ms=round(latency.percentile(times, 99), 1) if times else None,
    )  # fmt: skip


def _free_address() -> str:
    """Returns a loopback address at which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def _until_active(program: Program, address: str, partitions: int, began_at: float) -> float:
    """Waits until all partitions are active, and returns the time in seconds since ``began_at``.

    Raises:
        BenchError: mirror has ended, or the partitions are not active in time.
    """
    states: Mapping[str, int] = {}
    while states.get("active", 0) < partitions:
        program.check()
        if time.monotonic() - began_at > _ACTIVE_TIMEOUT_S:
            raise program.failure(f"had {states} after {_ACTIVE_TIMEOUT_S:.0f} s")
        time.sleep(_ASK_EVERY_S)
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            states = _states(answer.read().decode())
    return time.monotonic() - began_at


def _states(metrics: str) -> dict[str, int]:
    """Returns state -> number of partitions. ``metrics``: text of mirror's metrics."""
    found: dict[str, int] = {}
    for line in metrics.splitlines():
        if line.startswith("mirror_partitions{"):
            labels, _, value = line.partition("} ")
            state = labels.partition('state="')[2].partition('"')[0]
            found[state] = found.get(state, 0) + int(float(value))
    return found


@contextlib.contextmanager
def _writing(case: Case, job: Job, programs: Programs) -> Iterator[list[Program]]:
    """Runs the writer of the case while the context lasts. Yields the writer in a list, which is empty if the case has
    none."""
    if not case.records_per_s:
        yield []
        return
    arguments = {
        "bootstrap_servers": job.source, "topic": job.topic, "partitions": case.written_partitions,
        "bytes_per_s": case.records_per_s * steady.RECORD_BYTES,
    }  # fmt: skip
    with programs.running("writer", python_module("bench.data.steady", json.dumps(arguments))) as writer:
        yield [writer]


def _times(case: Case, destination: Side, running: list[Program]) -> list[float]:
    """Waits for ``MEASURED_S``. Returns the latencies in ms of the records that were written meanwhile, in ascending
    order (see ``latency.all_of``); empty if the case writes none.

    Raises:
        BenchError: too many of them did not arrive.
    """
    if not case.records_per_s:
        time.sleep(MEASURED_S)
        return []
    with latency.consuming(destination, case.topic, range(case.written_partitions), newest=True) as consumer:
        # Warm up first: until the consumer knows the end of each partition, it gets no records, which is not the
        # mirror's fault.
        latency.collect(consumer, running, latency.WARM_S)
        times = latency.collect(consumer, running, MEASURED_S)
    return sorted(latency.all_of(times, case.records_per_s * MEASURED_S, running[0]))
