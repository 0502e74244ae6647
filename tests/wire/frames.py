"""Frames from a codec that is not ours (kafka-python's schemas), and the ways in which tests spoil them."""

import sys
import tracemalloc
import uuid
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from mirror.wire.fetch import TopicKey
from mirror.wire.versions import FETCH_TOPIC_IDS, FETCH_VERSIONS, PRODUCE_TOPIC_IDS, PRODUCE_VERSIONS

FETCH_RANGE = range(FETCH_VERSIONS[0], FETCH_VERSIONS[1] + 1)
PRODUCE_RANGE = range(PRODUCE_VERSIONS[0], PRODUCE_VERSIONS[1] + 1)

I16 = st.integers(-(1 << 15), (1 << 15) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["t" * 126, "t" * 127, "ü" * 100]
)
TOPIC_IDS = st.binary(min_size=16, max_size=16)

Values = dict[str, Any]
"""The fields of a message by the names that the schemas give them, in ``snake_case``."""


@cache
def topic_keys(version: int, by_id_from: int) -> st.SearchStrategy[TopicKey]:
    """How this version names a topic."""
    return TOPIC_IDS if version >= by_id_from else TEXT


def _named(key: TopicKey, *, name: str) -> Values:
    return {name: key} if isinstance(key, str) else {"topic_id": uuid.UUID(bytes=key)}


# Fetch.


@cache
def fetch_partitions(version: int) -> st.SearchStrategy[Values]:
    """One partition of a response. Fields that the version lacks are left out."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        "partition_index": I32,
        "error_code": I16,
        "high_watermark": I64,
        "records": st.none() | st.binary(max_size=40) | st.sampled_from([bytes(126), bytes(127), bytes(16_384)]),
    }
    if version >= 4:
        fields["last_stable_offset"] = I64
        fields["aborted_transactions"] = st.none() | st.lists(st.tuples(I64, I64), max_size=3)
    if version >= 5:
        fields["log_start_offset"] = I64
    if version >= 11:
        fields["preferred_read_replica"] = I32
    if version >= 12:
        fields["diverging_epoch"] = st.none() | st.tuples(I32, I64)
        fields["current_leader"] = st.none() | st.tuples(I32, I32)
        fields["snapshot_id"] = st.none() | st.tuples(I64, I32)
    return st.fixed_dictionaries(fields)


@cache
def fetch_responses(version: int) -> st.SearchStrategy[Values]:
    """A response of several topics and partitions."""
    topics = st.tuples(topic_keys(version, FETCH_TOPIC_IDS), st.lists(fetch_partitions(version), max_size=3))
    fields: dict[str, st.SearchStrategy[Any]] = {"throttle_time_ms": I32, "responses": st.lists(topics, max_size=3)}
    if version >= 7:
        fields["error_code"] = I16
        fields["session_id"] = I32
    if version >= 16:
        fields["node_endpoints"] = _nodes()
    return st.fixed_dictionaries(fields)


@cache
def _nodes() -> st.SearchStrategy[list[tuple[int, str, int, str | None]]]:
    return st.lists(st.tuples(I32, TEXT, I32, st.none() | TEXT), max_size=3)


def fetch_frame(version: int, values: Values, correlation_id: int = 7) -> memoryview:
    """The response as kafka-python encodes it."""
    topic_class = FetchResponse.FetchableTopicResponse
    partition_class = topic_class.PartitionData

    def partition(fields: Values) -> Any:
        fields = dict(fields)
        aborted = fields.get("aborted_transactions")
        if aborted is not None:
            one = partition_class.AbortedTransaction
            fields["aborted_transactions"] = [one(producer_id=number, first_offset=first) for number, first in aborted]
        if fields.get("diverging_epoch"):
            epoch, end = fields["diverging_epoch"]
            fields["diverging_epoch"] = partition_class.EpochEndOffset(epoch=epoch, end_offset=end)
        if fields.get("current_leader"):
            leader, epoch = fields["current_leader"]
            fields["current_leader"] = partition_class.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        if fields.get("snapshot_id"):
            end, epoch = fields["snapshot_id"]
            fields["snapshot_id"] = partition_class.SnapshotId(end_offset=end, epoch=epoch)
        return partition_class(**fields)

    fields = {
        **values,
        "responses": [
            topic_class(partitions=[partition(one) for one in partitions], **_named(key, name="topic"))
            for key, partitions in values["responses"]
        ],
    }
    return _encoded(FetchResponse[version], fields, correlation_id)


def fetch_request(version: int, **fields: Any) -> bytes:
    """The request as kafka-python encodes it.

    Args:
        version: of the API.
        fields: those of the request, but ``topics``: (key, [partition fields]) pairs, ``session``: (id, epoch), and
            ``forgotten``: (key, [partitions]) pairs.
    """
    topic_class = FetchRequest.FetchTopic
    topics = [
        topic_class(partitions=[topic_class.FetchPartition(**one) for one in partitions], **_named(key, name="topic"))
        for key, partitions in fields.pop("topics")
    ]
    forgotten = [
        FetchRequest.ForgottenTopic(partitions=partitions, **_named(key, name="topic"))
        for key, partitions in fields.pop("forgotten")
    ]
    session_id, session_epoch = fields.pop("session")
    request = FetchRequest[version](
        topics=topics, forgotten_topics_data=forgotten, session_id=session_id, session_epoch=session_epoch, **fields
    )
    return bytes(request.encode())


# Produce.


@cache
def produce_partitions(version: int) -> st.SearchStrategy[Values]:
    """One partition of a response, plain more often than chance would have it."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        "index": I32,
        "error_code": st.just(0) | I16,
        "base_offset": I64,
        "log_append_time_ms": st.just(-1) | I64,
    }
    if version >= 5:
        fields["log_start_offset"] = I64
    if version >= 8:
        fields["record_errors"] = st.just([]) | st.lists(st.tuples(I32, st.none() | TEXT), max_size=3)
        fields["error_message"] = st.none() | TEXT
    if version >= 10:
        fields["current_leader"] = st.none() | st.tuples(I32, I32)
    return st.fixed_dictionaries(fields)


