"""Rights that are taken from the mirror alone, by ACLs that brokers' own authorizer keeps (``Shape.authorized``).

Everybody here is ``User:ANONYMOUS``; what tells the mirror apart is the host that its connections come from, which the
proxy gives it (``chaos.proxy.MIRROR_HOST``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from chaos.errors import ChaosError
from chaos.proxy import MIRROR_HOST
from chaos.sides import Side

__all__ = ["AUTHORIZER", "CLUSTER", "Right", "withdrawn"]

_CONTROLLER = "listener.name.controller"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
AUTHORIZER: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # Before a controller has read the ACLs, it hears nobody but super users: other controllers have to be some.
    "super.users": "User:controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    f"{_CONTROLLER}.sasl.enabled.mechanisms": "PLAIN",
    f"{_CONTROLLER}.plain.sasl.jaas.config":
        f'{_LOGIN} username="controller" password="of a sandbox" user_controller="of a sandbox";',
}  # fmt: skip
"""Of brokers: everybody may do everything to what has no ACL."""
CLUSTER = "kafka-cluster"
_TIMEOUT_S = 30.0
_ANYBODY, _ANYWHERE, _EVERYBODY = "User:ANONYMOUS", "*", "User:*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """What may be done to something, by Kafka's words.

    Attributes:
        kind: of the resource.
        name: of it; of a cluster ``CLUSTER``.
        operations: that are withdrawn together.
        prefixed: the right is one to everything whose name begins so.
    """

    kind: ResourceType
    name: str
    operations: Sequence[AclOperation]
    prefixed: bool = False

    @property
    def _pattern(self) -> ResourcePatternType:
        return ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL

    def denied(self) -> list[AclBinding]:
        """To the mirror; a denial is stronger than whatever allows."""
        return [
            AclBinding(self.kind, self.name, self._pattern, _ANYBODY, MIRROR_HOST, one, AclPermissionType.DENY)
            for one in self.operations
        ]

    def allowed(self) -> AclBinding:
        """To everybody else: with an ACL there, nobody may who is not named."""
        return AclBinding(
            self.kind, self.name, self._pattern, _EVERYBODY, _ANYWHERE, AclOperation.ALL, AclPermissionType.ALLOW
        )

    def all_of_it(self) -> AclBindingFilter:
        """Every ACL of the resource."""
        return AclBindingFilter(
            self.kind, self.name, self._pattern, None, None, AclOperation.ANY, AclPermissionType.ANY
        )


@contextmanager
def withdrawn(side: Side, *rights: Right) -> Iterator[None]:
    """Inside, the mirror lacks these rights; what it had is given back, also after an error.

    Raises:
        ChaosError: the cluster refused.
    """
    for right in rights:  # the others' right first: in between, nobody lacks what is not withdrawn
        _settle(side, side.admin.create_acls([right.allowed()], request_timeout=_TIMEOUT_S).values())
        _settle(side, side.admin.create_acls(right.denied(), request_timeout=_TIMEOUT_S).values())
    try:
        yield
    finally:
        for right in rights:
            _settle(side, side.admin.delete_acls([right.all_of_it()], request_timeout=_TIMEOUT_S).values())


def _settle(side: Side, futures: Iterable["Future[Any]"]) -> None:
    for future in futures:
        try:
            future.result(_TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            raise ChaosError(f"ACLs of the {side.name} cluster: {error}") from error
