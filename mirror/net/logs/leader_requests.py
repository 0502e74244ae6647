"""Requests to a partition's leader: ends of logs and epochs, producers, and markers to write.

Each function is for one partition, but calls that are made at the same time share requests (``mirror.net.batching``).
Other modules use ``mirror.net.logs.log.PartitionLog``.
"""

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from mirror.net.batching import Batcher
from mirror.net.cluster import Cluster
from mirror.net.connection import Connection
from mirror.net.errors import ConnectionLost, NetworkError, NotSent, Refused
from mirror.net.metadata import Leader
from mirror.net.options import Use
from mirror.net.rights import ALTER, CLUSTER, DESCRIBE, TOPIC, Right
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED

LATEST = -1
EARLIEST = -2
EARLIEST_LOCAL = -4
"""The first offset on the leader's own disk; those before it are in tiered storage (KIP-405)."""
LISTS_LOCAL_SINCE = 8
"""The first version of ListOffsets with EARLIEST_LOCAL."""
TRUE_END = (1 << 31) - 1
"""Replica id for ListOffsets. With any replica id >= 0, the leader answers with its log end, not the high
watermark."""
MOST_PARTITIONS = 500
"""Partitions in one request."""
MOST_MARKERS = 5_000
"""Markers in one request. They take the broker a third of a second, and 25 ms to encode here."""
MARKERS_WAIT_S = 5.0
"""Markers are sent within this time, or not at all: an earlier request that hangs could make them late."""
MARKERS_GO_OVER = Use.MARKING
_MARKERS_VERSION = 1
"""Version 2 (KIP-1228) only adds the transaction version, and its default of 0 is the right value here."""

Place = tuple[str, int]


class Producer(NamedTuple):
    """The state of a producer id in one partition, as a broker remembers it."""

    producer_id: int
    epoch: int
    last_sequence: int
    coordinator_epoch: int = -1
    """The highest coordinator epoch of the markers with this producer id; -1: there were none."""


class Marker(NamedTuple):
    """One ABORT marker, which takes one offset. If its epoch is above that of the data, brokers refuse later data of
    that epoch."""

    producer_id: int
    epoch: int
    coordinator_epoch: int = 0
    """Brokers refuse a lower value than the last one they saw for the producer id (TRANSACTION_COORDINATOR_FENCED)."""


class _Partition(NamedTuple):
    """A partition in a shared request."""

    topic: str
    partition: int
    epoch: int = -1

    @property
    def place(self) -> Place:
        """Topic and partition: ListOffsets refuses a request that names a partition twice."""
        return self.topic, self.partition


class EpochEnd(NamedTuple):
    """The end of the records of a leader epoch in the leader's log."""

    epoch: int
    """The largest epoch that the leader knows up to the one asked for; -1: the broker does not say."""
    offset: int
    """The offset behind its last record; -1: the leader knows neither this epoch nor a later one."""


class _Epoch(NamedTuple):
    """A partition and an ``epoch`` of it in a shared request. ``current``: the epoch of its present leader."""

    topic: str
    partition: int
    current: int
    epoch: int

    @property
    def place(self) -> Place:
        """Topic and partition: a request has each partition once."""
        return self.topic, self.partition


class _Markers(NamedTuple):
    """``markers_n`` equal markers for one partition."""

    topic: str
    partition: int
    marker: Marker
    markers_n: int
    asked_at: float
    """When the caller asked (monotonic, in s)."""

    @property
    def place(self) -> Place:
        """Topic and partition: other markers for the same partition wait for the next request, because in one answer
        the last error of a partition overwrites the others."""
        return self.topic, self.partition


async def list_offset(
    cluster: Cluster,
    topic: str,
    partition: int,
    leader: Leader,
    timestamp: int,
    *,
    replica_id: int = CONSUMER,
    committed: bool = False,
) -> int:
    """Returns the offset for ``timestamp`` (ms since 1970, or LATEST, EARLIEST); -1: there is none. Only the leader of
    this epoch answers.

    Args:
        cluster: the partition's cluster.
        topic: the topic's name.
        partition: the partition's number.
        leader: the partition's leader and its epoch.
        timestamp: ms since 1970, or one of the constants above.
        replica_id: ``CONSUMER``, or ``TRUE_END``.
        committed: True if LATEST means the last stable offset.

    Raises:
        Refused: the broker answered with an error code, or is not the leader any more.
        NetworkError: the broker did not answer.
    """
    batcher: Batcher[_Partition, int] = cluster.batcher(
        ("ListOffsets", leader.node_id, timestamp, replica_id, committed),
        lambda: Batcher(
            partial(_list_offsets, cluster, leader.node_id, timestamp, replica_id, committed), most=MOST_PARTITIONS
        ),
    )
    return await batcher.ask(_Partition(topic, partition, leader.epoch))


