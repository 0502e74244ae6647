"""``python -m tests.fuzz SECONDS [REGEX]``: so many seconds for each target whose name matches.

``python -m tests.fuzz keep`` makes the kept corpus anew, of the first inputs, of what is kept, and of what was found to
reach more code (it needs atheris).
"""

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.corpus import file_of, keep, kept
from tests.fuzz.one import GUIDED, engine
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz"
_ENDING_S = 300
"""To end by itself, before it is killed: an input that takes a minute counts as one that hangs."""


class Outcome(NamedTuple):
    """What became of a target. ``inputs``: played; -1: not told, because it ended early."""

    seconds: float
    inputs: int
    ended: str

    @property
    def well(self) -> bool:
        """True if nothing was found."""
        return self.ended == "nothing found"


def main(arguments: list[str]) -> int:
    """The exit code: 1 if something was found."""
    if arguments == ["keep"]:
        return _keep()
    try:
        seconds, pattern = int(arguments[0]), re.compile(arguments[1] if len(arguments) > 1 else "")
    except (IndexError, ValueError, re.error):
        print(__doc__, file=sys.stderr)
        return 64
    chosen = [name for name in TARGETS if pattern.search(name)]
    print(f"{engine()}; {seconds} s for each of {len(chosen)} targets: {', '.join(chosen)}", flush=True)
    outcomes = [_fuzzed(name, seconds) for name in chosen]
    total_s = sum(outcome.seconds for outcome in outcomes)
    print(f"{total_s:.0f} s, {sum(max(0, outcome.inputs) for outcome in outcomes)} inputs, with {engine()}")
    return 0 if chosen and all(outcome.well for outcome in outcomes) else 1


def _fuzzed(name: str, seconds: int) -> Outcome:
    """Run one target, and tell."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.one", name, str(folder), str(seconds)]
    began_at = time.monotonic()
    with (folder / "log").open("w") as log:
        try:
            done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, timeout=seconds + _ENDING_S, check=False)
            ended = "nothing found" if not done.returncode else f"FOUND (exit code {done.returncode})"
        except subprocess.TimeoutExpired:
            ended = "FOUND: it did not end"
    text = (folder / "log").read_text(errors="replace")
    played = re.findall(r"stat::number_of_executed_units:\s*(\d+)|^#(\d+)\s", text, re.MULTILINE)
    inputs = max((int(one or other) for one, other in played), default=-1)
    outcome = Outcome(time.monotonic() - began_at, inputs, ended)
    covered = re.findall(r" cov: (\d+)", text)
    reached = f", {covered[-1]} edges reached" if covered else ""
    print(f"{name}: {outcome.seconds:.0f} s, {outcome.inputs} inputs{reached}; {outcome.ended}", flush=True)
    if not outcome.well:
        print(f"  {folder / 'log'} says what, {folder / 'found'} has the input:")
        print(f"  {Path(sys.executable).name} -m tests.fuzz.one {name} {folder / 'found'}/FILE plays it again")
    return outcome


def _keep() -> int:
    if engine() != GUIDED:
        print("fuzz: keeping needs atheris: pip install '.[fuzz]'", file=sys.stderr)
        return 1
    for name in TARGETS:
        first = FOLDER / name / "first"
        small = FOLDER / name / "small"
        for folder in (first, small, FOLDER / name / "corpus"):
            folder.mkdir(parents=True, exist_ok=True)
        for old in small.iterdir():
            old.unlink()
        for number, data in enumerate([*seeds(name), *(kept(name) if file_of(name).exists() else [])]):
            (first / str(number)).write_bytes(data)
        _merge(name, small, [first, FOLDER / name / "corpus"])
        # The seeds first: they are what brokers send. Then the smallest of the others.
        found = sorted((file.read_bytes() for file in small.iterdir()), key=len)
        count = keep(name, [*seeds(name), *found])
        print(f"{name}: {count} inputs kept, of {len(found)} that reach something")
    return 0


def _merge(name: str, into: Path, others: list[Path]) -> None:
    """Copies what reaches something that smaller inputs do not. libFuzzer starts itself again for it, as a program."""
    program = FOLDER / name / "program"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.fuzz.one --as "$0" {name} "$@"\n')
    program.chmod(0o755)
    with (FOLDER / name / "log").open("w") as log:
        subprocess.run([program, "-merge=1", *map(str, [into, *others])], cwd=ROOT, stdout=log, stderr=log, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
