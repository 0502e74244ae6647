"""The channel between the supervisor and a worker: JSON messages, one per line, both ways over a pair of sockets.

Almost every message is about one flow, and names it (``flow``).

Neither side ever waits for the other. If too much waits for a stuck reader, log lines, and messages that are repeated
anyway, are dropped and counted. Snapshots are not made before there is room (``full``). The end of the stream means
that the other process ends.
"""

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any, Final

LINE_MAX: Final = 256 << 20
"""Most bytes of a message: enough for a snapshot of a million partitions."""
UNSENT_MAX: Final = 16 << 20
"""Most bytes that may wait for a reader; beyond that, messages in ``MAY_BE_LOST`` are dropped."""

# From the supervisor.
HANDOVER: Final = "handover"
REMOVE: Final = "remove"
JOIN: Final = "join"
STOP: Final = "stop"
RESUME: Final = "resume"
PAUSE: Final = "pause"
KEYS: Final = "keys"
EXPEL: Final = "expel"
LIMIT: Final = "limit"
TRACE: Final = "trace"
# From a worker.
LOG: Final = "log"
ALIVE: Final = "alive"
WAITING: Final = "waiting"
READY: Final = "ready"
JOINED: Final = "joined"
SNAPSHOT: Final = "snapshot"
REPLY: Final = "reply"
TRACED: Final = "traced"
FAILED: Final = "failed"
STOPPED: Final = "stopped"

MAY_BE_LOST: Final = frozenset({LOG, ALIVE, WAITING, TRACE, TRACED})
"""Kinds of messages that are repeated soon, or are only for people. Messages of other kinds must not be lost."""

Message = dict[str, Any]


class Channel:
    """One side of the channel. Every message has a ``kind``, one of the names above."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.dropped = 0
        """Number of messages that were not sent because the other side did not read."""

    @classmethod
    async def open(cls, sock: socket.socket) -> "Channel":
        """Opens a channel on one of the two sockets, and takes the socket over."""
        reader, writer = await asyncio.open_connection(sock=sock, limit=LINE_MAX)
        return cls(reader, writer)

    @property
    def full(self) -> bool:
        """True while the other side does not read, and so much waits for it that further messages should not be
        made."""
        return self._writer.transport.get_write_buffer_size() > UNSENT_MAX

    def send(self, kind: str, **fields: object) -> None:
        """Sends a message without waiting; values of types that JSON does not have become text."""
        if self._writer.transport.is_closing():
            return
        if kind in MAY_BE_LOST and self.full:
            self.dropped += 1
            return
        self._writer.write(json.dumps({"kind": kind, **fields}, separators=(",", ":"), default=str).encode() + b"\n")

    async def receive(self) -> Message | None:
        """Returns the next message; None at the end of the stream."""
        try:
            line = await self._reader.readline()
        except (OSError, ValueError):
            return None
        if not line.endswith(b"\n"):
            return None
        message: Message = json.loads(line)
        return message

    async def close(self, timeout_s: float = 5.0) -> None:
        """Closes the channel once everything is sent. Sending and closing take at most ``timeout_s`` each."""
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.drain(), timeout_s)
        self._writer.close()
        with suppress(OSError, TimeoutError):
            await asyncio.wait_for(self._writer.wait_closed(), timeout_s)


class FlowChannel:
    """The channel for one flow, whose name is added to every message."""

    def __init__(self, channel: Channel, flow: str) -> None:
        self._channel = channel
        self._flow = flow

    def send(self, kind: str, **fields: object) -> None:
        """Sends a message without waiting."""
        self._channel.send(kind, flow=self._flow, **fields)

    @property
    def full(self) -> bool:
        """See ``Channel``."""
        return self._channel.full

    @property
    def dropped(self) -> int:
        """Number of messages of the whole process that were dropped."""
        return self._channel.dropped


class ChannelLog:
    """A logger that sends its lines to the supervisor, which writes them."""

    def __init__(self, channel: Channel | FlowChannel) -> None:
        self._channel = channel

    def info(self, event: str, **fields: object) -> None:
        """Logs a normal event."""
        self._channel.send(LOG, level="info", event=event, fields=fields)

    def warning(self, event: str, **fields: object) -> None:
        """Logs an event that needs attention."""
        self._channel.send(LOG, level="warning", event=event, fields=fields)

    def error(self, event: str, **fields: object) -> None:
        """Logs a failure."""
        self._channel.send(LOG, level="error", event=event, fields=fields)
