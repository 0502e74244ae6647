"""Raw clients at a cluster whose brokers are killed: everything once, in order, and the group goes on."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest

from mirror.raw import RawProducer, TopicPartition
from mirror.raw.errors import CommitFailed
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import create
from tests.raw.real import PATIENCE_S, consumed, raw_consumer, records_in
from tests.records.builders import Record, kafka_batch

pytestmark = pytest.mark.broker
BATCHES = 400
PARTITIONS = 6


@pytest.fixture(scope="module")
def cluster() -> Iterator[SandboxCluster]:
    with SandboxCluster(name="three", brokers=3, quick=True) as running:
        yield running


def test_brokers_are_killed_one_after_the_other(cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. A producer sends numbered batches to six partitions with three replicas, a consumer of a group reads them.
    2. Meanwhile each broker is killed once, and started again.
    3. Each batch is in the log once, in the order of its partition; the consumer has read each of them, in that order,
       since it was given the partition.
    """
    create(cluster, topic_name, PARTITIONS, replicas=3, min_insync_replicas="2")
    read: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    sent = threading.Event()

    def begin(partitions: Iterable[TopicPartition]) -> None:
        """A seat that is lost while its coordinator is down comes back: nothing is committed, so all is read again."""
        read.update((each.partition, []) for each in partitions)

    failures: list[BaseException] = []

    def send() -> None:
        try:
            with RawProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
                for number in range(BATCHES):
                    now = int(time.time() * 1000)
                    value = kafka_batch([Record(each, now, b"k", f"{number}".encode()) for each in range(2)])
                    producer.send(topic_name, value, partition=number % PARTITIONS)
                    time.sleep(0.02)
        except BaseException as error:
            failures.append(error)
        finally:
            sent.set()

    thread = threading.Thread(target=send)
    with raw_consumer(cluster, group_id=topic_name, session_timeout_ms=10_000) as consumer:
        consumer.subscribe([topic_name], on_assign=begin)

        def poll() -> None:
            for record in consumer.poll(200):
                read[record.partition] += [int(each.value or b"") for each in records_in(record)][:1]

        thread.start()
        try:
            for broker in cluster.brokers:
                poll()
                broker.kill()
                for _ in range(10):
                    poll()
                broker.start()
            until = time.monotonic() + PATIENCE_S
            committed = False
            while not committed:
                assert time.monotonic() < until, (sent.is_set(), {key: len(each) for key, each in read.items()})
                poll()
                if sent.is_set() and sum(map(len, read.values())) >= BATCHES:
                    with suppress(CommitFailed):  # the seat was lost meanwhile: what was read comes again
                        consumer.commit()
                        committed = True
        finally:
            thread.join(PATIENCE_S)
    assert failures == []
    wanted = {index: list(range(index, BATCHES, PARTITIONS)) for index in range(PARTITIONS)}
    assert read == wanted
    there = consumed(cluster, topic_name)
    assert {index: [int(each.value or b"") for each in there if each.partition == index] for index in wanted} == {
        index: [number for number in numbers for _ in range(2)] for index, numbers in wanted.items()
    }
