"""Builds and sends one Fetch request on a data connection. Callers await the answer, interpret it and retry."""

from collections.abc import Sequence

from mirror.net.cluster import Cluster
from mirror.net.connection import Connection, FrameWaiter
from mirror.wire.fetch import READ_UNCOMMITTED, FetchPartition, TopicKey, fetch_request
from mirror.wire.header import SIZE, request_header
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_KEY, FETCH_TOPIC_IDS, FETCH_VERSIONS

FETCH_WAIT_MS = 500
"""How long a broker may wait for data. Brokers need not wait: all requested offsets lie below the log's end."""


class FetchInFlight(FrameWaiter):
    """A fetch in flight. ``future`` gets the response's frame. ``topics``: the topic's name or id in the request -> its
    name."""

    __slots__ = ("connection", "topics", "version")

    def __init__(self, connection: Connection, version: int, topics: dict[TopicKey, str]) -> None:
        super().__init__()
        self.connection = connection
        self.version = version
        self.topics = topics


def send_fetch(
    cluster: Cluster,
    connection: Connection,
    wanted: Sequence[tuple[str, int, int]],
    *,
    client_id: str,
    partition_bytes: int,
    response_bytes: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> FetchInFlight:
    """Sends one Fetch request for these partitions.

    Args:
        cluster: its metadata have the topic ids.
        connection: to the leader of all these partitions.
        wanted: (topic, partition, offset) of each, in the order of the request.
        client_id: sent with the request.
        partition_bytes: the limit for each partition's records.
        response_bytes: the limit for all records of the response.
        isolation_level: at ``READ_COMMITTED``, the answer also lists aborted transactions.

    Raises:
        Unsupported: the broker has no version of Fetch in common with the mirror.
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
    sent = FetchInFlight(connection, version, {key: topic for topic, key in keys.items()})
    connection.expect(correlation_id, sent)
    connection.write([SIZE.pack(len(head) + len(body)) + head + body])
    return sent
