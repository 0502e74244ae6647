"""Describes the machine of a run."""

import dataclasses
import datetime
import os
import platform
import subprocess
import sys
from pathlib import Path

from bench.data import room
from mirror.relay.hot.native import loop_form
from mirror.sandbox.kafka import java

__all__ = ["Machine", "describe"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The properties of the machine on which the figures depend.

    Attributes:
        date: date and time of the run (UTC).
        cpu: model name of the CPU.
        cores: number of cores that this process may use.
        memory_gb: memory in 10^9 bytes.
        kernel: release of the kernel.
        python: version and build of Python.
        inner_loop: form of mirror's inner loop, ``compiled`` or ``in Python``.
        java: first line of ``java -version``.
        data: where the brokers keep their data, ``memory`` or ``disk``.
        load_average: load average of the last minute before the run, from other programs.
    """

    date: str
    cpu: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    inner_loop: str
    java: str
    data: str
    load_average: float

    def sentence(self) -> str:
        """Returns the properties as a text for captions."""
        return (
            f"{self.date}, {self.cpu}, {self.cores} cores shared with both brokers, {self.memory_gb:.0f} GB, "
            f"Linux {self.kernel}, Python {self.python}, inner loop {self.inner_loop}, {self.java}, "
            f"brokers' data in {self.data}; load average before the run {self.load_average:.1f}"
        )


def describe() -> Machine:
    """Returns the present properties of this machine."""
    return Machine(
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        kernel=platform.release(),
        python=_python(),
        inner_loop=loop_form(),
        java=_java(),
        data=room.kind(),
        load_average=os.getloadavg()[0],
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return " ".join(value.split())
    return platform.machine()


def _python() -> str:
    # The build is named, since build flags do not show how fast an interpreter is: Debian's does not record its PGO.
    return " ".join(sys.version.split())


def _java() -> str:
    done = subprocess.run([java.find(), "-version"], capture_output=True, text=True, timeout=60, check=False)
    return " ".join((done.stderr or done.stdout).splitlines()[:1]).replace('"', "") or "Java"
