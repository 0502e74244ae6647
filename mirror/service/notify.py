"""Reports the service's state to the service manager (systemd), as in sd_notify(3). It is imported only if there is
one.

Nothing here waits or raises. A message that the manager does not accept is sent again before the next one. Watchdog
messages and the status line are not: the next one has the same purpose.
"""

import asyncio
import os
import socket
import time
import traceback
from collections import deque
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Protocol, Self

from mirror.service.flows.flow import RunningFlow
from mirror.service.flows.overview import headline, late_workers
from mirror.service.flows.processes import WorkerProcesses
from mirror.service.flows.reloading import Reloading

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

SOCKET = "NOTIFY_SOCKET"
WATCHDOG = "WATCHDOG_USEC"
WATCHDOG_OF = "WATCHDOG_PID"
STATUS_EVERY_S = 5.0
"""How often the status line is updated; more often if the watchdog needs messages more often."""
STATUS_MAX = 500
"""Most characters of the status line: systemd drops a message of more than 4096 bytes as a whole."""
END_S = 5.0
"""Time for the end of the supervisor itself once every worker has ended or was killed. The manager must not kill it
before."""
UNSENT_MAX = 8
"""Most messages that wait to be accepted by the manager."""


class NotifySocket:
    """The datagram socket of the manager.

    Attributes:
        failed: the reason why the last message was not accepted; empty if it was.
    """

    def __init__(self, address: str) -> None:
        """``address``: a path, or the name of an abstract socket after an @."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._unsent: deque[bytes] = deque(maxlen=UNSENT_MAX)
        self.failed = ""

    def send(self, *assignments: str, lasting: bool = True) -> None:
        """Sends the messages that wait, and then one with these assignments, such as ``"READY=1"``, if there are any.
        ``lasting``: True if the message waits if it is not accepted now."""
        message = "\n".join(assignments).encode(errors="replace")
        self.failed = ""
        try:
            while self._unsent:
                self._socket.sendto(self._unsent[0], self._address)
                self._unsent.popleft()
            if message:
                self._socket.sendto(message, self._address)
        except OSError as error:
            self.failed = error.strerror or str(error)
            if message and lasting:
                self._unsent.append(message)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


class Served(Protocol):
    """The parts of the supervisor that are needed here."""

    flows: dict[str, RunningFlow]
    processes: WorkerProcesses
    reloading: Reloading

    @property
    def log(self) -> "FilteringBoundLogger":
        """The log for lines about the service."""


class ServiceManager:
    """Reports the start, reloads, status, signs of life and the end of a service to the service manager."""

    def __init__(self, to: NotifySocket, *, watchdog_s: float = 0.0) -> None:
        """``watchdog_s``: the manager ends a service from which it has had no message for this long; 0: it does not."""
        self._to = to
        self._watchdog_s = watchdog_s
        self._every_s = min(watchdog_s / 2, STATUS_EVERY_S) if watchdog_s else STATUS_EVERY_S
        self._is_ready = False
        self._stopping = False
        self._status = ""
        self._report_failed = ""
        """The error that was last logged because the status line could not be made."""

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str]) -> Self:
        """Returns the manager that the environment variables name, and removes the variables: only this process reports
        to it, not the processes that it starts."""
        to = NotifySocket(environment.pop(SOCKET))
        watchdog_us, of = environment.pop(WATCHDOG, ""), environment.pop(WATCHDOG_OF, "")
        ours = watchdog_us.isdecimal() and of in ("", str(os.getpid()))
        return cls(to, watchdog_s=int(watchdog_us) / 1e6 if ours else 0.0)

    def ready(self) -> None:
        """Reports that the service has started. May be called again."""
        if not self._is_ready:
            self._is_ready = True
            self._to.send("READY=1")

    def reloading(self) -> None:
        """Reports that a reload begins."""
        # The manager compares this time with the time of its signal (Type=notify-reload).
        self._to.send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """Reports that the reload is over, whether or not it succeeded."""
        self._to.send("READY=1")

    def stopping(self, within_s: float) -> None:
        """Reports that the service stops, and within how many seconds every worker ends, so that the manager does not
        kill one while it drains."""
        self._stopping = True
        self._status = f"stopping, within {within_s:.0f} s"
        self._to.send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={round((within_s + END_S) * 1e6)}", f"STATUS={self._status}")

    async def keep(self, served: Served) -> None:
        """Regularly sends signs of life and the status line, until cancelled; then the socket is closed."""
        failed = ""
        try:
            while True:
                self._look(served)
                if self._to.failed and not failed:
                    detail = f"$NOTIFY_SOCKET takes no messages: {self._to.failed}"
                    served.log.warning("service_manager_not_told", detail=detail)
                failed = self._to.failed
                await asyncio.sleep(self._every_s)
        finally:
            self._to.close()

    def _look(self, served: Served) -> None:
        assignments = []
        # While the service stops, workers end one by one, and the supervisor itself kills late ones.
        late = [] if self._stopping else late_workers(served.processes.workers, time.time())
        if self._watchdog_s and not late:
            assignments.append("WATCHDOG=1")
        status = self._status if self._stopping else self._present(served, late)
        if status != self._status:
            assignments.append(f"STATUS={status}")
        self._to.send(*assignments, lasting=False)
        self._status = self._status if self._to.failed else status

    def _present(self, served: Served, late: list[int]) -> str:
        """Returns the status line. If it cannot be made, because of a bug, the service must not be restarted for it."""
        try:
            return _status(served, late)
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            if detail != self._report_failed:
                self._report_failed = detail
                served.log.error("report_failed", detail=detail, exception=traceback.format_exc())
            return " ".join(f"the status cannot be told: {detail}".split())[:STATUS_MAX]


def _status(served: Served, late: list[int]) -> str:
    """Returns the line that ``systemctl status`` shows."""
    told = headline(list(served.flows.values()))
    if late:
        told = f"no report from worker {', '.join(map(str, late))}; {told}"
    if not served.reloading.successful:
        told = f"not reloaded, see the log; {told}"
    return " ".join(told.split())[:STATUS_MAX]
