"""One mutant against the tests that reach it."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from tests.mutants.project import environment

__all__ = ["Verdict", "tried"]

_LEAST_S = 60.0
_TIMES = 5.0
_FAILED = {1, 2, 3, 4}
"""Exit codes of pytest: a test failed, it was interrupted, or the code could not even be imported."""


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
    """
    if not tests:
        return Verdict.UNREACHED
    file = root / path
    before = file.read_text()
    listing = root / "tests.txt"
    listing.write_text("\n".join(tests))
    file.write_text(text)
    try:
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider",
            f"--timeout={_LEAST_S + _TIMES * max(seconds)}", f"@{listing}",
        ]  # fmt: skip
        code = _run(command, root, _LEAST_S + _TIMES * sum(seconds))
    finally:
        file.write_text(before)
    if code is None:
        return Verdict.HUNG
    return Verdict.KILLED if code in _FAILED or code < 0 else Verdict.SURVIVED


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
