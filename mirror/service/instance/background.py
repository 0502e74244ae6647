"""``mirror start`` and ``mirror stop`` if no systemd unit runs the mirror: a process in the background.

It is a ``mirror run`` like any other, in its own session, with a log file and a control socket. There is no pid file: a
running mirror is found by its socket, and the kernel tells which process listens there.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirror.service.child import ending
from mirror.service.exits import EXIT_FAILED
from mirror.service.instance.announcing import announced
from mirror.service.instance.asking import Asked, State
from mirror.service.instance.place import Failed, Place

LOOK_EVERY_S = 0.05
"""How often to try the control socket of a new process."""
ANSWER_S = 10.0
"""A running mirror reports its state within this time; otherwise it is stopped (SIGSTOP) or stuck."""
END_S = 10.0
"""Time for the end of the process itself, in addition to the time that it has announced."""
LINES_MAX = 20
"""Most lines of the log that are shown when a start fails."""
_OF_MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""Variables from a service manager, which are not meant for the process that we start."""
_PROGRAM = (
    sys.executable,
    "-P",
    "-c",
    "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10)); sys.argv[0] = sys.argv.pop(1); "
    "from mirror.cli import main; main(prog_name='mirror')",
)
"""Runs the same code as this process, wherever it was imported from. Arguments: the import paths, and the program name
as it was typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a command.

    Attributes:
        outcome: started, already running, stopped, or not running.
        pid: the mirror's process id; None if none was running.
        address: host:port of its HTTP server; None: not known.
        log: path of its log file.
        ready: True if it copies; False if it waits for something; None: it does not run.
        status: its state in one line.
        drained: how it ended, if it was stopped: the fields of ``flows.draining.Drained``.
    """

    outcome: str
    pid: int | None = None
    address: str | None = None
    log: str
    ready: bool | None = None
    status: str | None = None
    drained: dict[str, Any] | None = field(default=None)


