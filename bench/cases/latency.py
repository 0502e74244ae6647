"""Measures the time from a record's timestamp until a consumer of the destination has the record, at a steady rate."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import OFFSET_END, Consumer, TopicPartition

from bench.copiers.copying import Copier, Job
from bench.copiers.programs import Program, Programs, python_module
from bench.data.clusters import Side
from bench.data.steady import RECORD_BYTES
from bench.errors import BenchError
from bench.report.results import Latency

__all__ = ["MB_PER_S", "all_of", "collect", "consuming", "measure", "percentile", "summary"]

MB_PER_S = 5.0
SECONDS = 20.0
TOPIC = "bench.latency"
PARTITIONS = 8
WARM_S = 12.0
_START_TIMEOUT_S = 120.0
_KEPT_UP_MS = 2_000
_LEAST_SHARE = 0.98
"""Minimum share of the records that have to arrive. Records may be missing because they are under way at the end, or
because a busy writer is late. They count as if they never arrived."""
_SOURCE = "source"


def measure(
    copier: Copier | None, *, source: Side, destination: Side, programs: Programs, say: Callable[[str], None]
) -> Latency:
    """Measures the latency of a copier: writes at the source, and consumes at the destination.

    The copier warms up first: records are timed from ``WARM_S`` after it has caught up, for ``SECONDS``.

    Args:
        copier: the copier; None: consume at the source itself.
        source: the source.
        destination: the destination.
        programs: starts the programs.
        say: called with the progress, in words.

    Raises:
        BenchError: the copier has ended, or did not catch up.
    """
    name = copier.name if copier else _SOURCE
    for side in (source, destination):
        side.delete_all()
        side.create(TOPIC, PARTITIONS)
    job = Job(
        topic=TOPIC, partitions=PARTITIONS, codec="none", source=source.bootstrap_servers,
        destination=destination.bootstrap_servers, prompt=True,
    )  # fmt: skip
    writing = {
        "bootstrap_servers": source.bootstrap_servers, "topic": TOPIC, "partitions": PARTITIONS,
        "bytes_per_s": MB_PER_S * 1e6,
    }  # fmt: skip
    try:
        with programs.running("writer", python_module("bench.data.steady", json.dumps(writing))) as writer:
            if copier is None:
                times = _times(source, [writer], say)
            else:
                command = copier.command(job, programs)
                with programs.running(name, command, supervises=copier.supervises) as program:
                    times = _times(destination, [writer, program], say)
                    copier.end(program)
    finally:
        source.delete_all()
        destination.delete_all()
    return summary(name, times)


def summary(system: str, times_ms: list[float]) -> Latency:
    """Returns a row of the results. ``times_ms``: latencies of all records that were written, see ``all_of``."""
    ordered = sorted(times_ms)
    came = [time_ms for time_ms in ordered if math.isfinite(time_ms)]
    return Latency(
        system=system, mb_per_s=MB_PER_S, samples=len(came), median_ms=round(percentile(ordered, 50), 1),
        p99_ms=round(percentile(ordered, 99), 1), max_ms=round(came[-1], 1),
    )  # fmt: skip


def percentile(ordered: list[float], share: float) -> float:
    """Returns a percentile: the smallest of the values that is not exceeded by ``share`` percent of them. ``ordered``:
    the values in ascending order, at least one."""
    return ordered[max(0, -(-len(ordered) * round(share * 100) // 10_000) - 1)]


def _times(side: Side, running: list[Program], say: Callable[[str], None]) -> list[float]:
    """Returns the latency in ms of every record that was written while it was measured; see ``all_of``."""
    with consuming(side, TOPIC, range(PARTITIONS)) as consumer:
        _catch_up(consumer, running, say)
        collect(consumer, running, WARM_S)
        say(f"measuring for {SECONDS:.0f} s")
        times = collect(consumer, running, SECONDS)
    return all_of(times, MB_PER_S * 1e6 / RECORD_BYTES * SECONDS, running[-1])


def all_of(times: list[float], written: float, program: Program) -> list[float]:
    """Returns the latencies of all records that were written: those of the records that have arrived, and infinity for
    each of the others.

    So percentiles are about all records that were written, and lost records count as late ones.

    Args:
        times: latencies of the records that have arrived.
        written: number of records that were written.
        program: the program to blame if too many are missing.

    Raises:
        BenchError: too many records are missing.
    """
    if len(times) < _LEAST_SHARE * written:
        raise program.failure(f"brought {len(times)} records while {written:.0f} were written")
    return times + [math.inf] * (round(written) - len(times))


@contextlib.contextmanager
def consuming(side: Side, topic: str, partitions: Iterable[int], *, newest: bool = False) -> Iterator[Consumer]:
    """Yields a consumer of some partitions. ``newest``: True to begin at the end of each partition, False to begin at
    offset 0."""
    consumer = Consumer({
        "bootstrap.servers": side.bootstrap_servers, "group.id": "bench-latency", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, "log_level": 2,
    })  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_END if newest else 0) for partition in partitions])
        yield consumer
    finally:
        consumer.close()


def _catch_up(consumer: Consumer, running: list[Program], say: Callable[[str], None]) -> None:
    say("catching up")
    deadline_at = time.monotonic() + _START_TIMEOUT_S
    while not (times := collect(consumer, running, 0.5)) or times[-1] > _KEPT_UP_MS:
        if time.monotonic() > deadline_at:
            late = f"{times[-1] / 1000:.0f} s late" if times else "bringing nothing"
            raise running[-1].failure(f"was {late} after {_START_TIMEOUT_S:.0f} s at {MB_PER_S:g} MB/s")


def collect(consumer: Consumer, running: list[Program], seconds: float) -> list[float]:
    """Consumes for some seconds, and returns the latency of each record in ms: the time from its timestamp until it has
    arrived.

    Args:
        consumer: the consumer.
        running: programs that must not have ended.
        seconds: how long.

    Raises:
        BenchError: a program has ended, or the consumer has failed.
    """
    for program in running:
        program.check()
    times: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            raise BenchError(f"the consumer failed: {message.error()}", "see the broker's log")
        times.append(time.time() * 1000 - message.timestamp()[1])
    return times
