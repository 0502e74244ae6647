"""The rights that the README lists for groups and ACLs suffice to carry them over; each that is missing is named."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from mirror.sandbox import Cluster
from tests import secured
from tests.secured import PASSWORD, SASL_PLAIN, USER, Files
from tests.service.kafka_side import create_topic, produce
from tests.service.rights import AUTHORIZER, CLUSTER, GROUP, ID, TIMEOUT_S, TOPIC
from tests.service.running import config_text, mirror
from tests.service.runs.test_worker import caught_up
from tests.service.sync.sides import commit, wait_committed

pytestmark = pytest.mark.broker
PRINCIPAL = f"User:{USER}"


@dataclass(frozen=True)
class Right:
    """One right. ``side``: of which cluster. ``name``: of the resource; with ``*`` at its end, of all that begin so."""

    side: str
    kind: ResourceType
    name: str
    operation: AclOperation

    def binding(self, topic: str) -> AclBinding:
        name = self.name.replace("TOPIC", topic)
        pattern = ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL
        return AclBinding(
            self.kind, name.removesuffix("*"), pattern,
            PRINCIPAL, "*", self.operation, AclPermissionType.ALLOW,
        )  # fmt: skip


def rights(side: str, kind: ResourceType, name: str, *operations: str) -> list[Right]:
    return [Right(side, kind, name, getattr(AclOperation, operation)) for operation in operations]


ALL = [
    *rights("source", TOPIC, "TOPIC", "READ", "DESCRIBE", "DESCRIBE_CONFIGS"),
    *rights("source", GROUP, "mirror-source->destination", "READ"),
    *rights("source", TOPIC, "mirror-internal.*", "READ", "DESCRIBE"),
    *rights(
        "destination", TOPIC, "TOPIC", "WRITE", "READ", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE", "ALTER", "DELETE"
    ),
    *rights("destination", TOPIC, "mirror-internal.*", "READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE"),
    *rights("destination", ID, "mirror.source->destination.*", "WRITE", "DESCRIBE"),
    *rights("destination", CLUSTER, "kafka-cluster", "ALTER", "DESCRIBE_CONFIGS"),
]

SYNC = [
    *rights("source", GROUP, "TOPIC", "DESCRIBE"),
    *rights("destination", GROUP, "TOPIC", "READ"),
    *rights("source", CLUSTER, "kafka-cluster", "DESCRIBE"),
]
"""What else is needed to carry offsets and ACLs over. The group of these tests has its topic's name."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return secured.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def both(files: Files) -> Iterator[dict[str, Cluster]]:
    with (
        secured.cluster(files, name="source", more=AUTHORIZER) as source,
        secured.cluster(files, name="destination", more=AUTHORIZER) as destination,
    ):
        yield {"source": source, "destination": destination}


class Granted:
    """Exactly these rights, and no other."""

    def __init__(self, both: dict[str, Cluster], topic: str) -> None:
        self.topic = topic
        self.admins = {
            side: AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) for side, cluster in both.items()
        }

    def only(self, wanted: Sequence[Right]) -> None:
        everything = AclBindingFilter(
            ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for admin in self.admins.values():
            for deleted in admin.delete_acls([everything], request_timeout=TIMEOUT_S).values():
                deleted.result(TIMEOUT_S)
        self.add(wanted)

    def add(self, wanted: Sequence[Right]) -> None:
        for side, admin in self.admins.items():
            bindings = [right.binding(self.topic) for right in wanted if right.side == side]
            for made in admin.create_acls(bindings, request_timeout=TIMEOUT_S).values() if bindings else ():
                made.result(TIMEOUT_S)


def config(both: dict[str, Cluster], topic: str, **more: object) -> str:
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": USER,
            "sasl.password": PASSWORD}  # fmt: skip
    return config_text(
        both["source"].servers(SASL_PLAIN), both["destination"].servers(SASL_PLAIN), [topic],
        flow={"refresh.topics.interval.ms": 500} | more, clusters={"source": sasl, "destination": sasl},
    )  # fmt: skip


CARRIED = {
    "sync.group.offsets.enabled": True, "sync.group.offsets.interval.ms": 300, "sync.topic.acls.enabled": True,
    "sync.topic.acls.interval.ms": 300,
}  # fmt: skip


def with_group_and_reader(both: dict[str, Cluster], topic: str, granted: Sequence[Right]) -> None:
    """A topic whose group has read half of it, and that somebody else may read; and these rights for the mirror."""
    servers = both["source"].bootstrap_servers
    create_topic(servers, topic)
    produce(servers, topic, 20)
    commit(both["source"], topic, topic, 10)
    those = Granted(both, topic)
    those.only(granted)
    reader = AclBinding(
        TOPIC, topic, ResourcePatternType.LITERAL, "User:reader", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    for made in those.admins["source"].create_acls([reader], request_timeout=TIMEOUT_S).values():
        made.result(TIMEOUT_S)


def test_the_list_is_enough_for_groups_and_acls(both: dict[str, Cluster], topic_name: str, tmp_path: Path) -> None:
    with_group_and_reader(both, topic_name, [*ALL, *SYNC])
    with mirror(tmp_path / "mirror.yaml", config(both, topic_name, groups=[topic_name], **CARRIED)) as process:
        wait_committed(both["destination"], topic_name, topic_name, 10)
        assert process.wait_event("topic_acls_synced")["acls"] == [f"User:reader may Read {topic_name}"]
        warned = [line for line in process.lines if line.get("level") in ("warning", "error")]
        assert warned == []
        assert process.stop() == 0


@pytest.mark.parametrize(
    ("missing", "event", "remedy"),
    [
        (SYNC[1], "group_offsets_not_synced", "Read on group TOPIC at destination"),
        (SYNC[2], "topic_acls_not_synced", "Describe on the cluster at source"),
        (ALL[-2], "topic_acls_not_synced", "Describe on the cluster at destination"),
        (SYNC[0], "group_offsets_not_synced", "Describe on group TOPIC at source"),
    ],
    ids=["group-there", "cluster-here", "cluster-there", "group-here"],
)
def test_a_right_that_is_missing_is_named(
    both: dict[str, Cluster], topic_name: str, tmp_path: Path, missing: Right, event: str, remedy: str
) -> None:
    """Once, however often it is tried; copying goes on, and what it keeps from being carried over is, once granted."""
    with_group_and_reader(both, topic_name, [each for each in [*ALL, *SYNC] if each != missing])
    with mirror(tmp_path / "mirror.yaml", config(both, topic_name, groups=[topic_name], **CARRIED)) as process:
        line = process.wait_event(event)
        assert line["remedy"] == f"grant the mirror's principal {remedy.replace('TOPIC', topic_name)}"
        caught_up(process, both["source"].bootstrap_servers, both["destination"].bootstrap_servers, topic_name, 1)
        Granted(both, topic_name).add([missing])
        wait_committed(both["destination"], topic_name, topic_name, 10)
        assert len(process.of(event)) == 1
        assert process.stop() == 0
