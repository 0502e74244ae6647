"""``mirror.wire.produce`` against kafka-python's schemas, in every version that we speak, and against spoilt frames."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatch

from mirror.records.header import HEADER_SIZE, PREFIX_SIZE, BatchHeader, Codec
from mirror.records.identity import MIRROR_BIT, Identity
from mirror.records.restamp import restamp
from mirror.wire.fetch import Node, TopicKey
from mirror.wire.primitives import MalformedFrame, read_string, uvarint
from mirror.wire.produce import (
    LEAST_PLAIN,
    MOST_EXPECTED,
    Expected,
    Produced,
    ProduceResponse,
    after_batch,
    as_expected,
    base_offsets,
    expected,
    head_for,
    least_answer,
    pack_head,
    plain_answer,
    read_produce_response,
    request_head,
    topic_head,
    topics_size,
)
from mirror.wire.versions import PRODUCE_FLEXIBLE, PRODUCE_TOPIC_IDS
from tests.records.builders import kafka_batch, raw_batch
from tests.wire import frames
from tests.wire.frames import LARGE, PRODUCE_RANGE, Values, absurdities, calls_of, peak_of, produce_frame

ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))
Batches = list[tuple[TopicKey, list[tuple[int, bytes]]]]


def key_for(version: int, name: str = "orders") -> TopicKey:
    if version < PRODUCE_TOPIC_IDS:
        return name
    return ID if name == "orders" else OTHER_ID


def sendable(size: int) -> bytes:
    """A batch of so many payload bytes as it leaves the mirror: base offset 0, no leader epoch."""
    batch = raw_batch(bytes(size))
    header = BatchHeader.read(batch)
    return restamp(header, Identity(MIRROR_BIT, 0, 9), header.attributes).pack() + batch[HEADER_SIZE:]


# Requests.


def request(version: int, topics: Batches, timeout_ms: int = 30_000) -> bytes:
    """A body put together from its pieces, as the relay does."""
    out = [request_head(version, timeout_ms=timeout_ms), topics_size(version, len(topics))]
    for key, batches in topics:
        out += [topic_head(version, key), topics_size(version, len(batches))]
        for partition, batch in batches:
            header = BatchHeader.read(batch)
            head = head_for(version, header.length)
            packed = pack_head(head, partition, header)
            out += [packed, batch[HEADER_SIZE:], after_batch(version)]
        out.append(after_batch(version))
    out.append(after_batch(version))
    return b"".join(out)


@pytest.mark.parametrize("version", PRODUCE_RANGE)
def test_a_full_request_is_read_by_kafka_python(version: int) -> None:
    """Two topics, five partitions, a codec each, restamped: theirs reads the same batches, and they are sound."""
    identity = Identity(MIRROR_BIT | 5 << 8, 2, 40)
    sent: list[bytes] = []
    for codec in Codec:
        batch = kafka_batch(codec=codec, base_offset=900)
        sent.append(restamp(BatchHeader.read(batch), identity, codec).pack() + batch[HEADER_SIZE:])
    topics: Batches = [
        (key_for(version), [(7, sent[0]), (0, sent[1]), (1 << 30, sent[2])]),
        (key_for(version, "payments"), [(0, sent[3]), (1, sent[4])]),
    ]
    body = request(version, topics)
    read = ProduceRequest.decode(body, version=version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == (None, -1, 30_000)
    found = [
        (
            topic.topic_id.bytes if version >= 13 else topic.name,
            [(one.index, one.records) for one in topic.partition_data],
        )
        for topic in read.topic_data
    ]
    assert found == topics
    for _, batches in found:
        for _, records in batches:
            batch = DefaultRecordBatch(records)
            assert batch.validate_crc()
            assert (batch.producer_id, batch.base_sequence, len(list(batch))) == (identity.producer_id, 40, 3)
    assert body == frames.produce_request(version, topics, timeout_ms=30_000)


@pytest.mark.parametrize("version", PRODUCE_RANGE)
@given(data=st.data())
def test_requests_are_theirs_byte_for_byte(version: int, data: st.DataObject) -> None:
    sizes = st.integers(0, 100) | st.sampled_from([16_384 - 61 - 2, 16_384 - 61 - 1, 16_384 - 61])
    batches = st.lists(st.tuples(frames.I32, sizes.map(sendable)), max_size=3)
    topics = data.draw(st.lists(st.tuples(frames.topic_keys(version, PRODUCE_TOPIC_IDS), batches), max_size=3))
    timeout_ms = data.draw(frames.I32)
    assert request(version, topics, timeout_ms) == frames.produce_request(version, topics, timeout_ms=timeout_ms)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("size", [61, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152])
def test_heads_where_the_size_field_grows(version: int, size: int) -> None:
    batch = sendable(size - HEADER_SIZE)
    topics: Batches = [(key_for(version), [(1, batch)])]
    assert len(batch) == size
    assert request(version, topics) == frames.produce_request(version, topics, timeout_ms=30_000)


@given(
    version=st.sampled_from(PRODUCE_RANGE), length=st.integers(HEADER_SIZE - PREFIX_SIZE, (1 << 31) - 1 - PREFIX_SIZE)
)
def test_a_heads_size_is_known_beforehand(version: int, length: int) -> None:
    head = head_for(version, length)
    header = BatchHeader.read(raw_batch(b""))._replace(length=length)
    set_size = uvarint(PREFIX_SIZE + length + 1) if version >= PRODUCE_FLEXIBLE else b"1234"
    assert len(pack_head(head, 3, header)) == 4 + len(set_size) + HEADER_SIZE


def test_acks_can_be_chosen() -> None:
    assert request_head(3, timeout_ms=9, acks=1) == b"\xff\xff\0\x01\0\0\0\x09"
    assert request_head(9, timeout_ms=9) == b"\0\xff\xff\0\0\0\x09"


@pytest.mark.parametrize(("version", "key"), [(12, ID), (3, ID), (13, "orders"), (13, b"short")])
def test_a_topic_named_in_the_wrong_way_is_the_callers_bug(version: int, key: TopicKey) -> None:
    with pytest.raises(TypeError, match=f"produce v{version} names topics by"):
        topic_head(version, key)


# Responses.


def expected_message(fields: Values) -> str | None:
    """The summary, or else the first record's text; an empty text is none."""
    message: str | None = fields.get("error_message")
    texts = [text for _, text in fields.get("record_errors", []) if text]
    return message or (texts[0] if texts else message)


