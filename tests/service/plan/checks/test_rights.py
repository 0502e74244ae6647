"""P04 on real brokers with Kafka's own authorizer, and each of its rules by itself."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mirror.foretold import Line
from mirror.sandbox import SandboxCluster
from mirror.service.plan.checks.rights import may_write_markers, of_flow, of_topic
from mirror.service.plan.model import GroupFacts, Level, Rights
from mirror.service.sync.settings import SyncSettings
from tests import secured
from tests.secured import USER, Files
from tests.service.plan.facts import APIS, EVERYTHING, flow, topic
from tests.service.plan.planning import everything, plan
from tests.service.stage.kafka_side import create_topic, produce
from tests.service.stage.rights import AUTHORIZER, CLUSTER, GROUP, TOPIC, Principals, Right, config, listed, rights
from tests.service.sync.sides import commit

ASKING = [
    *rights("source", TOPIC, "TOPIC", "Read", "Describe", "DescribeConfigs"),
    *rights("destination", TOPIC, "TOPIC", "Read", "Describe", "DescribeConfigs"),
    *rights("destination", CLUSTER, "kafka-cluster", "DescribeConfigs"),
]
"""Nothing that writes."""
FLOW = "asked"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SandboxCluster]]:
    files: Files = secured.made(tmp_path_factory.mktemp("certificates"))
    with (
        secured.cluster(files, name="source", more=AUTHORIZER) as source,
        secured.cluster(files, name="destination", more=AUTHORIZER) as destination,
    ):
        yield {"source": source, "destination": destination}


def granted(both: dict[str, SandboxCluster], topic: str, folder: Path, rights: Iterable[Right]) -> Path:
    """Returns the configuration of a flow whose principal has these rights, and no other."""
    Principals(both).only(USER, [right.of(topic=topic, flow=FLOW) for right in rights])
    path = folder / "a.yaml"
    path.write_text(config(both, USER, [topic], FLOW))
    return path


@pytest.mark.broker
def test_with_rights_that_only_ask(both: dict[str, SandboxCluster], topic_name: str, tmp_path: Path) -> None:
    """
    1. A principal that may only look gets a plan, which changes nothing: it could not.
    2. Each right that the mirror lacks is named.
    """
    for cluster in both.values():
        create_topic(cluster.bootstrap_servers, topic_name)
    produce(both["source"].bootstrap_servers, topic_name, 40)
    config_path = granted(both, topic_name, tmp_path, ASKING)
    before = everything(both["source"]), everything(both["destination"])
    found = plan(config_path)
    assert (everything(both["source"]), everything(both["destination"])) == before
    assert found.code == 2
    own = found.rows(None, least="warns")
    assert own["P05"]["level"] == "refused"
    assert "TOPIC_AUTHORIZATION_FAILED" in own["P05"]["detail"]
    told = " ".join(row["detail"] for row in found.flow["findings"] if row["line"] == "P04")
    for what in ("group mirror-asked at source: the principal may not read it", "may not write markers",
                 "may not describe its transactional ids"):  # fmt: skip
        assert what in told, told
    (refused,) = found.rows(topic_name, least="refused").values()
    assert (refused["line"], refused["reason"]) == ("P04", "authorization")
    assert refused["detail"] == f"{topic_name} at destination: the principal lacks Write"
    assert found.state(topic_name) == "refused"


@pytest.mark.broker
def test_with_the_rights_that_the_mirror_needs(
    both: dict[str, SandboxCluster], topic_name: str, tmp_path: Path
) -> None:
    """Those that docs/GUIDE.md lists are enough to plan; nothing is missed, also for a topic that is not there yet."""
    create_topic(both["source"].bootstrap_servers, topic_name)
    produce(both["source"].bootstrap_servers, topic_name, 40)
    config_path = granted(both, topic_name, tmp_path, listed())
    found = plan(config_path)
    assert found.code == 0, found.flow["findings"]
    assert {row["line"] for row in found.flow["findings"] if row["level"] != "told"} == set()
    assert found.state(topic_name) == "created"


@pytest.mark.broker
def test_the_rights_of_what_is_kept_in_step(both: dict[str, SandboxCluster], topic_name: str, tmp_path: Path) -> None:
    """
    1. A principal with the rights to copy, and none to carry groups, ACLs and configs over. Each is named: also of a
       group that is meant by name and that no broker lists to it. Nothing is refused, since records are copied.
    2. With these rights, nothing is missed.
    """
    for cluster in both.values():
        create_topic(cluster.bootstrap_servers, topic_name)
    produce(both["source"].bootstrap_servers, topic_name, 40)
    commit(both["source"], topic_name, topic_name, 10)
    # Before a cluster's first group there are no coordinators, and no broker tells what may be done with a group.
    commit(both["destination"], f"{topic_name}-other", topic_name, 0)
    enabled = {f"sync.{name}.enabled": True for name in ("group.offsets", "topic.acls", "topic.configs")}
    configs = Right("destination", TOPIC, "TOPIC", "AlterConfigs")  # with ``listed``, for what begins above offset 0
    path = granted(both, topic_name, tmp_path, [right for right in listed() if right != configs])
    path.write_text(config(both, USER, [topic_name], FLOW, groups=[topic_name], **enabled))
    found = plan(path)
    assert found.code == 0, found.flow["findings"]
    rows = [row for row in found.flow["findings"] if row["line"] == "P04"]
    told = " ".join(row["detail"] for row in rows)
    for what in (
        f"groups at source: the principal may not describe {topic_name};",
        f"groups at destination: the principal may not read {topic_name};",
        "cluster source lists only groups that the principal may describe",
        "cluster source: the principal may not list ACLs",
        f"{topic_name} at destination: the principal may not change its configs",
    ):
        assert what in told, told
    more = [
        *rights("source", GROUP, "TOPIC", "Describe"), *rights("destination", GROUP, "TOPIC", "Read"),
        *rights("source", CLUSTER, "kafka-cluster", "Describe"),
    ]  # fmt: skip
    Principals(both).only(USER, [right.of(topic=topic_name, flow=FLOW) for right in (*listed(), *more)])
    found = plan(path)
    assert [row["detail"] for row in found.flow["findings"] if row["line"] == "P04"] == []


def lines(**changes: Any) -> list[tuple[Level, str]]:
    return [(one.level, one.reason) for one in of_flow(flow(**changes))]


def test_all_rights() -> None:
    assert list(of_flow(flow())) == []
    assert list(of_topic(flow(), topic())) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"group_rights": None}, (Level.TOLD, "")),
        ({"group_rights": EVERYTHING - {"Read"}}, (Level.REFUSED, "")),
        ({"group_rights": None, "group_forbidden": True}, (Level.REFUSED, "")),
        ({"internal_rights": EVERYTHING - {"Write"}}, (Level.REFUSED, "authorization")),
        ({"there": {"rights": None}}, (Level.TOLD, "")),
        ({"there": {"rights": EVERYTHING - {"DescribeConfigs"}}}, (Level.WARNS, "")),
        ({"there": {"rights": EVERYTHING - {"Alter", "ClusterAction"}}}, (Level.WARNS, "")),
        ({"there": {"rights": EVERYTHING - {"IdempotentWrite"},
                    "apis": {key: APIS[key] for key in APIS if key != 61}}}, (Level.REFUSED, "authorization")),
        ({"ids_forbidden": True}, (Level.WARNS, "")),
        ({"ids_forbidden": True, "relay": {"fill_by_transaction": True}}, (Level.REFUSED, "fill_not_permitted")),
    ],
)  # fmt: skip
def test_each_right_of_the_flow(changes: dict[str, Any], expected: tuple[Level, str]) -> None:
    assert lines(**changes) == [expected]


def test_rights_that_are_not_needed() -> None:
    no_markers = {"there": {"rights": EVERYTHING - {"Alter", "ClusterAction"}}}
    assert lines(**no_markers, relay={"mapped": True}) == lines(**no_markers, relay={"fill_by_transaction": True}) == []
    assert lines(there={"rights": EVERYTHING - {"IdempotentWrite"}}) == []
    assert lines(ids_forbidden=None) == []


def test_who_may_write_markers() -> None:
    assert may_write_markers(flow(there={"rights": frozenset({"Alter"})})) is True
    assert may_write_markers(flow(there={"rights": frozenset({"Alter"}), "apis": {1: 16}})) is False
    assert may_write_markers(flow(there={"rights": frozenset({"ClusterAction"}), "apis": {1: 16}})) is True
    assert may_write_markers(flow(there={"rights": None})) is None


@pytest.mark.parametrize(
    ("changes", "level", "told"),
    [
        ({"rights_here": EVERYTHING - {"Read"}}, Level.REFUSED, "t at source: the principal lacks Read"),
        ({"rights_there": EVERYTHING - {"Read", "Write"}}, Level.REFUSED, "t at destination: the principal lacks Read"),
        ({"rights_here": EVERYTHING - {"DescribeConfigs"}}, Level.WARNS, "t at source: the configs cannot be read"),
        ({"rights_there": EVERYTHING - {"Alter"}, "grown": True}, Level.WARNS, "may not add partitions"),
    ],
)
def test_each_right_of_a_topic(changes: dict[str, Any], level: Level, told: str) -> None:
    (found,) = of_topic(flow(), topic(**changes))
    assert (found.line, found.level) == (Line.RIGHTS, level)
    assert told in found.detail


NOTHING: Rights = frozenset()
GROUPS = SyncSettings(offsets=True)
ACLS = SyncSettings(acls=True)
CONFIGS = {"relay": {"sync_configs": True}}


@pytest.mark.parametrize(
    ("changes", "level", "told"),
    [
        # Groups: each of those that were found.
        (
            {"sync": GROUPS, "groups": (GroupFacts("a", EVERYTHING, EVERYTHING), GroupFacts("b", NOTHING, EVERYTHING))},
            Level.WARNS,
            "groups at source: the principal may not describe b; their offsets are not carried over",
        ),
        (
            {"sync": GROUPS, "groups": (GroupFacts("a", EVERYTHING, EVERYTHING - {"Read"}),)},
            Level.WARNS,
            "groups at destination: the principal may not read a; their offsets are not carried over",
        ),
        (
            {"sync": GROUPS, "groups": (GroupFacts("a", None, EVERYTHING),)},
            Level.TOLD,
            "groups at source: its brokers do not tell what the principal may do with a",
        ),
        (
            {"sync": GROUPS, "groups": (GroupFacts("a", EVERYTHING, None),)},
            Level.TOLD,
            "groups at destination: its brokers do not tell what the principal may do with a",
        ),
        ({"sync": GROUPS, "groups_more": 3}, Level.TOLD, "of 3 more groups it was not asked"),
        ({"sync": GROUPS, "groups_unknown": "nobody answers"}, Level.UNKNOWN, "nobody answers"),
        (
            {"sync": GROUPS, "here": {"rights": EVERYTHING - {"Describe"}}},
            Level.TOLD,
            "source lists only groups that the principal may describe",
        ),
        # ACLs: by the clusters.
        ({"sync": ACLS, "here": {"rights": NOTHING}}, Level.WARNS, "source: the principal may not list ACLs"),
        ({"sync": ACLS, "here": {"rights": None}}, Level.TOLD, "source: its brokers do not tell"),
        ({"sync": ACLS, "there": {"rights": frozenset({"ClusterAction", "DescribeConfigs", "IdempotentWrite"})}},
         Level.WARNS, "destination: the principal may not create ACLs"),
    ],
)  # fmt: skip
def test_each_right_of_what_is_kept_in_step(changes: dict[str, Any], level: Level, told: str) -> None:
    (found,) = of_flow(flow(**changes))
    assert (found.line, found.level) == (Line.RIGHTS, level)
    assert told in found.detail
    assert bool(found.remedy) is (level is Level.WARNS or "lists only" in told)
    assert list(of_flow(flow(**changes | {"sync": SyncSettings()}))) == [], "what is not enabled needs nothing"


def test_the_right_to_keep_configs_in_step() -> None:
    """Only where it is enabled, and on a topic that is there."""
    lacks: dict[str, Any] = {"rights_there": EVERYTHING - {"AlterConfigs"}}
    (found,) = of_topic(flow(**CONFIGS), topic(**lacks))
    assert (found.level, found.detail) == (
        Level.WARNS,
        "t at destination: the principal may not change its configs, so they are not kept as at the source",
    )
    assert list(of_topic(flow(), topic(**lacks))) == []
    assert list(of_topic(flow(**CONFIGS), topic())) == []
    assert list(of_topic(flow(**CONFIGS), topic(exists=False, created=True, rights_there=None))) == []


def test_rights_on_what_is_not_there() -> None:
    """A topic that is created: the controller says whether it may be."""
    assert list(of_topic(flow(), topic(exists=False, created=True, rights_there=None))) == []
