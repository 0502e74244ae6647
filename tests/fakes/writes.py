"""Responses of the fake broker to requests that change a log: one function for each kind of request."""

import time
from typing import Any

from kafka.protocol.admin import DeleteRecordsResponse
from kafka.protocol.producer import ProduceResponse, WriteTxnMarkersResponse

from mirror.wire.errors import ErrorCode
from tests.fakes.broker import FakeBroker, FakeCluster, FakeTopic, handles, hits
from tests.fakes.faults import Fault


@handles("Produce")
async def produce(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Appends what a real broker would. A partition that is named twice is a bug of the sender."""
    assert request.acks == -1, f"acks={request.acks}"
    topic_class = ProduceResponse.TopicProduceResponse
    one = topic_class.PartitionProduceResponse
    named: set[tuple[Any, int]] = set()
    nodes: dict[int, Any] = {}
    responses = []
    for wanted in request.topic_data:
        topic = cluster.find(wanted.name, wanted.topic_id)
        answers = []
        for data in wanted.partition_data:
            key = (wanted.name or wanted.topic_id, data.index)
            assert key not in named, f"{key} twice in one request: a broker loses the first without an error"
            named.add(key)
            stamps = topic is not None and topic.configs.get("message.timestamp.type") == "LogAppendTime"
            append_time = int(time.time() * 1000) if stamps else None
            ends = topic.logs[data.index].end if topic is not None and data.index in range(len(topic.logs)) else 0
            code, base, leader = _produced(cluster, broker, topic, data, request, fault, nodes, append_time)
            log_start = topic.logs[data.index].start if topic and not code else -1
            if topic is not None and not code and base + 1 <= ends:
                append_time = topic.logs[data.index].newest_ms(base)  # a repeat, as real brokers answer
            answers.append(
                one(
                    index=data.index,
                    error_code=code,
                    base_offset=base,
                    log_append_time_ms=-1 if code or append_time is None else append_time,
                    log_start_offset=log_start,
                    record_errors=[],
                    error_message="as scripted" if code and code == fault.error else None,
                    current_leader=leader,
                )
            )
        responses.append(topic_class(name=wanted.name, topic_id=wanted.topic_id, partition_responses=answers))
    cluster.changed()
    return ProduceResponse[request.version](
        responses=responses, throttle_time_ms=0, node_endpoints=list(nodes.values())
    )


def _produced(
    cluster: FakeCluster,
    broker: FakeBroker,
    topic: FakeTopic | None,
    data: Any,
    request: Any,
    fault: Fault,
    nodes: dict[int, Any],
    append_time: int | None,
) -> tuple[int, int, Any]:
    """Returns (error code, base offset, the hint at the leader) for one partition."""
    hit = hits(fault, topic, data.index)
    if hit and not fault.effect:
        return fault.error, -1, None
    code = cluster.judge(broker, topic, data.index, by_id=request.version >= 13)
    base = -1
    if not code:
        assert topic is not None
        code, base = topic.logs[data.index].produce(bytes(data.records or b""), append_time=append_time)
    leader = None
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and topic is not None and request.version >= 10:
        log = topic.logs[data.index]
        leader = ProduceResponse.TopicProduceResponse.PartitionProduceResponse.LeaderIdAndEpoch(
            leader_id=log.leader, leader_epoch=log.epoch
        )
        nodes[log.leader] = ProduceResponse.NodeEndpoint(
            node_id=log.leader, host="127.0.0.1", port=cluster.brokers[log.leader].port, rack=None
        )
    return (fault.error, base, leader) if hit else (code, base, leader)


@handles("WriteTxnMarkers")
async def write_txn_markers(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Appends each marker that is not refused. As with Produce, an error may be returned although it was written."""
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic_class = result.WritableTxnMarkerTopicResult
    one = topic_class.WritableTxnMarkerPartitionResult
    markers = []
    for marker in request.markers:
        assert not marker.transaction_result, "the mirror writes ABORT markers only"
        topics = []
        for wanted in marker.topics:
            topic = cluster.find(wanted.name, None)
            rows = []
            for index in wanted.partition_indexes:
                hit = hits(fault, topic, index)
                code = fault.error if hit and not fault.effect else cluster.judge(broker, topic, index)
                if not code:
                    assert topic is not None
                    code = topic.logs[index].write_marker(
                        marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
                    )
                rows.append(one(partition_index=index, error_code=fault.error if hit else code))
            topics.append(topic_class(name=wanted.name, partitions=rows))
        markers.append(result(producer_id=marker.producer_id, topics=topics))
    cluster.changed()
    return WriteTxnMarkersResponse[request.version](markers=markers)


@handles("DeleteRecords")
async def delete_records(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Moves the log's start, at most to the high watermark."""
    topic_class = DeleteRecordsResponse.DeleteRecordsTopicResult
    one = topic_class.DeleteRecordsPartitionResult
    topics = []
    for wanted in request.topics:
        topic = cluster.find(wanted.name, None)
        rows = []
        for asked in wanted.partitions:
            index, start = asked.partition_index, -1
            code = (fault.error if hits(fault, topic, index) else 0) or cluster.judge(broker, topic, index)
            if not code:
                assert topic is not None
                log = topic.logs[index]
                if 0 <= asked.offset <= log.high_watermark:
                    log.delete_before(max(log.start, asked.offset))
                    start = log.start
                else:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
            rows.append(one(partition_index=index, low_watermark=start, error_code=code))
        topics.append(topic_class(name=wanted.name, partitions=rows))
    return DeleteRecordsResponse[request.version](throttle_time_ms=0, topics=topics)