def expected_partition(key: TopicKey, fields: Values) -> Produced:
    leader = fields.get("current_leader")
    return Produced(
        topic=key,
        partition=fields["index"],
        error=fields["error_code"],
        base_offset=fields["base_offset"],
        log_append_time=fields["log_append_time_ms"],
        log_start_offset=fields.get("log_start_offset", -1),
        message=expected_message(fields),
        leader=leader if leader and leader[0] >= 0 else None,
    )


def check_response(version: int, values: Values) -> None:
    frame = produce_frame(version, values)
    response = read_produce_response(version, frame)
    assert response.throttle_ms == values["throttle_time_ms"]
    assert response.nodes == [Node(node, host, port) for node, host, port, _ in values.get("node_endpoints", [])]
    assert [one._replace(message=one.message or None) for one in response.partitions] == [
        (expected := expected_partition(key, fields))._replace(message=expected.message or None)
        for key, partitions in values["responses"]
        for fields in partitions
    ]
    check_clean(version, frame)


def clean_acks(
    version: int, frame: memoryview, likely: Expected | None = None
) -> list[tuple[bytes, list[tuple[int, int]]]] | None:
    """What the plain reader makes of it: topic_head, (partition, base offset) pairs."""
    answer = as_expected(frame, likely) if likely is not None else None
    answer = answer or plain_answer(version, frame)
    return None if answer is None else base_offsets(answer)


def check_clean(version: int, frame: memoryview) -> bool:
    """Whether ``plain_answer`` answers; if so, it is what ``read_produce_response`` says, and nothing was left out."""
    answer = clean_acks(version, frame)
    if len(frame) > 4:
        # What is said to be likely changes nothing but the way: taken when it is so, and left when it is not.
        for name in (key_for(version), key_for(version, "payments")):
            for count in (1, 2, 3):
                assert clean_acks(version, frame, expected(version, topic_head(version, name), count)) == answer
    if answer is None:
        return False
    response = read_produce_response(version, frame)
    assert (response.throttle_ms, response.nodes) == (0, [])
    pairs = []
    for head, partitions in answer:
        # The head is the frame's own bytes, so of a name's length that takes more bytes than it needs, too.
        key = head if version >= PRODUCE_TOPIC_IDS else read_string(memoryview(head), 0, compact=version >= 9)[0]
        pairs += [(key, partition, base_offset) for partition, base_offset in partitions]
    assert [(one.topic, one.partition, one.base_offset) for one in response.partitions] == pairs
    assert all((one.error, one.message, one.leader) == (0, None, None) for one in response.partitions)
    return True


