"""Programs that a run starts. Each has a log, and ends with the harness, however the harness ends."""

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.errors import BenchError
from bench.plan import ROOT
from lab import procfs
from mirror.sandbox.children.process import Process, Processes

__all__ = ["Program", "Programs", "programs", "python_module", "wait_for"]

_STOP_TIMEOUT_S = 20.0
_TAIL_LINES = 15


class Program:
    """A running program.

    Attributes:
        name: its name in messages.
        pid: its process id.
        log_path: file with its output.
        supervises: True if the program only supervises its children, which copy.
    """

    def __init__(self, name: str, process: Process, log_path: Path, *, supervises: bool = False) -> None:
        self.name = name
        self.pid = process.pid
        self.log_path = log_path
        self.supervises = supervises
        self._process = process

    @property
    def copying_pid(self) -> int:
        """Process id of the process that copies, or of the first one.

        Raises:
            BenchError: the program supervises, and has no child.
        """
        if not self.supervises:
            return self.pid
        for child in procfs.descendants(self.pid):
            return child
        raise self.failure("has no worker; or this kernel does not tell of children (/proc/PID/task/TID/children)")

    def check(self) -> None:
        """Checks that the program runs.

        Raises:
            BenchError: the program has ended. The message has the end of its log.
        """
        code = self._process.poll()
        if code is not None:
            raise self.failure(f"ended with exit code {code}")

    def failure(self, what: str) -> BenchError:
        """Returns an error about this program, with the end of its log. ``what``: what it did, in words."""
        lines = self.log_path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return BenchError(f"{self.name} {what}; the end of its log:\n    " + "\n    ".join(lines), "see the log above")

    def cpu_s(self) -> float:
        """Returns the CPU so far in seconds, including descendants: an operator pays for all of it."""
        return procfs.cpu_s(self.pid)

    def peak_rss_bytes(self) -> int:
        """Returns the peak memory in bytes, including descendants: an operator pays for all of it, whichever process
        copies."""
        return procfs.peak_rss_bytes(self.pid)

    def wait(self, timeout_s: float) -> str:
        """Waits until the program has ended successfully, and returns its output.

        Raises:
            BenchError: the program has failed, or did not end in time.
        """
        code = self._process.wait(timeout_s)
        if code != 0:
            raise self.failure(
                f"did not end within {timeout_s:.0f} s" if code is None else f"ended with exit code {code}"
            )
        return self.log_path.read_text(errors="replace")

    def stop(self) -> int | None:
        """Ends the program by SIGTERM, or kills it if it does not end in time. Returns the exit code; None: it had to
        be killed."""
        self._process.signal(signal.SIGTERM)
        code = self._process.wait(_STOP_TIMEOUT_S)
        if code is None:
            self.kill()
        return code

    def kill(self) -> None:
        """Kills the program."""
        self._process.signal(signal.SIGKILL)
        self._process.wait(_STOP_TIMEOUT_S)


class Programs:
    """Starts programs, and has a folder for their files."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._count = 0

    def start(self, name: str, command: list[str], *, supervises: bool = False) -> Program:
        """Starts a program. Its output goes to a log. Arguments: see ``Program``."""
        self._count += 1
        log_path = self._processes.folder / f"{self._count}-{name}.log"
        return Program(name, self._processes.spawn(command, log_path), log_path, supervises=supervises)

    @contextlib.contextmanager
    def running(self, name: str, command: list[str], *, supervises: bool = False) -> Iterator[Program]:
        """Runs a program while the context lasts, and kills it at the end."""
        program = self.start(name, command, supervises=supervises)
        try:
            yield program
        finally:
            program.kill()

    def write(self, name: str, text: str) -> Path:
        """Writes a file for a program, and returns its path."""
        self._count += 1
        path = self._processes.folder / f"{self._count}-{name}"
        path.write_text(text)
        return path


@contextlib.contextmanager
def programs() -> Iterator[Programs]:
    """Yields a ``Programs``. Its programs are ended and its files removed at the end, or when this process ends."""
    processes = Processes()
    try:
        yield Programs(processes)
    finally:
        processes.close()


def python_module(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module of this project with the same Python interpreter."""
    return ["/usr/bin/env", f"PYTHONPATH={ROOT}", sys.executable, "-m", module, *arguments]


def wait_for(path: Path, text: str, timeout_s: float) -> str:
    """Waits until a log contains a text, and returns the last line of the log.

    Raises:
        BenchError: the log did not contain it in time.
    """
    deadline_at = time.monotonic() + timeout_s
    while text not in (content := path.read_text()):
        if time.monotonic() > deadline_at:
            raise BenchError(
                f"{path.name} did not say {text!r} within {timeout_s:.0f} s: {content[-300:]}", "run it again"
            )
        time.sleep(0.02)
    return content.splitlines()[-1]
