"""Runs `mirror audit` as a process of its own, and waits for it."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mirror.demo.errors import DemoError
from mirror.demo.watch import children
from mirror.demo.watch.events import Follower

__all__ = ["DIFFERENT", "IDENTICAL", "Audit"]

IDENTICAL = 0
DIFFERENT = 2
UNVERIFIABLE = 3
_TIMEOUT_S = 900.0
_INTERRUPT_S = 10.0
_WATCH_S = 0.2
_TAIL_LINES = 20
_DOING = "Spark reads both clusters and compares every batch"
_WIDTH = 120
"""The width of its tables, as it does not write to a terminal."""


class Audit:
    """One run of `mirror audit`; ends with the thread that made it.

    Args:
        config: the configuration file.
        out: folder for the audit's result.
        folder: folder for its log and its temporary files.

    Attributes:
        said: the lines that the audit has printed so far.
    """

    def __init__(self, config: Path, *, out: Path, folder: Path) -> None:
        log = folder / "mirror-audit.log"
        self._process = children.start(
            [sys.executable, "-m", "mirror", "audit", "-c", str(config), "--out", str(out)],
            log=log,
            # Spark's temporary files go where the demo's own are: removed with them, whatever happens.
            environment={"TMPDIR": str(folder), "COLUMNS": str(_WIDTH)},
        )
        self._follower = Follower(log)
        self.said: list[str] = []

    def wait(self, tick: Callable[[str], None], *, timeout_s: float = _TIMEOUT_S) -> bool:
        """Wait until the audit has ended; returns True if both sides proved identical.

        ``tick`` is called several times a second with a text about the audit's progress.

        Raises:
            DemoError: the audit could not finish.
        """
        deadline_at = time.monotonic() + timeout_s
        try:
            while (code := self._process.poll()) is None and time.monotonic() < deadline_at:
                self.said += self._follower.lines()
                tick(_DOING)
                time.sleep(_WATCH_S)
        except BaseException:
            tick("interrupted, ending Spark")
            self._interrupt()
            raise
        if code is None:
            self._interrupt()
        self.said += self._follower.lines()
        if code not in (IDENTICAL, DIFFERENT, UNVERIFIABLE):
            ended = "did not end in time" if code is None else f"could not finish (exit code {code})"
            said = "\n".join(f"    {line}" for line in self.said[-_TAIL_LINES:]) or "    (nothing)"
            raise DemoError(f"mirror audit {ended}; it said:\n{said}", "see what it says above")
        return code == IDENTICAL

    def _interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does: the audit then ends Spark. If it does not end, kill it; Spark then ends because
        its standard input ends."""
        self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_INTERRUPT_S)
        self._process.kill()
        self._process.wait()
