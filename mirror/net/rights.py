"""The rights that a cluster's authorizer asks for, by the names that Kafka's own tools use (kafka-acls)."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from mirror.wire.errors import ErrorCode

DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
"""Error codes that mean: the principal lacks a right."""
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = "topic", "group", "cluster", "transactional id"
"""Kinds of resources."""
READ, WRITE, CREATE, DELETE, ALTER = "Read", "Write", "Create", "Delete", "Alter"
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = "Describe", "DescribeConfigs", "AlterConfigs"
CLUSTER_ACTION, IDEMPOTENT_WRITE = "ClusterAction", "IdempotentWrite"
OPERATION_CODES = {
    READ: 3,
    WRITE: 4,
    CREATE: 5,
    DELETE: 6,
    ALTER: 7,
    DESCRIBE: 8,
    CLUSTER_ACTION: 9,
    DESCRIBE_CONFIGS: 10,
    ALTER_CONFIGS: 11,
    IDEMPOTENT_WRITE: 12,
}
"""The codes of AclOperation, which stand in authorized_operations of answers (KIP-430)."""


class Right(NamedTuple):
    """One right to one resource."""

    operation: str
    kind: str
    """Of the resource."""
    name: str
    """The resource's name; empty for a cluster. With ``*`` at its end: all that begin so."""
    cluster: str
    """The cluster's name in the configuration."""

    def __str__(self) -> str:
        if self.kind == CLUSTER:
            return f"{self.operation} on cluster {self.cluster}"
        return f"{self.operation} on {self.kind} {self.name} of cluster {self.cluster}"

    @property
    def grant(self) -> str:
        """The remedy for its lack."""
        return f"grant the mirror's principal {self}"


def granted(told: Collection[int] | None, operations: Iterable[str]) -> bool | None:
    """Returns True if ``authorized_operations`` of an answer has one of these operations. ``told``: its codes, and the
    result, are None if the broker does not say."""
    return None if told is None else any(OPERATION_CODES[operation] in told for operation in operations)
