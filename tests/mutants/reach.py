"""Which tests run which lines, and how long each takes: from one run of them all under ``coverage``."""

import hashlib
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.project import environment

__all__ = ["Reach", "measured"]

QUICK = "not broker and not spark and not long"
TESTS = tuple(
    f"tests/{name}" for name in ("records", "wire", "net", "offsetmap", "relay", "audit", "service", "simulation")
)
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
        """Those that run the line, the quickest first; of a line that none runs, but an import, all that run any line
        of the file. None at all: no test reaches the file."""
        lines = self.lines.get(path, {})
        found = lines.get(line) or list({test for tests in lines.values() for test in tests})
        return sorted(found, key=lambda test: (self.seconds.get(test, 0.0), test))

    def seconds_of(self, tests: Iterable[str]) -> float:
        """Of all of them, one after another."""
        return sum(self.seconds.get(test, 0.0) for test in tests)


def measured(root: Path, folder: Path) -> Reach:
    """By a run of the quick tests in ``root``, kept in ``folder`` for as long as neither code nor tests change.

    Raises:
        RuntimeError: a test fails without any mutant.
    """
    kept = folder / f"reach-{_digest(root)}.json"
    if not kept.exists():
        kept.write_text(json.dumps(_run(root, folder)))
    data = json.loads(kept.read_text())
    lines = {
        path: {int(line): [data["tests"][at] for at in tests] for line, tests in of.items()}
        for path, of in data["lines"].items()
    }
    return Reach(lines, data["seconds"])


def _digest(root: Path) -> str:
    made = hashlib.sha256()
    for path in sorted((*root.glob("mirror/**/*.py"), *root.glob("tests/**/*.py"))):
        made.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return made.hexdigest()[:16]


def _run(root: Path, folder: Path) -> dict[str, object]:
    report, data = folder / "tests.xml", folder / "coverage"
    command = [
        sys.executable, "-m", "pytest", "-q", "-m", QUICK, "--numprocesses", "2", "-p", "no:randomly", "--cov=mirror",
        "--cov-context=test", "--cov-report=", f"--junitxml={report}",
        *(name for name in TESTS if (root / name).is_dir()),
    ]  # fmt: skip
    code = subprocess.run(command, cwd=root, env=environment(root) | {"COVERAGE_FILE": str(data)}, check=False)
    if code.returncode:
        raise RuntimeError("the tests do not pass as they are; mend that first")
    return _read(root, data) | {"seconds": _seconds(report)}


def _read(root: Path, data: Path) -> dict[str, object]:
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
