"""One side of a worker: its process, its channel, its end, and when it may start again. The supervisor has it of each
worker, and a worker of the process that keeps groups in step (``sync.keeper``)."""

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
"""A worker that ran for this long after it was ready has started well: its next restart is quick again."""
END_S = 10.0
"""Time that a worker has to end after it has closed its channel."""


def program(module: str, *numbers: int, name: str) -> list[str]:
    """Returns the command that runs ``main`` of one of our modules in an interpreter of its own.

    It has the import paths of this process, so that both run the same code, and -P, so that no other comes before. If
    it crashes in compiled code, every thread's stack is among the log's lines.

    Args:
        module: the module with ``main``.
        numbers: the arguments of ``main``.
        name: the name by which `ps` and `pgrep` find the process.
    """
    start = (
        f"import sys; sys.path[:] = sys.argv[1].split(chr(10)); from {module} import main; "
        f"main(*map(int, sys.argv[2:-1]))"
    )
    return [sys.executable, "-P", "-X", "faulthandler", "-c", start, "\n".join(sys.path), *map(str, numbers), name]


class NotStarted(Exception):
    """The machine can start no process now; the message says why."""


class Child:
    """A worker's process, restarted again and again. Everything happens in the event loop's thread."""

    def __init__(
        self,
        number: int,
        hear: Callable[["Child", Message], None],
        *,
        module: str = "mirror.service.worker",
        name: str = "mirror-worker",
    ) -> None:
        """``module``: with the process's ``main``. ``name``: by which `ps` finds it, with the worker's number."""
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
        """Flows of the last process that have reported that they stopped as told."""
        self.ready_at: float | None = None
        self._hear = hear
        self._channel: Channel | None = None
        self.stop_asked = asyncio.Event()
        """Set once a stop was sent: whoever waits until the next process may start need not wait any more."""
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff(least_ms=RESTART_LEAST_MS, most_ms=RESTART_MOST_MS)

    async def run(self, on_start: Callable[["Child"], None]) -> int:
        """Runs one process from its start to its end. Returns its exit code. ``on_start``: called once it has a pid.

        Raises:
            NotStarted: there is no process. What is known of the last one stays, but for its good life.
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
            # Its end of the channel is closed: it has ended, or is about to. If not, or if the machine has no thread
            # left to wait in, it is killed below.
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
        """Starts a process. Returns it, and our end of its channel. Raises NotStarted, as ``run``."""
        with ExitStack() as on_failure:
            try:
                mine, theirs = socket.socketpair()
                on_failure.enter_context(mine)
                with theirs:
                    process = subprocess.Popen(
                        program(self._module, theirs.fileno(), os.getpid(), name=f"{self._name}-{self.number}"),
                        stdin=subprocess.DEVNULL,
                        # A worker's output must not get among the log's lines.
                        stdout=sys.stderr.fileno() if _has_stderr() else subprocess.DEVNULL,
                        pass_fds=[theirs.fileno()],
                        # A terminal's signals are for the supervisor, which tells its workers to stop.
                        process_group=0,
                    )  # fmt: skip
            except OSError as error:  # too many processes or files, or no memory
                raise NotStarted(error.strerror or str(error)) from error
            on_failure.pop_all()
        return process, mine

    @property
    def stopped(self) -> bool:
        """True if the last process has reported of each of its flows that it stopped as told."""
        return self.flows.keys() <= self._stopped

    def add(self, handover: Handover) -> None:
        """Has the process run this flow as well, and each that follows it."""
        self.flows[handover.flow] = handover
        if self._channel is not None:
            self._channel.send(say.HANDOVER, settings=handover.pack())

    def limit(self, told: Handover) -> None:
        """Has the process, and each that follows it, run a flow within the limits of these settings."""
        handover = self.flows[told.flow] = self.flows[told.flow].limited_as(told)
        relay = handover.relay
        self.send(
            say.LIMIT, flow=told.flow, of_flow=relay.max_bytes_per_second, of_topics=relay.topic_max_bytes_per_second
        )

    def remove(self, flow: str) -> bool:
        """Has the process stop this flow, and run its others on. Returns False if no process runs."""
        self.flows.pop(flow, None)
        return self.send(say.REMOVE, flow=flow)

    def send(self, kind: str, **fields: object) -> bool:
        """Sends a message. Returns False if no worker runs. A stop also reaches one that is just being started."""
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
        """Returns the seconds until it may start again: longer each time, unless the last process had a good life."""
        if self.ready_at is not None and asyncio.get_running_loop().time() - self.ready_at > GOOD_LIFE_S:
            self._backoff.reset()
        return self._backoff.next_s()


def ending(code: int) -> str:
    """Returns in words how a process of this exit code ended. Negative: by a signal."""
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