def start(
    place: Place,
    config: Path,
    options: Collection[str] = (),
    *,
    timeout_s: float,
    answers: Callable[[], None] = lambda: None,
) -> Result:
    """Starts the mirror, unless it is running already. Returns once it is ready, or has reported what it waits for. The
    caller holds the place's lock.

    Args:
        place: the configuration file's place.
        config: the file as the user named it; it is read again at a reload.
        options: further options for ``mirror run``.
        timeout_s: longest wait. If the mirror runs but is not ready by then, that is no failure.
        answers: called once the mirror accepts requests to stop: from then on, the lock is not needed.

    Raises:
        Failed: the mirror has ended (the message says why), or it was started in another way.
    """
    deadline = time.monotonic() + timeout_s
    if (running := Asked.of(place)) is not None:
        with running:
            try:
                return _settled(place, running, timeout_s, outcome="already running")
            except _Ended:
                # It was stopping, or has failed just now: a new one takes its place.
                if not running.wait_ended(END_S):
                    raise Failed(_too_late(place, running.pid, END_S, known=True)) from None
    refuse_others(place)
    descriptor = place.opened(place.log.name, os.O_WRONLY | os.O_APPEND)
    begun_at = os.fstat(descriptor).st_size
    try:
        process = subprocess.Popen(
            [
                *_PROGRAM,
                "\n".join(sys.path),
                sys.argv[0],
                "run",
                "--background",
                "-c",
                str(config.absolute()),
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env={name: value for name, value in os.environ.items() if name not in _OF_MANAGER},
            cwd="/",  # so that it does not keep a file system from being unmounted
            umask=0o077,
            start_new_session=True,
        )
    except OSError as error:
        raise Failed(
            f"no process can be started: {error.strerror or error}; see the limits of memory and processes (ulimit -u, "
            "the unit's or container's)"
        ) from error
    finally:
        os.close(descriptor)
    while (asked := Asked.of(place)) is None:
        if process.poll() is not None:
            raise _failed(place, process.returncode, begun_at)
        if time.monotonic() > deadline:
            raise Failed(
                f"process {process.pid} has not started within {timeout_s:g} s, and goes on trying; see {place.log}"
            )
        time.sleep(LOOK_EVERY_S)
    answers()
    with asked:
        try:
            return _settled(place, asked, max(0.0, deadline - time.monotonic()), outcome="started")
        except _Ended as error:
            process.wait(END_S)
            raise _failed(place, process.returncode, begun_at) from error


def stop(place: Place, *, timeout_s: float | None) -> Result:
    """Stops the mirror that ``start`` has started, and waits for the drain. The caller holds the place's lock.

    Args:
        place: the configuration file's place.
        timeout_s: longest wait; None: as long as the mirror itself gives its workers.

    Raises:
        Failed: the mirror was started in another way, does not answer, or has not ended in time.
    """
    asked = Asked.of(place)
    if asked is None:
        if others := announced(place.config):
            raise Failed(f"not stopped: {_elsewhere(place, others)}")
        return Result(outcome="not running", log=str(place.log))
    with asked:
        asked.ask("stop")
        begun_at, within_s = time.monotonic(), ANSWER_S if timeout_s is None else timeout_s
        ended, address = None, None
        try:
            while (state := asked.state(begun_at + within_s - time.monotonic())) is not None:
                ended, address = state.get("ended", ended), state.get("address", address)
                if timeout_s is None and state.get("within_s") is not None:
                    within_s = state["within_s"] + END_S
        except TimeoutError as error:
            raise Failed(_too_late(place, asked.pid, within_s, known=address is not None)) from error
        if not asked.wait_ended(END_S):
            raise Failed(_too_late(place, asked.pid, END_S, known=True))
        if ended is None:
            raise Failed(f"process {asked.pid} has ended without a drain: it was killed, or failed; see {place.log}")
        return Result(outcome="stopped", pid=asked.pid, address=address, log=str(place.log), drained=ended)


class _Ended(Exception):
    """The mirror has ended."""


def _settled(place: Place, asked: Asked, timeout_s: float, *, outcome: str) -> Result:
    """Waits until the mirror is ready or has reported what it waits for, and returns its state.

    Raises:
        _Ended: the mirror has ended.
        Failed: the mirror does not answer; or it is stopping, and has not ended in time.
    """
    asked.ask("watch")
    deadline = time.monotonic() + timeout_s
    now: State | None = None
    try:
        while now is None or not now["settled"] or now["phase"] == "stopping":
            state = asked.state(deadline - time.monotonic())
            if state is None or "ended" in state:
                raise _Ended
            now = state
    except TimeoutError as error:
        if now is None or now["phase"] == "stopping":
            raise Failed(_too_late(place, asked.pid, timeout_s, known=now is not None)) from error
    assert now is not None
    return Result(
        outcome=outcome,
        pid=asked.pid,
        address=now["address"] or None,
        log=str(place.log),
        ready=now["ready"],
        status=now["status"],
    )


def refuse_others(place: Place) -> None:
    """Raises ``Failed`` if the mirror of this file runs and was not started by ``start``."""
    if others := announced(place.config):
        raise Failed(f"not started: {_elsewhere(place, others)}")


def _elsewhere(place: Place, pids: Collection[int]) -> str:
    some = f"process {', '.join(map(str, sorted(pids)))}"
    return (
        f"`mirror run` runs {place.config} already ({some}), and your `mirror start` has not started it. "
        "Whoever has (a terminal, a service manager, another user) can stop it; Ctrl-C and SIGTERM drain"
    )


def _too_late(place: Place, pid: int, within_s: float, *, known: bool) -> str:
    if not known:
        return f"process {pid} has not answered for {within_s:g} s: it is stopped (SIGSTOP) or stuck; see {place.log}"
    return f"process {pid} has not ended within {within_s:g} s, and goes on stopping; see {place.log}"


def _failed(place: Place, code: int, begun_at: int) -> Failed:
    """Returns the error for a process that has ended, with the last lines of its log and its exit code. ``begun_at``:
    size of the log when it was started."""
    lines = _said(place.log, begun_at)
    told = "\n".join(lines) if lines else f"it said nothing; see {place.log}"
    return Failed(f"the mirror {ending(code)}:\n{told}", code if code > 0 else EXIT_FAILED)


def _said(log: Path, begun_at: int) -> list[str]:
    """Returns the lines of the log, from byte ``begun_at`` on, that tell why a process has ended: errors, and lines
    that are not JSON. Without such lines, the others."""
    errors: list[str] = []
    others: list[str] = []
    with suppress(OSError), log.open(encoding="utf-8", errors="replace") as file:
        file.seek(begun_at)
        for text in file:
            try:
                line = json.loads(text)
                told = ": ".join(str(line[name]) for name in ("reason", "detail", "exception") if name in line)
                (errors if line["level"] in ("error", "critical") else others).append(told or str(line["event"]))
            except (ValueError, KeyError, TypeError):
                errors.append(text.rstrip("\n"))
    return (errors or others)[-LINES_MAX:]
