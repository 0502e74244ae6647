"""Access to a cluster for one Spark task, or for the planning of a query: finds a partition's leader, and fetches from
it.

A ``Fetcher`` belongs to one event loop. Sockets are opened only here: objects that Spark pickles have none.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Self, TypeVar

from mirror.audit.read.fetching import FetchInFlight, send_fetch
from mirror.net.buffers import OVERHEAD, Frame, FramePool
from mirror.net.cluster import Cluster
from mirror.net.connection import Connection
from mirror.net.errors import ConnectionLost, NetworkError, Refused
from mirror.net.rights import DENIED, READ, TOPIC, Right
from mirror.net.stream import SIZE_ONLY
from mirror.offsetmap.fields import id_text
from mirror.raw.errors import heals, of_network
from mirror.raw.leaders import Leaders, backoff_of
from mirror.raw.model import TopicPartition
from mirror.service.config.resolve import cluster_options
from mirror.spark.read.options import ReaderSettings
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED, Fetched, read_fetch_response
from mirror.wire.primitives import MalformedFrame

LOG = logging.getLogger("mirror.spark")
PATIENCE_S = 60.0
"""How long reading a partition is tried again without any progress, before the task fails."""
OPEN_FOR_S = 10.0
"""How long connecting to a cluster is tried when a query is planned."""

Result = TypeVar("Result")


class Answer(NamedTuple):
    """The only partition of a Fetch response, without an error, and the frame that holds it. The caller has to release
    the frame."""

    fetched: Fetched
    frame: Frame


class Fetcher:
    """See the module's docstring. An asynchronous context manager."""

    def __init__(self, settings: ReaderSettings, cluster: Cluster) -> None:
        self.settings = settings
        self.cluster = cluster
        self.leaders = Leaders(cluster)
        size = settings.fetch_max_bytes + OVERHEAD
        self._pool = FramePool(budget=2 * size, frame_size=size)  # one is copied while the next one arrives
        self._connections: dict[int, Connection] = {}

    @classmethod
    async def open(cls, settings: ReaderSettings, *, patience_s: float | None = None) -> Self:
        """Connects to the cluster.

        Args:
            settings: how to reach the cluster.
            patience_s: how long to try; None: ``OPEN_FOR_S``.

        Raises:
            BrokerError: the cluster does not answer, or does not accept this client.
        """
        options = cluster_options(settings, reads_only=True)
        until = asyncio.get_running_loop().time() + (OPEN_FOR_S if patience_s is None else patience_s)
        cluster = Cluster(options.bootstrap_servers, options)
        try:
            await asked(cluster, lambda: cluster.refresh([]), until=until)
        except BaseException:
            await cluster.close()
            raise
        return cls(settings, cluster)

    async def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            connection.close()
        await self.cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def topic_id(self, topic: str) -> str:
        """Returns a topic's id as text; empty if the cluster has none, or it is not known."""
        known = self.cluster.topics.get(topic)
        return (id_text(known.topic_id) or "") if known is not None else ""

    # -- one Fetch ---------------------------------------------------------------------------------------------------

    async def send(
        self, at: TopicPartition, offset: int, *, until: float, committed: bool, anew: bool = False, more_bytes: int = 0
    ) -> FetchInFlight:
        """Sends a Fetch to a partition's leader, for the log from ``offset`` on.

        Args:
            at: the partition.
            offset: where to begin.
            until: when to give up finding the leader, by the event loop's clock.
            committed: True for read_committed.
            anew: True to look the leader up again first.
            more_bytes: bytes that the response may have in addition to ``kafka.fetch.max.bytes``.

        Raises:
            BrokerError: there is no leader, or the client may not describe the topic.
            NetworkError: the leader cannot be reached.
        """
        leader = await self.leaders.find(*at, until=until, anew=anew)
        connection = self._connections.get(leader.node_id)
        if connection is None or connection.closed:
            connection = await self.cluster.dial(leader.node_id, read_ahead=SIZE_ONLY, allocate=self._pool.take)
            self._connections[leader.node_id] = connection
        await connection.may_send()
        return self._write(connection, at, offset, committed, more_bytes)

    def send_ahead(self, at: TopicPartition, offset: int, *, committed: bool) -> FetchInFlight | None:
        """As ``send``, but never waits. Returns None if it would have to wait (for a connection, or a throttle)."""
        leader = self.cluster.leader(*at)
        connection = self._connections.get(leader.node_id) if leader else None
        if connection is None or connection.closed or connection.throttled_s:
            return None
        return self._write(connection, at, offset, committed)

    def _write(
        self, connection: Connection, at: TopicPartition, offset: int, committed: bool, more_bytes: int = 0
    ) -> FetchInFlight:
        return send_fetch(
            self.cluster,
            connection,
            [(at.topic, at.partition, offset)],
            client_id=self.settings.client_id,
            partition_bytes=self.settings.fetch_max_bytes + more_bytes,
            response_bytes=self.settings.fetch_max_bytes + more_bytes,
            isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
        )

    async def receive(self, sent: FetchInFlight, at: TopicPartition) -> Answer | None:
        """Returns the answer; None if a quota applies, and the broker answered only with a throttle time.

        Raises:
            Refused: the answer has an error code.
            NetworkError: there is no answer, or it is malformed.
        """
        frame = await sent.future
        name = sent.connection.name
        try:
            response = read_fetch_response(sent.version, frame.body)
        except MalformedFrame as error:
            frame.release()
            sent.connection.close()
            raise ConnectionLost(f"{name}: malformed fetch response, {error}") from error
        sent.connection.throttle(response.throttle_ms)
        code = response.error or next((each.error for each in response.partitions), ErrorCode.NONE)
        if not code and len(response.partitions) == 1:
            return Answer(response.partitions[0], frame)
        frame.release()
        if code:
            needs = Right(READ, TOPIC, at.topic, self.cluster.name)
            raise Refused(f"{name}: Fetch of {at.topic}-{at.partition}", code, needs=needs)
        if not response.partitions and response.throttle_ms:
            return None
        raise ConnectionLost(f"{name}: {len(response.partitions)} partitions in the answer, asked for one")


def is_final(error: NetworkError) -> bool:
    """Returns True for an error after which another try would fail, too."""
    return not heals(error) or (isinstance(error, Refused) and error.code in DENIED)


async def asked(cluster: Cluster, ask: Callable[[], Awaitable[Result]], *, until: float) -> Result:
    """Calls ``ask`` until it succeeds, and returns its result. It is called again while brokers do not answer.

    Args:
        cluster: the cluster whose settings give the pauses between tries.
        ask: makes one try.
        until: when to give up, by the event loop's clock.

    Raises:
        BrokerError: the last failure.
    """
    backoff = backoff_of(cluster)
    while True:
        try:
            return await ask()
        except NetworkError as error:
            if is_final(error) or asyncio.get_running_loop().time() >= until:
                raise of_network(error) from error
        await asyncio.sleep(backoff.next_s())
