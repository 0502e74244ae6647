"""The raw client API of KIP-712, for other programs: batches are read and written as brokers store them (docs/RAW.md).

``RawConsumer`` and ``RawProducer`` can also be imported from ``mirror`` itself, which imports this package at first
use.
"""

from mirror.raw.batches import sendable
from mirror.raw.consumer import RawConsumer
from mirror.raw.model import ConsumerRecord, RecordMetadata, TimestampType, TopicPartition
from mirror.raw.producer import RawProducer

__all__ = [
    "ConsumerRecord",
    "RawConsumer",
    "RawProducer",
    "RecordMetadata",
    "TimestampType",
    "TopicPartition",
    "sendable",
]
