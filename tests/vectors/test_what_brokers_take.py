"""What brokers take in a Produce request, what they refuse and what they change: docs/BROKERS.md, from real ones."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from mirror.records.header import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    Codec,
)
from mirror.sandbox import SandboxCluster
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import FetchPartition, read_fetch_response
from mirror.wire.produce import Produced, read_produce_response
from tests.audit.clusters import edited
from tests.patience import PATIENT
from tests.records.builders import Record, kafka_batch
from tests.vectors import load
from tests.vectors.client import Client, batches_of

pytestmark = pytest.mark.broker

PRODUCE = 8
"""The version that is asked: every broker here speaks it, and it tells of single records."""
MIB = 1 << 20
TOPICS: dict[str, tuple[int, load.Config]] = {
    "plain": (40, {}),
    "gzip": (1, {"compression.type": "gzip"}),
    "small": (1, {"max.message.bytes": "1000"}),
    "short": (1, {"max.message.bytes": str(8 * MIB), "segment.bytes": str(MIB)}),
}


@dataclass
class Asked:
    """One broker, and partitions of ``plain`` that nothing was sent to."""

    version: str
    client: Client
    topics: Mapping[str, tuple[int, load.Config]] = field(default_factory=lambda: TOPICS)
    _next: int = 0

    def partition(self) -> int:
        self._next += 1
        return self._next - 1

    def sends(self, topic: str, *record_sets: tuple[int, bytes], version: int = PRODUCE) -> list[Produced]:
        return read_produce_response(version, self.client.produce_raw(version, topic, *record_sets)).partitions

    def await_leading(self) -> None:
        """A broker that tells whom a new partition is led by may not lead it yet."""
        version = self.client.fetch_versions()[-1]
        for topic, (count, _) in self.topics.items():
            for at in range(count):
                while (
                    read_fetch_response(version, self.client.fetch(version, [FetchPartition(topic, at, 0, 1)]))
                    .partitions[0]
                    .error
                ):
                    time.sleep(0.1)

    def answers(self, batch: bytes, *, topic: str = "plain", partition: int | None = None) -> int:
        """The error; what was refused is not in the log."""
        at = self.partition() if partition is None else partition
        before = len(self.stored(topic, at))
        (produced,) = self.sends(topic, (at, batch))
        assert len(self.stored(topic, at)) == before + (produced.error == 0)
        return produced.error

    def stored(self, topic: str, partition: int) -> list[tuple[BatchHeader, bytes]]:
        """All batches of the partition."""
        version = self.client.fetch_versions()[-1]
        frame = self.client.fetch(version, [FetchPartition(topic, partition, 0, 16 * MIB)])
        (fetched,) = read_fetch_response(version, frame).partitions
        return batches_of(frame[fetched.start : fetched.end])


@pytest.fixture(scope="module", params=["4.3.0", "3.9.2", "2.8.2"])
def broker(request: pytest.FixtureRequest) -> Iterator[Asked]:
    with SandboxCluster("takes", version=request.param, brokers=1, properties=PATIENT, quick=True) as cluster:
        load.create_topics(cluster.bootstrap_servers, TOPICS)
        with Client(cluster.brokers[0].port) as client:
            client.learn({name: count for name, (count, _) in TOPICS.items()})
            asked = Asked(request.param, client)
            asked.await_leading()
            yield asked


def records(count: int, *, value: bytes = b"value", first: int = 0) -> list[Record]:
    """With keys, of now."""
    now_ms = int(time.time() * 1_000)
    return [Record(first + at, now_ms, b"key", value) for at in range(count)]


def compressed(codec: Codec) -> bytes:
    """Three records that are worth it: the encoder leaves others as they are."""
    batch = kafka_batch(records(3, value=b"value " * 100), codec=codec)
    assert BatchHeader.read(batch[:HEADER_SIZE]).codec_bits == codec
    return batch


def test_a_batch_as_it_should_be(broker: Asked) -> None:
    assert broker.answers(kafka_batch(records(3))) == ErrorCode.NONE


def test_a_second_batch_of_a_partition(broker: Asked) -> None:
    """Both batches are refused; the request's other partition is appended."""
    twice, other = broker.partition(), broker.partition()
    batch = kafka_batch(records(1))
    found = {one.partition: one.error for one in broker.sends("plain", (twice, batch + batch), (other, batch))}
    assert found == {twice: ErrorCode.INVALID_RECORD, other: ErrorCode.NONE}
    assert broker.stored("plain", twice) == []


def test_a_partition_named_twice(broker: Asked) -> None:
    """The last entry is appended, and the first is lost without an error."""
    at = broker.partition()
    first, last = kafka_batch(records(1, value=b"first")), kafka_batch(records(1, value=b"last"))
    answers = broker.sends("plain", (at, first), (at, last))
    assert {one.error for one in answers} == {ErrorCode.NONE}
    ((_, stored),) = broker.stored("plain", at)
    assert stored[HEADER_SIZE:] == last[HEADER_SIZE:]


