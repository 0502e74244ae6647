"""Produce requests: what kafka-python reads of them, and byte for byte as it writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatch

from mirror.records.header import HEADER_SIZE, PREFIX_SIZE, BatchHeader, Codec
from mirror.records.identity import MIRROR_BIT, Identity
from mirror.records.restamp import restamp
from mirror.wire.fetch import TopicKey
from mirror.wire.primitives import uvarint
from mirror.wire.produce import (
    after_batch,
    head_for,
    pack_head,
    request_head,
    topic_head,
    topics_size,
)
from mirror.wire.versions import PRODUCE_FLEXIBLE, PRODUCE_TOPIC_IDS
from tests.records.builders import kafka_batch, raw_batch
from tests.wire import frames
from tests.wire.frames import PRODUCE_RANGE
from tests.wire.produce_frames import ID, Batches, key_for


def sendable(size: int) -> bytes:
    """A batch of so many payload bytes as it leaves the mirror: base offset 0, no leader epoch."""
    batch = raw_batch(bytes(size))
    header = BatchHeader.read(batch)
    return restamp(header, Identity(MIRROR_BIT, 0, 9), header.attributes).pack() + batch[HEADER_SIZE:]


def request(version: int, topics: Batches, timeout_ms: int = 30_000) -> bytes:
    """A body put together from its pieces, as the relay does."""
    out = [request_head(version, timeout_ms=timeout_ms), topics_size(version, len(topics))]
    for key, batches in topics:
        out += [topic_head(version, key), topics_size(version, len(batches))]
        for partition, batch in batches:
            header = BatchHeader.read(batch)
            head = head_for(version, header.length)
            packed = pack_head(head, partition, header)
            out += [packed, batch[HEADER_SIZE:], after_batch(version)]
        out.append(after_batch(version))
    out.append(after_batch(version))
    return b"".join(out)


@pytest.mark.parametrize("version", PRODUCE_RANGE)
def test_a_full_request_is_read_by_kafka_python(version: int) -> None:
    """Two topics, five partitions, a codec each, restamped: theirs reads the same batches, and they are sound."""
    identity = Identity(MIRROR_BIT | 5 << 8, 2, 40)
    sent: list[bytes] = []
    for codec in Codec:
        batch = kafka_batch(codec=codec, base_offset=900)
        sent.append(restamp(BatchHeader.read(batch), identity, codec).pack() + batch[HEADER_SIZE:])
    topics: Batches = [
        (key_for(version), [(7, sent[0]), (0, sent[1]), (1 << 30, sent[2])]),
        (key_for(version, "payments"), [(0, sent[3]), (1, sent[4])]),
    ]
    body = request(version, topics)
    read = ProduceRequest.decode(body, version=version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == (None, -1, 30_000)
    found = [
        (
            topic.topic_id.bytes if version >= 13 else topic.name,
            [(one.index, one.records) for one in topic.partition_data],
        )
        for topic in read.topic_data
    ]
    assert found == topics
    for _, batches in found:
        for _, records in batches:
            batch = DefaultRecordBatch(records)
            assert batch.validate_crc()
            assert (batch.producer_id, batch.base_sequence, len(list(batch))) == (identity.producer_id, 40, 3)
    assert body == frames.produce_request(version, topics, timeout_ms=30_000)


@pytest.mark.parametrize("version", PRODUCE_RANGE)
@given(data=st.data())
def test_requests_are_theirs_byte_for_byte(version: int, data: st.DataObject) -> None:
    sizes = st.integers(0, 100) | st.sampled_from([16_384 - 61 - 2, 16_384 - 61 - 1, 16_384 - 61])
    batches = st.lists(st.tuples(frames.I32, sizes.map(sendable)), max_size=3)
    topics = data.draw(st.lists(st.tuples(frames.topic_keys(version, PRODUCE_TOPIC_IDS), batches), max_size=3))
    timeout_ms = data.draw(frames.I32)
    assert request(version, topics, timeout_ms) == frames.produce_request(version, topics, timeout_ms=timeout_ms)


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("size", [61, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152])
def test_heads_where_the_size_field_grows(version: int, size: int) -> None:
    batch = sendable(size - HEADER_SIZE)
    topics: Batches = [(key_for(version), [(1, batch)])]
    assert len(batch) == size
    assert request(version, topics) == frames.produce_request(version, topics, timeout_ms=30_000)


@given(
    version=st.sampled_from(PRODUCE_RANGE), length=st.integers(HEADER_SIZE - PREFIX_SIZE, (1 << 31) - 1 - PREFIX_SIZE)
)
def test_a_heads_size_is_known_beforehand(version: int, length: int) -> None:
    head = head_for(version, length)
    header = BatchHeader.read(raw_batch(b""))._replace(length=length)
    set_size = uvarint(PREFIX_SIZE + length + 1) if version >= PRODUCE_FLEXIBLE else b"1234"
    assert len(pack_head(head, 3, header)) == 4 + len(set_size) + HEADER_SIZE


def test_acks_can_be_chosen() -> None:
    assert request_head(3, timeout_ms=9, acks=1) == b"\xff\xff\0\x01\0\0\0\x09"
    assert request_head(9, timeout_ms=9) == b"\0\xff\xff\0\0\0\x09"


@pytest.mark.parametrize(("version", "key"), [(12, ID), (3, ID), (13, "orders"), (13, b"short")])
def test_a_topic_named_in_the_wrong_way_is_the_callers_bug(version: int, key: TopicKey) -> None:
    with pytest.raises(TypeError, match=f"produce v{version} names topics by"):
        topic_head(version, key)
