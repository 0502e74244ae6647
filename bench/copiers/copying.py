"""Runs a copier on a loaded topic, and measures it."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from bench.copiers.programs import Program, Programs
from bench.data.clusters import SPARING, Side
from bench.data.stored import Stored
from bench.errors import BenchError
from bench.measure import WARM, Interval, Measured, Step, Window
from bench.plan import FAR_MS, Workload

__all__ = ["Copier", "Job", "copy", "follow", "measure"]

LOOK_EVERY_S = 0.2
_STALL_S = 90.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A topic to copy from one cluster to another.

    Attributes:
        topic: name of the topic on both sides.
        partitions: number of its partitions on both sides.
        codec: compression of its batches, as Kafka names it.
        source: bootstrap servers of the source.
        destination: bootstrap servers of the destination.
        prompt: True if latency counts, False if throughput counts.
        tls: clusters whose bootstrap servers above are TLS listeners: ``source``, ``destination`` or both.
        ca: PEM file with the CA of these listeners.
        far: clusters to which there is a long link.
    """

    topic: str
    partitions: int
    codec: str
    source: str
    destination: str
    prompt: bool = False
    tls: tuple[str, ...] = ()
    ca: Path | None = None
    far: tuple[str, ...] = ()


class Copier(Protocol):
    """A system that copies topics between clusters."""

    @property
    def name(self) -> str:
        """Name in tables and selections."""

    @property
    def window(self) -> Window:
        """The part of the copy that is measured."""

    @property
    def supervises(self) -> bool:
        """True if the program that is started only supervises the processes that copy."""

    @property
    def everywhere(self) -> bool:
        """True if it is also measured over TLS and over long links."""

    def command(self, job: Job, programs: Programs) -> list[str]:
        """Writes the copier's settings, and returns the command that runs it in the foreground."""

    def end(self, program: Program) -> None:
        """Ends the copier.

        Raises:
            BenchError: it did not end cleanly.
        """


def measure(
    copier: Copier, workload: Workload, held: Stored, *, source: Side, destination: Side, programs: Programs,
    watch: Callable[[Program, str], None] = lambda program, text: None,
) -> Measured:  # fmt: skip
    """Copies a topic into an empty one of the same name, deletes the copy, and returns the figures.

    Args:
        copier: the system to measure.
        workload: the topic's workload.
        held: the topic's contents at the source.
        source: the cluster to copy from.
        destination: the cluster to copy to.
        programs: starts the copier.
        watch: called at every look with the program and its progress, in words.

    Raises:
        BenchError: the copier has ended, stood still, or was too quick to be measured.
    """
    job = Job(
        topic=workload.topic, partitions=workload.partitions, codec=workload.codec, tls=workload.tls, ca=source.ca,
        far=workload.far, source=_servers(source, workload), destination=_servers(destination, workload),
    )  # fmt: skip
    return copy(
        copier, job, held, destination=destination, programs=programs, watch=watch, config=SPARING,
        window=WARM if workload.far else copier.window,
    )  # fmt: skip


def _servers(side: Side, workload: Workload) -> str:
    if side.name in workload.far:
        return side.far_servers(FAR_MS)
    return side.tls_servers if side.name in workload.tls else side.bootstrap_servers


def copy(
    copier: Copier, job: Job, held: Stored, *, destination: Side, programs: Programs,
    watch: Callable[[Program, str], None] = lambda program, text: None, config: Mapping[str, str] | None = None,
    window: Window | None = None,
) -> Measured:  # fmt: skip
    """Does what ``measure`` does, for a job.

    Args:
        copier: the system to measure.
        job: the topic to copy.
        held: the topic's contents at the source.
        destination: the cluster to copy to.
        programs: starts the copier.
        watch: see ``measure``.
        config: configs of the topic at the destination.
        window: the part of the copy that is measured; None: the copier's own.

    Raises:
        BenchError: as ``measure``.
    """
    destination.delete_all()
    destination.create(job.topic, job.partitions, config)
    started_at = time.monotonic()
    try:
        command = copier.command(job, programs)
        with programs.running(copier.name, command, supervises=copier.supervises) as program:
            whole = Interval(held.records, held.bytes, window or copier.window)
            interval = follow(program, whole, job, held, destination, watch)
            result = interval.result(peak_rss_bytes=program.peak_rss_bytes(), started_at=started_at)
            copier.end(program)
    finally:
        destination.delete_all()
    if result is None:
        raise BenchError(
            f"{copier.name} moved nothing of {job.topic} between the first and the last look at the destination",
            "if it was that quick, give it more bytes (BENCH_SCALE); else the machine is too busy to measure on",
        )
    return result


def follow(
    program: Program, interval: Interval, job: Job, held: Stored, destination: Side,
    watch: Callable[[Program, str], None],
) -> Interval:  # fmt: skip
    """Looks at the destination until the interval has ended, and returns the interval.

    Args:
        program: the copier.
        interval: gets the looks.
        job: the topic that is copied.
        held: the topic's contents at the source.
        destination: the cluster to copy to.
        watch: see ``measure``.

    Raises:
        BenchError: the program has ended or stood still, or another process has replaced the one that copied.
    """
    most, moved_at, first = 0, time.monotonic(), 0
    while True:
        program.check()
        before_s = program.cpu_s()
        copied = destination.records(job.topic, job.partitions)
        at = time.monotonic()
        # The broker's answer is of some moment between the two readings of the CPU, so take the mean of these.
        step = interval.look(at, copied, (before_s + program.cpu_s()) / 2)
        watch(program, f"{step.value}, {max(0, copied) / held.records:.0%}")
        if step in (Step.MEASURING, Step.DONE):
            first = first or program.copying_pid
        if step is Step.DONE:
            if program.copying_pid != first:
                raise program.failure("lost the worker that copied, whose CPU is lost with it")
            return interval
        if copied > most:
            most, moved_at = copied, at
        elif at - moved_at > _STALL_S:
            raise program.failure(
                f"stood still for {_STALL_S:.0f} s at {most} of {held.records} records of {job.topic}"
            )
        time.sleep(LOOK_EVERY_S)
