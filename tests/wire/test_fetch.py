"""``mirror.wire.fetch`` against kafka-python's schemas, in every version that we speak, and against spoilt frames."""

from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest

from mirror.wire.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Fetched,
    FetchPartition,
    FetchResponse,
    Node,
    TopicKey,
    fetch_request,
    read_fetch_response,
    read_leader,
    read_nodes,
)
from mirror.wire.primitives import MalformedFrame
from mirror.wire.versions import FETCH_TOPIC_IDS
from tests.wire import frames
from tests.wire.frames import FETCH_RANGE, I32, I64, LARGE, TEXT, Values, absurdities, calls_of, fetch_frame, peak_of

ID = bytes(range(16))


def key_for(version: int, name: str = "orders") -> TopicKey:
    return ID if version >= FETCH_TOPIC_IDS else name


def rich(version: int) -> Values:
    """A response that has every field the version knows, and two partitions in one of two topics."""
    full: Values = {
        "partition_index": 3,
        "error_code": 6,
        "high_watermark": 1_000,
        "records": bytes(range(10)),
    }
    if version >= 4:
        full |= {"last_stable_offset": 990, "aborted_transactions": [(11, 950), (12, 960)]}
    if version >= 5:
        full["log_start_offset"] = 10
    if version >= 11:
        full["preferred_read_replica"] = 2
    if version >= 12:
        full |= {"diverging_epoch": (4, 900), "current_leader": (1, 5), "snapshot_id": (7, 8)}
    empty = {**full, "partition_index": 4, "records": None, "error_code": 0}
    if version >= 4:
        empty["aborted_transactions"] = None
    response: Values = {
        "throttle_time_ms": 20,
        "responses": [(key_for(version), [full, empty]), (key_for(version, "payments"), [full])],
    }
    if version >= 7:
        response |= {"error_code": 0, "session_id": 0}
    if version >= 16:
        response["node_endpoints"] = [(1, "broker-1", 9092, "a"), (2, "broker-2", 9093, None)]
    return response


def expected_partition(key: TopicKey, fields: Values, found: Fetched) -> Fetched:
    """What we should have read, with the place of the records taken from what was read."""
    diverging, leader = fields.get("diverging_epoch"), fields.get("current_leader")
    return Fetched(
        topic=key,
        partition=fields["partition_index"],
        error=fields["error_code"],
        high_watermark=fields["high_watermark"],
        last_stable_offset=fields["last_stable_offset" if "last_stable_offset" in fields else "high_watermark"],
        log_start_offset=fields.get("log_start_offset", -1),
        aborted=fields.get("aborted_transactions") or [],
        diverging=diverging if diverging and (diverging[0] >= 0 or diverging[1] >= 0) else None,
        leader=leader if leader and leader[0] >= 0 else None,
        preferred_replica=fields.get("preferred_read_replica", -1),
        start=found.start,
        end=found.end,
    )


def check_response(version: int, values: Values) -> None:
    frame = fetch_frame(version, values)
    response = read_fetch_response(version, frame)
    assert response.throttle_ms == values["throttle_time_ms"]
    assert response.error == values.get("error_code", 0)
    assert response.session_id == values.get("session_id", 0)
    assert response.nodes == [Node(node, host, port) for node, host, port, _ in values.get("node_endpoints", [])]
    sent = [(key, fields) for key, partitions in values["responses"] for fields in partitions]
    assert len(response.partitions) == len(sent)
    for found, (key, fields) in zip(response.partitions, sent, strict=True):
        assert found == expected_partition(key, fields, found)
        assert bytes(frame[found.start : found.end]) == (fields["records"] or b"")


# Requests.


@pytest.mark.parametrize("version", FETCH_RANGE)
@given(data=st.data())
def test_requests_are_theirs_byte_for_byte(version: int, data: st.DataObject) -> None:
    keys = frames.topic_keys(version, FETCH_TOPIC_IDS)
    partitions = st.tuples(I32, I64, I32, I32, I32)
    runs = data.draw(
        st.lists(st.tuples(keys, st.lists(partitions, min_size=1, max_size=3)), max_size=4).filter(
            lambda runs: all(one[0] != other[0] for one, other in pairwise(runs))
        )
    )
    limits = data.draw(st.fixed_dictionaries({"max_wait_ms": I32, "min_bytes": I32, "max_bytes": I32}))
    isolation, rack = data.draw(st.sampled_from([READ_UNCOMMITTED, READ_COMMITTED])), data.draw(TEXT)
    wanted = [FetchPartition(key, *partition) for key, run in runs for partition in run]
    session = data.draw(st.just((0, -1)) | st.tuples(I32, I32)) if version >= 7 else (0, -1)
    gone = data.draw(
        st.lists(st.tuples(keys, st.lists(I32, min_size=1, max_size=3)), max_size=3 * (version >= 7)).filter(
            lambda runs: all(one[0] != other[0] for one, other in pairwise(runs))
        )
    )
    forgotten = [(key, index) for key, indexes in gone for index in indexes]
    ours = fetch_request(
        version, wanted, isolation_level=isolation, rack=rack, session=session, forgotten=forgotten,
        max_wait_ms=limits["max_wait_ms"], min_bytes=limits["min_bytes"], max_bytes=limits["max_bytes"],
    )  # fmt: skip

    def theirs(partition: int, offset: int, max_bytes: int, leader_epoch: int, last_epoch: int) -> Values:
        fields = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        if version >= 5:
            fields["log_start_offset"] = -1
        if version >= 9:
            fields["current_leader_epoch"] = leader_epoch
        if version >= 12:
            fields["last_fetched_epoch"] = last_epoch
        return fields

    topics = [(key, [theirs(*partition) for partition in run]) for key, run in runs]
    assert ours == frames.fetch_request(
        version, topics=topics, isolation_level=isolation, rack_id=rack, session=session, forgotten=gone, **limits
    )