def rich(version: int) -> Values:
    """A response that has every field the version knows."""
    failed: Values = {"index": 3, "error_code": 87, "base_offset": -1, "log_append_time_ms": -1}
    if version >= 5:
        failed["log_start_offset"] = -1
    if version >= 8:
        failed |= {"record_errors": [(0, None), (4, "bad record"), (5, "worse")], "error_message": "bad batch"}
    if version >= 10:
        failed["current_leader"] = (2, 9)
    response: Values = {
        "throttle_time_ms": 15,
        "responses": [(key_for(version), [failed, {**failed, "index": 4}]), (key_for(version, "payments"), [failed])],
    }
    if version >= 10:
        response["node_endpoints"] = [(1, "broker-1", 9092, "a"), (2, "broker-2", 9093, None)]
    return response


def plain(version: int) -> Values:
    """The answer of an ordinary day."""
    good: Values = {"index": 3, "error_code": 0, "base_offset": 1_234, "log_append_time_ms": -1}
    if version >= 5:
        good["log_start_offset"] = 0
    return {
        "throttle_time_ms": 0,
        "responses": [
            (key_for(version), [good, {**good, "index": 4, "base_offset": (1 << 63) - 1}]),
            (key_for(version, "payments"), [{**good, "index": 0}]),
        ],
    }


@pytest.mark.parametrize("version", PRODUCE_RANGE)
@given(data=st.data())
def test_their_responses_are_read_to_the_same_values(version: int, data: st.DataObject) -> None:
    check_response(version, data.draw(frames.produce_responses(version)))


@pytest.mark.parametrize("version", PRODUCE_RANGE)
def test_every_field_is_read(version: int) -> None:
    check_response(version, rich(version))
    first = read_produce_response(version, produce_frame(version, rich(version))).partitions[0]
    assert first.error == 87
    assert first.message == ("bad batch" if version >= 8 else None)
    assert first.leader == ((2, 9) if version >= 10 else None)


@pytest.mark.parametrize("version", range(8, 14))
def test_the_first_records_text_stands_in_for_the_summary(version: int) -> None:
    values = rich(version)
    values["responses"][0][1][0]["error_message"] = None
    response = read_produce_response(version, produce_frame(version, values))
    assert response.partitions[0].message == "bad record"


@pytest.mark.parametrize("version", PRODUCE_RANGE)
def test_an_empty_response(version: int) -> None:
    frame = produce_frame(version, {"throttle_time_ms": 0, "responses": []})
    assert read_produce_response(version, frame) == ProduceResponse(throttle_ms=0)
    assert clean_acks(version, frame) == ([] if version >= 5 else None)


@pytest.mark.parametrize("version", PRODUCE_RANGE)
@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_no_answer_is_shorter_than_the_least(version: int, count: int) -> None:
    """Not even with one topic of the shortest name; and the least is not far below it."""
    (key, (partition, *_)), *_ = plain(version)["responses"]
    shortest: Values = {"throttle_time_ms": 0, "responses": [(key if version >= 13 else "", [partition] * count)]}
    size = len(produce_frame(version, shortest))
    assert least_answer(version, count) <= size <= least_answer(version, count) + 6 * count + 30


UNKNOWN_TAG = b"\x01\x63\x03abc"


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize(("where", "from_end"), [("partition", 7), ("topic", 6), ("response", 1), ("header", None)])
def test_unknown_tags_are_passed_over_wherever_they_stand(version: int, where: str, from_end: int | None) -> None:
    values = plain(version)
    reference = bytes(produce_frame(version, values))
    at = 4 if from_end is None else len(reference) - from_end
    assert reference[at] == 0, "no tags so far"
    tagged = memoryview(reference[:at] + UNKNOWN_TAG + reference[at + 1 :])
    assert read_produce_response(version, tagged) == read_produce_response(version, memoryview(reference))
    assert check_clean(version, tagged) is (where == "header")


def test_leaders_and_nodes_are_read_from_v10_on() -> None:
    """Tag 0 meant nothing in v9: its bytes are not looked at."""
    reference = bytes(produce_frame(9, plain(9)))
    for from_end in (7, 1):
        at = len(reference) - from_end
        tagged = memoryview(reference[:at] + b"\x01\x00\x03abc" + reference[at + 1 :])
        assert read_produce_response(9, tagged) == read_produce_response(9, memoryview(reference))
        with pytest.raises(MalformedFrame):
            read_produce_response(10, tagged)


# The plain answer.


