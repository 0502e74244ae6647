"""Produce responses against kafka-python's schemas, in every version that we speak."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.wire.primitives import MalformedFrame
from mirror.wire.produce import (
    LEAST_PLAIN,
    MOST_EXPECTED,
    ProduceResponse,
    as_expected,
    expected,
    least_answer,
    read_produce_response,
    topic_head,
)
from tests.wire import frames
from tests.wire.frames import PRODUCE_RANGE, Values, produce_frame
from tests.wire.produce_frames import (
    check_clean,
    check_response,
    clean_acks,
    key_for,
    plain,
    rich,
)


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
