"""Where a partition's log begins and ends, what its last batch is, and which producers it remembers.

Off the data path: one small request each, on the control connection of the leader.
"""

from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import ListOffsetsRequest

from mirror.net.cluster import Cluster, Leader
from mirror.net.errors import ConnectionLost, Refused
from mirror.records.header import MAGIC, MAGIC_AT, BatchHeader, CorruptBatch
from mirror.records.scan import measure
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import READ_UNCOMMITTED, FetchPartition, TopicKey, fetch_request, read_fetch_response
from mirror.wire.primitives import MalformedFrame
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_KEY, FETCH_TOPIC_IDS, FETCH_VERSIONS

LATEST = -1
EARLIEST = -2
CONSUMER = -1
TRUE_END = (1 << 31) - 1
"""A replica id >= 0 in ListOffsets makes the leader answer with its log end, not the high watermark (broker facts)."""
_TAIL_BYTES = 1
"""A Fetch brings its first batch whole whatever the limit (KIP-74), so one byte asks for exactly one batch."""
_TAIL_WAIT_MS = 100
_OLD_FORMAT = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class Producer(NamedTuple):
    """What a broker remembers of a producer id in one partition."""

    producer_id: int
    epoch: int
    last_sequence: int


async def list_offset(
    cluster: Cluster, topic: str, partition: int, leader: Leader, timestamp: int, *, replica_id: int = CONSUMER
) -> int:
    """The offset for ``timestamp`` (LATEST, EARLIEST), by the leader of this epoch only.

    Raises:
        Refused: the leader says no, or is none any more.
        NetworkError: it did not answer.
    """
    wanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=leader.epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=READ_UNCOMMITTED,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])],
        timeout_ms=30_000,
    )
    answer = await cluster.call(request, node_id=leader.node_id)
    found = _only(answer.topics[0].partitions if answer.topics else [], f"{cluster.name} ListOffsets {topic}")
    if found.error_code:
        raise Refused(f"{cluster.name}: ListOffsets of {topic}-{partition}", found.error_code)
    return int(found.offset)


async def read_batch(
    cluster: Cluster, topic: str, topic_id: bytes | None, partition: int, leader: Leader, offset: int
) -> tuple[BatchHeader, bytes] | None:
    """The batch that contains ``offset`` (or the first behind it), whole; None if there is none.

    Raises:
        Refused: an error code from the broker; UNSUPPORTED_FOR_MESSAGE_FORMAT if the log has magic 0 or 1 there.
        NetworkError: it did not answer, or not with a batch.
    """
    connection = await cluster.control(leader.node_id)
    most = FETCH_VERSIONS[1] if topic_id else FETCH_TOPIC_IDS - 1
    version = connection.version_of(FETCH_KEY, (FETCH_VERSIONS[0], most), "Fetch")
    key: TopicKey = topic_id if topic_id and version >= FETCH_TOPIC_IDS else topic
    body = fetch_request(
        version,
        [FetchPartition(key, partition, offset, _TAIL_BYTES, leader.epoch)],
        max_wait_ms=_TAIL_WAIT_MS,
        min_bytes=1,
        max_bytes=_TAIL_BYTES,
        isolation_level=READ_UNCOMMITTED,
    )
    frame = memoryview(await connection.ask(FETCH_KEY, version, body, flexible=version >= FETCH_FLEXIBLE))
    try:
        fetched = read_fetch_response(version, frame)
        found = _only(fetched.partitions, f"{cluster.name} Fetch of {topic}-{partition}")
        if found.error or fetched.error:
            raise Refused(f"{cluster.name}: Fetch of {topic}-{partition} at {offset}", found.error or fetched.error)
        at = found.start
        while isinstance(size := measure(frame, at, found.end), int):
            if frame[at + MAGIC_AT] != MAGIC:
                raise Refused(f"{cluster.name}: {topic}-{partition} at {offset}", _OLD_FORMAT, "magic 0 or 1")
            header = BatchHeader.read(frame, at)
            if header.last_offset >= offset:
                return header, bytes(frame[at : at + size])
            at += size
    except (MalformedFrame, CorruptBatch) as error:
        raise ConnectionLost(f"{connection.name}: {topic}-{partition} at {offset}: {error}") from error
    return None


async def describe_producers(cluster: Cluster, topic: str, partition: int, leader: Leader) -> list[Producer] | None:
    """The producers that the leader remembers (KIP-664); None where brokers cannot tell (before 2.8, or no right).

    Raises:
        NetworkError: it did not answer.
    """
    connection = await cluster.control(leader.node_id)
    if DescribeProducersRequest.API_KEY not in connection.api_versions:
        return None
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
    answer = await cluster.call(DescribeProducersRequest(topics=[wanted]), node_id=leader.node_id)
    found = _only(answer.topics[0].partitions if answer.topics else [], f"{cluster.name} DescribeProducers {topic}")
    if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return None
    if found.error_code:
        raise Refused(f"{cluster.name}: DescribeProducers of {topic}-{partition}", found.error_code)
    return [Producer(state.producer_id, state.producer_epoch, state.last_sequence) for state in found.active_producers]


def _only(found: list[Any], what: str) -> Any:
    """The single partition that was asked about."""
    if len(found) != 1:
        raise ConnectionLost(f"{what}: {len(found)} partitions in the answer, asked for one")
    return found[0]
