"""The tables: every setting that MirrorMaker 2 has is in them, by its own definitions."""

from collections.abc import Iterator
from typing import Any

import pytest

from mirror.sandbox.kafka import jars
from mirror.service.config.cluster import ClusterSettings
from mirror.service.config.flow import FlowSettings
from mirror.service.importing.settings import lookup
from mirror.service.importing.settings.clients import CLUSTERS, FLOW_OF_SOURCE
from mirror.service.importing.settings.defaults import DEFAULTS
from mirror.service.importing.settings.flows import FLOWS, RENAMED
from tests.service.importing import java

pytestmark = pytest.mark.long
VERSIONS = ("4.3.0", "3.9.2", "2.8.2")
"""The newest; the last one of 3.x, with names that 4.0 removed; an early one, with the first names of all."""
MIRROR = "org.apache.kafka.connect.mirror."
CONNECTORS = [
    f"{MIRROR}{name}"
    for name in (
        "MirrorConnectorConfig", "MirrorSourceConfig", "MirrorCheckpointConfig", "MirrorHeartbeatConfig",
        "DefaultTopicFilter$TopicFilterConfig", "DefaultGroupFilter$GroupFilterConfig",
        "DefaultConfigPropertyFilter$ConfigPropertyFilterConfig",
    )
] + ["org.apache.kafka.connect.runtime.SourceConnectorConfig"]  # fmt: skip
WORKERS = [
    f"{MIRROR}MirrorMakerConfig",
    "org.apache.kafka.connect.runtime.WorkerConfig",
    "org.apache.kafka.connect.runtime.distributed.DistributedConfig",
]
CLIENTS = [
    f"{MIRROR}MirrorClientConfig", "org.apache.kafka.clients.consumer.ConsumerConfig",
    "org.apache.kafka.clients.producer.ProducerConfig", "org.apache.kafka.clients.admin.AdminClientConfig",
]  # fmt: skip
AT_LEAST = 90
"""So many names that a class's keys were really read."""


@pytest.fixture(scope="module", params=VERSIONS)
def classes(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A JVM with MirrorMaker 2 of one version."""
    with java.running(jars.classpath_of([("org.apache.kafka", "connect-mirror", request.param)])) as found:
        yield found


def keys_of(classes: Any, names: list[str]) -> set[str]:
    """The names of all settings that these classes define: in a field, or by a method without parameters."""
    found: set[str] = set()
    Modifier = classes.java.lang.reflect.Modifier
    definition = "org.apache.kafka.common.config.ConfigDef"
    for name in names:
        if classes.java.lang.ClassLoader.getSystemResource(f"{name.replace('.', '/')}.class") is None:
            continue  # 2.8 has one class for the three connectors
        of = classes.java.lang.Class.forName(name)
        for field in of.getDeclaredFields():
            if field.getType().getName() == definition:
                field.setAccessible(True)
                found |= set(field.get(None).names())
        for method in of.getDeclaredMethods():
            if method.getReturnType().getName() != definition or not Modifier.isStatic(method.getModifiers()):
                continue
            method.setAccessible(True)
            taken = [each.getSimpleName() for each in method.getParameterTypes()]
            if not taken:
                found |= set(method.invoke(None, None).names())
            elif taken == ["Crypto"]:
                given = classes.java.lang.reflect.Array.newInstance(classes.java.lang.Object().getClass(), 1)
                given[0] = classes.org.apache.kafka.connect.runtime.distributed.Crypto.SYSTEM
                found |= set(method.invoke(None, given).names())
    return found


def test_every_setting_of_connectors_is_known(classes: Any) -> None:
    keys = keys_of(classes, CONNECTORS)
    assert len(keys) > AT_LEAST or "topics.blacklist" in keys
    known = {key for key in keys if lookup.of_connector(key) or lookup.of_worker(key)} | lookup.CLIENT_KEYS
    assert sorted(keys - known) == []


def test_every_setting_of_the_process_is_known(classes: Any) -> None:
    keys = keys_of(classes, WORKERS)
    assert {"clusters", "config.providers", "offset.storage.topic", "scheduled.rebalance.max.delay.ms"} < keys
    known = {key for key in keys if lookup.of_connector(key) or lookup.of_worker(key)} | lookup.CLIENT_KEYS
    assert sorted(keys - known) == []


def test_every_setting_of_clients_is_known(classes: Any) -> None:
    keys = keys_of(classes, CLIENTS)
    assert len(keys) > AT_LEAST
    assert sorted(keys - {*FLOWS, *lookup.CLIENT_KEYS}) == []


def test_what_is_taken_over_is_there() -> None:
    of_flows = {str(field.alias) for field in FlowSettings.model_fields.values()}
    of_clusters = {str(field.alias) for field in ClusterSettings.model_fields.values()}
    assert {rule.becomes for rule in (*FLOWS.values(), *FLOW_OF_SOURCE.values()) if rule.becomes} <= of_flows
    assert {rule.becomes for rule in CLUSTERS.values()} <= of_clusters
    assert set(DEFAULTS) <= of_flows
    assert set(RENAMED.values()) <= set(FLOWS)


def test_every_rule_says_something() -> None:
    for key, rule in FLOWS.items():
        assert rule.becomes or rule.why or rule.otherwise, key


@pytest.mark.parametrize(
    ("key", "client", "rest"),
    [
        ("consumer.isolation.level", "consumer", "isolation.level"),
        ("source.consumer.fetch.max.bytes", "consumer", "fetch.max.bytes"),
        ("target.producer.acks", "producer", "acks"),
        ("producer.override.batch.size", "producer", "batch.size"),
        ("source.cluster.security.protocol", "", "security.protocol"),
        ("admin.", "", "admin."),
        ("topics", "", "topics"),
    ],
)
def test_which_client_a_key_is_for(key: str, client: str, rest: str) -> None:
    assert lookup.scoped(key) == (client, rest)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("topics", "", True),
        ("sasl.jaas.config", "x", True),
        ("consumer.acks", "x", True),
        ("my.own.key", "x", True),
        ("my.own.key", "", False),
        ("hunter2", "x", False),
        ("c2VjcmV0.Zm9v", "=", False),
        ('password="x";', "", False),
    ],
)
def test_which_keys_may_be_shown(key: str, value: str, shown: bool) -> None:
    assert lookup.may_be_shown(key, value) is shown


def test_what_was_meant() -> None:
    assert lookup.near("topics.exclud") == "topics.exclude"
    assert lookup.near("completely.different") == ""
