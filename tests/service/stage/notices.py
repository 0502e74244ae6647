"""The service manager's end of sd_notify(3): a datagram socket, and the messages that reached it."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.service.stage.running import PATIENCE_S


class Listening:
    """The socket. A context manager; within it, a thread reads what comes, as a manager does: the kernel keeps few
    datagrams, and tells the sender that there is no room for more.

    Attributes:
        address: as $NOTIFY_SOCKET names it.
        messages: those that were read so far, each as its assignments.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.messages: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._reading = threading.Lock()
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read_on, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._reader.join()
        self._socket.close()

    def _read_on(self) -> None:
        while not self._over.wait(0.02):
            self.read()

    def read(self) -> list[dict[str, str]]:
        """Reads what has come. Returns all messages so far."""
        while True:
            with self._reading:
                try:
                    text = self._socket.recv(65_536, socket.MSG_DONTWAIT).decode()
                except BlockingIOError:
                    return [*self.messages]
                self.messages.append(dict(line.split("=", 1) for line in text.splitlines()))

    def forget(self) -> None:
        """Reads what has come, and forgets it."""
        self.read()
        with self._reading:
            self.messages.clear()

    def wait_for(self, condition: Callable[[dict[str, str]], bool], what: str) -> dict[str, str]:
        """Until such a message has come; the first of them."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := [each for each in self.read() if condition(each)]):
            assert time.monotonic() < deadline, f"waited in vain for {what}: {self.messages}"
            time.sleep(0.01)
        return found[0]

    def wait(self, name: str, value: str = "1") -> dict[str, str]:
        """Until a message with this assignment has come."""
        return self.wait_for(lambda each: each.get(name) == value, f"{name}={value}")

    def states(self) -> list[str]:
        """The names of all assignments so far that tell of the service's state, in their order."""
        told = ("READY", "RELOADING", "STOPPING")
        return [name for each in self.read() for name in each if name in told]


@contextmanager
def listening(folder: Path) -> Iterator[Listening]:
    """A manager that listens at a path in this folder."""
    with Listening(str(folder / "notify")) as found:
        yield found
