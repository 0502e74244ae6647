"""Produce, versions 3 to 13: writes a request as a list of buffers, and reads the response in place.

A broker accepts exactly one batch per partition in a request. If a request names a partition twice, it silently keeps
only the last batch. So the caller (``mirror.relay``) packs each partition once.

Sources: ProduceRequest.json and ProduceResponse.json of Apache Kafka; KIP-98, KIP-467 (record errors), KIP-516 (topic
ids), KIP-951 (new leader in the answer).
"""

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from mirror.records.header import (
    CRC_AT,
    HEADER_SIZE,
    MAGIC,
    MAX_TIMESTAMP_AT,
    NO_LEADER_EPOCH,
    PREFIX_SIZE,
    BatchHeader,
)
from mirror.wire.fetch import Node, TopicKey, read_leader, read_nodes, read_topic
from mirror.wire.header import SIZE, after_response_header, header_end
from mirror.wire.primitives import (
    NO_TAGS,
    MalformedFrame,
    array_size,
    cut_short,
    read_array_size,
    read_i32,
    read_span,
    read_string,
    read_tags,
    string,
    uvarint,
)
from mirror.wire.versions import PRODUCE_FLEXIBLE, PRODUCE_TOPIC_IDS

ACKS_ALL = -1
_UUID_SIZE = 16
_HEAD_FIELDS = "Ihiqqqhii"
_FIXED_FIELDS = struct.Struct(">qiib")
"""base_offset 0 (the broker assigns it and refuses any other), length, no leader epoch, magic 2."""
_CRC = struct.Struct(">I")
_TIME = struct.Struct(">q")
HeadPacker = Callable[..., bytes]
"""(partition index, prefix, crc, attributes, last offset delta, base and max timestamp, producer id, producer epoch,
base sequence, record count) -> everything in front of a batch's records in the request."""


class Head(NamedTuple):
    """Writes the head of a batch of one size: partition index, record set size and batch header in one pack.

    ``prefix`` has everything that depends on the size alone: the record set's size and the header up to the magic.
    """

    pack: HeadPacker
    prefix: bytes


def head_for(version: int, length: int) -> Head:
    """Returns the head for batches with this ``length`` field (whole batch less 12). Worth caching per length."""
    size = PREFIX_SIZE + length
    size_field = uvarint(size + 1) if version >= PRODUCE_FLEXIBLE else struct.pack(">i", size)
    prefix = size_field + _FIXED_FIELDS.pack(0, length, NO_LEADER_EPOCH, MAGIC)
    return Head(_packer(len(prefix)), prefix)


@functools.cache
def _packer(prefix_size: int) -> HeadPacker:
    return struct.Struct(f">i{prefix_size}s{_HEAD_FIELDS}").pack


