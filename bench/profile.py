"""Profiles mirror's CPU with py-spy and perf while it copies a workload.

    BENCH_ONLY=16KB-lz4-64p python -m bench.profile

Writes raw stacks, a flame graph and perf's report to build/profile, and prints the hottest places. If ``bench.lab``
holds a workload, that one is used. With BENCH_NATIVE=1, py-spy also looks into compiled code, which is slower.

py-spy shows the place in the Python code, but counts a thread that waits for a core as running; on a busy machine, that
is mostly behind a system call. perf counts only CPU, and separates the kernel's share from the interpreter's.
"""

import collections
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from bench import lab, plan
from bench.copiers.copying import measure
from bench.copiers.programs import Program, Programs, programs
from bench.copiers.shallow import Mirror
from bench.data import loading, room
from bench.data.clusters import Side, pair
from bench.data.stored import Stored
from bench.errors import BenchError, exit_code_of
from bench.measure import Step
from bench.plan import Workload

__all__ = ["hottest", "main"]

FOLDER = plan.ROOT / "build" / "profile"
_RATE_PER_S = 400
_LONGEST_S = 60
PERF = "perf"
_KINDS = {"raw": "stacks.txt", "flamegraph": "svg", PERF: "perf.txt"}
_SHOWN = 25


class _Profiler:
    """A profiler that attaches to a program once it copies.

    Args:
        kind: a key of ``_KINDS``.
        path: file for the profile.
    """

    def __init__(self, kind: str, path: Path) -> None:
        self._kind = kind
        self._path = path
        self._run: subprocess.Popen[bytes] | None = None

    def watch(self, program: Program, text: str) -> None:
        """Attaches the profiler once the copy is being measured. ``copying.measure`` calls this at every look."""
        if self._run is None and text.startswith(Step.MEASURING.value):
            command = self._perf(program.copying_pid) if self._kind == PERF else self._py_spy(program.copying_pid)
            self._run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self) -> None:
        """Waits for the profiler, which ends by itself when the program ends.

        Raises:
            BenchError: it has written nothing.
        """
        if self._run is not None:
            self._run.wait(_LONGEST_S + 30)
        if self._kind == PERF:
            self._report()
        if not self._path.exists():
            raise BenchError(f"the profiler wrote no {self._path}", "run as root, or allow ptrace and perf events")

    def _py_spy(self, pid: int) -> list[str]:
        command = [
            str(Path(sys.executable).with_name("py-spy")), "record", "-r", str(_RATE_PER_S), "-d", str(_LONGEST_S),
            "-f", self._kind, "-o", str(self._path), "-p", str(pid),
        ]  # fmt: skip
        # py-spy has to stop the process to unwind compiled code. Without that, it reads the running process.
        return [*command, "--native" if os.environ.get("BENCH_NATIVE") else "--nonblocking"]

    def _perf(self, pid: int) -> list[str]:
        return ["perf", "record", "-e", "cpu-clock", "-F", str(_RATE_PER_S), "-p", str(pid), "-o", str(self._data())]

    def _report(self) -> None:
        data = self._data()
        lines = []
        for sort in ("dso", "dso,symbol"):
            command = ["perf", "report", "-i", str(data), "--stdio", "--sort", sort]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            lines += [line.rstrip() for line in done.stdout.splitlines() if line.strip() and not line.startswith("#")]
        if lines:
            self._path.write_text("\n".join(lines) + "\n")
        data.unlink(missing_ok=True)

    def _data(self) -> Path:
        return self._path.with_suffix(".data")


def hottest(stacks: Iterable[str]) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Computes each place's own share of all samples, and its share with everything that it calls.

    Args:
        stacks: raw stacks: lines like ``a;b;c 12``.

    Returns:
        Both as lists of (place, share from 0 to 1), largest share first.
    """
    own: collections.Counter[str] = collections.Counter()
    whole: collections.Counter[str] = collections.Counter()
    for line in stacks:
        stack, _, count = line.strip().rpartition(" ")
        if not stack or not count.isdigit():
            continue
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    total = sum(own.values()) or 1
    return (
        [(place, samples / total) for place, samples in own.most_common()],
        [(place, samples / total) for place, samples in whole.most_common()],
    )


def profile(workload: Workload, held: Stored, source: Side, destination: Side, started: Programs) -> None:
    """Makes one copy for each kind of profile, and prints the results.

    Args:
        workload: the workload.
        held: its contents at the source.
        source: the source.
        destination: the destination.
        started: starts the programs.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    copier = Mirror(plan.from_environment(os.environ).flow)
    for kind, suffix in _KINDS.items():
        if kind == PERF and shutil.which("perf") is None:
            continue
        path = _path(workload, suffix)
        path.unlink(missing_ok=True)
        profiler = _Profiler(kind, path)
        found = measure(
            copier, workload, held, source=source, destination=destination, programs=started, watch=profiler.watch
        )
        profiler.wait()
        print(f"{path}: {found.cpu_s_per_gb:.3f} CPU-s/GB with the profiler attached", flush=True)
    own, whole = hottest(_path(workload, _KINDS["raw"]).read_text().splitlines())
    for title, places in (("own time", own), ("with what it calls", whole)):
        print(f"\n{title} (py-spy):")
        for place, share in places[:_SHOWN]:
            print(f"  {share:6.1%}  {place}")
    report = _path(workload, _KINDS[PERF])
    if report.exists():
        print("\nCPU (perf):", *report.read_text().splitlines()[:_SHOWN], sep="\n")


def _path(workload: Workload, suffix: str) -> Path:
    return FOLDER / f"{workload.name}.{suffix}"


def main() -> int:
    """Makes the profiles, and returns the exit code."""
    return exit_code_of(_main)


def _main() -> None:
    if lab.STATE.exists():
        workload, held, source, destination = lab.held()
        with programs() as started:
            profile(workload, held, source, destination, started)
        return
    asked = plan.from_environment(os.environ)
    room.find(os.environ)
    with pair() as (source, destination), programs() as started:
        for workload in asked.workloads[:1]:
            profile(workload, loading.fill(workload, source, started), source, destination, started)


if __name__ == "__main__":
    sys.exit(main())
