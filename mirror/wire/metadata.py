"""Reads the names of all topics from a Metadata response, versions 1 to 13, without the partitions.

A cluster may have tens of thousands of partitions, and Kafka has no request for topics without them. Building an object
for each, as kafka-python does, takes a quarter of a second for 10,000.

Sources: MetadataRequest.json and MetadataResponse.json of Apache Kafka.
"""

import struct

from mirror.wire.header import after_response_header
from mirror.wire.primitives import (
    NO_TAGS,
    MalformedFrame,
    array_size,
    read_array_size,
    read_i16,
    read_span,
    read_string,
    read_tags,
)

METADATA_VERSIONS = (1, 13)
METADATA_FLEXIBLE = 9
_NO = b"\0"
_TOPIC_AUTHORIZED_SINCE, _CLUSTER_AUTHORIZED = 8, range(8, 11)
_I32_SIZE, _UUID_SIZE = 4, 16
_BROKER_HEAD = struct.Struct(">i")
_ONE_BYTE = 0x80
"""A varint below this has one byte."""


def all_topics_request(version: int) -> bytes:
    """Returns the body of a request for all topics. Brokers create no topic for it."""
    flexible = version >= METADATA_FLEXIBLE
    body = array_size(-1, compact=flexible)
    if version >= 4:
        body += _NO  # allow_auto_topic_creation
    if version in _CLUSTER_AUTHORIZED:
        body += _NO
    if version >= _TOPIC_AUTHORIZED_SINCE:
        body += _NO
    return body + NO_TAGS if flexible else body


def read_topic_codes(version: int, frame: memoryview) -> dict[str, int]:
    """Reads the response frame, header included (without its size). Returns topic name -> error code.

    Raises:
        MalformedFrame: the frame does not follow the schema.
    """
    compact = version >= METADATA_FLEXIBLE
    at = after_response_header(frame, flexible=compact)
    if version >= 3:
        _, at = read_span(frame, at, _I32_SIZE)  # throttle_time_ms
    at = _behind_brokers(version, frame, at)
    if version >= 2:
        _, at = read_string(frame, at, compact=compact)  # cluster_id
    _, at = read_span(frame, at, _I32_SIZE)  # controller_id
    found: dict[str, int] = {}
    count, at = read_array_size(frame, at, compact=compact)
    for _ in range(count):
        code, at = read_i16(frame, at)
        name, at = read_string(frame, at, compact=compact)
        if version >= 10:
            _, at = read_span(frame, at, _UUID_SIZE)
        _, at = read_span(frame, at, 1)  # is_internal
        at = _behind_partitions(version, frame, at)
        if version >= _TOPIC_AUTHORIZED_SINCE:
            _, at = read_span(frame, at, _I32_SIZE)
        if compact:
            _, at = read_tags(frame, at)
        if name is not None:  # null: asked for by an id
            found[name] = code
    if version in _CLUSTER_AUTHORIZED:
        _, at = read_span(frame, at, _I32_SIZE)
    if version >= 13:
        _, at = read_i16(frame, at)
    if compact:
        _, at = read_tags(frame, at)
    if at != len(frame):
        raise MalformedFrame(f"{len(frame) - at} bytes behind the metadata response at byte {at}")
    return found


def _behind_brokers(version: int, frame: memoryview, at: int) -> int:
    compact = version >= METADATA_FLEXIBLE
    count, at = read_array_size(frame, at, compact=compact)
    for _ in range(count):
        _, at = read_span(frame, at, _BROKER_HEAD.size)
        _, at = read_string(frame, at, compact=compact)
        _, at = read_span(frame, at, _I32_SIZE)  # port
        _, at = read_string(frame, at, compact=compact)  # rack
        if compact:
            _, at = read_tags(frame, at)
    return at


def _behind_partitions(version: int, frame: memoryview, at: int) -> int:
    """Returns where a topic's partitions end. Positions past the frame's end are found by whatever is read next."""
    compact = version >= METADATA_FLEXIBLE
    head = 2 + 2 * _I32_SIZE + (_I32_SIZE if version >= 7 else 0)  # error code, index, leader, leader epoch
    lists = 3 if version >= 5 else 2  # replicas, those in sync, those offline
    count, at = read_array_size(frame, at, compact=compact)
    for _ in range(count):
        at += head
        for _ in range(lists):
            if compact and at < len(frame) and 0 < frame[at] < _ONE_BYTE:
                at += 1 + _I32_SIZE * (frame[at] - 1)
            else:
                size, at = read_array_size(frame, at, compact=compact)
                at += _I32_SIZE * size
        if compact:
            if at < len(frame) and not frame[at]:
                at += 1
            else:
                _, at = read_tags(frame, at)
    return at
