"""Fetch, versions 3 to 17: writes the request, and reads the response in place.

The records of a response are neither copied nor read: for each partition, the positions in the frame are given at which
its records begin and end.

Sources: FetchRequest.json and FetchResponse.json of Apache Kafka; KIP-74 (order, limits), KIP-227 (sessions), KIP-320
(leader epochs), KIP-392 (rack), KIP-516 (topic ids), KIP-595 (tagged fields), KIP-951 (new leader in the answer).
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mirror.wire.header import after_response_header
from mirror.wire.primitives import (
    NO_TAGS,
    MalformedFrame,
    array_size,
    cut_short,
    read_array_size,
    read_i32,
    read_size,
    read_span,
    read_string,
    read_tags,
    string,
)
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_TOPIC_IDS

TopicKey = str | bytes
"""A topic in a request or response: its name, or from v13 its 16-byte id."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
NO_EPOCH = -1
CONSUMER = -1
"""replica_id of an ordinary client."""
NO_REPLICA = -1
NO_SESSION = (0, -1)
"""Session id and epoch of a request outside any fetch session (KIP-227)."""

_LIMITS = struct.Struct(">iii")
_ASKED_V12 = struct.Struct(">iiqiqiB")
"""One partition of a request from v12 on, with its empty tags."""
_SESSION = struct.Struct(">ii")
_UUID_SIZE = 16
_ABORTED = struct.Struct(">qq")
_EPOCH_OFFSET = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")
_INDEX = struct.Struct(">i")
_ERROR_SESSION = struct.Struct(">hi")

_DIVERGING_TAG, _LEADER_TAG = 0, 1
_NODES_TAG = 0


class FetchPartition(NamedTuple):
    """One partition of a request. ``leader_epoch`` and ``last_epoch``: -1 when not known (no check by the broker)."""

    topic: TopicKey
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH


class Fetched(NamedTuple):
    """One partition of a response; its records are ``frame[start:end]``."""

    topic: TopicKey
    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of each aborted transaction that the broker lists for these records."""
    diverging: tuple[int, int] | None
    """(epoch, end offset) at which the source's log now diverges from what was fetched: it was truncated there since
    (KIP-595). None: no divergence."""
    leader: tuple[int, int] | None
    """(node id, epoch) of the current leader, given with NOT_LEADER_OR_FOLLOWER (KIP-951)."""
    preferred_replica: int
    start: int
    end: int


class Node(NamedTuple):
    """A broker and the address at which it listens."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True, kw_only=True)
class FetchResponse:
    """A whole response. ``throttle_ms``: time to wait before the next request on this connection. ``error``: of the
    whole request. ``nodes``: addresses of the leaders that the partitions name (KIP-951)."""

    throttle_ms: int
    error: int
    session_id: int = 0
    """Id of the fetch session that the broker keeps from now on (KIP-227); 0: none."""
    partitions: list[Fetched] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


def fetch_request(
    version: int,
    partitions: Iterable[FetchPartition],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int,
    rack: str = "",
    session: tuple[int, int] = NO_SESSION,
    forgotten: Sequence[tuple[TopicKey, int]] = (),
) -> bytes:
    """Returns the request's body. The broker fills the response in the order of the partitions (KIP-74).

    Consecutive partitions of one topic share an entry. A topic may have several entries, as in requests of the Java
    consumer.

    Args:
        version: of the API, 3 to 17.
        partitions: the partitions to fetch; in a fetch session, those that have changed since the previous request.
        max_wait_ms: how long the broker may wait for ``min_bytes``.
        min_bytes: least bytes of records to wait for.
        max_bytes: most bytes of records; the first batch comes whole, whatever its size.
        isolation_level: READ_UNCOMMITTED or READ_COMMITTED (v4; brokers that know only v3 have no transactions).
        rack: the rack of the client (v11).
        session: id and epoch of the fetch session (v7).
        forgotten: (topic, partition) of each partition that leaves the session (v7).
    """
    compact = version >= FETCH_FLEXIBLE
    tags = NO_TAGS if compact else b""
    runs = _runs((wanted[0], _request_partition(version, wanted)) for wanted in partitions)
    out = [b"" if version >= 15 else struct.pack(">i", CONSUMER)]
    out.append(_LIMITS.pack(max_wait_ms, min_bytes, max_bytes))
    if version >= _ISOLATION_LEVEL:
        out.append(isolation_level.to_bytes(1))
    if version >= 7:
        out.append(_SESSION.pack(*session))
    out.append(array_size(len(runs), compact=compact))
    for topic, run in runs:
        out.append(_topic_key(topic, version))
        out.append(array_size(len(run), compact=compact))
        out.extend(run)
        out.append(tags)
    if version >= 7:
        gone = _runs((topic, _INDEX.pack(partition)) for topic, partition in forgotten)
        out.append(array_size(len(gone), compact=compact))
        for topic, run in gone:
            out.append(_topic_key(topic, version))
            out.append(array_size(len(run), compact=compact))
            out.extend(run)
            out.append(tags)
    if version >= 11:
        out.append(string(rack, compact=compact))
    out.append(tags)
    return b"".join(out)


