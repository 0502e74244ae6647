"""ACLs of topics: what the destination should have of them; and, on brokers with an authorizer, that it gets it."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, cast

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
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import ACLOperation

from mirror.net.admin.acls import ALLOW, DENY, EVERY_TOPIC, LITERAL, PREFIXED, TopicAcl, operation_name
from mirror.net.cluster import Cluster
from mirror.net.errors import Refused, Unreachable
from mirror.sandbox import SandboxCluster
from mirror.service.sync import acls as module
from mirror.service.sync.acls import AclsPlan, wanted_acls
from mirror.wire.errors import ErrorCode
from tests.patience import PATIENT
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.rights import AUTHORIZER
from tests.service.stage.running import MIRROR, config_text, mirror

TIMEOUT_S = 60.0
COPY = {"a": ["a"]}
ONE = {"all": ["a", "b"]}


def acl(
    operation: str, name: str = "a", *, who: str = "User:u", deny: bool = False, prefix: bool = False, host: str = "*"
) -> TopicAcl:
    number = int(ACLOperation[operation])
    return TopicAcl(name, PREFIXED if prefix else LITERAL, who, host, number, DENY if deny else ALLOW)


@pytest.mark.parametrize("operation", [one.name for one in ACLOperation if one.name not in ("UNKNOWN", "ANY")])
def test_nobody_gets_a_right_to_change_a_copy(operation: str) -> None:
    found = wanted_acls([acl(operation)], COPY)
    granted = {"READ": "READ", "ALL": "READ", "DESCRIBE": "DESCRIBE", "DESCRIBE_CONFIGS": "DESCRIBE_CONFIGS"}
    assert found == ({acl(granted[operation])} if operation in granted else set())


def test_patterns() -> None:
    """Literal, prefixed and for all topics become literal: one for each topic that is a copy, and for no other."""
    given = [acl("READ", "a"), acl("READ", "a", prefix=True, who="User:p"), acl("READ", EVERY_TOPIC, who="User:q")]
    found = wanted_acls(given, {"a": ["a"], "ab": ["ab"], "c": ["c"]})
    wanted = [("a", "u"), ("a", "p"), ("a", "q"), ("ab", "p"), ("ab", "q"), ("c", "q")]
    assert found == {acl("READ", name, who=f"User:{who}") for name, who in wanted}


def test_denials() -> None:
    """Of reading, and never of writing: the mirror writes there. What is denied to everybody is allowed to nobody."""
    assert wanted_acls([acl("READ", deny=True), acl("WRITE", deny=True)], COPY) == {acl("READ", deny=True)}
    assert wanted_acls([acl("ALL", deny=True, host="h")], COPY) == {
        acl(operation, deny=True, host="h") for operation in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
    }
    given = [acl("READ"), acl("DESCRIBE"), acl("READ", deny=True, who="User:*", host="h")]
    assert wanted_acls(given, COPY) == {acl("DESCRIBE")}


def test_a_denial_of_what_is_implied() -> None:
    """Who is allowed to read may describe. So if everybody is denied that, nobody is allowed to read, either; for one
    principal, the denial itself is created."""
    nobody = acl("DESCRIBE", deny=True, who="User:*")
    assert wanted_acls([acl("READ"), nobody], COPY) == set()
    assert wanted_acls([acl("ALL"), acl("DESCRIBE_CONFIGS"), nobody], COPY) == {acl("DESCRIBE_CONFIGS")}
    assert wanted_acls([acl("READ"), acl("READ", "b"), nobody._replace(name="b")], ONE) == set()
    mine = acl("DESCRIBE", deny=True)
    assert wanted_acls([acl("READ"), mine], COPY) == {acl("READ"), mine}


def may(acls: Iterable[TopicAcl], topic: str, who: str, host: str, operation: str) -> bool:
    """What Kafka's authorizer says: a denial wins, and what is allowed implies Describe or DescribeConfigs."""
    implying = {"DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"}, "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"}}
    about = [
        (one.permission, ACLOperation(one.operation).name)
        for one in acls
        if one.principal in (who, "User:*") and one.host in (host, "*")
        and (one.name in (topic, EVERY_TOPIC) if one.pattern == LITERAL else topic.startswith(one.name))
    ]  # fmt: skip
    denied = any(permission == DENY and of in (operation, "ALL") for permission, of in about)
    allowing = {operation, "ALL", *implying.get(operation, ())}
    return not denied and any(permission == ALLOW and of in allowing for permission, of in about)


