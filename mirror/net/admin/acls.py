"""The ACLs of a cluster's topics.

Source: KIP-140, and KIP-290 for prefixed patterns.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from kafka.protocol.admin import (
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ACLResourceType,
    CreateAclsRequest,
    DescribeAclsRequest,
)

from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost, Refused

PATTERNS_SINCE = 1
"""The first version of DescribeAcls and CreateAcls with prefixed patterns (Kafka 2.0)."""
MOST_ACLS = 500
"""ACLs in one CreateAcls request."""
EVERY_TOPIC = "*"
"""The literal name that stands for all topics."""
ANY, TOPIC = int(ACLResourceType.ANY), int(ACLResourceType.TOPIC)
LITERAL, PREFIXED = int(ACLResourcePatternType.LITERAL), int(ACLResourcePatternType.PREFIXED)
DENY, ALLOW = int(ACLPermissionType.DENY), int(ACLPermissionType.ALLOW)


class TopicAcl(NamedTuple):
    """One topic ACL. ``operation``, ``permission`` and ``pattern`` are Kafka's numbers. ``name``: of the topic, or the
    prefix, or ``EVERY_TOPIC``."""

    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    @property
    def text(self) -> str:
        """The ACL in words, as Kafka's own tools show it."""
        kind = "prefix " if self.pattern == PREFIXED else ""
        allowed = "may" if self.permission == ALLOW else "must not"
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.principal} {allowed} {operation_name(self.operation)} {kind}{self.name}{host}"


def operation_name(operation: int) -> str:
    """Returns Kafka's name of an operation, such as Read; ``operation N`` if it is not known here."""
    try:
        return "".join(word.capitalize() for word in ACLOperation(operation).name.split("_"))
    except ValueError:
        return f"operation {operation}"


async def describe_topic_acls(cluster: Cluster) -> set[TopicAcl]:
    """Returns all ACLs of topics, of every kind of pattern.

    Raises:
        Refused: SECURITY_DISABLED (54) if the cluster has no authorizer; CLUSTER_AUTHORIZATION_FAILED without Describe
            on the cluster.
        NetworkError: the cluster does not answer.
    """
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    answer = await cluster.call(request)
    if answer.error_code:
        raise Refused(f"{cluster.name}: DescribeAcls", answer.error_code, answer.error_message)
    return {
        TopicAcl(
            resource.resource_name,
            resource.pattern_type if answer.version >= PATTERNS_SINCE else LITERAL,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    }


async def create_topic_acls(cluster: Cluster, acls: Collection[TopicAcl]) -> list[Refused | None]:
    """Creates ACLs with literal patterns. One that exists is left as it is.

    Returns:
        For each ACL, in their order: None, or the error for which it was refused.

    Raises:
        NetworkError: the cluster does not answer; some ACLs may have been created.
    """
    rows = list(acls)
    found: list[Refused | None] = []
    for at in range(0, len(rows), MOST_ACLS):
        found += await _create_some(cluster, rows[at : at + MOST_ACLS])
    return found


async def _create_some(cluster: Cluster, acls: Sequence[TopicAcl]) -> list[Refused | None]:
    one = CreateAclsRequest.AclCreation
    creations = [
        one(
            resource_type=TOPIC,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]
    connection = await cluster.control_of_controller()
    answer = await connection.call(CreateAclsRequest(creations=creations))
    if len(answer.results) != len(acls):
        raise ConnectionLost(f"{cluster.name}: CreateAcls: {len(answer.results)} results for {len(acls)} ACLs")
    return [
        Refused(f"{cluster.name}: CreateAcls", row.error_code, row.error_message) if row.error_code else None
        for row in answer.results
    ]