@pytest.mark.parametrize("version", FETCH_RANGE)
def test_kafka_python_reads_our_request(version: int) -> None:
    key = key_for(version)
    body = fetch_request(
        version,
        [FetchPartition(key, 3, 500, 1 << 20, 7, 6), FetchPartition(key, 1, 0, 9)],
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        isolation_level=READ_COMMITTED,
        rack="a",
    )
    request = FetchRequest.decode(body, version=version)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 50 << 20)
    if version >= 4:
        assert request.isolation_level == READ_COMMITTED
    if version < 15:
        assert request.replica_id == -1
    else:
        assert request.replica_state is None
    if version >= 7:
        assert (request.session_id, request.session_epoch, request.forgotten_topics_data) == (0, -1, [])
    if version >= 11:
        assert request.rack_id == "a"
    (topic,) = request.topics
    assert (topic.topic_id.bytes if version >= 13 else topic.topic) == key
    first, second = topic.partitions
    assert (first.partition, first.fetch_offset, first.partition_max_bytes) == (3, 500, 1 << 20)
    assert (second.partition, second.fetch_offset, second.partition_max_bytes) == (1, 0, 9)
    if version >= 9:
        assert (first.current_leader_epoch, second.current_leader_epoch) == (7, -1)
    if version >= 12:
        assert (first.last_fetched_epoch, second.last_fetched_epoch) == (6, -1)


def test_partitions_keep_their_order_and_only_neighbours_share_a_topic() -> None:
    """The broker fills its answer in the request's order (KIP-74): rotation must survive encoding."""
    wanted = [FetchPartition(name, index, 0, 1) for name, index in (("a", 1), ("a", 0), ("b", 0), ("a", 2))]
    body = fetch_request(12, wanted, max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=0)
    topics = FetchRequest.decode(body, version=12).topics
    assert [(topic.topic, [one.partition for one in topic.partitions]) for topic in topics] == [
        ("a", [1, 0]),
        ("b", [0]),
        ("a", [2]),
    ]


@pytest.mark.parametrize(("version", "key"), [(12, ID), (4, ID), (13, "orders"), (17, b"short")])
def test_a_topic_named_in_the_wrong_way_is_the_callers_bug(version: int, key: TopicKey) -> None:
    with pytest.raises(TypeError, match=f"fetch v{version} names topics by"):
        fetch_request(
            version, [FetchPartition(key, 0, 0, 1)], max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=0
        )


# Responses.


@pytest.mark.parametrize("version", FETCH_RANGE)
@given(data=st.data())
def test_their_responses_are_read_to_the_same_values(version: int, data: st.DataObject) -> None:
    check_response(version, data.draw(frames.fetch_responses(version)))


@pytest.mark.parametrize("version", FETCH_RANGE)
def test_every_field_is_read(version: int) -> None:
    check_response(version, rich(version))
    first = read_fetch_response(version, fetch_frame(version, rich(version))).partitions[0]
    assert first.aborted == ([(11, 950), (12, 960)] if version >= 4 else [])
    assert first.last_stable_offset == (990 if version >= 4 else 1_000)
    assert first.diverging == ((4, 900) if version >= 12 else None)
    assert first.leader == ((1, 5) if version >= 12 else None)
    assert first.preferred_replica == (2 if version >= 11 else -1)
    assert first.log_start_offset == (10 if version >= 5 else -1)


@pytest.mark.parametrize("version", FETCH_RANGE)
def test_an_empty_response(version: int) -> None:
    empty: Values = {"throttle_time_ms": 0, "responses": []}
    assert read_fetch_response(version, fetch_frame(version, empty)) == FetchResponse(throttle_ms=0, error=0)


