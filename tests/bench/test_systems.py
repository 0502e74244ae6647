"""The settings that every system is run with."""

import dataclasses
import json
from pathlib import Path

import pytest

from bench.copiers import jvm, mm1, mm2, shallow
from bench.copiers.copying import Job
from mirror.service.config import load
from mirror.service.config.resolve import MOST_FETCH_BYTES

JOB = Job(topic="bench.16KB-lz4-64p", partitions=64, codec="lz4", source="127.0.0.1:1", destination="127.0.0.1:2")


@pytest.mark.parametrize("flow", [{}, {"fetch.max.bytes": "16 MiB", "buffer.memory": "64 MiB"}])
def test_mirror_takes_the_configuration_that_it_is_given(flow: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_text(json.dumps(shallow.config(JOB, flow)))
    resolved = load(path).enabled_flow()
    assert resolved.settings.selects(JOB.topic)
    assert not resolved.settings.selects("benchx16KB-lz4-64p")
    assert resolved.settings.fetch_max_bytes == (16 if flow else 8) << 20


def test_mm2_copies_this_topic_one_way_and_spares_itself_the_rest() -> None:
    properties = mm2.properties(JOB)
    assert properties["source->destination.topics"] == r"bench\.16KB\-lz4\-64p"
    assert properties["destination->source.enabled"] == "false"
    assert properties["destination.producer.compression.type"] == "lz4"
    assert properties["replication.policy.class"].endswith("IdentityReplicationPolicy")
    assert properties["emit.heartbeats.enabled"] == "false"


def test_mm2_speaks_tls_to_the_side_that_does() -> None:
    for sides in ((), ("source",), ("source", "destination")):
        properties = mm2.properties(dataclasses.replace(JOB, tls=sides, ca=Path("ca.pem")))
        encrypted = [name for name in ("source", "destination") if f"{name}.security.protocol" in properties]
        assert encrypted == list(sides)
        assert all(properties[f"{side}.ssl.truststore.location"] == "ca.pem" for side in sides)


def test_over_a_long_link_mm2_may_fetch_as_much_of_a_partition_as_mirror() -> None:
    far = mm2.properties(dataclasses.replace(JOB, far=("source",)))
    assert int(far["source.consumer.max.partition.fetch.bytes"]) == MOST_FETCH_BYTES
    assert far.items() - mm2.properties(JOB).items() == {("source.consumer.max.partition.fetch.bytes", "33554432")}


def test_both_mirrormakers_are_tuned_alike() -> None:
    properties = mm2.properties(JOB)
    consumer, producer = mm1.consumer_properties(JOB, "group"), mm1.producer_properties(JOB)
    assert {key: properties[f"source.consumer.{key}"] for key in jvm.consumer(prompt=False)}.items() <= consumer.items()
    assert {
        key: properties[f"destination.producer.{key}"] for key in jvm.producer("lz4", prompt=False)
    }.items() <= producer.items()
    assert consumer["auto.offset.reset"] == "earliest"


def test_for_latency_they_do_not_linger() -> None:
    prompt = mm2.properties(dataclasses.replace(JOB, prompt=True))
    assert int(prompt["destination.producer.linger.ms"]) < int(mm2.properties(JOB)["destination.producer.linger.ms"])
    assert prompt["source.consumer.fetch.min.bytes"] == "1"


def test_backslashes_survive_a_properties_file() -> None:
    assert jvm.render({"source->destination.topics": r"a\.b"}) == "source->destination.topics=a\\\\.b\n"
