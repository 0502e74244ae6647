"""Frames, sends and awaits one Fetch request on a data connection. Callers retry and interpret the answer."""

import asyncio
from collections.abc import Sequence

from mirror.net.buffers import Frame
from mirror.net.cluster import Cluster
from mirror.net.connection import Connection
from mirror.net.errors import NetworkError
from mirror.wire.fetch import READ_UNCOMMITTED, FetchPartition, TopicKey, fetch_request
from mirror.wire.header import SIZE, request_header
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_KEY, FETCH_TOPIC_IDS, FETCH_VERSIONS

FETCH_WAIT_MS = 500
"""How long a broker may wait for data. It never should: all requested offsets lie below the log's end."""


class Sent:
    """A fetch in flight, and the one waiter for its answer. ``topics``: name or id in the request -> topic name."""

    __slots__ = ("connection", "future", "topics", "version")

    def __init__(self, connection: Connection, version: int, topics: dict[TopicKey, str]) -> None:
        self.connection = connection
        self.version = version
        self.topics = topics
        self.future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()

    def receive(self, response: memoryview | Frame) -> None:
        """Called by the connection with the answer."""
        assert isinstance(response, Frame), "data connections are given allocate, and no response fits the read-ahead"
        if self.future.done():
            response.release()
        else:
            self.future.set_result(response)

    def fail(self, error: NetworkError) -> None:
        """Called by the connection if there will be no answer."""
        if not self.future.done():
            self.future.set_exception(error)
            # A fetch that was sent ahead may be abandoned. Nobody retrieves its exception then; Python would log it.
            self.future.exception()


def send_fetch(
    cluster: Cluster,
    connection: Connection,
    wanted: Sequence[tuple[str, int, int]],
    *,
    client_id: str,
    partition_bytes: int,
    response_bytes: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> Sent:
    """Sends a fetch for each (topic, partition, offset), in this order. At ``READ_COMMITTED``, the answer lists aborted
    transactions.

    Raises:
        Unsupported: the broker speaks no version of Fetch that we do.
    """
    version = connection.version_of(FETCH_KEY, FETCH_VERSIONS, "Fetch")
    ids = {topic: known.topic_id for topic, _, _ in wanted if (known := cluster.topics.get(topic)) and known.topic_id}
    if version >= FETCH_TOPIC_IDS and any(topic not in ids for topic, _, _ in wanted):
        version = FETCH_TOPIC_IDS - 1
    keys: dict[str, TopicKey] = {topic: ids[topic] if version >= FETCH_TOPIC_IDS else topic for topic, _, _ in wanted}
    body = fetch_request(
        version,
        [FetchPartition(keys[topic], partition, offset, partition_bytes) for topic, partition, offset in wanted],
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=response_bytes,
        isolation_level=isolation_level,
    )
    correlation_id = connection.next_correlation_id()
    head = request_header(
        api_key=FETCH_KEY,
        version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        flexible=version >= FETCH_FLEXIBLE,
    )
    sent = Sent(connection, version, {key: topic for topic, key in keys.items()})
    connection.expect(correlation_id, sent)
    connection.write([SIZE.pack(len(head) + len(body)) + head + body])
    return sent
