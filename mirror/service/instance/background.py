"""``mirror start`` and ``mirror stop`` where no unit of systemd's runs the mirror: a process in the background.

It is a ``mirror run`` like any other, in a session of its own, with a log file and a control socket. Nothing here goes
by a process id that was written down: one that runs is found by its socket, and the kernel knows who listens there.
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
"""How often a new process is looked for at its control socket."""
ANSWER_S = 10.0
"""Time in which a mirror that runs has told its state; one that has not is stopped, or stuck."""
END_S = 10.0
"""Time for the process's own end, beyond what it has said."""
LINES_MAX = 20
"""Most lines of the log that are shown when a start fails."""
_OF_MANAGER = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""What a service manager told us is not for the process that we start."""
_PROGRAM = (
    sys.executable,
    "-P",
    "-c",
    "import sys; sys.path[:] = sys.argv.pop(1).split(chr(10)); sys.argv[0] = sys.argv.pop(1); "
    "from mirror.cli import main; main(prog_name='mirror')",
)
"""The same code as ours, wherever that is imported from. Arguments: the import paths, and what was typed for us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a command.

    Attributes:
        outcome: started, already running, stopped, or not running.
        pid: the process; None: none runs, or ran.
        address: of its HTTP server; None: not known.
        log: its log file.
        ready: True if it copies; False if it waits for something; None: it does not run.
        status: its state in a line.
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
    """Starts the mirror, unless it runs: returns once it is ready, or waits for something outside. Call it with the
    place's lock held.

    Args:
        place: the configuration file's place.
        config: the file as it was named; it is read again at a reload.
        options: more for ``mirror run``.
        timeout_s: longest wait. A mirror that runs and is not ready by then is no failure.
        answers: called once it can be asked to stop: from then on, the lock is not needed.

    Raises:
        Failed: it has ended, and why; or somebody else runs it.
    """
    deadline = time.monotonic() + timeout_s
    if (running := Asked.of(place)) is not None:
        with running:
            try:
                return _settled(place, running, timeout_s, outcome="already running")
            except _Ended:
                # It was stopping, or has failed just now: ours takes its place.
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
            cwd="/",  # no file system is kept from being unmounted
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
    """Stops the mirror that ``start`` has started, and waits for the drain. Call it with the place's lock held.

    Args:
        place: the configuration file's place.
        timeout_s: longest wait; None: as long as the mirror itself gives its workers.

    Raises:
        Failed: it was not started so, does not answer, or has not ended in that time.
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
    """Waits until the mirror is ready or has said what it waits for, and returns its state.

    Raises:
        _Ended: it has ended.
        Failed: it does not answer, or has not ended in that time, if it stops.
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
    """Raises ``Failed`` if somebody runs the mirror of this file that ``start`` has not started."""
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
    """Returns what to raise for a process that has ended: with what it has said, and its exit code."""
    lines = _said(place.log, begun_at)
    told = "\n".join(lines) if lines else f"it said nothing; see {place.log}"
    return Failed(f"the mirror {ending(code)}:\n{told}", code if code > 0 else EXIT_FAILED)


def _said(log: Path, begun_at: int) -> list[str]:
    """Returns why a process has ended, by what it has logged: its errors, and what is no JSON line."""
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