def test_a_base_offset_above_0(broker: Asked) -> None:
    assert broker.answers(kafka_batch(records(1), base_offset=7)) == ErrorCode.INVALID_RECORD


def test_a_batch_that_lacks_records(broker: Asked) -> None:
    """As a log cleaner leaves it."""
    sparse = kafka_batch([records(1)[0], *records(1, first=2)])
    assert not BatchHeader.read(sparse[:HEADER_SIZE]).is_dense
    assert broker.answers(sparse) == ErrorCode.INVALID_RECORD


def test_a_batch_without_records(broker: Asked) -> None:
    empty = edited(kafka_batch(records(1))[:HEADER_SIZE], length=HEADER_SIZE - 12, record_count=0)
    assert broker.answers(empty) == ErrorCode.INVALID_RECORD


def test_a_control_batch(broker: Asked) -> None:
    assert broker.answers(edited(kafka_batch(records(1)), attributes=CONTROL)) == ErrorCode.INVALID_RECORD


def test_the_transactional_bit_without_a_transactional_id(broker: Asked) -> None:
    """Each partition of the request is refused, those without the bit as well."""
    one, other = broker.partition(), broker.partition()
    batch = kafka_batch(records(1), producer_id=5, producer_epoch=0, base_sequence=0)
    marked = edited(batch, attributes=TRANSACTIONAL)
    found = {each.error for each in broker.sends("plain", (one, marked), (other, batch))}
    assert found == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    assert broker.stored("plain", other) == []


def test_the_delete_horizon_bit(broker: Asked) -> None:
    """It is taken, and stored as it came: the first timestamp of the batch then passes for a tombstone's horizon."""
    at = broker.partition()
    batch = edited(kafka_batch(records(1)), attributes=DELETE_HORIZON)
    assert broker.answers(batch, partition=at) == ErrorCode.NONE
    ((header, _),) = broker.stored("plain", at)
    assert header.attributes == DELETE_HORIZON


def test_a_producer_id_without_a_sequence(broker: Asked) -> None:
    batch = kafka_batch(records(1), producer_id=5, producer_epoch=0, base_sequence=-1)
    assert broker.answers(batch) == ErrorCode.INVALID_RECORD


def test_a_topic_with_a_codec_of_its_own(broker: Asked) -> None:
    """The records are the same, and the bytes are not."""
    batch = compressed(Codec.LZ4)
    assert broker.answers(batch, topic="gzip", partition=0) == ErrorCode.NONE
    ((header, stored),) = broker.stored("gzip", 0)
    assert header.codec_bits == Codec.GZIP
    assert header.record_count == 3
    assert stored[HEADER_SIZE:] != batch[HEADER_SIZE:]


def test_a_batch_above_the_topics_limit(broker: Asked) -> None:
    batch = kafka_batch(records(1, value=b"x" * 2_000))
    assert broker.answers(batch, topic="small", partition=0) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_above_the_size_of_a_segment(broker: Asked) -> None:
    batch = kafka_batch(records(1, value=b"x" * (2 * MIB)))
    assert broker.answers(batch, topic="short", partition=0) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_timestamp_two_hours_ahead(broker: Asked) -> None:
    """Since Kafka 4.0 a topic takes an hour by default; before, it took any."""
    (now,) = records(1)
    ahead = kafka_batch([now._replace(timestamp=now.timestamp + 2 * 3_600_000)])
    refused = broker.version == "4.3.0"
    assert broker.answers(ahead) == (ErrorCode.INVALID_TIMESTAMP if refused else ErrorCode.NONE)


def test_zstd_in_an_older_request(broker: Asked) -> None:
    """Before Produce v7 a client is not known to understand it."""
    batch, at = compressed(Codec.ZSTD), broker.partition()
    (old,) = broker.sends("plain", (at, batch), version=6)
    assert old.error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    (new,) = broker.sends("plain", (at, batch), version=7)
    assert new.error == ErrorCode.NONE


def test_partitions_come_in_the_order_of_the_request(broker: Asked) -> None:
    """In a Fetch, whichever that is: who is behind in the answer would starve."""
    one, other = broker.partition(), broker.partition()
    for at in (one, other):
        assert broker.answers(kafka_batch(records(1)), partition=at) == ErrorCode.NONE
    version = broker.client.fetch_versions()[-1]
    for order in ((one, other), (other, one)):
        frame = broker.client.fetch(version, [FetchPartition("plain", at, 0, MIB) for at in order])
        assert tuple(each.partition for each in read_fetch_response(version, frame).partitions) == order


def test_an_answer_begins_with_a_whole_batch(broker: Asked) -> None:
    """Also where what is asked for lies in the middle of it."""
    at = broker.partition()
    assert broker.answers(kafka_batch(records(5)), partition=at) == ErrorCode.NONE
    version = broker.client.fetch_versions()[-1]
    frame = broker.client.fetch(version, [FetchPartition("plain", at, 3, MIB)])
    (fetched,) = read_fetch_response(version, frame).partitions
    ((header, _),) = batches_of(frame[fetched.start : fetched.end])
    assert (header.base_offset, header.last_offset) == (0, 4)
