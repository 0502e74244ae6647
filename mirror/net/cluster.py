"""A cluster as a client sees it: its metadata (``net.metadata``), and control connections to each broker.

Metadata requests never create topics. Data connections are opened by their users (``dial``). Requests off the data path
go through ``call``, on one connection per broker, which is opened again when it was lost. Requests that a broker
answers only when its followers are up to date (markers, filler, deletions) have connections of their own (``Use``), so
that others do not wait behind them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from kafka.protocol.metadata import MetadataRequest

from mirror.net.batching import Answer, Batcher, Item
from mirror.net.buffers import Frame
from mirror.net.connect import connect, first_of
from mirror.net.connection import Connection, PendingRequest
from mirror.net.errors import (
    AuthenticationFailed,
    ConnectionLost,
    NetworkError,
    Refused,
    TlsFailed,
    Unreachable,
    Unsupported,
)
from mirror.net.health.histogram import RequestDurations
from mirror.net.health.unreached import Unreached
from mirror.net.metadata import ANY_NODE, Metadata, cluster_id_of, code_of, id_told
from mirror.net.options import ClusterOptions, ConnectionOptions, Use, address_text
from mirror.net.stream import READ_AHEAD
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import Node

T = TypeVar("T")


class Cluster(Metadata):
    """See the module's docstring. ``name`` is the alias in the config; it is in every message."""

    def __init__(
        self,
        name: str,
        options: ClusterOptions,
        *,
        errors: "Counter[tuple[str, str]] | None" = None,
        durations: RequestDurations | None = None,
        asked: dict[object, PendingRequest] | None = None,
        unreached: Unreached | None = None,
    ) -> None:
        super().__init__(name)
        self.options = options
        self.errors: Counter[tuple[str, str]] = Counter() if errors is None else errors
        """Number of failed requests, and of error codes in answers, by (API, the error's stable name)."""
        self.durations = RequestDurations() if durations is None else durations
        """How long answered requests took."""
        self.asked: dict[object, PendingRequest] = {} if asked is None else asked
        """Requests without an answer yet, off the data path."""
        self.unreached = Unreached() if unreached is None else unreached
        """The brokers to which no connection could be made."""
        self._open: list[Connection] = []
        self._received_before = 0
        """Bytes received on connections that are closed by now."""
        self._control: dict[int, Connection] = {}
        self._others: dict[tuple[int, Use], Connection] = {}
        """Control connections for uses other than ``ASKING``."""
        self._dialling: dict[tuple[int, Use], asyncio.Task[Connection]] = {}
        self._batchers: dict[Hashable, Batcher[Any, Any]] = {}

    @classmethod
    async def open(
        cls,
        name: str,
        options: ClusterOptions,
        *,
        errors: "Counter[tuple[str, str]] | None" = None,
        durations: RequestDurations | None = None,
        asked: dict[object, PendingRequest] | None = None,
        unreached: Unreached | None = None,
    ) -> Self:
        """Connects to the cluster and learns its id and brokers.

        Args:
            name: the cluster's alias in the config.
            options: how to reach the cluster.
            errors: counts failed requests, by (API, error slug).
            durations: counts how long answered requests took.
            asked: holds the requests without an answer yet, for as long as they are under way.
            unreached: holds the brokers to which no connection can be made.

        Raises:
            Unreachable: no bootstrap address answered; the message has each address and why.
        """
        cluster = cls(name, options, errors=errors, durations=durations, asked=asked, unreached=unreached)
        try:
            await cluster.refresh([])
        except BaseException:
            await cluster.close()
            raise
        return cluster

    async def close(self) -> None:
        """Closes the control connections; calls under way fail. Connections from ``dial`` are closed by their users."""
        for batcher in self._batchers.values():
            batcher.close(ConnectionLost(f"cluster {self.name}: closed"))
        self._batchers.clear()
        for dialling in list(self._dialling.values()):
            dialling.cancel()
        for connection in (*self._control.values(), *self._others.values()):
            connection.close()
        self._control.clear()
        self._others.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # -- counters --------------------------------------------------------------------------------------------------

    @property
    def bytes_received(self) -> int:
        """Bytes received on all connections to the cluster, whoever uses them."""
        self._forget_closed()
        return self._received_before + sum(each.bytes_received for each in self._open)

    def _forget_closed(self) -> None:
        self._received_before += sum(each.bytes_received for each in self._open if each.closed)
        self._open = [each for each in self._open if not each.closed]

    def failed(self, api: str, error: str) -> None:
        """Counts a failed request, or an error code in an answer. ``error``: its stable name."""
        self.errors[api, error] += 1

    async def check_denied(self, topics: Iterable[str]) -> None:
        """Asks for topics by name, and updates ``denied``: those of them that the mirror may not describe. (The list of
        all topics leaves such topics out.) Nothing else of the answer is stored.

        Raises:
            NetworkError: no broker answers.
        """
        answer = await self._metadata(topics)
        for found in answer.topics:
            self.note_denied(found.name, found.error_code)

    async def ids_of(self, topic: str, *, patience_s: float) -> tuple[set[bytes], int]:
        """Asks every broker for a topic's id. Nothing of the answers is stored.

        Returns:
            The ids that are told by the brokers that answer in time (``ask_all``), and how many others there are. More
            than one id: some have not heard of a topic that was recreated.

        Raises:
            NetworkError: no broker answers.
        """
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)

        async def ask(node_id: int) -> list[bytes | None]:
            request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
            answer = await self.call(request, node_id=node_id)
            return [id_told(found) for found in answer.topics]

        asked = len(self.nodes)
        answers = await self.ask_all(ask, patience_s=patience_s)
        return {told for answer in answers for told in answer if told is not None}, asked - len(answers)

    # -- metadata --------------------------------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] | None) -> dict[str, int]:
        """Asks for the metadata of these topics (None: of all), and stores it.

        Returns:
            Topics that the broker answered with an error: name -> code. Their old entry is dropped.

        Raises:
            WrongCluster: another cluster answers at these addresses than before. Nothing of its answer is stored.
            NetworkError: no broker answers.
        """
        asked_at = time.monotonic()
        answer = await self._metadata(topics)
        failed = self.store(answer, of_all=topics is None, asked_at=asked_at)
        self.unreached.keep(f"{self.name} broker ", [self._called(node) for node in self.nodes.values()])
        return failed

    async def _metadata(self, topics: Iterable[str] | None) -> Any:
        """Asks any broker for metadata; raises as ``refresh``.

        A broker may ask its clients to start again from the bootstrap servers (KIP-1102), and brokers of another
        cluster may have taken over the addresses of brokers that have moved. Then all connections are closed, and the
        bootstrap servers are resolved and asked again.
        """
        names = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        connection = await self.control_of_any()
        answer = await connection.call(request)
        if code_of(answer) == ErrorCode.REBOOTSTRAP_REQUIRED or self.is_strange(cluster_id_of(answer)):
            if not connection.closed:  # otherwise another task has already started again
                self._disconnect()
            answer = await (await self._connection_by_bootstrap()).call(request)
        if code_of(answer):
            raise Refused(f"cluster {self.name}: Metadata", code_of(answer))
        self.identify(cluster_id_of(answer))
        return answer

    def _disconnect(self) -> None:
        """Closes all connections to the cluster, whoever uses them."""
        for key, dialling in self._dialling.items():
            if key[0] != ANY_NODE:
                dialling.cancel()
        for connection in [each for each in self._open if not each.closed]:
            connection.close(ConnectionLost(f"{connection.name}: closed, as the bootstrap servers are asked again"))

    # -- connections -------------------------------------------------------------------------------------------------

    async def dial(
        self,
        node_id: int,
        *,
        options: ConnectionOptions | None = None,
        read_ahead: int = READ_AHEAD,
        allocate: Callable[[int], Frame] | None = None,
    ) -> Connection:
        """Opens a new connection to a broker, for the caller's own use.

        Args:
            node_id: the broker.
            options: settings of the connection; None: those of the cluster.
            read_ahead: see ``Stream``.
            allocate: see ``Stream.receive_into``.

        Raises:
            NetworkError: no connection can be made, or the broker is not in the metadata.
        """
        node = self.nodes.get(node_id)
        if node is None:
            raise Unreachable(f"broker {node_id} is not in the metadata of cluster {self.name}")
        name = self._called(node)
        try:
            connection = await self._connect(
                node.host,
                node.port,
                name=name,
                options=options or self.options.connection,
                read_ahead=read_ahead,
                allocate=allocate,
            )
        except NetworkError as error:
            self.unreached.failed(name, str(error).removeprefix(f"{name}: "))
            raise
        self.unreached.reached(name)
        return connection

    def _called(self, node: Node) -> str:
        return f"{self.name} broker {node.node_id} at {address_text(node.host, node.port)}"

    async def _connect(self, host: str, port: int, *, name: str, **how: Any) -> Connection:
        """Opens a connection (``net.connect.connect``) and counts its failure; raises as that does."""
        key = object()
        self.asked[key] = PendingRequest(name, "Connect", time.monotonic())
        try:
            connection = await connect(host, port, name=name, **how)
        except NetworkError as error:
            self.failed("Connect", error.slug)
            raise
        finally:
            del self.asked[key]
        connection.on_error, connection.asked = self.failed, self.asked
        connection.on_answer = self.durations.note
        self._forget_closed()
        self._open.append(connection)
        return connection

    async def call(
        self,
        request: Any,
        *,
        node_id: int = ANY_NODE,
        version: int | None = None,
        timeout_s: float | None = None,
        use: Use = Use.ASKING,
    ) -> Any:
        """Sends a ``kafka.protocol`` request on a control connection, and returns the response. There is one try.

        Args:
            request: the request.
            node_id: the broker; by default any.
            version: the highest version to use; None: the highest that both sides know.
            timeout_s: how long to wait for the response; None: the connection's request timeout.
            use: which of the control connections to the broker to use.

        Raises:
            NetworkError: see ``mirror.net.errors``.
        """
        connection = await (self.control_of_any() if node_id == ANY_NODE else self.control(node_id, use=use))
        return await connection.call(request, version=version, timeout_s=timeout_s)

    async def control(self, node_id: int, *, use: Use = Use.ASKING) -> Connection:
        """Returns the control connection to a broker for this use, and opens it if needed.

        Raises:
            NetworkError: no connection can be made. All callers that come during the attempt share its failure: with a
                broker that hangs, each of them would otherwise wait for a timeout, one after the other.
        """
        asking = use is Use.ASKING
        connection = self._control.get(node_id) if asking else self._others.get((node_id, use))
        if connection is not None and not connection.closed:
            return connection

        async def dial() -> Connection:
            connection = await self.dial(node_id)
            if asking:
                self._control[node_id] = connection
            else:
                self._others[node_id, use] = connection
            return connection

        return await self._shared((node_id, use), dial)

    async def _shared(self, key: tuple[int, Use], dial: Callable[[], Coroutine[Any, Any, Connection]]) -> Connection:
        """Returns the connection for this key, and opens it if needed. There is one attempt at a time for each key. It
        goes on when a caller that waits for it is cancelled."""
        dialling = self._dialling.get(key)
        if dialling is None or dialling.done():
            dialling = self._dialling[key] = asyncio.get_running_loop().create_task(dial())
            dialling.add_done_callback(partial(self._dialled, key))
        try:
            return await asyncio.shield(dialling)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if dialling.cancelled() and not (task is not None and task.cancelling()):
                raise ConnectionLost(f"cluster {self.name}: closed") from None
            raise

    def _dialled(self, key: tuple[int, Use], dialling: asyncio.Task[Connection]) -> None:
        """Forgets an attempt that has ended. (The task cannot do this itself: it may be cancelled before its first
        step.)"""
        if self._dialling.get(key) is dialling:
            del self._dialling[key]
        if not dialling.cancelled():
            dialling.exception()  # retrieved here: perhaps no caller waits for it, and asyncio would log it

    def batcher(self, key: Hashable, make: Callable[[], Batcher[Item, Answer]]) -> Batcher[Item, Answer]:
        """Returns the batcher for this key; ``make`` makes it at the first call. A key stands for calls of one kind to
        one broker."""
        batcher = self._batchers.get(key)
        if batcher is None:
            batcher = self._batchers[key] = make()
        return batcher

    async def control_of_any(self) -> Connection:
        """Returns an open control connection; otherwise a new one to a known broker, or to a bootstrap address.

        Raises:
            Unreachable: no broker can be reached.
        """
        # Take the connection with the fewest requests: those to a broker that hangs pile up.
        connections = [connection for connection in self._control.values() if not connection.closed]
        if connections:
            return min(connections, key=lambda connection: connection.in_flight)
        return await self._shared((ANY_NODE, Use.ASKING), self._first_connection)

    async def control_of_controller(self) -> Connection:
        """Returns the control connection to the controller. If that cannot be reached, it is one to any broker: with
        KRaft, every broker forwards requests to the controller.

        Raises:
            Unreachable: no broker can be reached.
        """
        if self.controller_id in self.nodes:
            with suppress(NetworkError):
                return await self.control(self.controller_id)
        return await self.control_of_any()

    async def ask_all(self, ask: Callable[[int], Awaitable[T]], *, patience_s: float) -> list[T]:
        """Asks all brokers in the metadata at the same time.

        Args:
            ask: called with each broker's node id.
            patience_s: how long to wait for all answers. Without any answer by then, the first one is waited for.

        Returns:
            The answers of the brokers that answered in time.

        Raises:
            NetworkError: no broker answered. It is the first failure.
        """
        asking = [asyncio.ensure_future(ask(node_id)) for node_id in self.nodes]
        if not asking:
            raise Unreachable(f"cluster {self.name}: no broker is in the metadata")
        try:
            done, late = await asyncio.wait(asking, timeout=patience_s)
            while late and all(one.exception() for one in done):
                more, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
                done |= more
        finally:
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        failures = [error for one in asking if one in done and (error := one.exception()) is not None]
        for error in failures:
            if not isinstance(error, NetworkError) or len(failures) == len(done):
                raise error
        return [one.result() for one in asking if one in done and one.exception() is None]

    async def _first_connection(self) -> Connection:
        return await self._first([*(partial(self.control, node_id) for node_id in self.nodes), *self._bootstraps()])

    async def _connection_by_bootstrap(self) -> Connection:
        """Returns the open connection to a bootstrap address, or opens one. Raises Unreachable if no address
        answers."""
        connection = self._control.get(ANY_NODE)
        if connection is not None and not connection.closed:
            return connection
        return await self._shared((ANY_NODE, Use.WRITING), lambda: self._first(self._bootstraps()))

    def _bootstraps(self) -> "list[Callable[[], Coroutine[Any, Any, Connection]]]":
        return [partial(self._bootstrap, host, port) for host, port in self.options.bootstrap]

    async def _bootstrap(self, host: str, port: int) -> Connection:
        name = f"{self.name} bootstrap {address_text(host, port)}"
        connection = await self._connect(host, port, name=name, options=self.options.connection)
        other = self._control.get(ANY_NODE)
        if other is not None and not other.closed:  # another attempt was quicker; its connection must not be lost
            connection.close()
            return other
        self._control[ANY_NODE] = connection
        return connection

    async def _first(self, attempts: "list[Callable[[], Coroutine[Any, Any, Connection]]]") -> Connection:
        connection, failures = await first_of(attempts, spare=self._spare)
        if connection is not None:
            return connection
        if failures and all(isinstance(error, Unsupported) for error in failures):
            raise failures[0]  # another try would not help
        refused = bool(failures) and all(_is_refusal(error) for error in failures)
        raise Unreachable(
            f"cannot reach cluster {self.name}: {'; '.join(dict.fromkeys(map(str, failures)))}; "
            "check bootstrap.servers and that its brokers listen there",
            refused=refused,
        )

    def _spare(self, connection: Connection) -> None:
        """Closes a connection that nobody uses, because another attempt succeeded at the same moment."""
        if connection not in self._control.values():
            connection.close()


def _is_refusal(error: NetworkError) -> bool:
    """Returns True for an error that means: one side does not accept the other's TLS or SASL."""
    return isinstance(error, AuthenticationFailed | TlsFailed) or (isinstance(error, Unreachable) and error.refused)