async def in_tiered_storage(cluster: Cluster, topic: str, partition: int, leader: Leader, offset: int) -> bool:
    """Returns True if the leader's own disk does not have this offset of the log any more, but tiered storage does.
    False if the broker does not tell.

    Raises:
        Refused: the broker answered with another error code, or is not the leader any more.
        NetworkError: the broker did not answer.
    """
    connection = await cluster.control(leader.node_id)
    speaks = connection.api_versions.get(ListOffsetsRequest.API_KEY)
    if speaks is None or speaks.most < LISTS_LOCAL_SINCE:
        return False
    try:
        return offset < await list_offset(cluster, topic, partition, leader, EARLIEST_LOCAL)
    except Refused as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST):
            return False
        raise


async def _list_offsets(
    cluster: Cluster, node_id: int, timestamp: int, replica_id: int, committed: bool, asked: list[_Partition]
) -> list[int | NetworkError]:
    one = ListOffsetsRequest.ListOffsetsTopic
    topics = [
        one(
            name=topic,
            partitions=[
                one.ListOffsetsPartition(
                    partition_index=partition.partition, current_leader_epoch=partition.epoch, timestamp=timestamp
                )
                for partition in partitions
            ],
        )
        for topic, partitions in _by_topic(asked)
    ]
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
        topics=topics,
        timeout_ms=30_000,
    )
    answer = await cluster.call(request, node_id=node_id)
    rows = _matched(asked, answer.topics, f"{cluster.name} ListOffsets")
    return [
        Refused(
            f"{cluster.name}: ListOffsets of {partition.topic}-{partition.partition}",
            row.error_code,
            needs=Right(DESCRIBE, TOPIC, partition.topic, cluster.name),
        )
        if row.error_code
        else int(row.offset)
        for partition, row in zip(asked, rows, strict=True)
    ]


async def end_of_epoch(cluster: Cluster, topic: str, partition: int, leader: Leader, epoch: int) -> EpochEnd | None:
    """Returns where the records of the leader epoch ``epoch`` end. If that is below an offset that was read in this
    epoch, the log was truncated since (KIP-101). None if the mirror lacks the right (ClusterAction, before Kafka 2.3).

    Raises:
        Refused: the broker answered with an error code, or is not the leader any more.
        NetworkError: the broker did not answer.
    """
    connection = await cluster.control(leader.node_id)
    if OffsetForLeaderEpochRequest.API_KEY not in connection.api_versions:
        return None
    batcher: Batcher[_Epoch, EpochEnd | None] = cluster.batcher(
        ("OffsetForLeaderEpoch", leader.node_id),
        lambda: Batcher(partial(_ends_of_epochs, cluster, leader.node_id), most=MOST_PARTITIONS),
    )
    return await batcher.ask(_Epoch(topic, partition, leader.epoch, epoch))


async def _ends_of_epochs(cluster: Cluster, node_id: int, asked: list[_Epoch]) -> list[EpochEnd | NetworkError | None]:
    one = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics = [
        one(
            topic=topic,
            partitions=[
                one.OffsetForLeaderPartition(
                    partition=each.partition, current_leader_epoch=each.current, leader_epoch=each.epoch
                )
                for each in partitions
            ],
        )
        for topic, partitions in _by_topic(asked)
    ]
    request = OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=topics)
    answer = await cluster.call(request, node_id=node_id)
    found = {(topic.topic, row.partition): row for topic in answer.topics for row in topic.partitions}
    return [_end_of_epoch(cluster, each, found.get(each.place), answer.version) for each in asked]


def _end_of_epoch(cluster: Cluster, asked: _Epoch, row: Any, version: int) -> EpochEnd | NetworkError | None:
    what = f"{cluster.name}: OffsetForLeaderEpoch of {asked.topic}-{asked.partition}"
    if row is None:
        return ConnectionLost(f"{what}: nothing in the answer")
    if row.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return None
    if row.error_code:
        return Refused(what, row.error_code, needs=Right(DESCRIBE, TOPIC, asked.topic, cluster.name))
    return EpochEnd(row.leader_epoch if version else -1, row.end_offset)


async def describe_producers(cluster: Cluster, topic: str, partition: int, leader: Leader) -> list[Producer] | None:
    """Returns the producers that the leader remembers (KIP-664); None if it cannot tell (before Kafka 2.8, or the
    mirror lacks the right).

    Raises:
        NetworkError: the leader did not answer.
    """
    connection = await cluster.control(leader.node_id)
    if DescribeProducersRequest.API_KEY not in connection.api_versions:
        return None
    batcher: Batcher[_Partition, list[Producer] | None] = cluster.batcher(
        ("DescribeProducers", leader.node_id),
        lambda: Batcher(partial(_describe_producers, cluster, leader.node_id), most=MOST_PARTITIONS),
    )
    return await batcher.ask(_Partition(topic, partition))


async def _describe_producers(
    cluster: Cluster, node_id: int, asked: list[_Partition]
) -> list[list[Producer] | NetworkError | None]:
    topics = [
        DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[one.partition for one in partitions])
        for topic, partitions in _by_topic(asked)
    ]
    answer = await cluster.call(DescribeProducersRequest(topics=topics), node_id=node_id)
    rows = _matched(asked, answer.topics, f"{cluster.name} DescribeProducers")
    return [_producers_of(cluster, partition, row) for partition, row in zip(asked, rows, strict=True)]


