"""Error codes are found wherever the schema of an answer has them."""

from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from mirror.net.health.codes import error_codes

Topic = MetadataResponse.MetadataResponseTopic
Partition = Topic.MetadataResponsePartition


def partition(code: int) -> Any:
    return Partition(
        error_code=code, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1],
        offline_replicas=[],
    )  # fmt: skip


def metadata(*codes: int, topic: int = 0, own: int = 0) -> Any:
    one = Topic(error_code=topic, name="t", is_internal=False, partitions=[partition(code) for code in codes])
    return MetadataResponse[13](
        throttle_time_ms=0, brokers=[], cluster_id="c", controller_id=1, topics=[one, one], error_code=own
    )


def test_at_every_depth() -> None:
    assert error_codes(metadata(0, 3, 0, 5, topic=7, own=9)) == [9, 7, 3, 5, 7, 3, 5]


def test_nothing_where_all_is_well() -> None:
    assert error_codes(metadata(0, 0)) == []
    assert error_codes(ApiVersionsResponse[3](error_code=0, api_keys=[], throttle_time_ms=0)) == []


@pytest.mark.parametrize("responses", [None, []])
def test_nothing_listed(responses: Any) -> None:
    answer = FetchResponse[13](throttle_time_ms=0, error_code=70, session_id=0, responses=responses)
    assert error_codes(answer) == [70]


def test_in_old_versions() -> None:
    topic = ListOffsetsResponse.ListOffsetsTopicResponse
    one = topic.ListOffsetsPartitionResponse(partition_index=0, error_code=6, timestamp=-1, offset=-1)
    assert error_codes(ListOffsetsResponse[1](topics=[topic(name="t", partitions=[one])])) == [6]
