"""Withdraws rights from the mirror alone, by ACLs of Kafka's own authorizer (``Shape.authorized``).

All clients are ``User:ANONYMOUS``. The mirror's connections come from another host, because the proxy makes them from
there (``lab.proxy.MIRROR_HOST``).
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
from chaos.play.sides import Side
from lab.proxy import MIRROR_HOST

__all__ = ["AUTHORIZER", "CLUSTER", "Right", "withdrawn"]

_CONTROLLER = "listener.name.controller"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
AUTHORIZER: Mapping[str, str] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    # Until a controller has read the ACLs, it admits only super users. So the other controllers have to be super users.
    "super.users": "User:controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    f"{_CONTROLLER}.sasl.enabled.mechanisms": "PLAIN",
    f"{_CONTROLLER}.plain.sasl.jaas.config":
        f'{_LOGIN} username="controller" password="of a sandbox" user_controller="of a sandbox";',
}  # fmt: skip
"""Broker properties for the authorizer. Everybody may do everything to a resource that has no ACL."""
CLUSTER = "kafka-cluster"
_TIMEOUT_S = 30.0
_ANYBODY, _ANYWHERE, _EVERYBODY = "User:ANONYMOUS", "*", "User:*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """A right to a resource, in Kafka's terms.

    Attributes:
        kind: type of the resource.
        name: name of the resource; ``CLUSTER`` for the cluster.
        operations: the operations, which are withdrawn together.
        prefixed: True for all resources whose names begin with ``name``.
    """

    kind: ResourceType
    name: str
    operations: Sequence[AclOperation]
    prefixed: bool = False

    @property
    def _pattern(self) -> ResourcePatternType:
        return ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL

    def denied(self) -> list[AclBinding]:
        """Returns the ACLs that deny the operations to the mirror. A denial overrides every permission."""
        return [
            AclBinding(self.kind, self.name, self._pattern, _ANYBODY, MIRROR_HOST, one, AclPermissionType.DENY)
            for one in self.operations
        ]

    def allowed(self) -> AclBinding:
        """Returns the ACL that allows everything to everybody. It is needed for the other clients: once a resource has
        an ACL, only those that an ACL allows may use it."""
        return AclBinding(
            self.kind, self.name, self._pattern, _EVERYBODY, _ANYWHERE, AclOperation.ALL, AclPermissionType.ALLOW
        )

    def all_of_it(self) -> AclBindingFilter:
        """Returns the filter that matches all ACLs of the resource."""
        return AclBindingFilter(
            self.kind, self.name, self._pattern, None, None, AclOperation.ANY, AclPermissionType.ANY
        )


@contextmanager
def withdrawn(side: Side, *rights: Right) -> Iterator[None]:
    """Withdraws rights from the mirror while the context lasts. They are given back even after an error.

    Raises:
        ChaosError: the cluster has refused an ACL.
    """
    for right in rights:  # the permission first: otherwise the other clients would lack the right in between
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
