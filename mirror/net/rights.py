"""The rights that a cluster's authorizer checks, with the names that Kafka's own tools use (kafka-acls)."""

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
"""Operation -> code of AclOperation, as in the field authorized_operations of responses (KIP-430)."""


class Right(NamedTuple):
    """One operation on one resource, for which the mirror needs a right."""

    operation: str
    kind: str
    """The kind of the resource: ``TOPIC``, ``GROUP``, …"""
    name: str
    """The resource's name; empty for a cluster. With ``*`` at its end: all names that begin with the rest."""
    cluster: str
    """The cluster's name in the configuration."""

    def __str__(self) -> str:
        if self.kind == CLUSTER:
            return f"{self.operation} on cluster {self.cluster}"
        return f"{self.operation} on {self.kind} {self.name} of cluster {self.cluster}"

    @property
    def grant(self) -> str:
        """The remedy if the right is missing, for error messages."""
        return f"grant the mirror's principal {self}"


def granted(told: Collection[int] | None, operations: Iterable[str]) -> bool | None:
    """Returns True if one of these operations is permitted. ``told``: the codes in the field authorized_operations of a
    response; None if the broker does not tell, and then the result is None, too."""
    return None if told is None else any(OPERATION_CODES[operation] in told for operation in operations)
