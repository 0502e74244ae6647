"""Raw clients at brokers of other generations: without topic ids, with the oldest requests that there are."""

from collections.abc import Iterator

import pytest

from mirror.raw import RawProducer, TopicPartition, sendable
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import batches_of, create
from tests.net.stage.real import transaction
from tests.patience import PATIENT
from tests.raw.real import PATIENCE_S, batch, consumed, polled, raw_consumer, records_in, to_the_end

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module", params=["3.9.2", "2.8.2", "0.11.0.3"])
def cluster(request: pytest.FixtureRequest) -> Iterator[SandboxCluster]:
    with SandboxCluster(
        name=f"kafka-{request.param}", version=request.param, properties=PATIENT, quick=True
    ) as running:
        yield running


def test_read_written_and_committed(cluster: SandboxCluster, topic_name: str) -> None:
    """
    1. Batches in transactions and outside of any; a group reads them, from inside a batch after a seek.
    2. They are sent to another topic, and read there: the same records.
    """
    there = f"{topic_name}-there"
    for topic in (topic_name, there):
        create(cluster, topic)
    batch(cluster, topic_name, "a" * 300, "b" * 300, "c" * 300, codec="lz4")
    for number, commit in enumerate([True, False]):
        transaction(cluster, topic_name, ["d", "e"], commit=commit, transactional_id=f"{topic_name}-{number}")
    batch(cluster, topic_name, "f", codec="gzip")
    at = TopicPartition(topic_name, 0)
    written = consumed(cluster, topic_name)
    with (
        raw_consumer(cluster, group_id=topic_name) as consumer,
        RawProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer,
    ):
        consumer.subscribe([topic_name])
        found = polled(consumer, lambda records: len(records) == 3)
        assert [record.value for record in found] == [batches_of(cluster, topic_name)[at] for at in (0, 1, 5)]
        for record in found:
            for value in sendable(record.value):
                producer.send(there, value, partition=0)
        producer.flush()
        consumer.commit()
        assert consumer.committed([at]) == {at: written[-1].offset + 1}
        consumer.seek(at, 1)
        (trimmed, *rest) = to_the_end(consumer)
        assert [each for record in (trimmed, *rest) for each in records_in(record)] == written[1:]
        assert producer.send(there, trimmed.value, partition=0).result(PATIENCE_S).offset == 7
    assert [each.content for each in consumed(cluster, there)[:6]] == [each.content for each in written]