@pytest.mark.parametrize("version", range(5, 14))
@given(data=st.data())
def test_plain_answers_are_taken(version: int, data: st.DataObject) -> None:
    assert check_clean(version, produce_frame(version, data.draw(frames.produce_responses(version, plain=True))))


@pytest.mark.parametrize("version", range(5, 14))
def test_a_plain_answer_by_topic(version: int) -> None:
    assert clean_acks(version, produce_frame(version, plain(version))) == [
        (topic_head(version, key_for(version)), [(3, 1_234), (4, (1 << 63) - 1)]),
        (topic_head(version, key_for(version, "payments")), [(0, 1_234)]),
    ]


@pytest.mark.parametrize("version", range(5, 14))
def test_the_answer_that_was_expected(version: int) -> None:
    """One topic: the same as read field by field, and None as soon as one byte behind its beginning is not plain."""
    values = plain(version)
    values["responses"] = values["responses"][:1]
    frame = produce_frame(version, values)
    head = topic_head(version, key_for(version))
    likely = expected(version, head, 2)
    assert likely is not None
    assert as_expected(frame, likely) is not None
    assert (
        clean_acks(version, frame, likely) == clean_acks(version, frame) == [(head, [(3, 1_234), (4, (1 << 63) - 1)])]
    )
    for at in range(len(frame)):
        spoilt = bytearray(frame)
        spoilt[at] ^= 1
        check_clean(version, memoryview(spoilt)) if at >= 4 else None
        assert clean_acks(version, memoryview(spoilt), likely) == clean_acks(version, memoryview(spoilt))
        assert clean_acks(version, frame[:at], likely) is None
    assert expected(version, head, MOST_EXPECTED) is not None
    assert expected(version, head, MOST_EXPECTED + 1) is expected(LEAST_PLAIN - 1, head, 2) is None


@pytest.mark.parametrize("version", [3, 4])
def test_versions_before_5_are_left_to_the_full_reader(version: int) -> None:
    assert clean_acks(version, produce_frame(version, plain(version))) is None


UNPLAIN: list[tuple[str, int, Values]] = [
    ("an error", 5, {"error_code": 1}),
    ("an error in the high byte only", 5, {"error_code": 256}),
    ("an unknown error", 5, {"error_code": -1}),
    ("a record error", 8, {"record_errors": [(0, None)]}),
    ("a message", 8, {"error_message": "why"}),
    ("an empty message", 8, {"error_message": ""}),
    ("a leader", 10, {"current_leader": (1, 2)}),
]


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("version", "fields"),
    [
        pytest.param(version, fields, id=f"{what}-{version}")
        for what, since, fields in UNPLAIN
        for version in range(since, 14)
    ],
)
def test_one_partition_that_is_not_plain_spoils_the_answer(
    version: int, fields: Values, place: tuple[int, int]
) -> None:
    values = plain(version)
    values["responses"][place[0]][1][place[1]] |= fields
    frame = produce_frame(version, values)
    assert clean_acks(version, frame) is None
    read_produce_response(version, frame)


@pytest.mark.parametrize("version", range(5, 14))
@pytest.mark.parametrize("throttle", [1, 1 << 24, -1])
def test_a_throttle_spoils_the_answer(version: int, throttle: int) -> None:
    assert clean_acks(version, produce_frame(version, {**plain(version), "throttle_time_ms": throttle})) is None


@pytest.mark.parametrize("version", range(10, 14))
def test_node_endpoints_spoil_the_answer(version: int) -> None:
    frame = produce_frame(version, {**plain(version), "node_endpoints": [(1, "h", 1, None)]})
    assert clean_acks(version, frame) is None


# Spoilt frames.


@pytest.mark.parametrize("version", PRODUCE_RANGE)
@pytest.mark.parametrize("make", [rich, plain])
def test_every_cut_is_malformed(version: int, make: Any) -> None:
    frame = produce_frame(version, make(version))
    for cut in range(len(frame)):
        assert clean_acks(version, frame[:cut]) is None
        with pytest.raises(MalformedFrame):
            read_produce_response(version, frame[:cut])


@given(version=st.sampled_from(PRODUCE_RANGE), data=st.data())
def test_any_cut_of_any_response_is_malformed(version: int, data: st.DataObject) -> None:
    frame = produce_frame(version, data.draw(frames.produce_responses(version)))
    cut = data.draw(st.integers(0, len(frame) - 1))
    assert clean_acks(version, frame[:cut]) is None
    with pytest.raises(MalformedFrame):
        read_produce_response(version, frame[:cut])


