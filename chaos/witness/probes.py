"""Asks brokers for evidence of what a scenario has done to them."""

import struct
from typing import Any
from uuid import UUID

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, ResourceType
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import ListOffsetsRequest

from chaos.play.sides import Side
from chaos.producers.raw import batches
from chaos.witness.ask import ask
from mirror.sandbox import Broker

__all__ = ["above_watermark", "config", "known_as", "log_end", "markers_since", "producers", "topic_id"]

_TIMEOUT_S = 10.0
_LIST_OFFSETS_VERSION = 5
_LATEST = -1
_NO_REPLICA, _A_REPLICA = -1, 1_000_000
"""Replica ids for ListOffsets. With an id >= 0, the answer is the log end instead of the high watermark."""


def _row(answer: Any) -> Any:
    return answer.topics[0].partitions[0]


def log_end(side: Side, topic: str, index: int = 0) -> int | None:
    """Returns the end of the leader's log, replicated or not; None if the leader does not answer."""
    return _latest(side.leader(topic, index), topic, index, _A_REPLICA)


def above_watermark(leader: Broker, topic: str, index: int = 0) -> int:
    """Returns the number of offsets in a leader's log above its high watermark; 0 if that is not known.

    Only the leader is asked. Kafka's clients might ask a frozen broker, and wait for longer than the records are above
    the high watermark. The log end is asked for first: if the log grows in between, the number is too low, never too
    high.
    """
    end = _latest(leader, topic, index, _A_REPLICA)
    watermark = _latest(leader, topic, index, _NO_REPLICA)
    return 0 if end is None or watermark is None else max(0, end - watermark)


def _latest(leader: Broker, topic: str, index: int, replica: int) -> int | None:
    kind = ListOffsetsRequest.ListOffsetsTopic
    one = kind.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=_LATEST)
    request = ListOffsetsRequest(
        replica_id=replica, isolation_level=0, topics=[kind(name=topic, partitions=[one])], timeout_ms=5_000
    )
    try:
        row = _row(ask(leader.address, request, _LIST_OFFSETS_VERSION, timeout_s=_TIMEOUT_S))
    except OSError:
        return None
    return None if row.error_code else int(row.offset)


def producers(side: Side, topic: str, index: int = 0) -> int | None:
    """Returns the number of producers of a partition that the leader remembers; None if the leader does not answer."""
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[index])]
    )
    try:
        row = _row(ask(side.leader(topic, index).address, request, 0, timeout_s=_TIMEOUT_S))
    except OSError:
        return None
    return None if row.error_code else len(row.active_producers)


def markers_since(side: Side, topic: str, offset: int, index: int = 0) -> int:
    """Returns the number of control batches of a partition from an offset on."""
    return sum(one.header.is_control for one in batches(side, topic, index, offset=offset))


def joined_since(source: Side, destination: Side, topic: str, offset: int, index: int = 0) -> int:
    """Returns by how many batches of data the destination has fewer than the source, in the range from an offset to the
    destination's last batch of data."""
    there = [one.header for one in batches(destination, topic, index, offset=offset) if not one.header.is_control]
    end = there[-1].next_offset if there else offset
    here = [one.header for one in batches(source, topic, index, offset=offset) if not one.header.is_control]
    return sum(header.next_offset <= end for header in here) - len(there)


def topic_id(side: Side, topic: str) -> str:
    """Returns the id of a topic, as text of ``uuid.UUID``; empty if there is no such topic, or no answer."""
    try:
        found = side.admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)
        told = found[topic].result(_TIMEOUT_S).topic_id
        # The id's own text is not used: librdkafka's base64 has other characters than Kafka's.
        halves = (told.get_most_significant_bits(), told.get_least_significant_bits())
        return str(UUID(bytes=struct.pack(">qq", *halves)))
    except (KafkaException, TimeoutError):  # a broker may be frozen, and either timeout may expire first
        return ""


def known_as(side: Side, topic: str) -> frozenset[str]:
    """Returns the texts by which requests name a topic: its name and its id. For ``lab.proxy.answers.carries``."""
    return frozenset({topic, topic_id(side, topic)})


def config(side: Side, topic: str, key: str) -> str:
    """Returns the value of a topic config, as the brokers report it."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (found,) = side.admin.describe_configs([resource], request_timeout=_TIMEOUT_S).values()
    return str(found.result(_TIMEOUT_S)[key].value)
