"""Which tests run which lines, and how long each takes: from one run of each room under ``coverage``."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Any

from tests.mutants.project import WORKERS, environment
from tests.mutants.rooms import Room, digest, rooms_of

__all__ = ["Reach", "measured"]

MOST_S = 90.0
"""A mutant is judged by tests that take so long together. Some lines are run by every flow between two clusters, and
each survivor would wait for 500 s of tests that were written for something else."""
NO_TESTS = 5
"""Pytest's exit code for a room that has no quick test."""
_RUN = "|run"
"""pytest-cov names the context of a test's body so; setup and teardown have others."""


class Reach:
    """Args:
    lines: path -> line -> the tests that run it; of lines that run when a module is imported, none.
    seconds: of each test.
    """

    def __init__(self, lines: dict[str, dict[int, list[str]]], seconds: dict[str, float]) -> None:
        self.lines = lines
        self.seconds = seconds

    def tests_of(self, path: str, line: int) -> list[str]:
        """Those that run the line, the quickest first, as many as do not take too long together; of a line that none
        runs, but an import, those that run any line of the file. None at all: no test reaches the file."""
        lines = self.lines.get(path, {})
        found = lines.get(line) or list({test for tests in lines.values() for test in tests})
        quickest = sorted(found, key=lambda test: (self.seconds_of(test), test))
        together = accumulate(map(self.seconds_of, quickest))
        return [test for test, seconds in zip(quickest, together, strict=True) if seconds <= MOST_S]

    def seconds_of(self, test: str) -> float:
        """Under ``coverage``; 0 if that is not known."""
        return self.seconds.get(test, 0.0)


def measured(root: Path, folder: Path, package: str) -> Reach:
    """By a run of each of the package's rooms in ``root``, kept in ``folder`` for as long as its digest stays the same.

    Raises:
        RuntimeError: a test fails without any mutant, or cannot be run by its name.
    """
    lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    seconds: dict[str, float] = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        for data in list(pool.map(lambda room: _kept(root, folder, room), rooms_of(root, package))):
            for path, of in data["lines"].items():
                for line, tests in of.items():
                    lines[path][int(line)] += [data["tests"][at] for at in tests]
            seconds |= data["seconds"]
    return Reach(lines, seconds)


def _kept(root: Path, folder: Path, room: Room) -> dict[str, Any]:
    kept, now = folder / f"{room.name}.json", digest(root, room)
    if kept.exists() and (data := json.loads(kept.read_text()))["digest"] == now:
        return dict(data)
    data = {"digest": now, **_run(root, folder, room)}
    kept.write_text(json.dumps(data))
    return data


def _run(root: Path, folder: Path, room: Room) -> dict[str, Any]:
    report, data, listing = (folder / f"{room.name}.{kind}" for kind in ("xml", "coverage", "txt"))
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command = [
        *pytest, "-m", room.marks, "--cov=mirror", "--cov-context=test", "--cov-report=", f"--junitxml={report}",
        *room.names,
    ]  # fmt: skip
    within = environment(root) | {"COVERAGE_FILE": str(data)}
    if subprocess.run(command, cwd=root, env=within, check=False).returncode not in (0, NO_TESTS):
        raise RuntimeError(f"the tests of {room.name} do not pass as they are; mend that first")
    made = _read(root, data)
    listing.write_text("\n".join(made["tests"]))
    # A name that pytest does not find would pass for a mutant that was killed.
    found = [*pytest, "--collect-only", f"@{listing}"]
    if made["tests"] and subprocess.run(found, cwd=root, env=within, stdout=subprocess.DEVNULL, check=False).returncode:
        raise RuntimeError(f"not every test of {room.name} is found by its name")
    return made | {"seconds": _seconds(report)}


def _read(root: Path, data: Path) -> dict[str, Any]:
    from coverage import CoverageData

    found = CoverageData(str(data))
    found.read()
    numbers: dict[str, int] = {}
    lines: dict[str, dict[int, list[int]]] = {}
    for name in found.measured_files():
        of = defaultdict(list)
        for line, contexts in found.contexts_by_lineno(name).items():
            for context in contexts:
                if context.endswith(_RUN):
                    test = context.removesuffix(_RUN)
                    of[line].append(numbers.setdefault(test, len(numbers)))
        lines[str(Path(name).relative_to(root))] = dict(of)
    return {"lines": lines, "tests": list(numbers)}


def _seconds(report: Path) -> dict[str, float]:
    """By node id, from a JUnit report, which has the file's name with dots."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        path = case.attrib["classname"].replace(".", "/") + ".py"
        found[f"{path}::{case.attrib['name']}"] = float(case.attrib["time"])
    return found
