"""``mirror start``, ``stop`` and ``restart`` as they are typed, in folders of their own."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mirror.service.instance.place import STATE_HOME
from tests.service.stage.running import LOOK_EVERY_S, MIRROR, PATIENCE_S, config_text

Ran = subprocess.CompletedProcess[str]


class Verbs:
    """A configuration file, and the commands about it."""

    def __init__(self, folder: Path, text: str = "") -> None:
        """``text``: the configuration; by default of clusters that nobody can reach."""
        self.config = folder / "west.yaml"
        self.config.write_text(text or config_text("127.0.0.1:1", "127.0.0.1:2", ["orders"]))
        self.environment = {**os.environ, STATE_HOME: str(folder / "state")}

    def begin(self, *words: str, close_fds: bool = True, **environment: str) -> "subprocess.Popen[str]":
        """Begins a command about the file. ``close_fds``: it gets no descriptor of ours. ``environment``: more."""
        return subprocess.Popen(
            [str(MIRROR), *words, "-c", str(self.config)],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            close_fds=close_fds,
        )

    def run(self, *words: str) -> Ran:
        """Runs a command about the file."""
        process = self.begin(*words)
        out, errors = process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in out + errors, out + errors
        return Ran(words, process.returncode, out, errors)

    def told(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Runs a command, and returns what it says, as data."""
        ran = self.run(*words, "--format", "json")
        assert ran.returncode == code, ran
        found: dict[str, Any] = json.loads(ran.stdout)
        return found

    @property
    def folder(self) -> Path:
        """The file's place."""
        (found,) = Path(self.environment[STATE_HOME]).glob("mirror/*/west-*")
        return found

    def log(self) -> list[Mapping[str, Any]]:
        """The lines of the log."""
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines() if line.startswith("{")]

    def processes(self) -> list[int]:
        """Process ids of all supervisors of files in the folder, by whatever name, and whoever started them."""
        typed = f"mirror run -c {self.config.parent}/"
        return [pid for pid in _pids() if any(word.startswith(typed) for word in _words(pid)[-1:])]


@contextmanager
def verbs(folder: Path, text: str = "") -> Iterator[Verbs]:
    """The commands; what they have started has ended afterwards, however the test ends."""
    found = Verbs(folder, text)
    try:
        yield found
    finally:
        for pid in found.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not found.processes())


def until(condition: Callable[[], object]) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(LOOK_EVERY_S)


def children(pid: int) -> list[int]:
    """The process's children."""
    return [each for each in _pids() if _stat(each)[1:2] == [str(pid)]]


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _words(pid: int) -> list[str]:
    with suppress(OSError):
        if _stat(pid)[:1] != ["Z"]:
            return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    return []


def _stat(pid: int) -> list[str]:
    """State, parent, process group, session, and so on."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def session(pid: int) -> int:
    """The process's session."""
    return int(_stat(pid)[3])
