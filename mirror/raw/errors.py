"""The errors of the raw clients. Messages name the thing, the place and the remedy, and show no payload.

RawError
├── InvalidConfig          something in the configuration is wrong; the message lists all problems
├── Closed                 the client was closed
├── NotAssigned            the consumer does not have this partition
├── GroupFailed            the consumer's seat in its group is lost for good
├── CommitFailed           the coordinator did not take the offsets
├── BrokerError            ``code``: Kafka's, if a broker answered with one
│   ├── Unavailable          no broker answers, or the partition has no leader
│   ├── NotAuthenticated     TLS or SASL: one side does not accept the other
│   ├── NotAuthorized        a right is missing; the message names it
│   └── UnknownTopic         the cluster has no such topic or partition
├── PositionError          ``topic``, ``partition``, ``offset``: the consumer cannot go on there
│   ├── NoOffset             there is no committed offset, and auto.offset.reset is none
│   ├── OffsetOutOfRange     the log does not have the offset
│   ├── LogTruncated         the log has lost records that were read
│   ├── TopicRecreated       another topic has the name now
│   └── UnreadableLog        damaged, or stored in a format that has no record batches
└── SendFailed             ``topic``, ``partition``: the batch was not acknowledged
    ├── NotSendable          it was not sent: brokers would refuse or change it; ``reason``
    ├── BufferFull           it was not sent: ``buffer.memory`` had no room for ``max.block.ms``
    ├── NotSent              it was not sent: an earlier one failed, or the producer was closed
    ├── RefusedByBroker      the broker refused it for good; ``code``. It is not in the log
    ├── NotDelivered         it could not be sent for ``delivery.timeout.ms``. It is not in the log
    └── OutcomeUnknown       it was sent, and no answer says whether it is in the log
"""

from enum import Enum

from mirror.net.errors import AuthenticationFailed, NetworkError, Refused, TlsFailed, Unreachable, Unsupported
from mirror.reasons import HaltReason
from mirror.wire.errors import error_name

FINAL = (AuthenticationFailed, TlsFailed, Unsupported)
"""Errors after which another try would fail, too."""


class RawError(Exception):
    """Base class of the errors of this module."""


class InvalidConfig(RawError, ValueError):
    """Something in the configuration is wrong. The message has one line for each problem."""


class Closed(RawError):
    """The client was closed."""


class NotAssigned(RawError):
    """The consumer does not have this partition."""


class GroupFailed(RawError):
    """The consumer's seat in its group is lost for good: for example, another member has its ``group.instance.id``."""


class CommitFailed(RawError):
    """The group's coordinator did not take the offsets."""


class BrokerError(RawError):
    """A broker refuses a request, or no broker answers. ``code``: Kafka's error code; 0 if there is none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Unavailable(BrokerError):
    """No broker answers, or a partition has no leader. The client tries again by itself."""


class NotAuthenticated(BrokerError):
    """TLS or SASL: one side does not accept the other."""


class NotAuthorized(BrokerError):
    """A right is missing; the message names it."""


class UnknownTopic(BrokerError):
    """The cluster has no such topic or partition."""


class PositionError(RawError):
    """The consumer cannot go on at ``offset`` of a partition."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class NoOffset(PositionError):
    """The group has no offset for the partition, and ``auto.offset.reset`` is none."""


class OffsetOutOfRange(PositionError):
    """The log does not have the offset, and ``auto.offset.reset`` is none."""


class LogTruncated(PositionError):
    """The log has lost records that were read: an unclean election."""


class TopicRecreated(PositionError):
    """The topic was deleted, and another one has its name."""


class UnreadableLog(PositionError):
    """The log is damaged there, or stored in a format that has no record batches."""


class SendFailed(RawError):
    """A batch was not acknowledged."""

    def __init__(self, message: str, *, topic: str = "", partition: int = -1) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition


class Unfit(Enum):
    """Why brokers would refuse a batch, or change it without an error. ``slug``: a stable name, for programs.
    ``remedy``: what to do, in words."""

    NOT_ONE_BATCH = (
        "not_one_batch",
        "give exactly the bytes of one RecordBatch, as RawConsumer returns them in a record's value",
    )
    OLD_FORMAT = (
        HaltReason.OLD_FORMAT.slug,
        "brokers of today take magic 2 only: read these records with another client and produce them anew",
    )
    CORRUPT = (
        HaltReason.CORRUPT.slug,
        "the bytes were damaged after they were written: read them again; if they are damaged in the log, repair that",
    )
    UNKNOWN_ATTRIBUTES = (HaltReason.UNKNOWN_ATTRIBUTES.slug, "no broker of today can have written the batch")
    CONTROL = ("control", "leave it out, as sendable() does: a transaction's markers are written by brokers only")
    EMPTY = ("empty", "leave it out, as sendable() does: compaction has taken all of its records")
    TRANSACTIONAL = (
        "transactional",
        "read with isolation.level read_committed, and send what sendable() makes of it: the same bytes without this "
        "bit. Brokers take the bit only inside of a transaction of this producer",
    )
    DELETE_HORIZON = (
        "delete_horizon",
        "send what sendable() makes of it: the same bytes without this bit, which log cleaners set for themselves",
    )
    LOG_APPEND_TIME = (
        HaltReason.LOG_APPEND_TIME.slug,
        "send what sendable() makes of it: batches with the same records, in which each has the time of its append",
    )
    HOLES = (
        HaltReason.SPARSE_BATCH.slug,
        "send what sendable() makes of it: dense batches with the records that compaction has left",
    )
    TOO_LARGE = (
        HaltReason.TOO_LARGE.slug,
        "raise max.message.bytes of the topic, or send the smaller batches that sendable(value, max_bytes=...) makes",
    )
    RECORD_TOO_LARGE = (
        "record_too_large",
        "a single record cannot be split: raise max.message.bytes of the topic, or leave the record out",
    )
    DESTINATION_REWRITES = (
        HaltReason.DESTINATION_REWRITES.slug,
        "set compression.type=producer and message.timestamp.type=CreateTime on the topic",
    )

    def __init__(self, slug: str, remedy: str) -> None:
        self.slug = slug
        self.remedy = remedy


class NotSendable(SendFailed):
    """Brokers would refuse the batch, or change it without an error; nothing was sent."""

    def __init__(self, unfit: Unfit, detail: str, *, topic: str = "", partition: int = -1) -> None:
        place = f"{topic}-{partition}: " if topic else ""
        super().__init__(f"{place}{unfit.slug}: {detail}; {unfit.remedy}", topic=topic, partition=partition)
        self.unfit = unfit
        self.detail = detail

    @property
    def reason(self) -> str:
        """The stable name of what is wrong."""
        return self.unfit.slug


class BufferFull(SendFailed):
    """``buffer.memory`` had no room for ``max.block.ms``; the batch was not sent."""


class NotSent(SendFailed):
    """The batch was not sent: an earlier one of the partition failed, or the producer was closed."""


class RefusedByBroker(SendFailed):
    """The broker refused the batch for good. ``code``: Kafka's error code."""

    def __init__(self, message: str, code: int, *, topic: str, partition: int) -> None:
        super().__init__(message, topic=topic, partition=partition)
        self.code = code


class NotDelivered(SendFailed):
    """The batch could not be sent for ``delivery.timeout.ms``. It is not in the log."""


class OutcomeUnknown(SendFailed):
    """The batch was sent, and no answer says whether it is in the log."""


def heals(error: NetworkError) -> bool:
    """Returns True for an error after which another try may succeed."""
    return not (isinstance(error, FINAL) or (isinstance(error, Unreachable) and error.refused))


def of_network(error: NetworkError) -> BrokerError:
    """Returns the error of a raw client for one of ``mirror.net``."""
    if isinstance(error, AuthenticationFailed | TlsFailed) or (isinstance(error, Unreachable) and error.refused):
        return NotAuthenticated(f"{error}; check the ssl and sasl settings")
    if isinstance(error, Refused):
        if error.lacks is not None:
            return NotAuthorized(f"{error_name(error.code)}: grant the principal {error.lacks}", error.code)
        return BrokerError(str(error), error.code)
    return Unavailable(str(error))
