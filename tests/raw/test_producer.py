"""The raw producer at real brokers: copies of topics, and what is refused before anything is sent."""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from mirror.raw import RawProducer, TopicPartition, sendable
from mirror.raw.errors import Closed, InvalidConfig, NotSendable, RefusedByBroker, Unavailable, UnknownTopic
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.sandbox import SandboxCluster
from tests import secured
from tests.audit.clusters import CODECS, batches_of, create, fill
from tests.fakes.broker import FakeCluster
from tests.fakes.faults import silence
from tests.net.stage.real import transaction
from tests.raw.real import PATIENCE_S, batch, consumed, polled, raw_consumer, records_in, to_the_end
from tests.records.builders import RECORDS, kafka_batch
from tests.secured import SASL_TLS, Files

broker = pytest.mark.broker


def raw_producer(cluster: SandboxCluster, **settings: object) -> RawProducer:
    """Names of settings with underscores."""
    config = {name.replace("_", "."): value for name, value in settings.items()}
    return RawProducer({"bootstrap.servers": cluster.bootstrap_servers, **config})


def writes(cluster: SandboxCluster, topic: str, partitions: int) -> None:
    """Every codec, committed and aborted transactions, in each partition."""
    for partition in range(partitions):
        for codec in CODECS:
            fill(cluster, topic, codec=codec, partition=partition, batches=4)
            for number, commit in enumerate([True, False]):
                producer = Producer(
                    {
                        "bootstrap.servers": cluster.bootstrap_servers,
                        "transactional.id": f"{topic}-{codec}-{partition}-{number}",
                        "compression.type": codec,
                        "log_level": 0,
                    }
                )
                producer.init_transactions()
                producer.begin_transaction()
                for record in range(5):
                    producer.produce(topic, f"{codec} {commit} {record} " * 30, key=f"{record}", partition=partition)
                producer.flush(PATIENCE_S)
                if commit:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()


@broker
def test_a_topic_is_copied(
    source_cluster: SandboxCluster, destination_cluster: SandboxCluster, topic_name: str
) -> None:
    """
    1. librdkafka writes batches of every codec into two partitions, in transactions and outside of any.
    2. A raw consumer gives all that is committed to a raw producer at another cluster.
    3. Consumers read the same records on both sides. Batches that were not transactional differ in the header only.
    """
    for cluster in (source_cluster, destination_cluster):
        create(cluster, topic_name, 2)
    writes(source_cluster, topic_name, 2)
    with raw_consumer(source_cluster) as consumer, raw_producer(destination_cluster) as producer:
        consumer.assign([TopicPartition(topic_name, index) for index in range(2)])
        records = to_the_end(consumer)
        sent = [
            (record, producer.send(topic_name, value, partition=record.partition))
            for record in records
            for value in sendable(record.value)
        ]
        producer.flush()
    there = consumed(destination_cluster, topic_name)
    assert [each.content for each in there] == [each.content for each in consumed(source_cluster, topic_name)]
    assert Counter(record.partition for record, _ in sent) == {0: 25, 1: 25}
    ends = [0, 0]
    for record, future in sent:
        landed = future.result(0)
        count = record.offset - record.base_offset
        assert (landed.topic, landed.partition) == (topic_name, record.partition)
        assert (landed.base_offset, landed.offset) == (ends[record.partition], ends[record.partition] + count)
        ends[record.partition] = landed.offset + 1
    for index in range(2):
        for stored, record in zip(
            batches_of(destination_cluster, topic_name, index),
            [record for record in records if record.partition == index],
            strict=True,
        ):
            assert stored[HEADER_SIZE:] == record.value[HEADER_SIZE:]