def pack_head(head: Head, partition: int, header: BatchHeader) -> bytes:
    """Returns the packed head of one batch. The header's length must be the one that ``head`` was made for."""
    return head.pack(
        partition,
        head.prefix,
        header.crc,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def checksum_of(head: bytes) -> int:
    """Returns the batch's checksum from its packed head, of which the last 61 bytes are the batch's header."""
    return int(_CRC.unpack_from(head, len(head) - HEADER_SIZE + CRC_AT)[0])


def max_timestamp_of(head: bytes) -> int:
    """Returns the timestamp of the batch's newest record (ms since 1970) from its packed head."""
    return int(_TIME.unpack_from(head, len(head) - HEADER_SIZE + MAX_TIMESTAMP_AT)[0])


def topic_head(version: int, topic: TopicKey) -> bytes:
    """Returns a topic's name or id as a request carries it. Worth caching per topic."""
    if version >= PRODUCE_TOPIC_IDS:
        if not isinstance(topic, bytes) or len(topic) != _UUID_SIZE:
            raise TypeError(f"produce v{version} names topics by their 16-byte id")
        return topic
    if not isinstance(topic, str):
        raise TypeError(f"produce v{version} names topics by name")
    return string(topic, compact=version >= PRODUCE_FLEXIBLE)


def after_batch(version: int) -> bytes:
    """Returns the bytes behind each batch in a request."""
    return NO_TAGS if version >= PRODUCE_FLEXIBLE else b""


def request_head(version: int, *, timeout_ms: int, acks: int = ACKS_ALL) -> bytes:
    """Returns the body up to the array of topics: no transactional id, acks, timeout. The same for every request."""
    return string(None, compact=version >= PRODUCE_FLEXIBLE) + struct.pack(">hi", acks, timeout_ms)


class Framing(NamedTuple):
    """The bytes around the batches, the same in all requests of a connection.

    Attributes:
        version: the version of Produce.
        start: bytes between the correlation id and the number of topics.
        between: bytes behind each batch.
        after_topic: bytes behind the batches of each topic, and behind all topics.
        compact: True if a count is written as the varint of count + 1.
    """

    version: int
    start: bytes
    between: bytes
    after_topic: bytes
    compact: bool


@functools.lru_cache(maxsize=64)
def framing(version: int, client_id: str, timeout_ms: int) -> Framing:
    """Returns the framing for connections with this client id. ``timeout_ms``: how long a broker waits for its
    replicas."""
    flexible = version >= PRODUCE_FLEXIBLE
    start = header_end(client_id, flexible=flexible) + request_head(version, timeout_ms=timeout_ms)
    return Framing(version, start, after_batch(version), NO_TAGS if flexible else b"", flexible)


def topics_size(version: int, count: int) -> bytes:
    """Returns the count in front of the topics, or of one topic's partitions."""
    return array_size(count, compact=version >= PRODUCE_FLEXIBLE)


class Produced(NamedTuple):
    """The answer for one partition. ``base_offset`` is valid only if ``error`` is 0; with an error, it is not -1 if the
    leader had appended the batch. ``log_append_time``: ms since 1970, or -1. ``leader``: (node id, epoch) of the
    current leader, if the broker names one (KIP-951)."""

    topic: TopicKey
    partition: int
    error: int
    base_offset: int
    log_append_time: int
    log_start_offset: int
    message: str | None
    leader: tuple[int, int] | None


@dataclass(slots=True, kw_only=True)
class ProduceResponse:
    """A whole response. ``throttle_ms``: the time for which the broker mutes this connection."""

    throttle_ms: int
    partitions: list[Produced] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


_FIXED_V3 = struct.Struct(">ihqq")
_FIXED_V5 = struct.Struct(">ihqqq")
_LEADER_TAG = 0
_NODES_TAG = 0


class PlainAnswer(NamedTuple):
    """The unread bytes of an answer in which nothing failed. ``base_offsets`` reads them."""

    row_size: int
    """Bytes of one partition's answer: index (4), error (2), base offset (8), and others."""
    topics: list[tuple[bytes, bytes]]
    """(``topic_head``, the rows of its partitions) of each topic."""


class _Clean(NamedTuple):
    """The layout of one partition in an answer without errors: its size in bytes, and the bytes that prove that it is
    plain."""

    size: int
    constants: tuple[tuple[int, int], ...]
    """(position in the row, the value that this byte must have)"""


LEAST_PLAIN = 5
MOST_EXPECTED = 128
"""Most partitions of an answer that ``expected`` predicts as a whole. A prediction takes about 70 bytes per partition,
and is cached."""
_PLAIN = ((4, 0), (5, 0), (14, 0xFF))
"""No error, and an append time of -1: the broker kept the batch's timestamps. The first byte of a time would be 0."""
_CLEAN_V5 = _Clean(30, _PLAIN)
_CLEAN_V8 = _Clean(36, (*_PLAIN, (30, 0), (31, 0), (32, 0), (33, 0), (34, 0xFF), (35, 0xFF)))
_CLEAN_V9 = _Clean(33, (*_PLAIN, (30, 1), (31, 0), (32, 0)))


def _clean(version: int) -> _Clean:
    return _CLEAN_V9 if version >= PRODUCE_FLEXIBLE else _CLEAN_V8 if version >= 8 else _CLEAN_V5


class Expected(NamedTuple):
    """The plain answer to a request for one topic, except for the bytes that cannot be known, such as base offsets.

    Attributes:
        topic: the topic's ``topic_head``.
        partitions: number of partitions in the request.
        row_size: bytes of one partition's answer.
        rows_at: position of the first partition's answer.
        mask: as many bytes as the answer has: 0xFF for those that are known, 0 for those that may have any value.
        plain: the known bytes; 0 for the others.
    """

    topic: bytes
    partitions: int
    row_size: int
    rows_at: int
    mask: bytes
    plain: bytes


@functools.lru_cache(maxsize=512)
def expected(version: int, topic: bytes, partitions: int) -> Expected | None:
    """Returns the plain answer to a request with this many partitions of the topic with this ``topic_head``. None for
    versions before 5, and for more partitions than are worth caching."""
    if version < LEAST_PLAIN or partitions > MOST_EXPECTED:
        return None
    flexible = version >= PRODUCE_FLEXIBLE
    row = _clean(version)
    begins = (NO_TAGS if flexible else b"") + topics_size(version, 1) + topic + topics_size(version, partitions)
    first = SIZE.size + len(begins)
    last = first + partitions * row.size
    mask = bytearray(last + (len(NO_TAGS) if flexible else 0) + _end_size(flexible=flexible))
    plain = bytearray(len(mask))
    mask[SIZE.size : first], plain[SIZE.size : first] = b"\xff" * len(begins), begins
    for start in range(first, last, row.size):
        for position, value in row.constants:
            mask[start + position], plain[start + position] = 0xFF, value
    mask[last:] = b"\xff" * (len(mask) - last)
    return Expected(topic, partitions, row.size, first, bytes(mask), bytes(plain))


def as_expected(frame: memoryview, likely: Expected) -> PlainAnswer | None:
    """Returns the answer if it is the expected one, otherwise None."""
    topic, partitions, row_size, rows_at, mask, plain = likely
    number = int.from_bytes(frame, "big")
    if len(frame) != len(mask) or number & int.from_bytes(mask, "big") != int.from_bytes(plain, "big"):
        return None
    return PlainAnswer(row_size, [(topic, bytes(frame[rows_at : rows_at + partitions * row_size]))])


def plain_answer(version: int, frame: memoryview) -> PlainAnswer | None:
    """Returns the answer if nothing failed, otherwise None.

    It takes a few C calls per topic instead of several calls per partition: with requests for several topics, this is
    on the path of every batch. It returns None if anything is not plain (an error, a message, a throttle, a tag, a
    frame that does not add up, a version before 5): ``read_produce_response`` reads it then.
    """
    if version < LEAST_PLAIN:
        return None
    plain = _clean(version)
    flexible = version >= PRODUCE_FLEXIBLE
    answer = PlainAnswer(plain.size, [])
    try:
        at = after_response_header(frame, flexible=flexible)
        topics, at = read_array_size(frame, at, compact=flexible)
        for _ in range(topics):
            start = at
            _, at = read_topic(frame, at, by_id=version >= PRODUCE_TOPIC_IDS, compact=flexible)
            key = bytes(frame[start:at])
            count, at = read_array_size(frame, at, compact=flexible)
            rows, at = _clean_rows(plain, frame, at, count)
            if rows is None:
                return None
            answer.topics.append((key, rows))
            if flexible:
                no_tags, at = read_span(frame, at, 1)
                if no_tags[0]:
                    return None
    except MalformedFrame:
        return None
    return answer if _ends_plainly(frame, at, flexible=flexible) else None


def base_offsets(answer: PlainAnswer) -> list[tuple[bytes, list[tuple[int, int]]]]:
    """Returns (``topic_head``, [(partition, base offset), …]) of each topic."""
    row = _row(answer.row_size)
    return [(topic, list(row.iter_unpack(rows))) for topic, rows in answer.topics]


@functools.cache
def _row(size: int) -> struct.Struct:
    fixed = struct.Struct(">i2xq")
    return struct.Struct(f"{fixed.format}{size - fixed.size}x")


def _clean_rows(plain: _Clean, frame: memoryview, at: int, count: int) -> tuple[bytes | None, int]:
    """Returns the bytes of ``count`` partitions from byte ``at`` (None if one of them is not plain), and the next
    position."""
    stop = at + count * plain.size
    if stop > len(frame):
        return None, at
    rows = bytes(frame[at:stop])  # strided slices of bytes are fast, those of a memoryview are slow
    for position, value in plain.constants:
        if rows[position :: plain.size].count(value) != count:
            return None, at
    return rows, stop


def _ends_plainly(frame: memoryview, at: int, *, flexible: bool) -> bool:
    """Returns True if only the throttle time is left (and in flexible versions the tags), all zero."""
    rest = frame[at:]
    return len(rest) == _end_size(flexible=flexible) and not any(rest)


def _end_size(*, flexible: bool) -> int:
    """Returns the bytes of the throttle time and of empty tags."""
    return 5 if flexible else 4


def read_produce_response(version: int, frame: memoryview) -> ProduceResponse:
    """Reads the whole response frame (behind its size).

    Raises:
        MalformedFrame: the frame does not follow the schema.
    """
    flexible = version >= PRODUCE_FLEXIBLE
    at = after_response_header(frame, flexible=flexible)
    response = ProduceResponse(throttle_ms=0)
    topics, at = read_array_size(frame, at, compact=flexible)
    for _ in range(topics):
        topic, at = read_topic(frame, at, by_id=version >= PRODUCE_TOPIC_IDS, compact=flexible)
        count, at = read_array_size(frame, at, compact=flexible)
        for _ in range(count):
            produced, at = _read_partition(frame, at, version, topic)
            response.partitions.append(produced)
        if flexible:
            _, at = read_tags(frame, at)
    response.throttle_ms, at = read_i32(frame, at)
    if flexible:
        tags, at = read_tags(frame, at)
        if version >= 10 and _NODES_TAG in tags:
            response.nodes = read_nodes(tags[_NODES_TAG])
    if at != len(frame):
        raise MalformedFrame(f"{len(frame) - at} bytes behind the produce response at byte {at}")
    return response


def _read_partition(frame: memoryview, at: int, version: int, topic: TopicKey) -> tuple[Produced, int]:
    flexible = version >= PRODUCE_FLEXIBLE
    fixed = _FIXED_V5 if version >= 5 else _FIXED_V3
    if at + fixed.size > len(frame):
        cut_short(at, fixed.size, len(frame))
    partition, error, base_offset, append_time, *rest = fixed.unpack_from(frame, at)
    at += fixed.size
    message = leader = None
    if version >= 8:
        message, at = _read_errors(frame, at, compact=flexible)
    if flexible:
        tags, at = read_tags(frame, at)
        if version >= 10 and _LEADER_TAG in tags:
            leader = read_leader(tags[_LEADER_TAG])
    produced = Produced(
        topic,
        partition,
        error,
        base_offset,
        append_time,
        rest[0] if rest else -1,
        message,
        leader,
    )
    return produced, at


def least_answer(version: int, partitions: int) -> int:
    """Returns the least size in bytes of any answer to a request with this many partitions."""
    fixed = _FIXED_V5 if version >= 5 else _FIXED_V3
    return partitions * fixed.size


def _read_errors(frame: memoryview, at: int, *, compact: bool) -> tuple[str | None, int]:
    """Reads the record errors and the message (KIP-467). Returns the message, or else that of the first record."""
    count, at = read_array_size(frame, at, compact=compact)
    first: str | None = None
    for _ in range(count):
        _, at = read_i32(frame, at)
        text, at = read_string(frame, at, compact=compact)
        first = first or text
        if compact:
            _, at = read_tags(frame, at)
    message, at = read_string(frame, at, compact=compact)
    return message or first, at
