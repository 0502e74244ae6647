"""Answers that no broker gave: for every kind of request that the mirror sends, in every version that it may use."""

import uuid
from typing import Any

import pytest
from kafka.protocol.admin import DeleteRecordsRequest, DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest, WriteTxnMarkersRequest

from lab.proxy.answers import entries, refusal, spoiled
from lab.proxy.frames import Direction, answer_frame, request_frame

TOPIC_ID = uuid.UUID(int=77)
_produce = ProduceRequest.TopicProduceData
_fetch = FetchRequest.FetchTopic
_list = ListOffsetsRequest.ListOffsetsTopic
_marker = WriteTxnMarkersRequest.WritableTxnMarker
_delete = DeleteRecordsRequest.DeleteRecordsTopic


def produce() -> Any:
    data = [_produce.PartitionProduceData(index=index, records=b"x") for index in (0, 1)]
    topic = _produce(name="t", topic_id=TOPIC_ID, partition_data=data)
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1, topic_data=[topic])


def fetch() -> Any:
    wanted = [
        _fetch.FetchPartition(
            partition=index, current_leader_epoch=-1, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1
        )
        for index in (0, 1)
    ]
    return FetchRequest(
        replica_id=-1, max_wait_ms=1, min_bytes=1, max_bytes=1, isolation_level=0, session_id=0, session_epoch=-1,
        topics=[_fetch(topic="t", topic_id=TOPIC_ID, partitions=wanted)], forgotten_topics_data=[], rack_id="",
    )  # fmt: skip


def list_offsets() -> Any:
    wanted = [
        _list.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1) for index in (0, 1)
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[_list(name="t", partitions=wanted)])


def markers() -> Any:
    topic = _marker.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1])
    one = _marker(producer_id=5, producer_epoch=1, transaction_result=False, topics=[topic], coordinator_epoch=0)
    return WriteTxnMarkersRequest(markers=[one])


def describe_producers() -> Any:
    return DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 1])]
    )  # fmt: skip


def delete_records() -> Any:
    wanted = [_delete.DeleteRecordsPartition(partition_index=index, offset=4) for index in (0, 1)]
    return DeleteRecordsRequest(topics=[_delete(name="t", partitions=wanted)], timeout_ms=1)


NAMED = {("t", 0), ("t", 1)}
BY_ID = {(TOPIC_ID, 0), (TOPIC_ID, 1)}
CASES = [
    *((produce(), version, NAMED) for version in range(3, 13)),
    (produce(), 13, BY_ID),
    *((fetch(), version, NAMED) for version in range(4, 13)),
    *((fetch(), version, BY_ID) for version in range(13, 18)),
    *((list_offsets(), version, NAMED) for version in range(1, 9)),
    (markers(), 1, {(5, "t", 0), (5, "t", 1)}),
    (describe_producers(), 0, NAMED),
    *((delete_records(), version, NAMED) for version in range(3)),
    (InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1), 4, {()}),
    (DescribeTransactionsRequest(transactional_ids=["a", "b"]), 0, {(-1, "a"), (-1, "b")}),
    (FindCoordinatorRequest(key_type=1, coordinator_keys=["a"]), 4, {("a",)}),
    (MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9, {("t",)}),
]


@pytest.mark.parametrize(("request_", "version", "expected"), CASES)
def test_an_answer_for_all_that_was_asked(request_: Any, version: int, expected: set[tuple[Any, ...]]) -> None:
    """The code stands in each entry; what a broker answers with -1 next to it is -1; one entry can be changed."""
    request_.API_VERSION = version
    request_.with_header(correlation_id=9, client_id="test")
    frame = request_frame(bytes(request_.encode(header=True, framed=True)), link=1, node_id=2)
    assert (frame.name, frame.version, frame.correlation_id) == (request_.name.removesuffix("Request"), version, 9)
    answer = answer_frame(refusal(frame, 6), frame)
    assert (answer.direction, answer.node_id, answer.request) == (Direction.ANSWERS, 2, frame)
    assert entries(answer.decode()) == dict.fromkeys(expected, 6)
    assert "offset=0" not in repr(answer.decode())
    one = min(expected, key=str)
    changed = answer_frame(spoiled(answer, 7, lambda path: path == one), frame)
    assert entries(changed.decode()) == dict.fromkeys(expected, 6) | {one: 7}


def test_a_fetch_session_without_news() -> None:
    """
    1. The code of the whole answer is no entry's: there is nothing in which to put another one.
    2. If it is an error, it is one.
    """
    for code, expected in ((0, {}), (71, {(): 71})):
        answer = FetchResponse[13](throttle_time_ms=0, error_code=code, session_id=5, responses=[])
        answer.with_header(9)
        request_ = fetch()
        request_.API_VERSION = 13
        request_.with_header(correlation_id=9, client_id="test")
        asked = request_frame(bytes(request_.encode(header=True, framed=True)), link=1, node_id=2)
        frame = answer_frame(bytes(answer.encode(header=True, framed=True)), asked)
        assert entries(frame.decode()) == expected
        assert entries(answer_frame(spoiled(frame, 6), asked).decode()) == dict.fromkeys(expected, 6)


def test_a_request_unknown_here() -> None:
    """It passes, and cannot be answered."""
    frame = request_frame(b"\0\0\0\x0b\x03\xe7\0\1\0\0\0\5\0\0\0", link=1, node_id=1)
    assert frame.name == "API 999"
    with pytest.raises(KeyError):
        refusal(frame, 6)


@pytest.mark.parametrize("size", range(12))
def test_a_request_cut_short(size: int) -> None:
    with pytest.raises(ValueError, match=f"a request of {size} bytes"):
        request_frame(bytes(size), link=1, node_id=1)


def test_an_answer_to_something_else() -> None:
    frame = request_frame(b"\0\0\0\x0b\x03\xe7\0\1\0\0\0\5\0\0\0", link=1, node_id=1)
    with pytest.raises(ValueError, match="an answer to request 6, and 5 is due"):
        answer_frame(b"\0\0\0\4\0\0\0\6", frame)
    with pytest.raises(ValueError, match="an answer of 7 bytes"):
        answer_frame(bytes(7), frame)
