"""A raw consumer's connection to one broker: one Fetch at a time; its response is received into one frame."""

from collections.abc import Callable, Mapping, Sequence

from mirror.net.buffers import Frame
from mirror.net.cluster import Cluster
from mirror.net.connection import Connection, FrameWaiter
from mirror.net.errors import ConnectionLost, Refused
from mirror.net.stream import SIZE_ONLY
from mirror.raw.consume.cursor import NO_EPOCH, RawCursor
from mirror.raw.settings import ConsumerSettings
from mirror.wire.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchResponse,
    TopicKey,
    fetch_request,
    read_fetch_response,
)
from mirror.wire.header import SIZE, request_header
from mirror.wire.primitives import MalformedFrame
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_KEY, FETCH_TOPIC_IDS, FETCH_VERSIONS


class RawFetchLink:
    """See the module's docstring. ``allocate``: returns a frame of the given size in bytes."""

    def __init__(
        self, cluster: Cluster, node_id: int, settings: ConsumerSettings, allocate: Callable[[int], Frame]
    ) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._settings = settings
        self._allocate = allocate
        self._connection: Connection | None = None

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()

    async def fetch(
        self, wanted: Sequence[RawCursor], topic_ids: Mapping[str, bytes | None]
    ) -> tuple[FetchResponse, Frame]:
        """Sends one Fetch, and waits for the response. Topics are identified by ids (KIP-516) if all of them have one.

        Args:
            wanted: the partitions, in the order in which the broker is to serve them.
            topic_ids: name -> id of their topics.

        Returns:
            The response, and the frame that holds it; the caller has to release the frame.

        Raises:
            NetworkError: there is no response, or the broker refuses the request as a whole.
        """
        connection = await self._connected()
        await connection.may_send()
        version = connection.version_of(FETCH_KEY, FETCH_VERSIONS, "Fetch")
        ids = {topic: found for topic, found in topic_ids.items() if found}
        if not all(cursor.at.topic in ids for cursor in wanted):
            version, ids = min(version, FETCH_TOPIC_IDS - 1), {}
        names: Mapping[str, TopicKey] = ids if version >= FETCH_TOPIC_IDS else {}
        waiter = self._send(connection, version, [self._asked(cursor, names) for cursor in wanted])
        frame = await waiter.future
        try:
            answer = read_fetch_response(version, frame.body)
        except MalformedFrame as error:
            frame.release()
            raise ConnectionLost(f"{connection.name}: malformed fetch response, {error}") from error
        connection.throttle(answer.throttle_ms)
        if answer.error:
            frame.release()
            raise Refused(f"{connection.name}: Fetch", answer.error)
        return answer, frame

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await self._cluster.dial(self._node_id, read_ahead=SIZE_ONLY, allocate=self._allocate)
        return self._connection

    def _asked(self, cursor: RawCursor, names: Mapping[str, TopicKey]) -> FetchPartition:
        leader = self._cluster.leader(*cursor.at)
        return FetchPartition(
            names.get(cursor.at.topic, cursor.at.topic),
            cursor.at.partition,
            cursor.fetch_offset,
            self._settings.max_partition_fetch_bytes,
            leader.epoch if leader is not None else NO_EPOCH,
            cursor.last_epoch,
        )

    def _send(self, connection: Connection, version: int, wanted: Sequence[FetchPartition]) -> FrameWaiter:
        settings = self._settings
        body = fetch_request(
            version,
            wanted,
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=READ_COMMITTED if settings.isolation_level == "read_committed" else READ_UNCOMMITTED,
        )
        waiter = FrameWaiter()
        correlation_id = connection.next_correlation_id()
        head = request_header(
            api_key=FETCH_KEY,
            version=version,
            correlation_id=correlation_id,
            client_id=connection.options.client_id,
            flexible=version >= FETCH_FLEXIBLE,
        )
        timeout_s = settings.fetch_max_wait_ms / 1000 + connection.options.request_timeout_s
        connection.expect(correlation_id, waiter, timeout_s)
        connection.write([SIZE.pack(len(head) + len(body)) + head + body])
        return waiter
