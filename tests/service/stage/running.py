"""``mirror run`` as its users run it: a process, its configuration file, and the JSON lines that it prints."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

MIRROR = Path(sys.executable).parent / "mirror"
PATIENCE_S = 120.0
"""Longer than anything takes on a loaded machine: a wait that reaches it is in vain."""
LOOK_EVERY_S = 0.02

Line = dict[str, Any]


def config_text(
    source: str,
    destination: str,
    topics: list[str],
    *,
    flow: Mapping[str, object] | None = None,
    top: Mapping[str, object] | None = None,
    clusters: Mapping[str, Mapping[str, object]] | None = None,
) -> str:
    """A configuration for these bootstrap servers; quick to give up and to report. ``clusters``: more for each."""
    cluster = {"reconnect.backoff.max.ms": 500, "socket.connection.setup.timeout.ms": 5_000}
    return json.dumps(
        {
            "clusters": {
                name: {"bootstrap.servers": servers} | cluster | dict((clusters or {}).get(name, {}))
                for name, servers in (("source", source), ("destination", destination))
            },
            "flows": {"source->destination": {"topics": topics} | dict(flow or {})},
            "progress.interval.ms": 100,
            "http.listen": "127.0.0.1:0",
            # What was killed is missed for so long; the least that brokers allow unless told otherwise.
            "session.timeout.ms": 6_000,
        }
        | dict(top or {})
    )


def without_stdout(command: Sequence[str]) -> list[str]:
    """The command, started by a shell with no descriptor 1. A ``preexec_fn`` that closes it would need a copy of the
    test's own process first, which a machine can refuse for want of memory."""
    return ["sh", "-c", 'exec "$@" >&-', "sh", *command]


class Mirror:
    """The process. A context manager that leaves none behind."""

    def __init__(
        self, config: Path, *options: str, program: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """``program``: another one to run than the installed ``mirror``. ``environment``: variables beside ours."""
        self._command = [*(program or [str(MIRROR)]), "run", "-c", str(config), *options]
        self._environment = os.environ | (environment or {})
        self.lines: list[Line] = []
        self.noise: list[str] = []
        """What it printed that is no JSON line: nothing, if all is well."""
        self.errors = ""
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for read in (self._read_lines, self._read_errors):
            thread = threading.Thread(target=read, daemon=True)
            thread.start()
            self._readers.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def _read_lines(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            try:
                self.lines.append(json.loads(text))
            except ValueError:
                self.noise.append(text)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    def of(self, event: str) -> list[Line]:
        """The lines of an event so far."""
        return [line for line in self.lines if line["event"] == event]

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        """Until the condition holds, while the process lives."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None or condition(), f"mirror ended before {what}: {self.told()}"
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.told()}"
            time.sleep(LOOK_EVERY_S)

    def wait_event(self, event: str, **fields: object) -> Line:
        """Until such a line came; the first of them."""

        def matching() -> list[Line]:
            return [line for line in self.of(event) if fields.items() <= line.items()]

        self.wait_for(matching, f"{event} {fields}")
        return matching()[0]

    def wait(self) -> int:
        """Until it has ended and everything is read; the exit code."""
        code = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code

    def stop(self, number: int = 15) -> int:
        """A clean stop; the exit code. Nothing but JSON lines may have been printed."""
        self.process.send_signal(number)
        code = self.wait()
        self.check_clean()
        return code

    def check_clean(self) -> None:
        """No traceback, no stray output."""
        assert self.noise == []
        assert self.errors == "", self.errors
        assert "Traceback" not in json.dumps(self.lines)

    def told(self) -> str:
        """What it said last, for messages."""
        return "\n".join(map(str, [*self.lines[-15:], *self.noise[-5:], self.errors[-2000:]]))


@contextmanager
def mirror(config: Path, text: str, *options: str, **more: Any) -> Iterator[Mirror]:
    """Runs ``mirror run`` with this configuration. ``more``: as ``Mirror`` takes it."""
    config.write_text(text)
    with Mirror(config, *options, **more) as process:
        yield process


def address(process: Mirror) -> str:
    """Where it listens."""
    return str(process.wait_event("listening")["address"])


def get(process: Mirror, path: str, **headers: str) -> tuple[int, str]:
    """One of its pages: the status code and the text."""
    return fetch(address(process), path, **headers)


def fetch(where: str, path: str, **headers: str) -> tuple[int, str]:
    """A page of the mirror that listens there.

    Raises:
        OSError: none does.
    """
    request = urllib.request.Request(f"http://{where}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def status(process: Mirror) -> dict[str, Any]:
    """What ``mirror status`` prints, as an object."""
    code, text = get(process, "/api/v1/status")
    assert code == 200
    found: dict[str, Any] = json.loads(text)
    return found


def cli(process: Mirror, config: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command of ``mirror`` about this process."""
    command = [str(MIRROR), *arguments, "-c", str(config), "--at", address(process)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
