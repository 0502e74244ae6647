"""Kafka's error codes: their names, and the reaction of a partition that gets one.

One table decides between three reactions: look again (the position is read from the destination again), refresh the
metadata first, or halt, because looking again cannot help.
"""

from enum import Enum, IntEnum

from mirror.reasons import HaltReason


class ErrorCode(IntEnum):
    """Codes that a client of Fetch, Produce, Metadata, ListOffsets and the admin requests can get."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    STALE_MEMBER_EPOCH = 113
    REBOOTSTRAP_REQUIRED = 129


class Reaction(Enum):
    """The reaction of a partition to an error of the destination or the source."""

    LOOK_AGAIN = "recompute the position from the destination"
    FIND_LEADER = "refresh the metadata, then recompute the position"
    HALT = "looking again cannot help"


_FIND_LEADER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

UNREADABLE = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})
"""The codes with which brokers answer a Fetch that meets an impossible length, checksum or magic."""

HALTING: dict[int, HaltReason] = {
    ErrorCode.CORRUPT_MESSAGE: HaltReason.CORRUPT,
    ErrorCode.MESSAGE_TOO_LARGE: HaltReason.TOO_LARGE,
    ErrorCode.INVALID_TOPIC_EXCEPTION: HaltReason.INVALID_TOPIC,
    ErrorCode.RECORD_LIST_TOO_LARGE: HaltReason.TOO_LARGE_FOR_SEGMENT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: HaltReason.AUTHORIZATION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: HaltReason.CLUSTER_AUTHORIZATION,
    ErrorCode.INVALID_TIMESTAMP: HaltReason.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_VERSION: HaltReason.UNSUPPORTED_VERSION,
    ErrorCode.POLICY_VIOLATION: HaltReason.POLICY_VIOLATION,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: HaltReason.TRANSACTIONAL_ID_AUTHORIZATION,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: HaltReason.UNSUPPORTED_CODEC,
    ErrorCode.INVALID_RECORD: HaltReason.REFUSED,
}
"""The errors that looking again cannot cure, and the reason with which a partition halts for each."""


def outcome_of(code: int) -> Reaction:
    """Returns the reaction of the partition that got the error. After a code that is in no table, it looks again, with
    backoff."""
    if code in HALTING:
        return Reaction.HALT
    return Reaction.FIND_LEADER if code in _FIND_LEADER else Reaction.LOOK_AGAIN


def error_slug(code: int) -> str:
    """Returns Kafka's name for the code in lower case, as a metric label."""
    try:
        return ErrorCode(code).name.lower()
    except ValueError:
        return f"error_{code}"


def error_name(code: int) -> str:
    """Returns Kafka's name for the code with the number, for messages."""
    try:
        return f"{ErrorCode(code).name} ({code})"
    except ValueError:
        return f"error code {code}"
