"""The mirror's side of the control socket. Only a mirror that ``mirror start`` has started imports it.

A client first sends a request in one line: ``stop``, or only ``watch``. It then gets the mirror's state as a line of
JSON, and again whenever it changes; the last line says how the mirror ended (``ended``). Like a signal, a request is
effective even if the client is gone when it is read. Only the owner of the socket can connect (mode 600).
"""

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from mirror.service.flows.flow import RunningFlow
from mirror.service.flows.overview import headline, not_ready
from mirror.service.http.server import ListenFailed
from mirror.service.instance.place import Place

LOOK_EVERY_S = 0.1
"""How often to look for changes of the state while a client is connected."""
STOP, WATCH = b"stop\n", b"watch\n"
TELL_S = 2.0
"""Time for clients to read the last line."""


class Served(Protocol):
    """The parts of the supervisor that are needed here."""

    flows: dict[str, RunningFlow]
    address: str

    def stop(self, asked: str) -> None:
        """Asks for a clean stop. ``asked``: the signal or command, for the log."""


class Control:
    """One mirror's control socket."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._begun = False
        self._within_s: float | None = None
        self._ended: Mapping[str, Any] | None = None
        self._over = asyncio.Event()
        self._clients: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, served: Served) -> None:
        """Begins to listen. It replaces the socket file of a predecessor: ``mirror start`` has made sure that none
        runs.

        Raises:
            ListenFailed: the socket cannot be made, because the folder is not writable.
        """
        self._served = served
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with self._place.control() as path:
                with suppress(FileNotFoundError):
                    os.unlink(path)
                before = os.umask(0o177)
                try:
                    made.bind(path)
                finally:
                    os.umask(before)
        except OSError as error:
            made.close()
            raise ListenFailed(self._place.unusable(error.strerror or str(error))) from error
        self._server = await asyncio.start_unix_server(self._serve, sock=made)

    def ready(self) -> None:
        """Notes that the HTTP server listens and the workers run."""
        self._begun = True

    def stopping(self, within_s: float) -> None:
        """Notes that the mirror stops, and ends within ``within_s`` seconds."""
        self._within_s = within_s

    def ended(self, result: Mapping[str, Any]) -> None:
        """Notes how the mirror ended: the fields of its log line ``stopped`` or ``failed``."""
        self._ended = dict(result)

    async def close(self) -> None:
        """Sends clients the last line, and closes all connections."""
        self._over.set()
        if self._server is not None:
            self._server.close()
        if self._clients:
            await asyncio.wait(self._clients, timeout=TELL_S)
        for each in self._clients:
            each.cancel()

    def state(self) -> dict[str, Any]:
        """Returns the state that clients get: see ``instance.asking.State``."""
        flows = list(self._served.flows.values())
        reasons = not_ready(flows, several=len(flows) > 1)
        waits = any(worker.waits for flow in flows for worker in flow.fleet.workers.values())
        return {
            "address": self._served.address,
            "phase": "stopping" if self._within_s is not None else "running" if self._begun else "starting",
            "ready": self._begun and not reasons,
            "settled": self._begun and (waits or not reasons),
            "status": headline(flows),
            "within_s": self._within_s,
        }

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            with suppress(OSError, ValueError):  # the client is gone, or does not send lines
                # The request is read before anything is written: writing to a client that is gone would lose it.
                while line := await reader.readline():
                    if line == STOP:
                        self._served.stop("mirror stop")
                    if line in (STOP, WATCH):
                        await self._tell(writer, reader)
                        return
        finally:
            writer.close()
            self._clients.discard(task)

    async def _tell(self, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        """Sends the state whenever it changes, until the client is gone or the mirror has ended."""
        told: dict[str, Any] = {}
        while not self._over.is_set() and not reader.at_eof():
            if (now := self.state()) != told:
                told = now
                await _send(writer, now)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), LOOK_EVERY_S)
        if self._ended is not None:
            await _send(writer, {"ended": self._ended})


async def _send(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()
