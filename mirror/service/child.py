"""The parent's side of a child process: starts it, opens its channel, waits for its end, and decides when to restart
it. The supervisor has one for each worker, and a worker has one for the process that keeps groups in step
(``sync.keeper``)."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress

from mirror.net.backoff import Backoff
from mirror.service import channel as say
from mirror.service.channel import Channel, Message
from mirror.service.worker_settings import Handover

RESTART_LEAST_MS = 200
RESTART_MOST_MS = 30_000
GOOD_LIFE_S = 10.0
"""After a worker has run for this long since it was ready, the pause before its next restart is short again."""
END_S = 10.0
"""Time that a worker has to end after it has closed its channel; then it is killed."""


def program(module: str, *numbers: int, name: str) -> list[str]:
    """Returns the command that runs ``main`` of a module of the mirror in a new interpreter.

    The interpreter gets the import paths of this process, so that both run the same code, and -P, so that no other path
    precedes them. If it crashes in compiled code, the stack of every thread is written to the log.

    Args:
        module: the module with ``main``.
        numbers: the arguments of ``main``.
        name: the name of the process for `ps` and `pgrep`.
    """
    start = (
        f"import sys; sys.path[:] = sys.argv[1].split(chr(10)); from {module} import main; "
        f"main(*map(int, sys.argv[2:-1]))"
    )
    return [sys.executable, "-P", "-X", "faulthandler", "-c", start, "\n".join(sys.path), *map(str, numbers), name]


class NotStarted(Exception):
    """The machine cannot start a process now; the message says why."""


class Child:
    """A worker's process, which may be started again and again. All methods are called in the event loop's thread."""

    def __init__(
        self,
        number: int,
        hear: Callable[["Child", Message], None],
        *,
        module: str = "mirror.service.worker",
        name: str = "mirror-worker",
    ) -> None:
        """``hear``: called with each message of the process. ``module``: the module with the process's ``main``.
        ``name``: name of the process for `ps`, to which the worker's number is added."""
        self._module, self._name = module, name
        self.number = number
        self.flows: dict[str, Handover] = {}
        """The flows that the process runs; ``add`` and ``remove`` change them."""
        self.pid = 0
        self.code: int | None = None
        """Exit code of the last process if it has ended; negative: the signal that ended it."""
        self.killed = False
        """True if the last process was killed by ``kill``."""
        self._stopped: set[str] = set()
        """Flows of the last process that have reported that they stopped as requested."""
        self.ready_at: float | None = None
        self._hear = hear
        self._channel: Channel | None = None
        self.stop_asked = asyncio.Event()
        """Set once a stop was sent: the pause before the next process ends then."""
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff(least_ms=RESTART_LEAST_MS, most_ms=RESTART_MOST_MS)

    async def run(self, on_start: Callable[["Child"], None]) -> int:
        """Runs one process from its start to its end. Returns its exit code. ``on_start``: called once it has a pid.

        Raises:
            NotStarted: no process could be started. The attributes still describe the last one, except ``ready_at``.
        """
        self.ready_at = None
        process, mine = self._start()
        self.code, self.killed = None, False
        self._stopped.clear()
        self._process, self.pid = process, process.pid
        on_start(self)
        channel: Channel | None = None
        try:
            self._channel = channel = await Channel.open(mine)
            for handover in self.flows.values():
                channel.send(say.HANDOVER, settings=handover.pack())
            if self.stop_asked.is_set():
                channel.send(say.STOP)
            while (message := await channel.receive()) is not None:
                if message["kind"] == say.STOPPED:
                    self._stopped.add(message["flow"])
                if message["kind"] == say.READY:
                    self.ready_at = asyncio.get_running_loop().time()
                self._hear(self, message)
            # The process has closed its end of the channel: it has ended, or is about to. If it does not end, or if no
            # thread can be started to wait for it, it is killed below.
            with suppress(subprocess.TimeoutExpired, RuntimeError):
                await asyncio.to_thread(process.wait, END_S)
        finally:
            self._channel = None
            if process.poll() is None:
                process.kill()
                process.wait()
            self.code = process.returncode
            if channel is not None:
                await channel.close()
            mine.close()
        return self.code

    def _start(self) -> "tuple[subprocess.Popen[bytes], socket.socket]":
        """Starts a process. Returns it, and this side's socket of its channel. Raises NotStarted."""
        with ExitStack() as on_failure:
            try:
                mine, theirs = socket.socketpair()
                on_failure.enter_context(mine)
                with theirs:
                    process = subprocess.Popen(
                        program(self._module, theirs.fileno(), os.getpid(), name=f"{self._name}-{self.number}"),
                        stdin=subprocess.DEVNULL,
                        # A worker's output must not be mixed with the log on stdout.
                        stdout=sys.stderr.fileno() if _has_stderr() else subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        # Signals of a terminal must only reach the supervisor, which tells its workers to stop.
                        process_group=0,
                    )  # fmt: skip
            except OSError as error:  # too many processes or files, or no memory
                raise NotStarted(error.strerror or str(error)) from error
            on_failure.pop_all()
        return process, mine

    @property
    def stopped(self) -> bool:
        """True if the last process has reported for each of its flows that it stopped as requested."""
        return self.flows.keys() <= self._stopped

    def add(self, handover: Handover) -> None:
        """Makes the process, and each later one, run this flow as well."""
        self.flows[handover.flow] = handover
        if self._channel is not None:
            self._channel.send(say.HANDOVER, settings=handover.pack())

    def limit(self, told: Handover) -> None:
        """Makes the process, and each later one, run a flow with the limits in these settings."""
        handover = self.flows[told.flow] = self.flows[told.flow].limited_as(told)
        relay = handover.relay
        self.send(
            say.LIMIT, flow=told.flow, of_flow=relay.max_bytes_per_second, of_topics=relay.topic_max_bytes_per_second
        )

    def remove(self, flow: str) -> bool:
        """Makes the process stop this flow, and go on with its others. Returns False if no process runs."""
        self.flows.pop(flow, None)
        return self.send(say.REMOVE, flow=flow)

    def send(self, kind: str, **fields: object) -> bool:
        """Sends a message. Returns False if no process runs. A stop also reaches a process that is just being
        started."""
        if kind == say.STOP:
            self.stop_asked.set()
        if self._channel is None:
            return False
        self._channel.send(kind, **fields)
        return True

    def kill(self) -> None:
        """Kills the process at once."""
        if self._process is not None and self._process.poll() is None:
            self.killed = True
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)

    def pause_s(self) -> float:
        """Returns the seconds until the next process may start: longer each time, but short again after a process that
        ran for ``GOOD_LIFE_S``."""
        if self.ready_at is not None and asyncio.get_running_loop().time() - self.ready_at > GOOD_LIFE_S:
            self._backoff.reset()
        return self._backoff.next_s()


def ending(code: int) -> str:
    """Returns in words how a process ended. ``code``: its exit code; negative: the signal that ended it."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"ended by {signal.Signals(-code).name}"
    return f"ended by signal {-code}"


def _has_stderr() -> bool:
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.fileno()
        return True
    return False