def _runs(entries: Iterable[tuple[TopicKey, bytes]]) -> list[tuple[TopicKey, list[bytes]]]:
    """Groups consecutive entries of one topic, and keeps the order."""
    runs: list[tuple[TopicKey, list[bytes]]] = []
    run: list[bytes] = []
    last: TopicKey | None = None
    for topic, entry in entries:
        if last != topic:
            last, run = topic, []
            runs.append((topic, run))
        run.append(entry)
    return runs


def _topic_key(topic: TopicKey, version: int) -> bytes:
    by_id = version >= FETCH_TOPIC_IDS
    if by_id:
        if not isinstance(topic, bytes) or len(topic) != _UUID_SIZE:
            raise TypeError(f"fetch v{version} names topics by their 16-byte id")
        return topic
    if not isinstance(topic, str):
        raise TypeError(f"fetch v{version} names topics by name")
    return string(topic, compact=version >= FETCH_FLEXIBLE)


def _request_partition(version: int, wanted: FetchPartition) -> bytes:
    _, partition, offset, max_bytes, leader_epoch, last_epoch = wanted
    if version >= FETCH_FLEXIBLE:
        return _ASKED_V12.pack(partition, leader_epoch, offset, last_epoch, -1, max_bytes, 0)
    if version >= 9:
        return struct.pack(">iiqqi", partition, leader_epoch, offset, -1, max_bytes)
    if version >= 5:
        return struct.pack(">iqqi", partition, offset, -1, max_bytes)
    return struct.pack(">iqi", partition, offset, max_bytes)


def read_fetch_response(version: int, frame: memoryview) -> FetchResponse:
    """Reads the whole response frame (behind its size). The records stay where they are.

    Raises:
        MalformedFrame: the frame does not follow the schema, or a partition's records reach past the frame's end.
    """
    compact = version >= FETCH_FLEXIBLE
    at = after_response_header(frame, flexible=compact)
    throttle_ms, at = read_i32(frame, at)
    error = session_id = 0
    if version >= 7:
        span, at = read_span(frame, at, 6)
        error, session_id = _ERROR_SESSION.unpack(span)
    response = FetchResponse(throttle_ms=throttle_ms, error=error, session_id=session_id)
    topics, at = read_array_size(frame, at, compact=compact)
    for _ in range(topics):
        topic, at = read_topic(frame, at, by_id=version >= FETCH_TOPIC_IDS, compact=compact)
        count, at = read_array_size(frame, at, compact=compact)
        for _ in range(count):
            plain = _read_plain(frame, at, topic) if compact else None
            fetched, at = plain or _read_partition(frame, at, version, topic)
            response.partitions.append(fetched)
        if compact:
            _, at = read_tags(frame, at)
    if compact:
        tags, at = read_tags(frame, at)
        if version >= 16 and _NODES_TAG in tags:
            response.nodes = read_nodes(tags[_NODES_TAG])
    if at != len(frame):
        raise MalformedFrame(f"{len(frame) - at} bytes behind the fetch response at byte {at}")
    return response


def read_topic(frame: memoryview, at: int, *, by_id: bool, compact: bool) -> tuple[TopicKey, int]:
    """Reads a topic of a response: its 16-byte id (KIP-516), or its name."""
    if by_id:
        span, at = read_span(frame, at, _UUID_SIZE)
        return bytes(span), at
    topic, after = read_string(frame, at, compact=compact)
    if topic is None:
        raise MalformedFrame(f"null topic name at byte {at}")
    return topic, after


_ISOLATION_LEVEL = 4
_FIXED_V3 = struct.Struct(">ihq")
_FIXED_V4 = struct.Struct(">ihqq")
_FIXED_V5 = struct.Struct(">ihqqq")


_PLAIN_V12 = struct.Struct(">ihqqqBiBBB")
"""From v12: the fixed fields, a one-byte count of aborted transactions, the preferred replica, and as much of the
records' size as most answers need."""


