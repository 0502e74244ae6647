"""Tests of tests.plugins.at_once: what a run shows of a failure while it goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TWO_TESTS = """
import pathlib, time

def test_that_fails():
    assert "what was found" == "what was due"

def test_that_waits_for_what_is_shown():
    end = time.monotonic() + 60
    while "FAILED in call: test_it.py::test_that_fails" not in pathlib.Path("shown").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_is_shown_while_the_run_goes_on(tmp_path: Path, workers: int) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_addoption, pytest_configure\n")
    (tmp_path / "test_it.py").write_text(TWO_TESTS)
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "-p", "no:randomly", "-p", "no:cacheprovider", "."]
    with (tmp_path / "shown").open("w") as shown:
        subprocess.run(
            command,
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=shown,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
    text = (tmp_path / "shown").read_text()
    assert "1 failed, 1 passed" in text, text
    assert text.count("AssertionError: assert 'what was found' == 'what was due'") >= 2, "at once, and at the end"
