"""A data connection to one broker. It is dialled when there is something to send, and pauses while the broker throttles
it."""

import asyncio
from abc import ABC, abstractmethod

from mirror.net.connection import Connection
from mirror.net.errors import ConnectionLost, NetworkError


class Link(ABC):
    """The common part of fetch links and lanes. ``pump`` is called whenever there may be something to do."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self._connection: Connection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._closed = False

    @abstractmethod
    def pump(self) -> None:
        """Sends whatever there is to send and can be sent now."""

    @abstractmethod
    async def _open(self) -> Connection:
        """Opens a new connection to the broker.

        Raises:
            NetworkError: no connection can be made.
        """

    @abstractmethod
    def _greet(self, connection: Connection) -> None:
        """Checks that there is a common version of requests, and sets the connection's callbacks.

        Raises:
            NetworkError: there is no common version.
        """

    @abstractmethod
    def _unreachable(self, error: NetworkError) -> None:
        """Called if no connection could be made. The partitions that wait for it have to be located again."""

    def _dial(self) -> None:
        """Opens a connection, unless one is being opened already, and then calls ``pump``."""
        if self._dialling is None:
            self._dialling = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        connection: Connection | None = None
        try:
            connection = await self._open()
            self._greet(connection)
        except Exception as error:  # of any kind, also from other libraries: otherwise nobody would ever dial again
            self._dialling = None
            if connection is not None:
                connection.close()
            told = error if isinstance(error, NetworkError) else ConnectionLost(f"no connection: {error!r}")
            self._unreachable(told)
            return
        self._dialling = None
        if self._closed:
            connection.close()
            return
        self._connection = connection
        self.pump()

    def _pump_later(self, pause_s: float) -> None:
        """Calls ``pump`` after ``pause_s`` seconds, unless it will be called sooner already."""
        loop = asyncio.get_running_loop()
        if self._wake is not None:
            if self._wake.when() <= loop.time() + pause_s:
                return
            self._wake.cancel()
        self._wake = loop.call_later(pause_s, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self.pump()

    def close(self) -> None:
        """Closes the connection. Outstanding requests fail, and nothing more is sent."""
        self._closed = True
        if self._wake is not None:
            self._wake.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        if self._connection is not None:
            self._connection.close()