@given(
    st.lists(
        st.builds(
            acl,
            st.sampled_from([one.name for one in ACLOperation if one.name not in ("UNKNOWN", "ANY")]),
            st.sampled_from(["a", "ab", "b", EVERY_TOPIC]),
            who=st.sampled_from(["User:u", "User:v", "User:*"]),
            deny=st.booleans(),
            prefix=st.booleans(),
            host=st.sampled_from(["*", "h"]),
        ),
        max_size=6,
    ),
    st.sampled_from([{"a": ["a"], "ab": ["ab"]}, {"all": ["a", "ab", "b"]}]),
)
def test_nobody_may_do_more_than_at_the_source(acls: list[TopicAcl], topics: dict[str, list[str]]) -> None:
    """By the rules of Kafka's authorizer, with any ACLs at the source, and none at the destination but ours."""
    wanted = wanted_acls(acls, topics)
    for into, sources in topics.items():
        for who, host, operation in product(("User:u", "User:v", "User:w"), ("h", "i"), ACLOperation):
            if may(wanted, into, who, host, operation.name):
                assert all(may(acls, topic, who, host, operation.name) for topic in sources)


async def test_denials_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. More is lacking than is created at one look: denials are created first.
    2. A denial is refused, or has to wait for the next look: its topic gets no grant.
    3. The destination goes away after the denials: they count as created.
    """
    asked: list[list[TopicAcl]] = []
    refused = Refused("no", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    away = False

    async def create(_: object, acls: list[TopicAcl]) -> list[Refused | None]:
        asked.append(acls)
        if away and len(asked) > 1:
            raise Unreachable("away")
        return [refused if one.principal == "User:refused" else None for one in acls]

    async def created(*lacking: TopicAcl) -> AclsPlan:
        asked.clear()
        plan = AclsPlan(lacking=sorted(lacking))
        await module._create(plan, cast(Cluster, None), "there")
        return plan

    monkeypatch.setattr(module, "create_topic_acls", create)
    first, second, third = (acl("READ", name) for name in "abc")
    no = acl("DESCRIBE", "c", deny=True, host="h")
    plan = await created(first, third, no, acl("READ", "c", deny=True, who="User:refused"))
    assert (plan.created, plan.failed) == (2, f"1 of 3 ACLs: {refused}")
    assert asked[1] == [first]
    monkeypatch.setattr(module, "MOST", 3)
    assert (await created(first, second, third, no)).created == 3
    assert asked == [[no], [first, second]]
    many = [acl("READ", name, deny=True) for name in "abcd"]
    assert (await created(*many, acl("READ", "d", who="User:v"))).created == 3
    assert asked == [many[:3], []]
    away = True
    plan = await created(third, no)
    assert (plan.created, plan.failed) == (1, "away")


def test_several_topics_in_one() -> None:
    """Who may read one of them may not read the others by that."""
    assert wanted_acls([acl("READ", "a")], ONE) == set()
    assert wanted_acls([acl("READ", "a"), acl("ALL", "b")], ONE) == {acl("READ", "all")}
    denied = [acl("READ", "a"), acl("READ", "b"), acl("READ", "b", deny=True, who="User:v")]
    assert wanted_acls(denied, ONE) == {acl("READ", "all"), acl("READ", "all", deny=True, who="User:v")}


def test_words() -> None:
    assert acl("DESCRIBE_CONFIGS", prefix=True, host="h").text == "User:u may DescribeConfigs prefix a from h"
    assert acl("READ", deny=True).text == "User:u must not Read a"
    assert operation_name(99) == "operation 99"


# -- brokers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Iterator[dict[str, SandboxCluster]]:
    """Two clusters with an authorizer, of which anybody is a super user who comes without a name."""
    with (
        SandboxCluster(name="source", quick=True, properties={**PATIENT, **AUTHORIZER}) as source,
        SandboxCluster(name="destination", quick=True, properties={**PATIENT, **AUTHORIZER}) as destination,
    ):
        yield {"source": source, "destination": destination}


def create(cluster: SandboxCluster, *acls: TopicAcl) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    bindings = [
        AclBinding(
            ResourceType.TOPIC, one.name,
            ResourcePatternType.PREFIXED if one.pattern == PREFIXED else ResourcePatternType.LITERAL,
            one.principal, one.host, AclOperation[ACLOperation(one.operation).name],
            AclPermissionType.DENY if one.permission == DENY else AclPermissionType.ALLOW,
        )
        for one in acls
    ]  # fmt: skip
    for made in admin.create_acls(bindings, request_timeout=TIMEOUT_S).values():
        made.result(TIMEOUT_S)


def acls_of(cluster: SandboxCluster, topic: str) -> set[TopicAcl]:
    """By another client than the mirror's."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    wanted = AclBindingFilter(
        ResourceType.TOPIC, topic, ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return {
        TopicAcl(
            each.name, PREFIXED if each.resource_pattern_type == ResourcePatternType.PREFIXED else LITERAL,
            each.principal, each.host, int(ACLOperation[each.operation.name]),
            DENY if each.permission_type == AclPermissionType.DENY else ALLOW,
        )
        for each in admin.describe_acls(wanted, request_timeout=TIMEOUT_S).result(TIMEOUT_S)
    }  # fmt: skip


