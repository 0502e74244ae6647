"""Log starts and ends: ListOffsets for many partitions in few requests, with retries when leaders move."""

import asyncio
from collections import defaultdict
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from mirror.audit.errors import AuditError
from mirror.audit.model.places import TopicPartition
from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.wire.errors import ErrorCode, Reaction, error_name, outcome_of
from mirror.wire.fetch import READ_COMMITTED, READ_UNCOMMITTED

EARLIEST, LATEST = -2, -1
EARLIEST_LOCAL = -4
"""The first offset on the leader's own disk; those before it are in tiered storage (KIP-405, Kafka 3.6)."""
MOST_TRIES = 8


async def log_spans(
    cluster: Cluster, keys: list[TopicPartition], *, committed: bool = False
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Returns the log starts and log ends of these partitions. Starts are read first, so that none is after its end.

    The end is the high watermark, or with ``committed`` the last stable offset, after which nothing is decided yet.
    Raises what ``list_offsets`` raises.
    """
    starts = await list_offsets(cluster, keys, EARLIEST)
    return starts, await list_offsets(cluster, keys, LATEST, committed=committed)


async def list_offsets(
    cluster: Cluster, keys: list[TopicPartition], timestamp: int, *, committed: bool = False
) -> dict[TopicPartition, int]:
    """Returns one offset per partition. All partitions of a leader share a request. If leaders have moved, it asks
    again.

    Args:
        cluster: the cluster to ask; its metadata must have the topics.
        keys: the partitions.
        timestamp: in ms since 1970, or ``EARLIEST``, ``LATEST`` or ``EARLIEST_LOCAL``.
        committed: ask at read_committed.

    Raises:
        AuditError: a partition has no leader, or an error persists.
        NetworkError: a leader does not answer.
    """
    offsets: dict[TopicPartition, int] = {}
    backoff = Backoff(least_ms=100, most_ms=5_000)
    left = list(dict.fromkeys(keys))
    while left:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        failed: dict[TopicPartition, int] = {}
        for key in left:
            leader = cluster.leader(*key)
            if leader is None:
                failed[key] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader[leader.node_id].append(key)
        for node_id, asked in by_leader.items():
            answer = await cluster.call(_request(asked, timestamp, committed), node_id=node_id)
            _take(answer, offsets, failed)
        left = [key for key in left if key not in offsets]
        if left:
            await _retry(cluster, left, failed, backoff)
    return offsets


async def _retry(
    cluster: Cluster, left: list[TopicPartition], failed: dict[TopicPartition, int], backoff: Backoff
) -> None:
    topic, partition = left[0]
    code = failed.get(left[0], ErrorCode.UNKNOWN_SERVER_ERROR)
    wait_s = backoff.next_s()
    if backoff.tries > MOST_TRIES or outcome_of(code) is Reaction.HALT:
        raise AuditError(
            f"cluster {cluster.name}: the offsets of topic {topic} partition {partition} cannot be had, "
            f"{error_name(code)}",
            "check that its leader is up and that the audit's principal may Describe the topic",
        )
    await asyncio.sleep(wait_s)
    await cluster.refresh({key.topic for key in left})


def _request(keys: list[TopicPartition], timestamp: int, committed: bool) -> Any:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in keys:
        topics[topic].append(partition)
    kind = ListOffsetsRequest.ListOffsetsTopic
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
                    for partition in wanted
                ],
            )
            for topic, wanted in topics.items()
        ],
    )


def _take(answer: Any, offsets: dict[TopicPartition, int], failed: dict[TopicPartition, int]) -> None:
    for topic in answer.topics:
        for found in topic.partitions:
            key = TopicPartition(topic.name, found.partition_index)
            if found.error_code:
                failed[key] = found.error_code
            elif found.offset < 0:
                failed[key] = ErrorCode.OFFSET_NOT_AVAILABLE
            else:
                offsets[key] = found.offset