@pytest.mark.parametrize("version", range(7, 18))
@pytest.mark.parametrize("error", [-1, 6, 70, 100])
def test_an_error_of_the_whole_request(version: int, error: int) -> None:
    values: Values = {"throttle_time_ms": 0, "error_code": error, "session_id": 0, "responses": []}
    assert read_fetch_response(version, fetch_frame(version, values)).error == error


@pytest.mark.parametrize("version", FETCH_RANGE)
def test_records_are_borrowed_not_copied(version: int) -> None:
    """Memory does not grow with the records: a frame of 8 MB is read in a few KB."""
    values = rich(version)
    values["responses"][0][1][0]["records"] = bytes(8 << 20)
    frame = fetch_frame(version, values)
    assert peak_of(lambda: read_fetch_response(version, frame)) < 64 << 10


def one_partition(version: int, **fields: Any) -> Values:
    partition: Values = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 5,
        "last_stable_offset": 5,
        "aborted_transactions": None,
        "records": b"records",
        **fields,
    }
    return {"throttle_time_ms": 0, "responses": [(key_for(version), [partition])]}


@pytest.mark.parametrize("version", [4, 11, 12, 13])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152])
@pytest.mark.parametrize("aborted", [None, [], [(8, 9)]], ids=["null", "none", "one"])
def test_records_where_their_size_field_grows(version: int, size: int, aborted: list[tuple[int, int]] | None) -> None:
    check_response(version, one_partition(version, records=b"\x81" * size, aborted_transactions=aborted))


@pytest.mark.parametrize("size", [b"\x00", b"\x80\x00", b"\x80\x80\x00", b"\x80\x80\x80\x00", b"\x80\x80\x80\x80\x00"])
@pytest.mark.parametrize("version", [12, 17])
def test_null_records_however_their_size_is_written(version: int, size: bytes) -> None:
    """A varint may be longer than it need be; no records are no records."""
    plain = bytes(fetch_frame(version, one_partition(version, records=None)))
    at = len(plain) - 4
    assert plain[at:] == b"\0\0\0\0", "no records, and no tags of partition, topic and response"
    frame = memoryview(plain[:at] + size + plain[at + 1 :])
    (found,) = read_fetch_response(version, frame).partitions
    assert found.start == found.end == at + len(size)


UNKNOWN_TAG = b"\x01\x63\x03abc"
"""One tagged field with tag 99."""


@pytest.mark.parametrize("version", range(12, 18))
@pytest.mark.parametrize("where", ["header", "aborted", "partition", "topic", "response"])
def test_unknown_tags_are_passed_over_wherever_they_stand(version: int, where: str) -> None:
    plain = bytes(fetch_frame(version, one_partition(version, aborted_transactions=[(8, 9)])))
    records = plain.index(b"records")
    places = {
        "header": 4,
        "aborted": records - 2 - (4 if version >= 11 else 0),
        "partition": len(plain) - 3,
        "topic": len(plain) - 2,
        "response": len(plain) - 1,
    }
    at = places[where]
    assert plain[at] == 0, "no tags so far"
    tagged = memoryview(plain[:at] + UNKNOWN_TAG + plain[at + 1 :])
    found, reference = read_fetch_response(version, tagged), read_fetch_response(version, memoryview(plain))
    (one,), (other,) = found.partitions, reference.partitions
    assert one._replace(start=0, end=0) == other._replace(start=0, end=0)
    assert bytes(tagged[one.start : one.end]) == b"records"


def test_node_endpoints_are_read_from_v16_on() -> None:
    """Tag 0 of the response meant nothing before: its bytes are not looked at."""
    plain = bytes(fetch_frame(15, one_partition(15)))
    tagged = memoryview(plain[:-1] + b"\x01\x00\x03abc")
    assert read_fetch_response(15, tagged).nodes == []
    with pytest.raises(MalformedFrame):
        read_fetch_response(16, tagged)


def test_an_unknown_leader_and_no_divergence_are_none() -> None:
    values = one_partition(12, diverging_epoch=(-1, -1), current_leader=(-1, -1))
    frame = bytes(fetch_frame(12, values))
    (found,) = read_fetch_response(12, memoryview(frame)).partitions
    assert (found.diverging, found.leader) == (None, None)


@pytest.mark.parametrize("size", range(8))
def test_a_leader_cut_short_is_malformed(size: int) -> None:
    with pytest.raises(MalformedFrame):
        read_leader(memoryview(bytes(size)))


@pytest.mark.parametrize("tag", [0, 1])
@pytest.mark.parametrize("size", range(8))
def test_a_tagged_struct_cut_short_is_malformed(tag: int, size: int) -> None:
    plain = bytes(fetch_frame(12, one_partition(12)))
    spoilt = plain[:-3] + bytes([1, tag, size]) + bytes(size) + plain[-2:]
    with pytest.raises(MalformedFrame):
        read_fetch_response(12, memoryview(spoilt))


