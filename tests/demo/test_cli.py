"""The command line: help, sizes, and what is said when something is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mirror.cli import main


def test_help_says_what_it_does_and_its_exit_codes() -> None:
    done = CliRunner().invoke(main, ["demo", "--help"])
    assert done.exit_code == 0
    for part in ("--size", "--keep", "300MB", "Exit codes: 0 identical"):
        assert part in done.output


@pytest.mark.parametrize("size", ["plenty", "1KB", "-3MB"])
def test_a_wrong_size_is_refused(size: str) -> None:
    done = CliRunner().invoke(main, ["demo", f"--size={size}"])
    assert done.exit_code == 64
    assert "Invalid value for '--size'" in done.output
    assert "give" in done.output


def demo(environment: dict[str, str], *python_options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *python_options, "-m", "mirror", "demo"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_java_there_is_one_message_and_no_traceback(tmp_path: Path) -> None:
    done = demo({"JAVA_HOME": "", "PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "Java is not installed" in done.stderr
    assert "remedy: install Java" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_pyspark_there_is_one_message_and_no_traceback(tmp_path: Path) -> None:
    """A site customisation hides the package, as if only the daemon were installed."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, package=None: None if name == 'pyspark' else find(name, package)\n"
    )
    done = demo({"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "pyspark is not installed" in done.stderr
    assert "remedy: install the part that brings it" in done.stderr
    assert "Traceback" not in done.stderr
