"""What is asked for and cannot be: said at once, before anything is started."""

from __future__ import annotations

import re

import pytest

from mirror.sandbox import SandboxCluster, SandboxError, kraft, settings
from mirror.sandbox.kafka.versions import release


@pytest.mark.parametrize("brokers", [-1, 0, 4])
def test_number_of_brokers(brokers: int) -> None:
    with pytest.raises(SandboxError, match=f"cluster cluster: {brokers} brokers\n  remedy: give 1 to 3"):
        SandboxCluster(brokers=brokers)


@pytest.mark.parametrize("version", ["", "4", "4.3", "v4.3.0", "4.3.0-SNAPSHOT", "../../etc", "4.3.0\n"])
def test_not_a_version(version: str) -> None:
    with pytest.raises(SandboxError, match="is not a version of Apache Kafka"):
        SandboxCluster(version=version)


def test_a_version_too_old() -> None:
    with pytest.raises(SandboxError, match=r"0\.9\.0\.1 is older than the sandbox can start"):
        SandboxCluster(version="0.9.0.1")


def test_a_heap_too_small() -> None:
    with pytest.raises(SandboxError, match="a heap of 64 MB"):
        SandboxCluster(heap_mb=64)


@pytest.mark.parametrize("name", ["listeners", "log.dirs", "node.id", "process.roles", "zookeeper.connect"])
def test_properties_that_place_the_broker_are_ours(name: str) -> None:
    with pytest.raises(SandboxError, match=f"broker property {name} is set by the sandbox"):
        SandboxCluster(properties={name: "x"})


@pytest.mark.parametrize("name", ["", "a b", "a=b", "a\nb", "#a"])
def test_not_the_name_of_a_property(name: str) -> None:
    with pytest.raises(SandboxError, match="is not the name of a broker property"):
        SandboxCluster(properties={name: "x"})


def test_property_values_are_text() -> None:
    with pytest.raises(SandboxError, match=r"'log\.retention\.ms'=-1 is not text"):
        SandboxCluster(properties={"log.retention.ms": -1})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("version", "artifact", "kraft", "extras"),
    [
        ("4.3.0", "kafka_2.13", True, 0),
        ("3.9.2", "kafka_2.13", True, 0),
        ("3.3.0", "kafka_2.13", True, 0),
        ("3.2.3", "kafka_2.13", False, 0),
        ("2.8.2", "kafka_2.13", False, 0),
        ("2.3.1", "kafka_2.11", False, 2),
        ("1.1.1", "kafka_2.11", False, 2),
        ("0.10.2.2", "kafka_2.11", False, 1),
    ],
)
def test_what_is_known_of_versions(version: str, artifact: str, kraft: bool, extras: int) -> None:
    known = release(version)
    assert (known.artifact, known.kraft, len(known.extra_jars)) == (artifact, kraft, extras)


def test_cluster_ids_differ_and_cannot_be_taken_for_an_option() -> None:
    made = {kraft.new_cluster_id() for _ in range(2_000)}  # a dash in front is one in 64
    assert len(made) == 2_000
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", each) for each in made)


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "2"), (3, "3", "2")])
def test_internal_topics_fit_the_cluster(brokers: int, replicas: str, in_sync: str) -> None:
    made = settings.small_cluster(brokers)
    assert made["offsets.topic.replication.factor"] == made["transaction.state.log.replication.factor"] == replicas
    assert made["transaction.state.log.min.isr"] == in_sync


def test_a_proxied_port_for_each_broker() -> None:
    with pytest.raises(
        SandboxError, match="cluster cluster: 2 proxied ports for 3 brokers\n  remedy: give one for each"
    ):
        SandboxCluster(brokers=3, proxied=(1, 2))
