"""Raw clients at a compacted topic: batches of which a cleaner has left a part."""

import time

import pytest

from mirror.raw import RawProducer, TopicPartition, sendable
from mirror.raw.errors import NotSendable
from mirror.records.header import BatchHeader
from mirror.sandbox import SandboxCluster
from tests.audit.clusters import create
from tests.patience import PATIENT
from tests.raw.real import PATIENCE_S, consumed, raw_consumer, records_in, to_the_end
from tests.service.runs.rewriting.test_deep_path import keyed, sparse_in
from tests.service.stage.kafka_side import CODECS

pytestmark = pytest.mark.broker


def test_read_from_anywhere_and_copied(topic_name: str) -> None:
    """
    1. A cleaner has taken records out of the middle of batches of all codecs.
    2. Such batches come as they are stored, and from inside of one the records that are left from there on.
    3. A producer refuses them as they are, and takes what sendable() makes of them: the same records.
    """
    there = f"{topic_name}-there"
    with SandboxCluster(
        name="cleaning", properties={**PATIENT, "log.cleaner.backoff.ms": "200"}, quick=True
    ) as cluster:
        servers = cluster.bootstrap_servers
        create(
            cluster, topic_name, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
            delete_retention_ms="86400000",
        )  # fmt: skip
        create(cluster, there)
        for codec in CODECS:
            keyed(servers, topic_name, codec)
        deadline = time.monotonic() + PATIENCE_S
        while len(sparse_in(servers, topic_name)) < len(CODECS) - 1:  # what comes last is not cleaned
            assert time.monotonic() < deadline, "not cleaned"
            time.sleep(0.2)
        before = consumed(cluster, topic_name)
        at = TopicPartition(topic_name, 0)
        with raw_consumer(cluster) as consumer, RawProducer({"bootstrap.servers": servers}) as producer:
            consumer.assign([at])
            records = to_the_end(consumer)
            sparse = [record for record in records if not BatchHeader.read(record.value).is_dense]
            assert len({BatchHeader.read(record.value).codec_bits for record in sparse}) >= len(CODECS) - 1
            for record in records:
                for value in sendable(record.value):
                    producer.send(there, value, partition=0)
            for record in sparse:
                (plain, *_) = sendable(record.value)
                assert BatchHeader.read(plain).is_dense
                with pytest.raises(NotSendable, match="-0: sparse_batch: "):
                    producer.send(there, record.value, partition=0)
            producer.flush()
            read = [each for record in records for each in records_in(record)]
            for record in sparse:
                middle = (record.base_offset + record.offset) // 2 + 1
                consumer.seek(at, middle)
                found = [each for piece in to_the_end(consumer) for each in records_in(piece)]
                # The cleaner goes on: what it has taken meanwhile is missing, and nothing else.
                assert found[0].offset >= middle
                assert set(consumed(cluster, topic_name)[-5:]) <= set(found) <= set(read)
        copied = [each.content for each in consumed(cluster, there)]
        assert copied == [each.content for each in read]
        assert set(read) <= set(before)
