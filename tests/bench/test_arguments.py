"""What the environment chooses is not to be given as an argument: an hour of the wrong run would follow."""

import subprocess
import sys

import pytest


def call(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", program, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("program", "variable"),
    [
        ("bench", "BENCH_QUICK=1"),
        ("bench.downconversion", "DOWNCONVERSION_QUICK=1"),
        ("chaos", "CHAOS_QUICK=1"),
    ],
)
def test_help_names_the_variables(program: str, variable: str) -> None:
    done = call(program, "--help")
    assert done.returncode == 0
    assert f"usage: python -m {program}" in done.stdout
    assert f"\n{variable} " in done.stdout


@pytest.mark.parametrize("program", ["bench", "bench.downconversion", "chaos"])
def test_arguments_are_refused(program: str) -> None:
    done = call(program, "worker-kill")
    assert done.returncode == 2
    assert "unrecognized arguments: worker-kill" in done.stderr
