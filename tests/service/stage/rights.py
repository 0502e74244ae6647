"""The rights that docs/GUIDE.md lists, as ACLs of Kafka's own authorizer, for principals of a test's own."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from mirror.sandbox import SandboxCluster
from tests.secured import PASSWORD, SASL_PLAIN
from tests.service.stage.running import config_text

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The brokers themselves, and the clients of the tests, which come without a name.
    "super.users": "User:ANONYMOUS",
}
TOPIC, GROUP, CLUSTER, ID = (
    ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER, ResourceType.TRANSACTIONAL_ID,
)  # fmt: skip
OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Alter": AclOperation.ALTER,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "IdempotentWrite": AclOperation.IDEMPOTENT_WRITE,
}
TIMEOUT_S = 30.0
_SCRAM = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
GUIDE = Path(__file__).parents[3] / "docs" / "GUIDE.md"
_RESOURCES = {
    "the source's topics": ("source", TOPIC, "TOPIC"),
    "the group at the source": ("source", GROUP, "mirror-FLOW"),
    "topics `mirror-internal.*` of the source": ("source", TOPIC, "mirror-internal.*"),
    "the destination's topics": ("destination", TOPIC, "TOPIC"),
    "the destination's topics, if the source's partition begins above offset 0": ("destination", TOPIC, "TOPIC"),
    "[the internal topic](#what-it-keeps-and-where)": ("destination", TOPIC, "mirror-internal.FLOW"),
    "transactional ids `mirror.<flow>.…` at the destination": ("destination", ID, "mirror.FLOW.*"),
    "the destination cluster": ("destination", CLUSTER, "kafka-cluster"),
    # Not with the brokers of these tests.
    "the destination cluster before Kafka 2.8": None,
}
"""The first column of the guide's table -> cluster, kind and name of the resource."""


@dataclass(frozen=True, order=True)
class Right:
    """One right, as an ACL gives it. ``side``: of which cluster. ``name``: of the resource; with ``*`` at its end, of
    all that begin so. TOPIC and FLOW in it stand for a topic and for the flow's id. (``mirror.net.rights.Right`` is
    what the mirror says of one that it lacks.)"""

    side: str
    kind: ResourceType
    name: str
    operation: str

    def __str__(self) -> str:
        return f"{self.side} {self.kind.name} {self.name} {self.operation}"

    def of(self, *, topic: str = "", flow: str = "") -> "Right":
        """This right, of that topic and flow."""
        name = self.name.replace("TOPIC", topic or "TOPIC").replace("FLOW", flow or "FLOW")
        return Right(self.side, self.kind, name, self.operation)

    def binding(self, user: str) -> AclBinding:
        return AclBinding(
            self.kind, self.name.removesuffix("*"), self._pattern,
            f"User:{user}", "*", OPERATIONS[self.operation], AclPermissionType.ALLOW,
        )  # fmt: skip

    def filter(self, user: str) -> AclBindingFilter:
        return AclBindingFilter(
            self.kind, self.name.removesuffix("*"), self._pattern,
            f"User:{user}", "*", OPERATIONS[self.operation], AclPermissionType.ALLOW,
        )  # fmt: skip

    @property
    def _pattern(self) -> ResourcePatternType:
        return ResourcePatternType.PREFIXED if self.name.endswith("*") else ResourcePatternType.LITERAL


def listed() -> list[Right]:
    """All rights of the guide's table, but those for older brokers."""
    (table,) = re.findall(r"^\| on \| rights \| for \|\n\|[ :|-]+\|\n((?:\|.*\n)+)", GUIDE.read_text(), re.MULTILINE)
    found = []
    for row in table.splitlines():
        resource, named, _ = (cell.strip() for cell in row.strip("|").split(" | ", 2))
        where = _RESOURCES[resource]
        operations = [word for word in re.findall(r"\w+", named) if word in OPERATIONS]
        assert operations, row
        if where is not None:
            found += rights(*where, *operations)
    assert len(found) == len(set(found))
    return found


def rights(side: str, kind: ResourceType, name: str, *operations: str) -> list[Right]:
    """Several rights to one resource."""
    return [Right(side, kind, name, operation) for operation in operations]


class Principals:
    """Users of both clusters, and what they may do."""

    def __init__(self, both: Mapping[str, SandboxCluster]) -> None:
        self._admins = {
            side: AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) for side, cluster in both.items()
        }

    def make(self, users: Iterable[str]) -> None:
        """Users with the password of the tests."""
        wanted = [
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), PASSWORD.encode()
            )
            for user in users
        ]
        for admin in self._admins.values():
            for future in admin.alter_user_scram_credentials(wanted, request_timeout=TIMEOUT_S).values():
                future.result(TIMEOUT_S)

    def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Gives these rights."""
        rights = list(rights)
        for side, admin in self._admins.items():
            bindings = [right.binding(user) for right in rights if right.side == side]
            for made in admin.create_acls(bindings, request_timeout=TIMEOUT_S).values() if bindings else ():
                made.result(TIMEOUT_S)

    def only(self, user: str, rights: Iterable[Right]) -> None:
        """Gives these rights, and takes all others that anybody has."""
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for admin in self._admins.values():
            for taken in admin.delete_acls([everything], request_timeout=TIMEOUT_S).values():
                taken.result(TIMEOUT_S)
        self.grant(user, rights)

    def withdraw(self, user: str, rights: Iterable[Right]) -> None:
        """Takes these rights."""
        rights = list(rights)
        for side, admin in self._admins.items():
            filters = [right.filter(user) for right in rights if right.side == side]
            for taken in admin.delete_acls(filters, request_timeout=TIMEOUT_S).values() if filters else ():
                taken.result(TIMEOUT_S)


def config(both: Mapping[str, SandboxCluster], user: str, topics: list[str], flow: str, **more: object) -> str:
    """A flow that authenticates as this user."""
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user,
            "sasl.password": PASSWORD}  # fmt: skip
    return config_text(
        both["source"].servers(SASL_PLAIN), both["destination"].servers(SASL_PLAIN), topics,
        flow={"flow.id": flow, "refresh.topics.interval.ms": 500} | more,
        clusters={"source": sasl, "destination": sasl},
    )  # fmt: skip
