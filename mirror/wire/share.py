"""The start offsets of share groups (KIP-932): DescribeShareGroupOffsets, versions 0 and 1, and
AlterShareGroupOffsets, version 0. kafka-python has neither.

Sources: DescribeShareGroupOffsetsRequest.json, AlterShareGroupOffsetsRequest.json and their responses, of Apache Kafka;
KIP-1226 (the lag).
"""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mirror.wire.header import after_response_header
from mirror.wire.primitives import (
    NO_TAGS,
    array_size,
    read_array_size,
    read_i16,
    read_i32,
    read_span,
    read_string,
    read_tags,
    string,
)

DESCRIBE_VERSIONS, ALTER_VERSIONS = (0, 1), (0, 0)
_LAG_SINCE = 1
_UUID_SIZE = 16
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_EVERY_TOPIC = array_size(-1, compact=True)

Key = tuple[str, int]


class ShareStart(NamedTuple):
    """A partition's start offset for a group. ``offset``: -1 if it is not set yet. ``lag``: number of records that the
    group has not finished with; -1: not known."""

    offset: int
    lag: int


class ShareOffsets(NamedTuple):
    """One group of the answer: its error code and message, and its partitions. Partitions with an error are left
    out."""

    group: str
    error: int
    message: str | None
    starts: dict[Key, ShareStart]


def describe_request(groups: Sequence[str]) -> bytes:
    """Returns the body of a request for all partitions of these groups."""
    rows = [string(group, compact=True) + _EVERY_TOPIC + NO_TAGS for group in groups]
    return array_size(len(rows), compact=True) + b"".join(rows) + NO_TAGS


def read_described(version: int, frame: memoryview) -> list[ShareOffsets]:
    """Reads the response frame, header included (without its size).

    Raises:
        MalformedFrame: it does not follow the protocol.
    """
    at = after_response_header(frame, flexible=True)
    _, at = read_i32(frame, at)  # throttle time
    count, at = read_array_size(frame, at, compact=True)
    found = []
    for _ in range(count):
        group, at = read_string(frame, at, compact=True)
        starts: dict[Key, ShareStart] = {}
        topics, at = read_array_size(frame, at, compact=True)
        for _ in range(topics):
            name, at = read_string(frame, at, compact=True)
            _, at = read_span(frame, at, _UUID_SIZE)
            partitions, at = read_array_size(frame, at, compact=True)
            for _ in range(partitions):
                index, at = read_i32(frame, at)
                start, at = _i64(frame, at)
                _, at = read_i32(frame, at)  # leader epoch
                lag, at = _i64(frame, at) if version >= _LAG_SINCE else (-1, at)
                error, _, at = _error(frame, at)
                _, at = read_tags(frame, at)
                if not error:
                    starts[name or "", index] = ShareStart(start, lag)
            _, at = read_tags(frame, at)
        error, message, at = _error(frame, at)
        _, at = read_tags(frame, at)
        found.append(ShareOffsets(group or "", error, message, starts))
    read_tags(frame, at)
    return found


def alter_request(group: str, starts: Mapping[Key, int]) -> bytes:
    """Returns the body of a request that sets the group's start offsets. ``starts``: (topic, partition) -> offset."""
    topics: dict[str, list[bytes]] = {}
    for (topic, partition), offset in sorted(starts.items()):
        topics.setdefault(topic, []).append(_I32.pack(partition) + _I64.pack(offset) + NO_TAGS)
    rows = [
        string(topic, compact=True) + array_size(len(rows), compact=True) + b"".join(rows) + NO_TAGS
        for topic, rows in topics.items()
    ]
    return string(group, compact=True) + array_size(len(rows), compact=True) + b"".join(rows) + NO_TAGS


def read_altered(frame: memoryview) -> tuple[int, str | None, dict[Key, int]]:
    """Reads the response frame, header included (without its size). Returns the group's error code and message, and
    (topic, partition) -> error code.

    Raises:
        MalformedFrame: it does not follow the protocol.
    """
    at = after_response_header(frame, flexible=True)
    _, at = read_i32(frame, at)  # throttle time
    error, message, at = _error(frame, at)
    codes: dict[Key, int] = {}
    topics, at = read_array_size(frame, at, compact=True)
    for _ in range(topics):
        name, at = read_string(frame, at, compact=True)
        _, at = read_span(frame, at, _UUID_SIZE)
        partitions, at = read_array_size(frame, at, compact=True)
        for _ in range(partitions):
            index, at = read_i32(frame, at)
            codes[name or "", index], _, at = _error(frame, at)
            _, at = read_tags(frame, at)
        _, at = read_tags(frame, at)
    read_tags(frame, at)
    return error, message, codes


def _error(frame: memoryview, at: int) -> tuple[int, str | None, int]:
    code, at = read_i16(frame, at)
    message, at = read_string(frame, at, compact=True)
    return code, message, at


def _i64(frame: memoryview, at: int) -> tuple[int, int]:
    span, at = read_span(frame, at, _I64.size)
    return _I64.unpack(span)[0], at
