"""The names in `sync.topic.configs`."""

import pytest
from pydantic_core import PydanticCustomError

from mirror.sandbox.kafka import jars
from mirror.service.config.checks.topic_configs import KNOWN, NEVER_SYNCED, SYNCED_TOPIC_CONFIGS, check_synced
from tests.service.importing import java


def test_each_known_name_is_copied_or_never() -> None:
    for name in KNOWN - NEVER_SYNCED.keys():
        assert check_synced(name) == name
    for name in NEVER_SYNCED:
        with pytest.raises(PydanticCustomError, match=r"is never copied: .*; take it off the list"):
            check_synced(name)
    assert set(SYNCED_TOPIC_CONFIGS) <= KNOWN


def test_names_of_other_makers_are_taken() -> None:
    assert check_synced("confluent.tier.enable") == "confluent.tier.enable"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("retnetion.ms", "did you mean retention.ms?"),
        ("log.segment.bytes", "did you mean segment.bytes?"),
        ("Retention.Bytes", "did you mean retention.bytes?"),
        ("partitions", "write one such as retention.ms"),
        ("a b", "write a name such as retention.ms"),
        ("compression.typ", "write one such as retention.ms"),  # never one that would be refused next
    ],
)
def test_other_names(name: str, remedy: str) -> None:
    with pytest.raises(PydanticCustomError, match="is not the name of a topic config") as told:
        check_synced(name)
    assert (told.value.context or {})["remedy"] == remedy


@pytest.mark.long
@pytest.mark.parametrize("version", ["4.3.0", "3.9.2", "2.8.2"])
def test_kafka_has_no_other(version: str) -> None:
    """The names are those of Kafka's own class, of the newest version and of earlier ones."""
    with java.running(jars.classpath_of([("org.apache.kafka", "kafka-clients", version)])) as classes:
        of = classes.java.lang.Class.forName("org.apache.kafka.common.config.TopicConfig")
        found = {field.getName(): field.get(None) for field in of.getFields()}
    names = {value for name, value in found.items() if name.endswith("_CONFIG")}
    assert len(names) > 20
    assert sorted(names - KNOWN) == []
