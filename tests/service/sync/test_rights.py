"""The rights that docs/GUIDE.md lists for groups and ACLs suffice to carry them over; each that is missing is named."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
)

from mirror.sandbox import SandboxCluster
from tests import secured
from tests.secured import USER, Files
from tests.service.runs.test_worker import caught_up
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.rights import (
    AUTHORIZER,
    CLUSTER,
    GROUP,
    TIMEOUT_S,
    TOPIC,
    Principals,
    Right,
    config,
    listed,
    rights,
)
from tests.service.stage.running import mirror
from tests.service.sync.sides import commit, wait_committed

pytestmark = pytest.mark.broker
FLOW = "carried"


SYNC = [
    *rights("source", GROUP, "TOPIC", "Describe"),
    *rights("destination", GROUP, "TOPIC", "Read"),
    *rights("source", CLUSTER, "kafka-cluster", "Describe"),
]
"""What else is needed to carry offsets and ACLs over. The group of these tests has its topic's name."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return secured.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def both(files: Files) -> Iterator[dict[str, SandboxCluster]]:
    with (
        secured.cluster(files, name="source", more=AUTHORIZER) as source,
        secured.cluster(files, name="destination", more=AUTHORIZER) as destination,
    ):
        yield {"source": source, "destination": destination}


CARRIED = {
    "sync.group.offsets.enabled": True, "sync.group.offsets.interval.ms": 300, "sync.topic.acls.enabled": True,
    "sync.topic.acls.interval.ms": 300,
}  # fmt: skip


def with_group_and_reader(both: dict[str, SandboxCluster], topic: str, granted: Sequence[Right]) -> None:
    """A topic whose group has read half of it, and that somebody else may read; and these rights for the mirror."""
    servers = both["source"].bootstrap_servers
    create_topic(servers, topic)
    produce(servers, topic, 20)
    commit(both["source"], topic, topic, 10)
    Principals(both).only(USER, [right.of(topic=topic, flow=FLOW) for right in granted])
    reader = AclBinding(
        TOPIC, topic, ResourcePatternType.LITERAL, "User:reader", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_acls([reader], request_timeout=TIMEOUT_S).values():
        made.result(TIMEOUT_S)


def test_the_list_is_enough_for_groups_and_acls(
    both: dict[str, SandboxCluster], topic_name: str, tmp_path: Path
) -> None:
    with_group_and_reader(both, topic_name, [*listed(), *SYNC])
    with mirror(
        tmp_path / "mirror.yaml", config(both, USER, [topic_name], FLOW, groups=[topic_name], **CARRIED)
    ) as process:
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
        (
            Right("destination", CLUSTER, "kafka-cluster", "Alter"),
            "topic_acls_not_synced",
            "Describe on the cluster at destination",
        ),
        (SYNC[0], "group_offsets_not_synced", "Describe on group TOPIC at source"),
    ],
    ids=["group-there", "cluster-here", "cluster-there", "group-here"],
)
def test_a_right_that_is_missing_is_named(
    both: dict[str, SandboxCluster], topic_name: str, tmp_path: Path, missing: Right, event: str, remedy: str
) -> None:
    """Once, however often it is tried; copying goes on, and what it keeps from being carried over is, once granted."""
    with_group_and_reader(both, topic_name, [each for each in [*listed(), *SYNC] if each != missing])
    with mirror(
        tmp_path / "mirror.yaml", config(both, USER, [topic_name], FLOW, groups=[topic_name], **CARRIED)
    ) as process:
        line = process.wait_event(event)
        assert line["remedy"] == f"grant the mirror's principal {remedy.replace('TOPIC', topic_name)}"
        caught_up(process, both["source"].bootstrap_servers, both["destination"].bootstrap_servers, topic_name, 1)
        Principals(both).grant(USER, [missing.of(topic=topic_name, flow=FLOW)])
        wait_committed(both["destination"], topic_name, topic_name, 10)
        assert len(process.of(event)) == 1
        assert process.stop() == 0
