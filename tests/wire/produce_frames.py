"""Produce responses as kafka-python encodes them, and readers that hold ours against its values."""

from mirror.wire.fetch import Node, TopicKey
from mirror.wire.primitives import MalformedFrame, read_string
from mirror.wire.produce import (
    Expected,
    Produced,
    as_expected,
    base_offsets,
    expected,
    plain_answer,
    read_produce_response,
    topic_head,
)
from mirror.wire.versions import PRODUCE_TOPIC_IDS
from tests.wire.frames import Values, produce_frame

ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))
Batches = list[tuple[TopicKey, list[tuple[int, bytes]]]]


def key_for(version: int, name: str = "orders") -> TopicKey:
    if version < PRODUCE_TOPIC_IDS:
        return name
    return ID if name == "orders" else OTHER_ID


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


def read_any(version: int, frame: memoryview) -> None:
    """Reads it in both ways; where the full reader refuses, the short one has no answer."""
    try:
        read_produce_response(version, frame)
    except MalformedFrame:
        assert clean_acks(version, frame) is None
    else:
        check_clean(version, frame)
