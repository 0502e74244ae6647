"""Writes log lines to a descriptor that may not accept them: its disk may be full, its reader may be gone or too slow.

It never blocks and never fails: lines wait in a bounded queue for a thread that writes them. A line that cannot be
written, or does not fit into the queue, is lost and counted. An extra line reports the loss once writing works again.
"""

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

QUEUE_MAX: Final = 4 << 20
"""Most bytes of lines that may wait for the descriptor; a line beyond that is lost."""
LOOK_AGAIN_MS: Final = 1_000
"""Longest wait for a descriptor that accepts nothing (O_NONBLOCK) before writing is tried again."""
NOT_READ: Final = "what reads the log is too slow"


def keep_standard_descriptors() -> None:
    """Opens those of the descriptors 0, 1 and 2 that are closed. Otherwise the first sockets would get their numbers,
    and everything written to a standard stream would go into a socket."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


class LogOutlet:
    """A text stream for a logger that never blocks and never raises.

    Args:
        descriptor: where to write; -1: nowhere, every line is lost.
        notice: gets the number of lost lines, and why the last one was lost. Returns the line, with its newline, that
            reports it.
        queue_max: most bytes that may wait.
        encoding: the encoding of the text.
    """

    def __init__(
        self,
        descriptor: int,
        notice: Callable[[int, str], str],
        *,
        queue_max: int = QUEUE_MAX,
        encoding: str = "utf-8",
    ) -> None:
        self._descriptor = descriptor
        self._notice = notice
        self._queue_max = queue_max
        self._encoding = encoding
        self._changed = threading.Condition()
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._thread: threading.Thread | None = None
        self._torn = False
        """True if only a part of the last line was written: the next line has to begin with a newline."""
        self._untold = 0
        self._why = ""
        self.lost = 0
        """Number of lines that were lost since the start."""

    def write(self, text: str) -> int:
        """Queues a line; never waits."""
        line = text.encode(self._encoding, "backslashreplace")
        with self._changed:
            if self._size + len(line) > self._queue_max:
                self._lose(NOT_READ)
                return len(text)
            self._lines.append(line)
            self._size += len(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Does nothing: every line is in the queue already. See ``settle``."""

    def settle(self, timeout_s: float) -> bool:
        """Waits at most ``timeout_s`` until every line is written or lost. Returns False if lines are left."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines, max(0.0, deadline - time.monotonic()))

    def _lose(self, why: str) -> None:
        self.lost += 1
        self._untold += 1
        self._why = why

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                line, untold, why = self._lines[0], self._untold, self._why
            failed = self._put(self._notice(untold, why).encode(self._encoding, "backslashreplace")) if untold else ""
            told = 0 if failed else untold
            failed = failed or self._put(line)
            with self._changed:
                self._untold -= told
                if failed:
                    self._lose(failed)
                self._size -= len(self._lines.popleft())
                self._changed.notify_all()

    def _put(self, line: bytes) -> str:
        """Writes the whole line. Returns the reason why it could not, or an empty string."""
        rest = memoryview(b"\n" + line if self._torn else line)
        while rest:
            try:
                written = os.write(self._descriptor, rest)
            except BlockingIOError:
                self._wait_for_room()
                continue
            except OSError as error:
                return os.strerror(error.errno or 0)
            rest = rest[written:]
            self._torn = bool(rest)
        return ""

    def _wait_for_room(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        poll.poll(LOOK_AGAIN_MS)