@given(version=st.sampled_from(PRODUCE_RANGE), extra=st.binary(min_size=1, max_size=20))
def test_trailing_bytes_are_malformed(version: int, extra: bytes) -> None:
    spoilt = memoryview(bytes(produce_frame(version, plain(version))) + extra)
    assert clean_acks(version, spoilt) is None
    with pytest.raises(MalformedFrame, match=f"{len(extra)} bytes behind the produce response"):
        read_produce_response(version, spoilt)


@pytest.mark.parametrize("count", [-2, -1, -(1 << 31), (1 << 31) - 1, 1 << 16])
@pytest.mark.parametrize("field", ["topics", "partitions", "record errors"])
def test_impossible_counts_are_malformed(field: str, count: int) -> None:
    frame = bytearray(produce_frame(8, plain(8)))
    at = {"topics": 4, "partitions": 8 + 2 + len("orders"), "record errors": 8 + 2 + len("orders") + 4 + 30}[field]
    frame[at : at + 4] = count.to_bytes(4, signed=True)
    assert clean_acks(8, memoryview(frame)) is None
    with pytest.raises(MalformedFrame):
        read_produce_response(8, memoryview(frame))


@pytest.mark.parametrize("field", ["topics", "partitions", "record errors"])
@pytest.mark.parametrize("count", [b"\0", b"\x7f", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x1f", b"\x80" * 6])
def test_impossible_compact_counts_are_malformed(field: str, count: bytes) -> None:
    frame = bytes(produce_frame(9, plain(9)))
    at = {"topics": 5, "partitions": 6 + 1 + len("orders"), "record errors": 6 + 1 + len("orders") + 1 + 30}[field]
    assert frame[at] == {"topics": 3, "partitions": 3, "record errors": 1}[field]
    spoilt = memoryview(frame[:at] + count + frame[at + 1 :])
    assert clean_acks(9, spoilt) is None
    with pytest.raises(MalformedFrame):
        read_produce_response(9, spoilt)


@pytest.mark.parametrize(("version", "null"), [(3, b"\xff\xff"), (8, b"\xff\xff"), (9, b"\0")])
def test_a_null_topic_name_is_malformed(version: int, null: bytes) -> None:
    frame = bytes(produce_frame(version, plain(version)))
    at = frame.index(b"orders")
    spoilt = memoryview(frame[: at - len(null)] + null + frame[at + len("orders") :])
    assert clean_acks(version, spoilt) is None
    with pytest.raises(MalformedFrame, match="null topic name"):
        read_produce_response(version, spoilt)


def test_text_that_is_not_utf8_is_malformed() -> None:
    spoilt = memoryview(bytes(produce_frame(8, rich(8))).replace(b"bad batch", b"bad \xff\xfeatc"))
    with pytest.raises(MalformedFrame, match="not UTF-8"):
        read_produce_response(8, spoilt)


@pytest.mark.parametrize(
    ("version", "make"), [(3, rich), (5, plain), (8, rich), (8, plain), (9, plain), (10, rich), (13, rich)]
)
def test_absurd_values_anywhere_cost_nothing(version: int, make: Any) -> None:
    """A result or MalformedFrame, with work and memory bounded by the frame's own size (a version per layout)."""
    frame = produce_frame(version, make(version))
    for spoilt in absurdities(frame):
        read_any(version, spoilt)
    large = absurdities(frame, LARGE)
    assert max(calls_of(partial(read_any, version, spoilt)) for spoilt in large) < 8 * len(frame)

    def read_all() -> None:
        for spoilt in large:
            read_any(version, spoilt)

    assert peak_of(read_all) < 128 << 10


@given(version=st.sampled_from(PRODUCE_RANGE), data=st.data())
def test_mutations_give_a_result_or_malformed(version: int, data: st.DataObject) -> None:
    make = data.draw(st.sampled_from([rich, plain]))
    read_any(version, data.draw(frames.mutations(produce_frame(version, make(version)))))


@given(version=st.sampled_from(PRODUCE_RANGE), frame=st.binary(max_size=200))
def test_any_bytes_give_a_result_or_malformed(version: int, frame: bytes) -> None:
    read_any(version, memoryview(frame))


def read_any(version: int, frame: memoryview) -> None:
    """Reads it in both ways; where the full reader refuses, the short one has no answer."""
    try:
        read_produce_response(version, frame)
    except MalformedFrame:
        assert clean_acks(version, frame) is None
    else:
        check_clean(version, frame)
