"""``mirror.wire.header``: what stands in front of requests and responses, against kafka-python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from mirror.wire.fetch import fetch_request
from mirror.wire.header import SIZE, after_response_header, request_header
from mirror.wire.primitives import MalformedFrame
from mirror.wire.produce import request_head, topics_size
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_KEY, PRODUCE_FLEXIBLE, PRODUCE_KEY
from tests.wire.frames import FETCH_RANGE, I32, PRODUCE_RANGE, TEXT


@pytest.mark.parametrize("version", FETCH_RANGE)
@given(correlation_id=I32, client_id=TEXT)
def test_a_whole_fetch_request_is_theirs(version: int, correlation_id: int, client_id: str) -> None:
    theirs = FetchRequest[version](
        max_wait_ms=1,
        min_bytes=2,
        max_bytes=3,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[],
        forgotten_topics_data=[],
        rack_id="",
    )
    theirs.with_header(correlation_id, client_id)
    flexible = version >= FETCH_FLEXIBLE
    head = request_header(
        api_key=FETCH_KEY, version=version, correlation_id=correlation_id, client_id=client_id, flexible=flexible
    )
    body = fetch_request(version, [], max_wait_ms=1, min_bytes=2, max_bytes=3, isolation_level=0)
    assert SIZE.pack(len(head) + len(body)) + head + body == bytes(theirs.encode(header=True, framed=True))


@pytest.mark.parametrize("version", PRODUCE_RANGE)
@given(correlation_id=I32, client_id=TEXT)
def test_a_whole_produce_request_is_theirs(version: int, correlation_id: int, client_id: str) -> None:
    theirs = ProduceRequest[version](transactional_id=None, acks=-1, timeout_ms=5, topic_data=[])
    theirs.with_header(correlation_id, client_id)
    flexible = version >= PRODUCE_FLEXIBLE
    head = request_header(
        api_key=PRODUCE_KEY, version=version, correlation_id=correlation_id, client_id=client_id, flexible=flexible
    )
    body = request_head(version, timeout_ms=5) + topics_size(version, 0) + (b"\0" if flexible else b"")
    assert head + body == bytes(theirs.encode(header=True))


@given(rest=st.binary(min_size=4, max_size=9))
def test_a_body_begins_behind_the_correlation_id(rest: bytes) -> None:
    assert after_response_header(memoryview(rest), flexible=False) == 4


@pytest.mark.parametrize("tags", [b"\0", b"\1\x63\3abc", b"\2\0\0\1\1x"])
def test_a_flexible_body_begins_behind_the_tags(tags: bytes) -> None:
    frame = memoryview(bytes(4) + tags + b"body")
    assert bytes(frame[after_response_header(frame, flexible=True) :]) == b"body"


@pytest.mark.parametrize("size", range(4))
def test_a_response_without_a_correlation_id_is_malformed(size: int) -> None:
    frame = memoryview(bytes(size))
    for flexible in (False, True):
        with pytest.raises(MalformedFrame, match=f"response of {size} bytes has no correlation id"):
            after_response_header(frame, flexible=flexible)


@pytest.mark.parametrize("tags", [b"", b"\1", b"\1\0", b"\1\0\5abcd", b"\x7f", b"\xff\xff\xff\xff\xff"])
def test_header_tags_that_do_not_add_up_are_malformed(tags: bytes) -> None:
    with pytest.raises(MalformedFrame):
        after_response_header(memoryview(bytes(4) + tags), flexible=True)
