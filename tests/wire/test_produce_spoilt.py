"""Produce responses that are cut, spoilt or made up: malformed, or a result; never anything else."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.wire.primitives import MalformedFrame
from mirror.wire.produce import (
    read_produce_response,
)
from tests.wire import frames
from tests.wire.frames import LARGE, PRODUCE_RANGE, absurdities, calls_of, peak_of, produce_frame
from tests.wire.produce_frames import clean_acks, plain, read_any, rich


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
