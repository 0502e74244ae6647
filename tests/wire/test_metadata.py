"""Topics' names from Metadata: against kafka-python's own encoding of each version, cut anywhere, and damaged."""

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from mirror.wire.metadata import METADATA_VERSIONS, all_topics_request, read_topic_codes
from mirror.wire.primitives import MalformedFrame

VERSIONS = range(METADATA_VERSIONS[0], METADATA_VERSIONS[1] + 1)
NAMES = {"one": 0, "leaderless": 5, "näme": 0, "many": 0}


def response(version: int, *, names: dict[str, int] = NAMES, replicas: int = 3, partitions: int = 2) -> bytes:
    """The response without its size, as kafka-python writes it. One topic has more partitions than a varint's byte."""
    kind = MetadataResponse
    topics = [
        kind.MetadataResponseTopic(
            error_code=code, name=name, topic_id=uuid.uuid4(), is_internal=False,
            partitions=[
                kind.MetadataResponseTopic.MetadataResponsePartition(
                    error_code=0, partition_index=index, leader_id=1, leader_epoch=2,
                    replica_nodes=list(range(replicas)), isr_nodes=list(range(index % 3)), offline_replicas=[],
                )
                for index in range(200 if name == "many" else partitions)
            ],
        )
        for name, code in names.items()
    ]  # fmt: skip
    brokers = [
        kind.MetadataResponseBroker(node_id=node, host="host", port=9, rack="r" if node else None) for node in (0, 1)
    ]
    made: Any = kind[version](
        throttle_time_ms=0, brokers=brokers, cluster_id="id", controller_id=1, topics=topics,
        error_code=0,
    )  # fmt: skip
    made.with_header(7)
    return bytes(made.encode(header=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_as_kafka_python_has_it(version: int) -> None:
    assert read_topic_codes(version, memoryview(response(version))) == NAMES
    assert read_topic_codes(version, memoryview(response(version, names={}))) == {}
    assert read_topic_codes(version, memoryview(response(version, replicas=300))) == NAMES


@pytest.mark.parametrize("version", VERSIONS)
def test_the_request_is_for_all_topics_and_creates_none(version: int) -> None:
    request: Any = MetadataRequest[version].decode(all_topics_request(version))
    assert request.topics is None
    if version >= 4:
        assert request.allow_auto_topic_creation is False
    assert bytes(request.encode()) == all_topics_request(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_short_or_too_long(version: int) -> None:
    whole = response(version, names={"t": 0})
    for cut in range(len(whole)):
        with pytest.raises(MalformedFrame):
            read_topic_codes(version, memoryview(whole[:cut]))
    with pytest.raises(MalformedFrame):
        read_topic_codes(version, memoryview(whole + b"\0"))


@given(st.sampled_from(VERSIONS), st.data())
def test_damage_raises_nothing_else(version: int, data: st.DataObject) -> None:
    damaged = bytearray(response(version, names={"a": 0, "b": 3}))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_topic_codes(version, memoryview(damaged))
    except MalformedFrame:
        return
    assert all(isinstance(name, str) for name in found)
