"""Batches written record by record, held against a reader that is not ours (kafka-python's)."""

import gzip
from itertools import pairwise

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from mirror.records.content.building import BatchBuilder, compressed, dense_batches
from mirror.records.content.decompressing import decompressed
from mirror.records.content.opening import Record
from mirror.records.header import BatchHeader, Codec
from mirror.records.restamp import checksum
from tests.legacy.samples import records_from, some_records


def built(records: list[Record], codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec)
    assert all(builder.add(record) for record in records)
    assert builder.count == len(records)
    return builder.build()


def theirs(batch: bytes) -> list[Record]:
    found = DefaultRecordBatch(batch)
    assert found.validate_crc()
    return [Record(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in found]


@pytest.mark.parametrize("codec", Codec)
def test_header(codec: Codec) -> None:
    records = records_from(1_000, 5)
    batch = built(records, codec)
    header = BatchHeader.read(batch)
    assert header == BatchHeader(
        base_offset=1_000,
        length=len(batch) - 12,
        leader_epoch=-1,
        magic=2,
        crc=checksum(batch),
        attributes=codec,
        last_offset_delta=4,
        base_timestamp=records[0].timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=5,
    )
    assert theirs(batch) == records
    assert built(records, codec) == batch, "the same bytes each time"


@given(some_records(headers=True), st.sampled_from(Codec))
def test_dense_batches(records: list[Record], codec: Codec) -> None:
    batches = list(dense_batches(records, codec))
    assert [record for batch in batches for record in theirs(batch)] == records
    headers = [BatchHeader.read(batch) for batch in batches]
    assert all(header.is_dense and header.codec_bits == codec for header in headers)
    assert all(one.next_offset < other.base_offset for one, other in pairwise(headers))
    assert [len(batch) for batch in batches] == [header.size for header in headers]


def test_no_records() -> None:
    assert list(dense_batches([], Codec.GZIP)) == []
    with pytest.raises(AssertionError):
        BatchBuilder(Codec.NONE).build()


def test_what_belongs_into_another_batch() -> None:
    """It is not taken, and the batch is as before."""
    first, second, third = records_from(7, 3)
    builder = BatchBuilder(Codec.NONE)
    assert builder.add(first)
    assert builder.next_offset == 8
    for other in (first, third, second._replace(offset=6)):
        assert not builder.add(other)
    assert builder.add(second)
    assert theirs(builder.build()) == [first, second]


def test_bounds() -> None:
    records = records_from(0, 4)
    size = len(built(records[:2]))
    for most_bytes, count in ((size, 2), (size - 1, 1), (1, 1)):
        builder = BatchBuilder(Codec.GZIP, most_bytes=most_bytes)
        assert [builder.add(record) for record in records[:3]].count(True) == count
        assert theirs(builder.build()) == records[:count]
    builder = BatchBuilder(Codec.NONE, most_records=3)
    assert [builder.add(record) for record in records] == [True, True, True, False]


def test_timestamps_that_are_too_far_apart() -> None:
    """A delta has 64 bits."""
    least, most = -(1 << 63), (1 << 63) - 1
    records = [Record(at, time, None, b"x", ()) for at, time in enumerate([-1, most - 1, most, least, 0, -1])]
    batches = list(dense_batches(records, Codec.NONE))
    assert [record for batch in batches for record in theirs(batch)] == records
    assert [BatchHeader.read(batch).record_count for batch in batches] == [2, 1, 1, 2]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_compressed(codec: Codec, size: int) -> None:
    plain = b"plain " * size
    packed = compressed(codec, plain)
    assert decompressed(codec, packed, most=len(plain), where="x", whole=True) == plain
    assert packed == compressed(codec, plain)


def test_what_the_oldest_readers_take() -> None:
    """No time of day in gzip; in lz4 no content size, and blocks that stand alone; snappy in xerial frames."""
    assert compressed(Codec.GZIP, b"x")[4:8] == bytes(4)
    assert gzip.decompress(compressed(Codec.GZIP, b"x")) == b"x"
    flags = lz4.frame.get_frame_info(compressed(Codec.LZ4, b"x" * 100_000))
    assert (flags["content_size"], flags["block_linked"]) == (0, False)
    assert compressed(Codec.SNAPPY, b"x").startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
