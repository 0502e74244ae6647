"""What the raw clients take and return."""

from enum import IntEnum
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class TimestampType(IntEnum):
    """Whose time a batch's timestamps are (Kafka's TimestampType)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """One RecordBatch, as KIP-712's ``fetch.raw.bytes`` has it: a record whose value is the batch.

    Attributes:
        topic: the topic's name.
        partition: the partition's number.
        offset: the offset of the batch's last record; ``offset + 1`` is what to commit.
        timestamp: of the batch's newest record, in ms since 1970.
        timestamp_type: whose time that is.
        value: the bytes of the batch, as the broker stores it; of a batch in which the consumer began to read, a batch
            of the records from there on.
        key: None: a batch has none.
        headers: None: a batch has none.
        leader_epoch: of the partition's leader that took the batch; -1: not known.
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
    """Where a batch landed.

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
