"""A worker's process in which no host name is ever resolved: no name server answers."""

import socket
import threading
from typing import Any

from mirror.service import worker


def main(descriptor: int, parent_pid: int) -> None:
    """Runs the process, as ``mirror.service.worker``."""

    def getaddrinfo(*_: object, **__: object) -> Any:
        threading.Event().wait()

    socket.getaddrinfo = getaddrinfo
    worker.main(descriptor, parent_pid)
