"""One Produce request: a batch for each of several partitions of a broker.

A request may wait long for its connection. Meanwhile, the sender of a batch may have been told that it was not sent:
such a batch is left out.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import compress
from typing import NamedTuple

from mirror.net.cluster import Cluster
from mirror.net.connection import Connection
from mirror.net.errors import ConnectionLost, NetworkError
from mirror.net.options import Use
from mirror.raw.errors import FINAL
from mirror.raw.model import RecordMetadata, TopicPartition
from mirror.records.header import BatchHeader
from mirror.wire.fetch import TopicKey
from mirror.wire.primitives import MalformedFrame, array_size
from mirror.wire.produce import Produced, after_batch, read_produce_response, request_head, topic_head, topics_size
from mirror.wire.versions import PRODUCE_FLEXIBLE, PRODUCE_KEY, PRODUCE_TOPIC_IDS, PRODUCE_VERSIONS

TIMEOUT_SHARE = 0.9
"""The timeout in a request, as a part of the connection's request timeout: a broker's own answer has to come first."""


class NotAsked(NetworkError):
    """The batch was not sent: there is no connection, or it was given up before."""

    slug = "not_asked"


class Item:
    """A batch that is being sent.

    Attributes:
        header, value: the batch.
        future: its result: the offsets, or the error.
        until: when it is given up (the event loop's time).
        unsure: True if it may be in the log: a try was sent and has no answer (yet), or the answer was an error that
            brokers return after the append.
        given_up: True once its sender was told that it failed. It must not be sent any more: the next batch of its
            partition may have its sequence.
    """

    __slots__ = ("future", "given_up", "header", "unsure", "until", "value")

    def __init__(self, header: BatchHeader, value: bytes, future: "Future[RecordMetadata]", until: float) -> None:
        self.header = header
        self.value = value
        self.future = future
        self.until = until
        self.unsure = False
        self.given_up = False

    def land(self, where: RecordMetadata) -> None:
        """Sets the result, unless the future is done."""
        if not self.future.done():
            self.future.set_result(where)

    def fail(self, error: BaseException) -> None:
        """Sets the error, unless the future is done."""
        if not self.future.done():
            self.future.set_exception(error)


class Stamped(NamedTuple):
    """A batch with its identity, in a shared request."""

    at: TopicPartition
    value: bytes
    item: Item

    @property
    def place(self) -> TopicPartition:
        """The partition. A request has each partition once: of two batches, brokers would drop the first."""
        return self.at


async def exchange(cluster: Cluster, node_id: int, asked: Sequence[Stamped]) -> list[Produced | NetworkError]:
    """Sends one Produce. Returns the broker's answer or the error for each batch, in their order. Sets ``Item.unsure``
    of the batches when the request is sent. Those that are given up by then, or whose time is over, are left out.

    Args:
        cluster: the broker's cluster.
        node_id: the broker.
        asked: the batches, at most one for each partition.

    Raises:
        NotAsked: there is no connection: nothing was sent.
        AuthenticationFailed, TlsFailed, Unsupported: nothing was sent, and another try would fail, too.
        NetworkError: there is no answer; each batch may be in its log.
    """
    try:
        connection = await cluster.control(node_id, use=Use.WRITING)
    except FINAL:
        raise
    except NetworkError as error:
        raise NotAsked(str(error)) from error
    await connection.may_send()
    if connection.closed is not None:
        raise NotAsked(str(connection.closed)) from connection.closed
    # No other task runs from here to the write to the socket. So a batch is either given up by now, and never sent, or
    # it is unsure by the time at which its lane gives it up.
    now = asyncio.get_running_loop().time()
    goes = [not each.item.given_up and now < each.item.until for each in asked]
    going = list(compress(asked, goes))
    answers = iter(await _ask(cluster, connection, going) if going else ())
    over = NotAsked("it was given up before it could be sent")
    return [next(answers) if sent else over for sent in goes]


async def _ask(cluster: Cluster, connection: Connection, asked: Sequence[Stamped]) -> list[Produced | NetworkError]:
    """Sends the request at once, as ``may_send`` has just let it; else as ``exchange``."""
    ids = {each.at.topic: _topic_id(cluster, each.at.topic) for each in asked}
    most = PRODUCE_VERSIONS[1] if all(ids.values()) else PRODUCE_TOPIC_IDS - 1
    version = connection.version_of(PRODUCE_KEY, (PRODUCE_VERSIONS[0], most), "Produce")
    keys: dict[str, TopicKey] = {
        topic: found if found and version >= PRODUCE_TOPIC_IDS else topic for topic, found in ids.items()
    }
    timeout_ms = round(cluster.options.connection.request_timeout_s * 1000 * TIMEOUT_SHARE)
    body = _body(version, keys, asked, timeout_ms=timeout_ms)
    for each in asked:
        each.item.unsure = True
    try:
        frame = await connection.ask(PRODUCE_KEY, version, body, flexible=version >= PRODUCE_FLEXIBLE)
    except FINAL as error:  # TLS that breaks with the request under way
        raise ConnectionLost(str(error)) from error
    try:
        answer = read_produce_response(version, memoryview(frame))
    except MalformedFrame as error:
        raise ConnectionLost(f"{connection.name}: malformed produce response, {error}") from error
    connection.throttle(answer.throttle_ms)
    found = {(row.topic, row.partition): row for row in answer.partitions}
    results: list[Produced | NetworkError] = []
    for each in asked:
        row = found.get((keys[each.at.topic], each.at.partition))
        if row is None:
            results.append(ConnectionLost(f"{connection.name}: Produce: nothing in the answer for {each.at}"))
            continue
        if row.leader is not None:
            cluster.hint(*each.at, row.leader, answer.nodes)
        results.append(row)
    return results


def _topic_id(cluster: Cluster, topic: str) -> bytes | None:
    known = cluster.topics.get(topic)
    return known.topic_id if known is not None else None


def _body(version: int, keys: dict[str, TopicKey], asked: Sequence[Stamped], *, timeout_ms: int) -> bytes:
    compact = version >= PRODUCE_FLEXIBLE
    no_tags = after_batch(version)
    by_topic: dict[str, list[Stamped]] = {}
    for each in asked:
        by_topic.setdefault(each.at.topic, []).append(each)
    pieces = [request_head(version, timeout_ms=timeout_ms), topics_size(version, len(by_topic))]
    for topic, batches in by_topic.items():
        pieces += [topic_head(version, keys[topic]), topics_size(version, len(batches))]
        for at, value, _ in batches:
            pieces += [at.partition.to_bytes(4), array_size(len(value), compact=compact), value, no_tags]
        pieces.append(no_tags)
    return b"".join((*pieces, no_tags))