@broker
def test_several_batches_of_a_partition_keep_their_order(destination_cluster: SandboxCluster, topic_name: str) -> None:
    create(destination_cluster, topic_name, 3)
    with raw_producer(destination_cluster, max_request_size=1_024) as producer:
        assert producer.partitions_for(topic_name) == 3
        futures = [
            producer.send(topic_name, kafka_batch(base_offset=1_000 + number), partition=number % 3)
            for number in range(60)
        ]
        producer.flush()
        assert [each.result(0).base_offset for each in futures] == [3 * (number // 3) for number in range(60)]
    assert len(consumed(destination_cluster, topic_name)) == 180


@broker
def test_what_the_topic_would_refuse_or_change(destination_cluster: SandboxCluster, topic_name: str) -> None:
    """Nothing is sent; the message names the setting. Once it is changed, the same producer sends it."""
    limited, stamping, packing = (f"{topic_name}-{each}" for each in ("limited", "stamping", "packing"))
    create(destination_cluster, limited, max_message_bytes="250")
    create(destination_cluster, stamping, message_timestamp_type="LogAppendTime")
    create(destination_cluster, packing, compression_type="gzip")
    value = kafka_batch()
    with raw_producer(destination_cluster) as producer:
        for topic, reason, named in (
            (limited, "too_large", f"{len(value)} bytes, and max.message.bytes is 250; raise max.message.bytes"),
            (stamping, "destination_rewrites", "the topic has message.timestamp.type=LogAppendTime; set compr"),
            (packing, "destination_rewrites", "the topic has compression.type=gzip; set compression.type=producer"),
        ):
            with pytest.raises(NotSendable, match=f"{topic}-0: {reason}: .*{named}") as caught:
                producer.send(topic, value, partition=0)
            assert (caught.value.reason, caught.value.topic, caught.value.partition) == (reason, topic, 0)
            assert batches_of(destination_cluster, topic) == []
        assert producer.send(packing, kafka_batch(codec=1), partition=0).result(PATIENCE_S).offset == 2
        for piece in sendable(value, max_bytes=250):
            producer.send(limited, piece, partition=0)
        producer.flush()
        assert len(consumed(destination_cluster, limited)) == len(RECORDS)
        with pytest.raises(UnknownTopic, match=f"{limited} has 1 partitions, counted from 0, and no partition 1"):
            producer.send(limited, value, partition=1)
        _alter(destination_cluster, limited, "max.message.bytes", "1000")
        assert producer.send(limited, value, partition=0).result(PATIENCE_S).offset == 5
        _grow(destination_cluster, limited, 2)
        assert producer.send(limited, value, partition=1).result(PATIENCE_S).base_offset == 0
        with pytest.raises(UnknownTopic, match=f"no topic {topic_name}; create it"):
            producer.send(topic_name, value, partition=0)
    with pytest.raises(Closed):
        producer.send(limited, value, partition=0)
    producer.close()


def _alter(cluster: SandboxCluster, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)],
    )
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def _grow(cluster: SandboxCluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result()
    until = time.monotonic() + PATIENCE_S
    while len(admin.list_topics(topic).topics[topic].partitions) < partitions:
        assert time.monotonic() < until


@broker
def test_what_the_broker_refuses(
    destination_cluster: SandboxCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. The producer may not read the topic's configs, so that only the broker knows the limits.
    2. Its refusals have Kafka's name, and a remedy; what waits behind is not sent, what comes later is.
    """
    create(destination_cluster, topic_name, max_message_bytes="200", cleanup_policy="compact")

    async def nothing(*_: object, **__: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr("mirror.raw.produce.topics.describe_configs", nothing)
    small = kafka_batch([RECORDS[0]._replace(value=b"-", headers=())])
    keyless = kafka_batch([RECORDS[0]._replace(key=None, value=b"-", headers=())])
    with raw_producer(destination_cluster) as producer:
        for value, code, told in (
            (kafka_batch(), 10, r"MESSAGE_TOO_LARGE \(10\).*; raise max.message.bytes of the topic"),
            (keyless, 87, r"INVALID_RECORD \(87\), .*; a compacted topic takes no record without a key"),
        ):
            refused = producer.send(topic_name, value, partition=0)
            with pytest.raises(RefusedByBroker, match=f"{topic_name}-0 at .*: {told}") as caught:
                producer.flush()
            assert refused.exception() is caught.value
            assert (caught.value.code, caught.value.topic, caught.value.partition) == (code, topic_name, 0)
        assert producer.send(topic_name, small, partition=0).result(PATIENCE_S).base_offset == 0
        assert producer.send(topic_name, small, partition=0).result(PATIENCE_S).base_offset == 1


@broker
def test_transactional_batches_are_refused_by_name(source_cluster: SandboxCluster, topic_name: str) -> None:
    create(source_cluster, topic_name)
    transaction(source_cluster, topic_name, ["a", "b"], commit=True, transactional_id=topic_name)
    data, marker = batches_of(source_cluster, topic_name)
    with raw_producer(source_cluster) as producer:
        with pytest.raises(NotSendable, match=r"transactional: .*send what sendable\(\) makes of it"):
            producer.send(topic_name, data, partition=0)
        with pytest.raises(NotSendable, match=r"control: .*leave it out"):
            producer.send(topic_name, marker, partition=0)
        (plain,) = sendable(data)
        assert sendable(marker) == []
        assert producer.send(topic_name, plain, partition=0).result(PATIENCE_S).offset == 4
    first, second = BatchHeader.read(data), BatchHeader.read(batches_of(source_cluster, topic_name)[-1])
    assert second.attributes == first.attributes & ~0x10


@broker
def test_protected_connections(tmp_path: Path, topic_name: str) -> None:
    """TLS with a certificate and SASL, with the keys that the mirror has: fetches, sends, and the group."""
    files: Files = secured.made(tmp_path)
    with secured.cluster(files, more=secured.BOTH) as cluster:
        create(cluster, topic_name)
        batch(cluster, topic_name, "a", "b")
        config = {"bootstrap.servers": cluster.servers(SASL_TLS), **secured.keys(files)}
        settings = {name.replace(".", "_"): value for name, value in config.items()}
        with raw_consumer(cluster, group_id=topic_name, **settings) as consumer, RawProducer(config) as producer:
            consumer.subscribe([topic_name])
            (record,) = polled(consumer, bool)
            assert producer.send(topic_name, record.value, partition=0).result(PATIENCE_S).base_offset == 2
            consumer.commit()
            (again,) = polled(consumer, bool)
            assert [each.content for each in records_in(again)] == [each.content for each in records_in(record)]
            assert consumer.committed([TopicPartition(topic_name, 0)]) == {TopicPartition(topic_name, 0): 2}


def test_no_cluster() -> None:
    with pytest.raises(InvalidConfig, match=r"bootstrap\.servers: is required; add it"):
        RawProducer({})
    with pytest.raises(Unavailable, match=r"cannot reach cluster 127.0.0.1:1: .*check bootstrap.servers"):
        RawProducer({"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize("call", ["send", "partitions_for"])
async def test_closed_by_another_thread_while_a_topic_is_described(call: str) -> None:
    """Whoever waits for the description is told that the producer was closed; so is who comes just too late."""
    async with FakeCluster() as fake:
        fake.add_topic("t")
        config = {"bootstrap.servers": f"127.0.0.1:{fake.brokers[1].port}"}
        producer = await asyncio.to_thread(RawProducer, config)
        unanswered = fake.next("DescribeConfigs", silence())
        calls: dict[str, Callable[[], object]] = {
            "send": partial(producer.send, "t", kafka_batch(), partition=0),
            "partitions_for": partial(producer.partitions_for, "t"),
        }
        waiting = asyncio.create_task(asyncio.to_thread(calls[call]))
        await unanswered.came.wait()
        await asyncio.to_thread(producer.close)
        with pytest.raises(Closed):
            await waiting
        with pytest.raises(Closed):
            producer._policy("t", anew=True)


def test_the_package_pays_nothing_for_them() -> None:
    """``import mirror`` loads neither them nor what they need; asked for, they are there."""
    program = (
        "import sys, mirror; loaded = set(sys.modules)\n"
        "print(sorted(name for name in loaded if name.startswith(('mirror.', 'pydantic', 'asyncio', 'kafka'))))\n"
        "from mirror import RawConsumer, RawProducer\n"
        "import mirror.raw; print(mirror.raw.RawConsumer is RawConsumer, mirror.RawProducer is RawProducer)\n"
        "try: mirror.RawNothing\n"
        "except AttributeError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == ["[]", "True True", "module 'mirror' has no attribute 'RawNothing'"]
