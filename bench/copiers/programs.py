"""Programs that a run starts: each ends with the harness, however that ends, and each has a log."""

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
    """One running program.

    Attributes:
        name: in messages.
        pid: its process id.
        log_path: its output.
        supervises: True if not it but its children copy.
    """

    def __init__(self, name: str, process: Process, log_path: Path, *, supervises: bool = False) -> None:
        self.name = name
        self.pid = process.pid
        self.log_path = log_path
        self.supervises = supervises
        self._process = process

    @property
    def copying_pid(self) -> int:
        """The process that copies, or the first of them.

        Raises:
            BenchError: it supervises, and has no child.
        """
        if not self.supervises:
            return self.pid
        for child in procfs.descendants(self.pid):
            return child
        raise self.failure("has no worker; or this kernel does not tell of children (/proc/PID/task/TID/children)")

    def check(self) -> None:
        """Raise if it has ended.

        Raises:
            BenchError: it has ended; with the end of its log.
        """
        code = self._process.poll()
        if code is not None:
            raise self.failure(f"ended with exit code {code}")

    def failure(self, what: str) -> BenchError:
        """Returns an error about this program, with the end of its log."""
        lines = self.log_path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return BenchError(f"{self.name} {what}; the end of its log:\n    " + "\n    ".join(lines), "see the log above")

    def cpu_s(self) -> float:
        """Returns its CPU so far, in seconds, descendants included: an operator pays for all of it."""
        return procfs.cpu_s(self.pid)

    def peak_rss_bytes(self) -> int:
        """Returns its peak memory, descendants included: an operator pays for all of it, whichever process copies."""
        return procfs.peak_rss_bytes(self.pid)

    def wait(self, timeout_s: float) -> str:
        """Wait for a successful end; returns its output.

        Raises:
            BenchError: it failed, or did not end in time.
        """
        code = self._process.wait(timeout_s)
        if code != 0:
            raise self.failure(
                f"did not end within {timeout_s:.0f} s" if code is None else f"ended with exit code {code}"
            )
        return self.log_path.read_text(errors="replace")

    def stop(self) -> int | None:
        """Ask it to end (SIGTERM), then kill it; returns the exit code, or None if it had to be killed."""
        self._process.signal(signal.SIGTERM)
        code = self._process.wait(_STOP_TIMEOUT_S)
        if code is None:
            self.kill()
        return code

    def kill(self) -> None:
        """Kill it."""
        self._process.signal(signal.SIGKILL)
        self._process.wait(_STOP_TIMEOUT_S)


class Programs:
    """Starts programs with a folder for their files."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._count = 0

    def start(self, name: str, command: list[str], *, supervises: bool = False) -> Program:
        """Start a program; its output goes to a log."""
        self._count += 1
        log_path = self._processes.folder / f"{self._count}-{name}.log"
        return Program(name, self._processes.spawn(command, log_path), log_path, supervises=supervises)

    @contextlib.contextmanager
    def running(self, name: str, command: list[str], *, supervises: bool = False) -> Iterator[Program]:
        """Run a program for as long as the block runs."""
        program = self.start(name, command, supervises=supervises)
        try:
            yield program
        finally:
            program.kill()

    def write(self, name: str, text: str) -> Path:
        """Write a file for a program to read."""
        self._count += 1
        path = self._processes.folder / f"{self._count}-{name}"
        path.write_text(text)
        return path


@contextlib.contextmanager
def programs() -> Iterator[Programs]:
    """Yields a ``Programs``; its programs and files are removed at the end, or when this process ends."""
    processes = Processes()
    try:
        yield Programs(processes)
    finally:
        processes.close()


def python_module(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module of this project with this Python."""
    return ["/usr/bin/env", f"PYTHONPATH={ROOT}", sys.executable, "-m", module, *arguments]


def wait_for(path: Path, text: str, timeout_s: float) -> str:
    """Wait until a log holds ``text``; returns the log's last line.

    Raises:
        BenchError: it did not hold it in time.
    """
    deadline_at = time.monotonic() + timeout_s
    while text not in (content := path.read_text()):
        if time.monotonic() > deadline_at:
            raise BenchError(
                f"{path.name} did not say {text!r} within {timeout_s:.0f} s: {content[-300:]}", "run it again"
            )
        time.sleep(0.02)
    return content.splitlines()[-1]
