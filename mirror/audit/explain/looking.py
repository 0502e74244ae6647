"""Reads one batch of each side, as it is stored: nothing is verified, left out or converted."""

import asyncio
import struct
from contextlib import AsyncExitStack
from typing import NamedTuple

from mirror.audit.errors import AuditError
from mirror.audit.model.places import TopicPartition
from mirror.audit.model.request import AuditRequest, Endpoint
from mirror.audit.prepare.bounds import cluster_options
from mirror.audit.prepare.offsets import log_spans
from mirror.audit.prepare.patience import patiently
from mirror.audit.read.fetching import send_fetch
from mirror.net.buffers import OVERHEAD, FramePool
from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost, NetworkError
from mirror.net.stream import SIZE_ONLY
from mirror.records.header import HEADER_SIZE, MAGIC, MAGIC_AT, PREFIX_SIZE, BatchHeader
from mirror.wire.errors import ErrorCode, error_name
from mirror.wire.fetch import Fetched, read_fetch_response
from mirror.wire.primitives import MalformedFrame

FETCH_BYTES = 1 << 20
"""The limit of a Fetch response. It is enough: a broker returns the first batch whole, however large it is (KIP-74)."""
LEAST_MESSAGE = 26
"""The size in bytes of the smallest message: magic 0, without key and value."""
_PREFIX = struct.Struct(">qi")
_TRIES = 10
_WAIT_S = 0.5


class Looked(NamedTuple):
    """What one side has at an offset.

    ``topic``: its name on that side. ``start`` and ``end``: the log start and the high watermark. ``batch``: the bytes
    of the batch that holds the offset; in an old format, of the first message or wrapper that does not end before it.
    None if there is none. ``behind``: then the base offset of the next batch, if the broker shows one.
    """

    alias: str
    cluster_id: str
    topic: str
    partition: int
    offset: int
    start: int
    end: int
    batch: bytes | None
    behind: int | None = None


def look(request: AuditRequest, topic: str, partition: int, offset: int, there: int) -> tuple[Looked, Looked]:
    """Reads the batch at an offset from the source and from the destination.

    Args:
        request: the audit request of the flow.
        topic: its name at the source.
        partition: its number.
        offset: at the source.
        there: the offset at the destination.

    Raises:
        AuditError: a side cannot be read, or has no such partition.
    """
    return asyncio.run(_look(request, topic, partition, offset, there))


async def _look(request: AuditRequest, topic: str, partition: int, offset: int, there: int) -> tuple[Looked, Looked]:
    return (
        await _side(request.source, topic, partition, offset),
        await _side(request.destination, request.destination_of(topic), partition, there),
    )


async def _side(endpoint: Endpoint, topic: str, partition: int, offset: int) -> Looked:
    try:
        return await patiently(lambda: _looked(endpoint, topic, partition, offset))
    except NetworkError as error:
        raise AuditError(
            f"cluster {endpoint.alias} cannot be read: {error}", "check that its brokers are up and reachable from here"
        ) from error


async def _looked(endpoint: Endpoint, topic: str, partition: int, offset: int) -> Looked:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(await Cluster.open(endpoint.alias, cluster_options(endpoint)))
        await cluster.refresh([topic])
        known = cluster.topics.get(topic)
        if known is None or partition not in {*known.leaders, *known.down}:
            what = f"topic {topic}" if known is None else f"partition {partition} of topic {topic}"
            raise AuditError(
                f"{endpoint.alias} has no {what}, or does not show it",
                "name a topic of the flow as the source does, and a partition of it",
            )
        key = TopicPartition(topic, partition)
        starts, ends = await log_spans(cluster, [key])
        found = Looked(
            endpoint.alias, cluster.cluster_id or "", topic, partition, offset, starts[key], ends[key], batch=None
        )
        if not found.start <= offset < found.end:
            return found
        return await _fetched(cluster, endpoint, found)


