"""Responses of the fake broker to requests that ask or read: one function for each kind of request."""

import asyncio
import itertools
import uuid
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DescribeConfigsResponse,
    DescribeProducersResponse,
)
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse

from mirror.records.header import BatchHeader
from mirror.relay.topics.limits import OF_BROKERS
from mirror.wire.errors import ErrorCode
from tests.fakes.broker import KINDS, FakeBroker, FakeCluster, FakeTopic, handles, hits
from tests.fakes.faults import Fault
from tests.fakes.log import DEFAULT_MAX_BATCH
from tests.fakes.sessions import Wanted, wanted_of

TOPIC_SETTING, DEFAULT_SETTING = 1, 5
BROKER_RESOURCE = 4
DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": str(DEFAULT_MAX_BATCH),
    "message.timestamp.type": "CreateTime",
    "retention.ms": "604800000",
}


@handles("ApiVersions")
async def api_versions(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Returns the versions that the cluster was given."""
    one = ApiVersionsResponse.ApiVersion
    # An error is answered in version 0, which every client can read.
    return ApiVersionsResponse[0 if fault.error else request.version](
        error_code=fault.error,
        api_keys=[
            one(api_key=kind.API_KEY, min_version=least, max_version=most)
            for kind in KINDS.values()
            for least, most in [cluster.versions.get(kind.name.removesuffix("Request"), (-1, -1))]
            if most >= 0
        ],
        throttle_time_ms=0,
    )


@handles("Metadata")
async def metadata(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Returns all topics, or those that are named. Never creates one."""
    assert not request.allow_auto_topic_creation, "the mirror never creates topics by asking for them"
    one = MetadataResponse.MetadataResponseTopic
    names = [wanted.name for wanted in request.topics] if request.topics is not None else list(cluster.topics)
    topics = []
    for name in names:
        topic = cluster.topics.get(name)
        code = fault.error if hits(fault, topic, -1) or (fault.error and fault.only is None) else 0
        if topic is None:
            code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = code or topic.error
        topics.append(
            one(
                error_code=code,
                name=name,
                topic_id=topic.topic_id if topic else None,
                is_internal=bool(topic and topic.internal),
                partitions=_partitions(cluster, topic) if topic and not code else [],
            )
        )
    return MetadataResponse[request.version](
        throttle_time_ms=0,
        error_code=0,
        brokers=[
            MetadataResponse.MetadataResponseBroker(node_id=each.node_id, host="127.0.0.1", port=each.port, rack=None)
            for each in cluster.brokers.values()
            if each.up or cluster.unnoticed
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
    )


def _partitions(cluster: FakeCluster, topic: FakeTopic) -> list[Any]:
    one = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    up = {node_id for node_id, broker in cluster.brokers.items() if broker.up or cluster.unnoticed}
    return [
        one(
            error_code=ErrorCode.NONE if log.leader in up else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=log.leader if log.leader in up else -1,
            leader_epoch=log.epoch,
            replica_nodes=[log.leader],
            isr_nodes=[log.leader],
            offline_replicas=[],
        )
        for index, log in topic.logs.items()
    ]


@handles("ListOffsets")
async def list_offsets(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Returns the log's start, the high watermark or, for a replica, the true end. For a timestamp, returns the base
    offset of the first batch whose max timestamp is not earlier: the fake does not open batches."""
    topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
    one = topic_class.ListOffsetsPartitionResponse
    topics = []
    for wanted in request.topics:
        topic = cluster.find(wanted.name, None)
        answers = []
        for asked in wanted.partitions:
            index = asked.partition_index
            code = fault.error if hits(fault, topic, index) else 0
            code = code or cluster.judge(broker, topic, index, epoch=asked.current_leader_epoch)
            offset = epoch = -1
            if not code:
                assert topic is not None
                log = topic.logs[index]
                end = log.end if request.replica_id >= 0 else log.high_watermark
                known = {-2: log.start, -4: max(log.start, log.local_start)}
                if asked.timestamp >= 0:
                    headers = map(BatchHeader.read, log.batches)
                    late = (one.base_offset for one in headers if one.max_timestamp >= asked.timestamp)
                    end = next(late, -1)
                offset, epoch = known.get(asked.timestamp, end), log.epoch
            answers.append(one(partition_index=index, error_code=code, timestamp=-1, offset=offset, leader_epoch=epoch))
        topics.append(topic_class(name=wanted.name, partitions=answers))
    return ListOffsetsResponse[request.version](throttle_time_ms=0, topics=topics)


@handles("OffsetForLeaderEpoch")
async def offset_for_leader_epoch(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Returns where leader epochs end."""
    topic_class = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    topics = []
    for wanted in request.topics:
        topic = cluster.find(wanted.topic, None)
        rows = []
        for asked in wanted.partitions:
            code = fault.error if hits(fault, topic, asked.partition) else 0
            code = code or cluster.judge(broker, topic, asked.partition, epoch=asked.current_leader_epoch)
            epoch, end = (
                (-1, -1) if code or topic is None else topic.logs[asked.partition].end_of_epoch(asked.leader_epoch)
            )
            rows.append(
                topic_class.EpochEndOffset(
                    error_code=code, partition=asked.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(topic_class(topic=wanted.topic, partitions=rows))
    return OffsetForLeaderEpochResponse[request.version](throttle_time_ms=0, topics=topics)


@handles("DescribeProducers")
async def describe_producers(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Returns every producer id that the log remembers."""
    topic_class = DescribeProducersResponse.TopicResponse
    one = topic_class.PartitionResponse
    state_class = one.ProducerState
    topics = []
    for wanted in request.topics:
        topic = cluster.find(wanted.name, None)
        answers = []
        for index in wanted.partition_indexes:
            code = (fault.error if hits(fault, topic, index) else 0) or cluster.judge(broker, topic, index)
            states = topic.logs[index].producers.items() if topic and not code else ()
            answers.append(
                one(
                    partition_index=index,
                    error_code=code,
                    error_message=None,
                    active_producers=[
                        state_class(
                            producer_id=producer_id,
                            producer_epoch=state.epoch,
                            last_sequence=state.batches[-1][1] if state.batches else -1,
                            last_timestamp=0,
                            coordinator_epoch=state.coordinator_epoch,
                            current_txn_start_offset=-1,
                        )
                        for producer_id, state in states
                    ],
                )
            )
        topics.append(topic_class(name=wanted.name, partitions=answers))
    return DescribeProducersResponse[request.version](throttle_time_ms=0, topics=topics)


@handles("DescribeConfigs")
async def describe_configs(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Returns the topic's settings, and the broker's defaults for the others."""
    result_class = DescribeConfigsResponse.DescribeConfigsResult
    one = result_class.DescribeConfigsResourceResult
    results = []
    for resource in request.resources:
        if resource.resource_type == BROKER_RESOURCE:
            settings = {"producer.id.expiration.ms": str(cluster.producer_id_expiration_ms)} | cluster.broker_configs
            found = [
                one(
                    name=name,
                    value=value,
                    read_only=False,
                    config_source=DEFAULT_SETTING,
                    is_sensitive=False,
                    synonyms=[],
                    config_type=0,
                    documentation=None,
                )
                for name, value in settings.items()
                if resource.configuration_keys is None or name in resource.configuration_keys
            ]
            results.append(
                result_class(
                    error_code=fault.error, error_message=None, resource_type=BROKER_RESOURCE,
                    resource_name=resource.resource_name, configs=[] if fault.error else found,
                )
            )  # fmt: skip
            continue
        topic = cluster.topics.get(resource.resource_name)
        code = fault.error if hits(fault, topic, -1) or (fault.error and fault.only is None) else 0
        defaults = {OF_BROKERS[name]: value for name, value in cluster.broker_configs.items()}
        values = DEFAULTS | defaults | (topic.configs if topic else {})
        results.append(
            result_class(
                error_code=code or (ErrorCode.NONE if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    one(
                        name=name,
                        value=value,
                        read_only=False,
                        is_default=topic is None or name not in topic.configs,
                        config_source=TOPIC_SETTING if topic and name in topic.configs else DEFAULT_SETTING,
                        is_sensitive=False,
                        synonyms=[],
                        config_type=0,
                        documentation=None,
                    )
                    for name, value in values.items()
                    if name not in cluster.undescribed
                ]
                if topic and not code
                else [],
            )
        )
    return DescribeConfigsResponse[request.version](throttle_time_ms=0, results=results)


@handles("CreateTopics")
async def create_topics(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Creates the topics, or answers that they exist."""
    one = CreateTopicsResponse.CreatableTopicResult
    results = []
    for wanted in request.topics:
        code = fault.error
        if not code and wanted.name in cluster.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
        if not code:
            configs = {config.name: config.value for config in wanted.configs}
            cluster.add_topic(wanted.name, partitions=wanted.num_partitions, configs=configs)
        results.append(
            one(
                name=wanted.name,
                topic_id=cluster.topics[wanted.name].topic_id if not code else uuid.UUID(int=0),
                error_code=code,
                error_message="as scripted" if fault.error else None,
                topic_config_error_code=0,
                num_partitions=wanted.num_partitions,
                replication_factor=wanted.replication_factor,
                configs=[],
            )
        )
    return CreateTopicsResponse[request.version](throttle_time_ms=0, topics=results)


@handles("CreatePartitions")
async def create_partitions(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Adds partitions. A count that is not above the current one is an error."""
    results = []
    for wanted in request.topics:
        logs = cluster.topics[wanted.name].logs
        code = fault.error or (ErrorCode.INVALID_PARTITIONS if wanted.count <= len(logs) else 0)
        for index in range(len(logs), 0 if code else wanted.count):
            logs[index] = type(logs[0])(leader=logs[0].leader)
        told = "as scripted" if fault.error else None
        results.append(
            CreatePartitionsResponse.CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=told)
        )
    return CreatePartitionsResponse[request.version](throttle_time_ms=0, results=results)


@handles("Fetch")
async def fetch(cluster: FakeCluster, broker: FakeBroker, request: Any, fault: Fault) -> Any:
    """Returns records in the order of the request (or of the session), within its limits, with the first batch
    complete. Waits for data as long as the request allows."""
    deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
    code, session, incremental = broker.sessions.open(request)
    if code:
        return FetchResponse[request.version](
            throttle_time_ms=0, error_code=code, session_id=0, responses=[], node_endpoints=[]
        )
    while True:
        wanted = wanted_of(request) if session is None else list(session.members.values())
        answers, size, nodes = _fetched(cluster, broker, request, wanted, fault)
        left_s = deadline - asyncio.get_running_loop().time()
        if size or fault.error or left_s <= 0:
            break
        await cluster.wait_changed(left_s)
    await asyncio.sleep(cluster.fetch_delay_s)
    if session is not None:
        news = [(each, answer) for each, answer in zip(wanted, answers, strict=True) if session.has_news(each, answer)]
        if incremental:
            wanted, answers = [each for each, _ in news], [answer for _, answer in news]
    topic_class = FetchResponse.FetchableTopicResponse
    return FetchResponse[request.version](
        throttle_time_ms=0,
        error_code=0,
        session_id=0 if session is None else session.session_id,
        responses=[
            topic_class(topic=name, topic_id=topic_id, partitions=[answer for _, answer in run])
            for (name, topic_id), run in itertools.groupby(
                zip(wanted, answers, strict=True), key=lambda pair: (pair[0].topic, pair[0].topic_id)
            )
        ],
        node_endpoints=list(nodes.values()),
    )


def _fetched(
    cluster: FakeCluster, broker: FakeBroker, request: Any, wanted: list[Wanted], fault: Fault
) -> tuple[list[Any], int, dict[int, Any]]:
    """Returns the partitions' responses as of now; their size, in which an error counts as data, as on a real broker;
    and the brokers that they name."""
    left = request.max_bytes
    size = 0
    nodes: dict[int, Any] = {}
    answers = []
    for name, topic_id, asked in wanted:
        topic = cluster.find(name, topic_id)
        answer = _fetched_partition(
            cluster, broker, topic, asked, request, fault=fault, left=left, whole_first=not size, nodes=nodes
        )
        answers.append(answer)
        left = max(0, left - len(answer.records))
        size += len(answer.records) + (1 if answer.error_code or answer.diverging_epoch else 0)
    return answers, size, nodes


def _fetched_partition(
    cluster: FakeCluster,
    broker: FakeBroker,
    topic: FakeTopic | None,
    asked: Any,
    request: Any,
    *,
    fault: Fault,
    left: int,
    whole_first: bool,
    nodes: dict[int, Any],
) -> Any:
    one = FetchResponse.FetchableTopicResponse.PartitionData
    told, index = one.AbortedTransaction, asked.partition
    code = fault.error if hits(fault, topic, index) else 0
    epoch = asked.current_leader_epoch if request.version >= 9 else -1
    code = code or cluster.judge(broker, topic, index, epoch=epoch, by_id=request.version >= 13)
    log = topic.logs.get(index) if topic else None
    records = b""
    diverging = leader = None
    follows = log is not None and log.leader != broker.node_id and broker.node_id in cluster.followers.values()
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and follows:
        code = 0
    preferred = cluster.followers.get(request.rack_id or "", -1) if request.version >= 11 else -1
    if log is not None and preferred in (log.leader, broker.node_id):
        preferred = -1
    if not code and log is not None:
        last_epoch = asked.last_fetched_epoch if request.version >= 12 else -1
        if last_epoch is not None and last_epoch >= 0:
            epoch, end = log.end_of_epoch(last_epoch)
            if epoch < last_epoch or end < asked.fetch_offset:
                diverging = one.EpochEndOffset(epoch=epoch, end_offset=end)
        if diverging is None and not log.start <= asked.fetch_offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif diverging is None and preferred < 0:
            most = min(asked.partition_max_bytes, left)
            committed = bool(request.isolation_level)
            records = log.read(
                asked.fetch_offset, most, whole_first=whole_first, slices=cluster.slices, committed=committed
            )
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER and log is not None and request.version >= 16:
        leader = one.LeaderIdAndEpoch(leader_id=log.leader, leader_epoch=log.epoch)
        nodes[log.leader] = FetchResponse.NodeEndpoint(
            node_id=log.leader, host="127.0.0.1", port=cluster.brokers[log.leader].port, rack=None
        )
    return one(
        partition_index=index,
        error_code=code,
        high_watermark=log.high_watermark if log and not code else -1,
        last_stable_offset=log.last_stable if log and not code else -1,
        log_start_offset=log.start if log and not code else -1,
        diverging_epoch=diverging,
        current_leader=leader,
        aborted_transactions=[told(producer_id=who, first_offset=first) for who, first in (log.aborted if log else ())],
        preferred_read_replica=preferred if not code else -1,
        records=records,
    )
