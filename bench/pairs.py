"""Compares another commit of mirror with this one, in pairs, on the workload that ``bench.lab`` holds.

    git worktree add FOLDER COMMIT && make -C FOLDER setup
    python -m bench.lab hold 16KB-lz4-64p &
    python -m bench.pairs FOLDER [PAIRS]          (10; the order changes from pair to pair)

Two figures each, in CPU of all its processes: the cost of a GB once a quarter is copied, which is the hot path, and the
cost of everything before that: the start, the takeovers, and the first quarter.
"""

import dataclasses
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench import lab
from bench.copiers.copying import Job, measure
from bench.copiers.programs import Programs, programs
from bench.copiers.shallow import Mirror
from bench.errors import BenchError, exit_code_of
from bench.measure import Measured, Window

__all__ = ["Build", "compare", "compile_package", "main"]

PAIRS = 10
STEADY = Window(warm_fraction=0.25)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Build(Mirror):
    """``mirror run`` of one commit, without ``--fail-fast``, which early commits do not have.

    Attributes:
        name: "this" or "other".
        program: path of its ``mirror``.
    """

    name: str
    program: Path
    window: Window = STEADY

    def command(self, job: Job, programs: Programs) -> list[str]:
        """Writes the configuration, and returns the command that runs this build."""
        _, run, *options = [word for word in super(Build, self).command(job, programs) if word != "--fail-fast"]
        return [str(self.program), run, *options]


def compile_package(program: Path) -> None:
    """Compiles a build's modules to bytecode. Otherwise Python would compile them at each start if they were changed
    and not run since, or with PYTHONDONTWRITEBYTECODE, and that would be measured (+0.15 CPU-s)."""
    where = "import mirror, pathlib; print(pathlib.Path(mirror.__file__).parent)"
    python = program.with_name("python")
    asked = subprocess.run([python, "-c", where], cwd=program.parent, check=True, capture_output=True, text=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([python, "-m", "compileall", "-q", asked.stdout.strip()], env=environment, check=True)


def compare(other: Path, pairs: int) -> None:
    """Measures both builds alternately, and prints each pair and a summary.

    Args:
        other: folder of the other commit's tree.
        pairs: number of pairs.

    Raises:
        BenchError: no process holds a workload, ``other`` has no mirror, or a measurement has failed.
    """
    theirs = other / ".venv" / "bin" / "mirror"
    if not theirs.exists():
        raise BenchError(f"there is no {theirs}", f"run `make -C {other} setup` first")
    workload, has, source, destination = lab.held()
    builds = (
        Build(name="other", program=theirs),
        Build(name="this", program=Path(sys.executable).with_name("mirror")),
    )
    for build in builds:
        compile_package(build.program)
    found: dict[str, list[Measured]] = {build.name: [] for build in builds}
    with programs() as started:
        for pair in range(pairs):
            for build in builds if pair % 2 == 0 else builds[::-1]:
                run = measure(build, workload, has, source=source, destination=destination, programs=started)
                found[build.name].append(run)
            print(f"{pair + 1:>3}: {_figures(found['other'][-1])}   this: {_figures(found['this'][-1])}", flush=True)
    for what, figures in (
        (
            "CPU-s/GB after the first quarter",
            {name: [run.cpu_s_per_gb for run in runs] for name, runs in found.items()},
        ),
        ("CPU-s before", {name: [run.start_cpu_s for run in runs] for name, runs in found.items()}),
    ):
        print(_summary(what, figures["other"], figures["this"]), flush=True)


def _figures(run: Measured) -> str:
    return f"{run.cpu_s_per_gb:.3f} CPU-s/GB, {run.start_cpu_s:.2f} CPU-s before"


def _summary(what: str, other: list[float], this: list[float]) -> str:
    ratios = [mine / theirs for mine, theirs in zip(this, other, strict=True)]
    return (
        f"{what}: medians {statistics.median(other):.3f} and {statistics.median(this):.3f}, "
        f"{statistics.median(this) / statistics.median(other) - 1:+.1%}; "
        f"median of the pairs' ratios {statistics.median(ratios) - 1:+.1%}; "
        f"dearer in {sum(ratio > 1 for ratio in ratios)} of {len(ratios)}"
    )


def main(arguments: list[str]) -> int:
    """Runs the command, and returns the exit code."""
    match arguments:
        case [other]:
            pairs = PAIRS
        case [other, number] if number.isdigit() and int(number) > 0:
            pairs = int(number)
        case _:
            print(__doc__, file=sys.stderr)
            return 1
    return exit_code_of(lambda: compare(Path(other), pairs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