def sync(config: Path, *options: str) -> dict[str, Any]:
    command = [str(MIRROR), "sync", "-c", str(config), "--format", "json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    found: dict[str, Any] = json.loads(done.stdout)["acls"]
    return found


@pytest.mark.broker
def test_they_are_created_and_never_removed(
    guarded: dict[str, SandboxCluster], topic_name: str, tmp_path: Path
) -> None:
    """
    0. The destination has a topic of somebody else, under a name that the source has as well. Nobody gets rights to it.
    1. Nothing is copied yet: nothing would be created. Then a dry run shows what would be, also if it is not enabled,
       and creates nothing.
    2. The mirror creates it: rights to read, from literal, prefixed and wildcard patterns.
    3. What the destination has of its own, and what the source has no more, stays; what the source gets is added.
    """
    source, destination = guarded["source"], guarded["destination"]
    config = tmp_path / "mirror.yaml"
    given = [
        acl("READ", topic_name), acl("WRITE", topic_name), acl("ALL", topic_name[:6], prefix=True, who="User:p"),
        acl("READ", topic_name, deny=True, who="User:no"),
    ]  # fmt: skip
    create_topic(source.bootstrap_servers, topic_name)
    create_topic(destination.bootstrap_servers, topic_name)
    others = f"others-{topic_name}"
    for cluster in (source, destination):
        create_topic(cluster.bootstrap_servers, others)
        produce(cluster.bootstrap_servers, others, 1, seed=int(cluster is source))
    create(source, acl("READ", others, who="User:intern"))
    create(source, *given)
    own = acl("WRITE", topic_name, who="User:own")
    create(destination, own)
    flow: dict[str, object] = {"refresh.topics.interval.ms": 500}
    wanted = {
        acl("READ", topic_name), acl("READ", topic_name, who="User:p"),
        acl("READ", topic_name, deny=True, who="User:no"),
    }  # fmt: skip
    text = config_text(source.bootstrap_servers, destination.bootstrap_servers, [topic_name, others], flow=flow)
    config.write_text(text)
    # Who may read this topic need not be one who may read whatever stands there under the same name.
    assert sync(config, "--dry-run")["wanted"] == 0
    with mirror(config, text) as process:
        process.wait_event("located", topic=topic_name)
        process.wait_event("halted", topic=others)
        assert process.stop() == 2
    told = sync(config, "--dry-run")
    assert (told["wanted"], set(told["missing"]), told["created"]) == (3, {each.text for each in wanted}, 0)
    assert acls_of(destination, topic_name) == {own}
    flow |= {"sync.topic.acls.enabled": True, "sync.topic.acls.interval.ms": 200}
    text = config_text(source.bootstrap_servers, destination.bootstrap_servers, [topic_name, others], flow=flow)
    with mirror(config, text) as process:
        assert process.wait_event("topic_acls_synced")["count"] == 3
        assert acls_of(destination, topic_name) == wanted | {own}
        create(source, acl("DESCRIBE", topic_name, who="User:later"))
        process.wait_for(lambda: len(process.of("topic_acls_synced")) == 2, "the later one")
        assert process.stop() == 2
    assert not {each for each in acls_of(destination, others) if each.principal == "User:intern"}
    assert acls_of(destination, topic_name) == wanted | {own, acl("DESCRIBE", topic_name, who="User:later")}
    assert sync(config)["missing"] == []


@pytest.mark.broker
def test_a_cluster_without_an_authorizer(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str, tmp_path: Path
) -> None:
    """Said once, by name, and not as a failure; copying goes on."""
    source, destination = source_cluster.bootstrap_servers, destination_cluster.bootstrap_servers
    create_topic(source, topic_name)
    flow = {"sync.topic.acls.enabled": True, "sync.topic.acls.interval.ms": 100}
    config = tmp_path / "mirror.yaml"
    with mirror(config, config_text(source, destination, [topic_name], flow=flow)) as process:
        line = process.wait_event("topic_acls_off")
        assert line["detail"] == "source has no authorizer, and so no ACLs"
        count = len(process.of("progress"))
        process.wait_for(lambda: len(process.of("progress")) > count + 10, "ten looks more")
        assert len(process.of("topic_acls_off")) == 1
        assert process.of("topic_acls_not_synced") == []
        assert process.stop() == 0
    told = sync(config, "--dry-run")
    assert told["authorizer"] is False