@cache
def plain_produce_partitions(version: int) -> st.SearchStrategy[Values]:
    """One partition of a response without errors."""
    plain: Values = {"error_code": 0, "log_append_time_ms": -1}
    if version >= 8:
        plain |= {"record_errors": [], "error_message": None}
    if version >= 10:
        plain |= {"current_leader": None}
    return produce_partitions(version).map(lambda fields: {**fields, **plain})


@cache
def produce_responses(version: int, *, plain: bool = False) -> st.SearchStrategy[Values]:
    """A response of several topics and partitions; ``plain``: nothing failed or throttled, and times were kept."""
    partitions = plain_produce_partitions(version) if plain else produce_partitions(version)
    topics = st.tuples(topic_keys(version, PRODUCE_TOPIC_IDS), st.lists(partitions, max_size=3))
    fields: dict[str, st.SearchStrategy[Any]] = {
        "throttle_time_ms": st.just(0) if plain else st.just(0) | I32,
        "responses": st.lists(topics, max_size=3),
    }
    if version >= 10:
        fields["node_endpoints"] = st.just([]) if plain else _nodes()
    return st.fixed_dictionaries(fields)


def produce_frame(version: int, values: Values, correlation_id: int = 7) -> memoryview:
    """The response as kafka-python encodes it."""
    topic_class = ProduceResponse.TopicProduceResponse
    partition_class = topic_class.PartitionProduceResponse

    def partition(fields: Values) -> Any:
        fields = dict(fields)
        if "record_errors" in fields:
            fields["record_errors"] = [
                partition_class.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                for index, message in fields["record_errors"]
            ]
        if fields.get("current_leader"):
            leader, epoch = fields["current_leader"]
            fields["current_leader"] = partition_class.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return partition_class(**fields)

    fields = {
        **values,
        "responses": [
            topic_class(partition_responses=[partition(one) for one in partitions], **_named(key, name="name"))
            for key, partitions in values["responses"]
        ],
    }
    return _encoded(ProduceResponse[version], fields, correlation_id)


def produce_request(version: int, topics: list[tuple[TopicKey, list[tuple[int, bytes]]]], *, timeout_ms: int) -> bytes:
    """The request as kafka-python encodes it."""
    topic_class = ProduceRequest.TopicProduceData
    data = [
        topic_class(
            partition_data=[
                topic_class.PartitionProduceData(index=index, records=records) for index, records in batches
            ],
            **_named(key, name="name"),
        )
        for key, batches in topics
    ]
    request = ProduceRequest[version](transactional_id=None, acks=-1, timeout_ms=timeout_ms, topic_data=data)
    return bytes(request.encode())


def _encoded(response_class: Any, fields: Values, correlation_id: int) -> memoryview:
    if "node_endpoints" in fields:
        one = response_class.NodeEndpoint
        fields["node_endpoints"] = [
            one(node_id=node, host=host, port=port, rack=rack) for node, host, port, rack in fields["node_endpoints"]
        ]
    response = response_class(**fields)
    response.with_header(correlation_id)
    return memoryview(bytes(response.encode(header=True)))


# Spoiling.

ABSURD = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80",
    b"\x00",
    b"\x40",
)
"""Counts and lengths that are negative, null or far too large, as fixed integers and as varints."""


LARGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x40")
"""Those that could make a reader loop or allocate."""


def absurdities(frame: memoryview, patches: tuple[bytes, ...] = ABSURD) -> list[memoryview]:
    """The frame with each of them at each byte."""
    return [
        memoryview((bytes(frame[:at]) + patch + bytes(frame[at + len(patch) :]))[: len(frame)])
        for at in range(len(frame))
        for patch in patches
    ]


def mutations(frame: memoryview) -> st.SearchStrategy[memoryview]:
    """The frame with a few bytes replaced, put in or taken out."""
    edits = st.lists(
        st.tuples(st.integers(0, len(frame)), st.integers(0, 6), st.binary(max_size=6)), min_size=1, max_size=4
    )

    def edited(all_edits: list[tuple[int, int, bytes]]) -> memoryview:
        spoilt = bytearray(frame)
        for at, removed, put in all_edits:
            spoilt[at : at + removed] = put
        return memoryview(bytes(spoilt))

    return edits.map(edited)


def calls_of(read: Callable[[], object]) -> int:
    """Python and C calls of a reading: what shows a loop by a false count."""
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        read()
    finally:
        sys.setprofile(None)
    return calls


def peak_of(read: Callable[[], object]) -> int:
    """Most bytes allocated at once by a reading: what shows an allocation by a false count."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