def _producers_of(cluster: Cluster, partition: _Partition, row: Any) -> list[Producer] | NetworkError | None:
    if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return None
    if row.error_code:
        return Refused(f"{cluster.name}: DescribeProducers of {partition.topic}-{partition.partition}", row.error_code)
    return [
        Producer(state.producer_id, state.producer_epoch, state.last_sequence, state.coordinator_epoch)
        for state in row.active_producers
    ]


async def write_markers(
    cluster: Cluster, topic: str, partition: int, leader: Leader, marker: Marker, count: int
) -> None:
    """Asks the leader to append ``count`` ABORT markers (WriteTxnMarkers), one offset each. Not idempotent, and the
    answer proves nothing: look at the log's end afterwards, whether this returns or raises.

    Raises:
        Refused: an error code for this partition; CLUSTER_AUTHORIZATION_FAILED without the right to write markers
            (Alter or ClusterAction on the cluster; before Kafka 3.9, ClusterAction).
        NotSent: they were not sent within ``MARKERS_WAIT_S``, because other markers were under way or the broker
            throttles us. What the caller knows of the log's end is too old by then.
        NetworkError: no answer; some, all or none of the markers may be in the log, or still get there.
    """
    batcher: Batcher[_Markers, None] = cluster.batcher(
        ("WriteTxnMarkers", leader.node_id),
        lambda: Batcher(
            partial(_write_markers, cluster, leader.node_id), most=MOST_MARKERS, weigh=lambda markers: markers.markers_n
        ),
    )
    await batcher.ask(_Markers(topic, partition, marker, count, time.monotonic()))


async def _write_markers(cluster: Cluster, node_id: int, asked: list[_Markers]) -> list[NetworkError | None]:
    connection = await cluster.control(node_id, use=MARKERS_GO_OVER)
    await connection.may_send()
    since = time.monotonic() - MARKERS_WAIT_S
    in_time = [markers for markers in asked if markers.asked_at >= since]
    answers = iter(await _write_now(cluster, connection, in_time) if in_time else ())
    return [next(answers) if markers.asked_at >= since else _too_late(cluster, markers) for markers in asked]


def _too_late(cluster: Cluster, markers: _Markers) -> NetworkError:
    where = f"{cluster.name}: WriteTxnMarkers to {markers.topic}-{markers.partition}"
    return NotSent(f"{where}: not sent within {MARKERS_WAIT_S:g} s, because others were under way")


async def _write_now(cluster: Cluster, connection: Connection, asked: list[_Markers]) -> list[NetworkError | None]:
    one = WriteTxnMarkersRequest.WritableTxnMarker
    entries: list[Any] = []
    for markers in asked:
        topic = one.WritableTxnMarkerTopic(name=markers.topic, partition_indexes=[markers.partition])
        entry = one(
            producer_id=markers.marker.producer_id,
            producer_epoch=markers.marker.epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=markers.marker.coordinator_epoch,
        )
        entries += [entry] * markers.markers_n
    request = WriteTxnMarkersRequest(markers=entries)
    answer = await connection.call(request, version=_MARKERS_VERSION)
    # The answer has an entry per producer id, or one per marker: any error of a partition counts.
    codes: dict[Place, int] = {}
    for result in answer.markers:
        for topic in result.topics:
            for row in topic.partitions:
                place = topic.name, row.partition_index
                codes[place] = codes.get(place) or row.error_code
    return [_marked(cluster, markers, codes.get(markers.place)) for markers in asked]


def _marked(cluster: Cluster, markers: _Markers, code: int | None) -> NetworkError | None:
    what = f"{cluster.name}: WriteTxnMarkers to {markers.topic}-{markers.partition}"
    if code is None:
        return ConnectionLost(f"{what}: nothing in the answer")
    return Refused(what, code, needs=Right(ALTER, CLUSTER, "", cluster.name)) if code else None


Asked = TypeVar("Asked", _Partition, _Epoch, _Markers)


def _by_topic(asked: Iterable[Asked]) -> Iterable[tuple[str, list[Asked]]]:
    """Groups partitions by topic."""
    topics: dict[str, list[Asked]] = {}
    for partition in asked:
        topics.setdefault(partition.topic, []).append(partition)
    return topics.items()


def _matched(asked: Sequence[_Partition], topics: Any, what: str) -> list[Any]:
    """Returns the row of each partition that was asked about, in their order.

    Raises:
        ConnectionLost: the answer lacks a partition, has one twice, or has another one.
    """
    rows = [((topic.name, row.partition_index), row) for topic in topics for row in topic.partitions]
    found = dict(rows)
    if len(rows) != len(asked) or any(partition.place not in found for partition in asked):
        raise ConnectionLost(f"{what}: {len(rows)} partitions in the answer, asked for {len(asked)}")
    return [found[partition.place] for partition in asked]
