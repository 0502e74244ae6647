"""Filler: batches that any decoder reads, of null records, with sequences that are the offsets."""

import pytest
from kafka.record.default_records import DefaultRecordBatch

from mirror.records.filler import STRIDES, filler_batch, filler_id, filler_size, is_filler, stride
from mirror.records.header import SEQUENCES, BatchHeader, Codec
from mirror.records.identity import MIRROR_BIT, producer_id, same_owner
from mirror.records.restamp import checksum
from tests.records.builders import header_of

FILLER = filler_id(flow="a->b", cluster_id="c", topic="t", partition=3)
CODECS = (Codec.ZSTD, Codec.GZIP)


def batch(count: int, *, offset: int = 0, timestamp: int = 1_700_000_000_000, codec: Codec = Codec.ZSTD) -> bytes:
    return filler_batch(producer=FILLER, offset=offset, count=count, timestamp=timestamp, codec=codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 127, 8191, 8192, 8193, 20_001])
def test_every_record(count: int, codec: Codec) -> None:
    """Another decoder finds so many null records, each at its offset and with the timestamp."""
    found = DefaultRecordBatch(batch(count, codec=codec))
    assert found.validate_crc()
    offsets = []
    for record in found:
        assert (record.key, record.value, record.headers, record.timestamp) == (None, None, [], 1_700_000_000_000)
        offsets.append(record.offset)
    assert offsets == list(range(count))


def test_the_largest() -> None:
    """A million: all offsets, by the other decoder; within Kafka's default max.message.bytes."""
    data = batch(STRIDES[0])
    assert [record.offset for record in DefaultRecordBatch(data)] == list(range(STRIDES[0]))
    assert len(data) == filler_size(STRIDES[0]) < 1_048_588


@pytest.mark.parametrize("offset", [0, 1_000_000, SEQUENCES - 5, SEQUENCES, 3 * SEQUENCES + 17])
@pytest.mark.parametrize("codec", CODECS)
def test_header(offset: int, codec: Codec) -> None:
    """As it is sent: offset 0, the filler's id, the offset for a sequence, which wraps."""
    data = batch(10, offset=offset, timestamp=-1, codec=codec)
    header = BatchHeader.read(data)
    assert header == header._replace(
        base_offset=0,
        length=len(data) - 12,
        leader_epoch=-1,
        magic=2,
        crc=checksum(data),
        attributes=codec,
        last_offset_delta=9,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=FILLER,
        producer_epoch=0,
        base_sequence=offset % SEQUENCES,
        record_count=10,
    )
    assert header.is_dense
    assert header.last_sequence == (offset + 9) % SEQUENCES


def test_identity() -> None:
    """An id of its own: not the data's, and another one for each partition."""
    parts = {"flow": "a->b", "cluster_id": "c", "topic": "t", "partition": 3}
    data = producer_id(flow="a->b", cluster_id="c", topic="t", partition=3)
    assert FILLER & MIRROR_BIT
    assert not same_owner(FILLER, data)
    for name, other in (("flow", "b->a"), ("cluster_id", "d"), ("topic", "u"), ("partition", 4)):
        changed = parts | {name: other}
        assert not same_owner(FILLER, filler_id(**changed))  # type: ignore[arg-type]
    assert is_filler(header_of(producer_id=FILLER), FILLER)
    assert is_filler(header_of(producer_id=FILLER + 1), FILLER)
    assert not is_filler(header_of(producer_id=data), FILLER)
    assert not is_filler(header_of(producer_id=FILLER, attributes=0x30), FILLER)


def test_stride() -> None:
    """The largest that fits the topic; a thousand always does."""
    assert stride(None) == stride(1_048_588) == 1_000_000
    assert stride(1_048_588, Codec.GZIP) == 100_000
    assert stride(500_000) == 100_000
    assert stride(10_000) == 10_000
    assert stride(1_000) == stride(100) == 1_000
    for codec in CODECS:
        for limit in (1_048_588, 300_000, 30_000):
            assert filler_size(stride(limit, codec), codec) <= limit


@pytest.mark.parametrize("count", [0, -1, STRIDES[0] + 1])
def test_a_count_that_cannot_be(count: int) -> None:
    with pytest.raises(ValueError, match="records of filler"):
        batch(count)
