"""One mutant against the tests that reach it."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from tests.mutants.project import environment

__all__ = ["Verdict", "check", "tried"]

_LEAST_S = 60.0
_TIMES = 5.0
_PASSED, _FAILED = 0, 1
"""Exit codes of pytest. With all others (it was interrupted or ended, the code could not even be imported, nothing was
found) it may be the mutant's doing or the machine's."""


class Verdict(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    HUNG = "killed: it hung"
    SURVIVED = "survived"
    UNREACHED = "no test reaches it"


def tried(root: Path, path: str, text: str, tests: list[str], seconds: Sequence[float]) -> Verdict:
    """Puts ``text`` in a file's place, runs the tests until one fails, and puts the file back.

    Args:
        root: a copy of the project.
        path: the file, from there.
        text: with the mutation.
        tests: node ids, in this order.
        seconds: that each takes without it. If one takes five times as long as the slowest, and a minute, it fails; all
            of them together may take so much longer, too.

    Raises:
        RuntimeError: the tests ended neither with a pass nor with a failure, and do the same without the mutant.
    """
    if not tests:
        return Verdict.UNREACHED
    file = root / path
    before = file.read_text()
    file.write_text(text)
    try:
        code = _play(root, tests, seconds)
    finally:
        file.write_text(before)
    if code == _PASSED:
        return Verdict.SURVIVED
    if code != _FAILED:
        check(root, tests, seconds)
    return Verdict.HUNG if code is None else Verdict.KILLED


def check(root: Path, tests: list[str], seconds: Sequence[float]) -> None:
    """Runs these tests as ``tried`` does, without a mutant. No tests: nothing is checked.

    Raises:
        RuntimeError: they do not pass.
    """
    if not tests:
        return
    code = _play(root, tests, seconds)
    if code != _PASSED:
        told = "they hang" if code is None else f"exit code {code}"
        raise RuntimeError(f"{len(tests)} tests do not pass in {root} without the mutant: {told}; mend that first")


def _play(root: Path, tests: list[str], seconds: Sequence[float]) -> int | None:
    listing = root / "tests.txt"
    listing.write_text("\n".join(tests))
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider",
        f"--timeout={_LEAST_S + _TIMES * max(seconds)}", f"@{listing}",
    ]  # fmt: skip
    return _run(command, root, _LEAST_S + _TIMES * sum(seconds))


def _run(command: list[str], root: Path, timeout_s: float) -> int | None:
    """The exit code; None if it had to be ended, with all that it started."""
    process = subprocess.Popen(
        command, cwd=root, env=environment(root), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
