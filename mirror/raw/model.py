"""The data types of the raw clients' methods."""

from enum import IntEnum
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class TimestampType(IntEnum):
    """Whether a batch's timestamps were set by the producer or by the broker at the append (Kafka's TimestampType)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """One RecordBatch, in the form of KIP-712's ``fetch.raw.bytes``: a record whose value is the batch.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        offset: the offset of the batch's last record; ``offset + 1`` is what to commit.
        timestamp: timestamp of the batch's newest record, in ms since 1970.
        timestamp_type: whether the producer or the broker set it.
        value: the bytes of the batch, as the broker stores it. If the consumer began to read inside the batch: a new
            batch of the records from there on.
        key: always None: a batch has no key.
        headers: always None: a batch has no headers.
        leader_epoch: epoch of the leader that appended the batch; -1: not known.
        base_offset: the offset of the batch's first record.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: TimestampType
    value: bytes
    key: None = None
    headers: None = None
    leader_epoch: int = -1
    base_offset: int = -1


class RecordMetadata(NamedTuple):
    """The offsets at which a batch was appended.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        offset: the offset of the batch's last record, as ``ConsumerRecord.offset``.
        base_offset: the offset of its first record.
    """

    topic: str
    partition: int
    offset: int
    base_offset: int
