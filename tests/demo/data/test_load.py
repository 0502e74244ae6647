"""Both clients against a real broker: what they stored is read from its log and by another client."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from mirror.demo.data import payload
from mirror.demo.data.load import Load, create_topics, load_records
from mirror.demo.data.payload import DemoRecord
from mirror.demo.data.topics import CODECS, TOPICS, TopicPlan
from mirror.demo.errors import DemoError
from mirror.records.header import NO_PRODUCER_ID, BatchHeader, Codec
from mirror.records.scan import scan
from mirror.sandbox import SandboxCluster

pytestmark = pytest.mark.broker

RECORDS = 400
CODEC_BITS = {codec: int(Codec[codec.upper()]) for codec in CODECS}


@dataclass(frozen=True)
class Loaded:
    """A cluster with the topics of the demo, and what the load said of each."""

    cluster: SandboxCluster
    topics: list[TopicPlan]
    written: dict[str, int]


@pytest.fixture(scope="module")
def loaded(source_cluster: SandboxCluster, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    topics = [replace(plan, prefix="load-") for plan in TOPICS]
    written = load_records(
        source_cluster.bootstrap_servers, topics, records=RECORDS, folder=tmp_path_factory.mktemp("load")
    )
    return Loaded(source_cluster, topics, written)


def headers_of(cluster: SandboxCluster, topic: str) -> list[BatchHeader]:
    """Of all batches of a topic, read from the broker's segments."""
    headers = []
    for segment in cluster.brokers[0].data_dir.glob(f"{topic}-[0-9]*/*.log"):
        record_set = memoryview(segment.read_bytes())
        headers += [BatchHeader.read(record_set, place.at) for place in scan(record_set)]
    return headers


def messages_of(cluster: SandboxCluster, plan: TopicPlan, count: int) -> Iterator[Message]:
    """The first so many messages of a topic, as a consumer gets them."""
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "enable.auto.commit": False,
    }  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(plan.name, partition, 0) for partition in range(plan.partitions)])
        for _ in range(count):
            message = consumer.poll(30.0)
            assert message is not None, f"{plan.name} ends early"
            assert message.error() is None
            yield message
    finally:
        consumer.close()


@pytest.mark.parametrize("at", range(len(TOPICS)), ids=lambda at: TOPICS[at].name)
def test_batches_carry_the_codec_and_every_record_is_there(loaded: Loaded, at: int) -> None:
    plan = loaded.topics[at]
    headers = headers_of(loaded.cluster, plan.name)
    # librdkafka sends a batch uncompressed that does not shrink: one of a single record that says nothing.
    assert {header.codec_bits for header in headers if header.record_count >= 5} == {CODEC_BITS[plan.codec]}
    assert {header.codec_bits for header in headers} <= {CODEC_BITS[plan.codec], CODEC_BITS["none"]}
    assert sum(header.record_count for header in headers) == loaded.written[plan.name] == RECORDS
    idempotent = {header.producer_id != NO_PRODUCER_ID for header in headers}
    assert idempotent == {plan.client == "java"}  # as these clients are when nobody asks for anything else


@pytest.mark.parametrize("at", [4, 9], ids=lambda at: TOPICS[at].name)
def test_keys_values_headers_and_nulls_arrive_as_they_are(loaded: Loaded, at: int) -> None:
    plan, pool = loaded.topics[at], payload.pool()
    start = at * len(pool) // len(TOPICS)
    sent = Counter(pool[start : start + RECORDS])
    got = Counter(
        DemoRecord(message.key(), message.value(), tuple(message.headers() or ()))
        for message in messages_of(loaded.cluster, plan, RECORDS)
    )
    assert got == sent
    assert any(record.value is None for record in got)


def test_producers_stream_until_they_are_stopped(
    source_cluster: SandboxCluster, tmp_path: Path, topic_name: str
) -> None:
    """1. A bulk. 2. More records than that come on their own. 3. What finish() says is what the log holds."""
    plan = replace(TOPICS[3], prefix=f"{topic_name}-")
    with Load(source_cluster.bootstrap_servers, [plan], folder=tmp_path, stream_per_s=500) as load:
        load.create_topics()
        load.start({plan.name: 100})
        load.wait_bulk()
        assert load.producing == 1
        deadline_at = time.monotonic() + 60
        while load.sent.records < 200 and time.monotonic() < deadline_at:
            time.sleep(0.02)
        written = load.finish()
        assert load.producing == 0
    assert sum(header.record_count for header in headers_of(source_cluster, plan.name)) == written[plan.name] >= 200


@pytest.mark.parametrize("client", ["librdkafka", "java"])
def test_a_load_that_is_left_ends_at_once(
    source_cluster: SandboxCluster, tmp_path: Path, topic_name: str, client: str
) -> None:
    plan = replace(next(plan for plan in TOPICS if plan.client == client), prefix=f"{topic_name}-")
    create_topics(source_cluster.bootstrap_servers, [plan])
    with Load(source_cluster.bootstrap_servers, [plan], folder=tmp_path) as load:
        load.start({plan.name: 100_000_000})
    assert load.producing == 0
    assert load.sent.records < 100_000_000


def test_a_topic_that_is_there_already_is_an_error_with_a_remedy(loaded: Loaded) -> None:
    with pytest.raises(DemoError, match=r"(?s)topic \S+ could not be created .* already exists.*remedy: "):
        create_topics(loaded.cluster.bootstrap_servers, loaded.topics[:1])