def test_a_null_host_is_empty() -> None:
    """The schema forbids it; there is nothing to connect to either way."""
    assert read_nodes(memoryview(b"\x02\0\0\0\x01\0\0\0\x23\x84\0\0")) == [Node(1, "", 9092)]


# Spoilt frames.


@pytest.mark.parametrize("version", FETCH_RANGE)
def test_every_cut_is_malformed(version: int) -> None:
    frame = fetch_frame(version, rich(version))
    for cut in range(len(frame)):
        with pytest.raises(MalformedFrame):
            read_fetch_response(version, frame[:cut])


@given(version=st.sampled_from(FETCH_RANGE), data=st.data())
def test_any_cut_of_any_response_is_malformed(version: int, data: st.DataObject) -> None:
    frame = fetch_frame(version, data.draw(frames.fetch_responses(version)))
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(MalformedFrame):
        read_fetch_response(version, frame[:cut])


@given(version=st.sampled_from(FETCH_RANGE), extra=st.binary(min_size=1, max_size=20))
def test_trailing_bytes_are_malformed(version: int, extra: bytes) -> None:
    frame = fetch_frame(version, rich(version))
    with pytest.raises(MalformedFrame, match=f"{len(extra)} bytes behind the fetch response"):
        read_fetch_response(version, memoryview(bytes(frame) + extra))


def patched(frame: bytes, at: int, new: bytes) -> memoryview:
    return memoryview(frame[:at] + new + frame[at + len(new) :])


@pytest.mark.parametrize("size", [-2, -1, -(1 << 31), (1 << 31) - 1, 1 << 16])
@pytest.mark.parametrize("field", ["topics", "partitions", "aborted", "records"])
@pytest.mark.parametrize("version", [4, 6])
def test_impossible_sizes_are_malformed_or_null(version: int, field: str, size: int) -> None:
    frame = bytes(fetch_frame(version, one_partition(version)))
    records = frame.index(b"records") - 4
    places = {"topics": 8, "partitions": 12 + 2 + len("orders"), "aborted": records - 4, "records": records}
    spoilt = patched(frame, places[field], size.to_bytes(4, signed=True))
    if size == -1 and field == "aborted":
        assert read_fetch_response(version, spoilt).partitions[0].aborted == []
        return
    with pytest.raises(MalformedFrame):
        read_fetch_response(version, spoilt)


@pytest.mark.parametrize("field", ["topics", "partitions"])
@pytest.mark.parametrize("count", [b"\0", b"\x7f", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f", b"\x80" * 6])
def test_impossible_compact_counts_are_malformed(field: str, count: bytes) -> None:
    frame = bytes(fetch_frame(12, one_partition(12)))
    at = {"topics": 15, "partitions": 15 + 1 + 1 + len("orders")}[field]
    assert frame[at] == 2, "one element"
    with pytest.raises(MalformedFrame):
        read_fetch_response(12, memoryview(frame[:at] + count + frame[at + 1 :]))


@pytest.mark.parametrize(("version", "null"), [(4, b"\xff\xff"), (12, b"\0")])
def test_a_null_topic_name_is_malformed(version: int, null: bytes) -> None:
    frame = bytes(fetch_frame(version, one_partition(version)))
    at = frame.index(b"orders")
    spoilt = frame[: at - len(null)] + null + frame[at + len("orders") :]
    with pytest.raises(MalformedFrame, match="null topic name"):
        read_fetch_response(version, memoryview(spoilt))


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16])
def test_absurd_values_anywhere_cost_nothing(version: int) -> None:
    """A result or MalformedFrame, with work and memory bounded by the frame's own size (a version per layout)."""
    frame = fetch_frame(version, rich(version))
    for spoilt in absurdities(frame):
        read_any(version, spoilt)
    large = absurdities(frame, LARGE)
    assert max(calls_of(partial(read_any, version, spoilt)) for spoilt in large) < 4 * len(frame)

    def read_all() -> None:
        for spoilt in large:
            read_any(version, spoilt)

    assert peak_of(read_all) < 128 << 10


@given(version=st.sampled_from(FETCH_RANGE), data=st.data())
def test_mutations_give_a_result_or_malformed(version: int, data: st.DataObject) -> None:
    read_any(version, data.draw(frames.mutations(fetch_frame(version, rich(version)))))


@given(version=st.sampled_from(FETCH_RANGE), frame=st.binary(max_size=200))
def test_any_bytes_give_a_result_or_malformed(version: int, frame: bytes) -> None:
    read_any(version, memoryview(frame))


def read_any(version: int, frame: memoryview) -> None:
    """Reads it; whatever is found lies within the frame."""
    try:
        response = read_fetch_response(version, frame)
    except MalformedFrame:
        return
    for found in response.partitions:
        assert 0 <= found.start <= found.end <= len(frame)
