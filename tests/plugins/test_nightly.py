"""Tests of tests.plugins.nightly: what is left to the night is there, and something stands for it by day."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.nightly import NIGHTLY, is_nightly

ROOT = Path(__file__).parents[2]


def collected(*options: str) -> list[str]:
    """The tests' names that pytest finds, in the files with one that is left to the night."""
    files = sorted({name.partition("::")[0] for name in NIGHTLY})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:randomly", *options, *files]
    # Whatever whoever runs the tests adds (-v, say) would change what is printed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    found = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False).stdout
    return [line for line in found.splitlines() if "::" in line]


@pytest.fixture(scope="module")
def every() -> list[str]:
    return collected()


@pytest.mark.parametrize("name", NIGHTLY)
def test_it_is_there(every: list[str], name: str) -> None:
    assert [each for each in every if each.startswith(name)], "no such test"


@pytest.mark.parametrize("name", NIGHTLY)
def test_something_stands_for_it_by_day(name: str) -> None:
    by_day = NIGHTLY[name]
    assert (ROOT / by_day).is_file()
    assert not is_nightly(f"{by_day}::")


def test_by_day_the_others_are_run(every: list[str]) -> None:
    assert collected("--by-day") == [name for name in every if not is_nightly(name)]
