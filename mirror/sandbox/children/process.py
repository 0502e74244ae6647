"""The owner's side of the guardian: start, signal and await processes that cannot outlive the owner."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mirror.sandbox.children import guardian
from mirror.sandbox.errors import SandboxError

__all__ = ["FOLDER_PREFIX", "Process", "Processes"]

FOLDER_PREFIX = "mirror-sandbox-"
_POLL_S = 0.02


class Processes:
    """A group of processes with one temporary folder; all of it ends at ``close``, or when this process does.

    May be used by several threads.

    Attributes:
        folder: the temporary folder, removed at the end.
    """

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise SandboxError("the sandbox runs on Linux only", "run it in a container or a virtual machine")
        mine, theirs = socket.socketpair()
        self._turn = threading.Lock()
        self._owner_pid = os.getpid()
        # A session of its own: signals of the terminal go to the owner's group only.
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", guardian.__file__, FOLDER_PREFIX],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._channel = mine
        self._answers = mine.makefile("rb")
        try:
            self.folder = Path(self._answer()["folder"])
        except BaseException:
            self.close()
            raise

    def spawn(self, argv: list[str], log_path: Path) -> Process:
        """Start a program; its output is appended to ``log_path``.

        Raises:
            SandboxError: it could not be started.
        """
        pid = self._ask(do="spawn", argv=argv, log=str(log_path))["pid"]
        return Process(self, pid)

    def poll(self, pid: int) -> int | None:
        """Returns the exit code of a process, or None while it runs. If the guardian is gone, no process runs."""
        try:
            code: int | None = self._ask(do="poll", pid=pid)["code"]
        except _Gone:
            return -signal.SIGKILL
        return code

    def signal(self, pid: int, number: int) -> bool:
        """Send a signal to a process; False if it has ended."""
        return bool(self._ask(do="signal", pid=pid, signal=number)["sent"])

    def close(self) -> None:
        """Kill all processes and remove the folder. May be called twice."""
        if os.getpid() != self._owner_pid or self._channel.fileno() == -1:
            return  # closed already, or in a forked child: the processes belong to its parent
        with self._turn:
            with contextlib.suppress(OSError):  # the guardian was killed: then the kernel has killed its children
                self._channel.sendall(b'{"do": "close"}\n')
                self._answers.readline()
            self._answers.close()
            self._channel.close()
        self._guardian.wait()

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._turn:
            try:
                self._channel.sendall(json.dumps(request).encode() + b"\n")
            except OSError as error:
                raise _Gone from error
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._answers.readline()
        except OSError as error:
            raise _Gone from error
        if not line:
            raise _Gone
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SandboxError(f"the sandbox could not {answer['error']}", "look at the file or program it names")
        return answer


class _Gone(SandboxError):
    def __init__(self) -> None:
        super().__init__("the cluster has ended, and its brokers with it", "start it again")


class Process:
    """One program that a ``Processes`` started."""

    def __init__(self, owner: Processes, pid: int) -> None:
        self._owner = owner
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code (negative: the signal that ended it), or None while it runs."""
        if self._code is None:
            self._code = self._owner.poll(self.pid)
        return self._code

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal; False if the process has ended."""
        return self._code is None and self._owner.signal(self.pid, int(number))

    def wait(self, timeout_s: float) -> int | None:
        """Wait for the end and return the exit code; None if it still runs after ``timeout_s``."""
        deadline_at = time.monotonic() + timeout_s
        while (code := self.poll()) is None and time.monotonic() < deadline_at:
            time.sleep(_POLL_S)
        return code