async def _fetched(cluster: Cluster, endpoint: Endpoint, found: Looked) -> Looked:
    """Returns ``found`` with the batch that holds its offset; unchanged if the leader shows nothing there.

    Raises:
        AuditError: the partition cannot be read.
        NetworkError: there is no answer.
    """
    code, is_empty = 0, False
    for _ in range(_TRIES):
        leader = cluster.leader(found.topic, found.partition)
        if leader is not None:
            code, records = await _answer(cluster, endpoint, leader.node_id, found)
            if records:
                return _holding(found, records)
            # A leader that was just elected shows nothing for a moment, even below the log's former end. So an empty
            # answer counts only after all attempts.
            is_empty = not code
        await asyncio.sleep(_WAIT_S)
        await cluster.refresh([found.topic])
    if is_empty:
        return found
    where = f"{found.topic} partition {found.partition} at {found.alias}"
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise AuditError(f"{where} may not be read", "grant the audit's principal Read and Describe on the topic")
    why = error_name(code) if code else "it has no leader"
    raise AuditError(f"{where} cannot be read at offset {found.offset}: {why}", "look at the broker's log")


async def _answer(cluster: Cluster, endpoint: Endpoint, node_id: int, found: Looked) -> tuple[int, bytes]:
    """Fetches from the offset of ``found`` on. Returns the error code (0: none) and the record set.

    Raises:
        NetworkError: there is no answer, or it is malformed.
    """
    pool = FramePool(budget=FETCH_BYTES + OVERHEAD, frame_size=FETCH_BYTES + OVERHEAD)
    connection = await cluster.dial(node_id, read_ahead=SIZE_ONLY, allocate=pool.take)
    try:
        sent = send_fetch(
            cluster, connection, [(found.topic, found.partition, found.offset)], client_id=endpoint.client_id,
            partition_bytes=FETCH_BYTES, response_bytes=FETCH_BYTES,
        )  # fmt: skip
        frame = await sent.future
        try:
            try:
                response = read_fetch_response(sent.version, frame.body)
            except MalformedFrame as error:
                raise ConnectionLost(f"{connection.name}: malformed fetch response, {error}") from error
            if response.error or not response.partitions:
                return response.error or ErrorCode.UNKNOWN_SERVER_ERROR, b""
            one: Fetched = response.partitions[0]
            return one.error, bytes(frame.body[one.start : one.end])
        finally:
            frame.release()
    finally:
        connection.close()


def _holding(found: Looked, records: bytes) -> Looked:
    """Returns ``found`` with the first of these batches that holds its offset, or with ``behind`` if the first one that
    is not before it begins behind it."""
    at = 0
    while at + PREFIX_SIZE < len(records):
        base, length = _PREFIX.unpack_from(records, at)
        end = at + PREFIX_SIZE + length
        batch = records[at:end]
        if length <= 0 or end > len(records) or is_cut_off(batch):
            # The length is impossible, so where the batch ends is not known: all remaining bytes are shown.
            return found._replace(batch=records[at:])
        if base > found.offset and batch[MAGIC_AT] == MAGIC:
            return found._replace(behind=base)
        if last_offset(batch) >= found.offset:
            return found._replace(batch=batch)
        at = end
    return found


def is_cut_off(batch: bytes) -> bool:
    """Returns True if there are too few bytes for a batch header or, with magic 0 or 1, for a message."""
    return len(batch) < (HEADER_SIZE if batch[MAGIC_AT : MAGIC_AT + 1] == bytes((MAGIC,)) else LEAST_MESSAGE)


def last_offset(batch: bytes) -> int:
    """Returns the last offset of a batch. A message or wrapper of magic 0 or 1 has only one offset: its own or, of a
    wrapper, that of its last message."""
    if batch[MAGIC_AT] != MAGIC:
        return int(_PREFIX.unpack_from(batch)[0])
    return BatchHeader.read(batch).last_offset
