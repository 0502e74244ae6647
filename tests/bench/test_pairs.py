"""Two commits in pairs: each is run as it is installed, in turns, and told apart."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import lab, pairs
from bench.copiers.programs import Programs
from bench.data.stored import Stored
from bench.measure import Measured
from bench.pairs import Build
from bench.plan import all_workloads
from mirror.sandbox.children.process import Processes
from tests.bench.samples import measured
from tests.bench.test_systems import JOB


def test_each_build_is_run_as_it_is_installed() -> None:
    """Without an option that early commits do not know."""
    processes = Processes()
    try:
        program, run, *options = Build(name="other", program=Path("there/bin/mirror")).command(JOB, Programs(processes))
    finally:
        processes.close()
    assert (program, run, options[0], len(options)) == ("there/bin/mirror", "run", "-c", 2)


def test_in_turns_and_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """
    1. Three pairs; who is first changes. This commit is 10 % dearer in the first two, and 10 % cheaper in the third.
    2. The medians, the median of the ratios, and how often it was dearer are told, of both figures.
    """
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "mirror").touch()
    order: list[str] = []
    costs = {"other": [1.0, 2.0, 3.0], "this": [1.1, 2.2, 2.7]}

    def measure(build: Build, *_: object, **__: object) -> Measured:
        order.append(build.name)
        return dataclasses.replace(measured(costs[build.name].pop(0)), start_cpu_s=0.5 if build.name == "this" else 1.0)

    held: Any = (all_workloads()[0], Stored(bytes=1, batches=1, records=1), None, None)
    compiled: list[Path] = []
    monkeypatch.setattr(pairs, "measure", measure)
    monkeypatch.setattr(pairs, "compile_package", compiled.append)
    monkeypatch.setattr(lab, "held", lambda: held)
    pairs.compare(tmp_path, 3)
    assert [each.parent.name for each in compiled] == ["bin", "bin"]
    assert order == ["other", "this", "this", "other", "other", "this"]
    out = capsys.readouterr().out.splitlines()
    assert out[-2] == (
        "CPU-s/GB after the first quarter: medians 2.000 and 2.200, +10.0%; median of the pairs' ratios +10.0%; "
        "dearer in 2 of 3"
    )
    assert out[-1].startswith("CPU-s before: medians 1.000 and 0.500, -50.0%")


def test_what_changed_is_compiled_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module without bytecode costs its compilation at each start, if the environment forbids to write it."""
    package = tmp_path / "mirror"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "changed.py").write_text("VALUE = 1\n")
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pairs.compile_package(tmp_path / "mirror-program")
    assert [each.name.split(".")[0] for each in (package / "__pycache__").glob("changed.*.pyc")] == ["changed"]


@pytest.mark.parametrize(
    ("arguments", "said"), [([], "python -m bench.pairs"), (["x", "0"], "python -m bench.pairs"), (["x"], "make -C x")]
)
def test_what_it_needs_is_said(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert pairs.main(arguments) == 1
    assert said in capsys.readouterr().err