def _read_plain(frame: memoryview, at: int, topic: TopicKey) -> tuple[Fetched, int] | None:
    """Reads a partition of v12+ with no aborted transactions, up to 2 MiB of records and no tags: one unpack instead of
    ten reads. Returns None if the partition is of another kind, or the frame ends first: ``_read_partition`` reads it
    then."""
    if at + _PLAIN_V12.size > len(frame):
        return None
    fields = _PLAIN_V12.unpack_from(frame, at)
    partition, error, high_watermark, last_stable, log_start, aborted, preferred, low, mid, high = fields
    start = at + _PLAIN_V12.size - 2
    size = low - 1
    if low > 0x7F:
        size += (mid - 1) << 7
        start += 1
        if mid > 0x7F:
            size += (high - 1) << 14
            start += 1
            if high > 0x7F:
                return None
    end = start + max(size, 0)
    if aborted > 1 or end >= len(frame) or frame[end]:
        return None
    fetched = Fetched(
        topic, partition, error, high_watermark, last_stable, log_start, [], None, None, preferred, start, end
    )
    return fetched, end + 1


def _read_partition_v3(frame: memoryview, at: int, topic: TopicKey) -> tuple[Fetched, int]:
    """Reads a partition of v3. Without transactions, everything below the high watermark is stable."""
    if at + _FIXED_V3.size > len(frame):
        cut_short(at, _FIXED_V3.size, len(frame))
    partition, error, end = _FIXED_V3.unpack_from(frame, at)
    size, start = read_size(frame, at + _FIXED_V3.size, compact=False)
    stop = start + max(size, 0)
    if stop > len(frame):
        raise MalformedFrame(f"{size} bytes of records at byte {start}, and the frame has {len(frame)}")
    return Fetched(topic, partition, error, end, end, -1, [], None, None, NO_REPLICA, start, stop), stop


def _read_partition(frame: memoryview, at: int, version: int, topic: TopicKey) -> tuple[Fetched, int]:
    compact = version >= FETCH_FLEXIBLE
    if version < _ISOLATION_LEVEL:
        return _read_partition_v3(frame, at, topic)
    fixed = _FIXED_V5 if version >= 5 else _FIXED_V4
    if at + fixed.size > len(frame):
        cut_short(at, fixed.size, len(frame))
    partition, error, high_watermark, last_stable, *rest = fixed.unpack_from(frame, at)
    log_start = rest[0] if rest else -1
    aborted, at = _read_aborted(frame, at + fixed.size, compact=compact)
    preferred = NO_REPLICA
    if version >= 11:
        preferred, at = read_i32(frame, at)
    size, at = read_size(frame, at, compact=compact)
    start = at
    end = at = start + max(size, 0)
    diverging = leader = None
    if compact:
        tags, at = read_tags(frame, at)
        if tags:
            diverging, leader = _read_divergence(tags)
    fetched = Fetched(
        topic,
        partition,
        error,
        high_watermark,
        last_stable,
        log_start,
        aborted,
        diverging,
        leader,
        preferred,
        start,
        end,
    )
    return fetched, at


def _read_aborted(frame: memoryview, at: int, *, compact: bool) -> tuple[list[tuple[int, int]], int]:
    count, at = read_size(frame, at, compact=compact)
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        span, at = read_span(frame, at, _ABORTED.size)
        aborted.append(_ABORTED.unpack(span))
        if compact:
            _, at = read_tags(frame, at)
    return aborted, at


def _read_divergence(tags: dict[int, memoryview]) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    diverging = leader = None
    if _DIVERGING_TAG in tags:
        span, _ = read_span(tags[_DIVERGING_TAG], 0, _EPOCH_OFFSET.size)
        epoch, end_offset = _EPOCH_OFFSET.unpack(span)
        if epoch >= 0 or end_offset >= 0:
            diverging = (epoch, end_offset)
    if _LEADER_TAG in tags:
        leader = read_leader(tags[_LEADER_TAG])
    return diverging, leader


def read_leader(span: memoryview) -> tuple[int, int] | None:
    """Reads LeaderIdAndEpoch (KIP-951). Returns (node id, epoch), or None if the broker does not know the leader."""
    fields, _ = read_span(span, 0, _LEADER.size)
    node_id, epoch = _LEADER.unpack(fields)
    return (node_id, epoch) if node_id >= 0 else None


def read_nodes(span: memoryview) -> list[Node]:
    """Reads NodeEndpoints (KIP-951): the addresses of the leaders that the response names."""
    count, at = read_array_size(span, 0, compact=True)
    nodes: list[Node] = []
    for _ in range(count):
        node_id, at = read_i32(span, at)
        host, at = read_string(span, at, compact=True)
        port, at = read_i32(span, at)
        _rack, at = read_string(span, at, compact=True)
        _, at = read_tags(span, at)
        nodes.append(Node(node_id, host or "", port))
    return nodes
