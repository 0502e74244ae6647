"""Messages and wrappers, held against a reader that is not ours (kafka-python's)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch

from mirror.legacy.entries import LegacySpan, cut
from mirror.legacy.writing import WrapperBuilder, message
from mirror.records.content.opening import Record
from mirror.records.header import Codec
from tests.legacy.samples import MOST, START_MS, WRAPPING, bare, messages_of, records_from, some_records, without_time


def wrapped(magic: int, codec: Codec, records: list[Record], most_bytes: int = MOST) -> bytes:
    builder = WrapperBuilder(magic, codec, most_bytes=most_bytes)
    assert all(builder.add(record) for record in records)
    return builder.build()


def theirs(magic: int, data: bytes) -> list[Record]:
    batch = LegacyRecordBatch(data, magic)
    assert batch.validate_crc()
    found = list(batch)
    assert all(record.validate_crc() for record in found)
    return [
        Record(one.offset, one.timestamp if magic else -1, one.key, one.value, ())
        for one in found
    ]  # fmt: skip


@given(st.sampled_from([0, 1]), some_records(headers=True))
def test_messages(magic: int, records: list[Record]) -> None:
    """The very bytes of another encoder."""
    assert b"".join(message(magic, record) for record in records) == messages_of(magic, bare(records))


@given(st.sampled_from([0, 1]), st.sampled_from(WRAPPING), some_records(headers=True))
def test_wrappers(magic: int, codec: Codec, records: list[Record]) -> None:
    data = wrapped(magic, codec, records)
    expected = bare(records)
    assert theirs(magic, data) == (expected if magic else without_time(expected))
    (span,) = cut(memoryview(data))
    assert isinstance(span, LegacySpan)
    assert (span.magic, span.codec_bits, span.last_offset) == (magic, codec, records[-1].offset)
    assert span.timestamp == (max(record.timestamp for record in records) if magic else -1)
    assert not span.has_append_time


@pytest.mark.parametrize("codec", WRAPPING)
def test_the_same_bytes_each_time(codec: Codec) -> None:
    assert wrapped(1, codec, records_from(0)) == wrapped(1, codec, records_from(0))


def test_no_room() -> None:
    """The first message is taken in any case; what was not taken is not in there."""
    first, second = records_from(5, 2)
    size = len(message(1, first)) + len(message(1, second))
    assert theirs(1, wrapped(1, Codec.GZIP, [first, second], most_bytes=size)) == [first, second]
    builder = WrapperBuilder(1, Codec.GZIP, most_bytes=size - 1)
    assert builder.add(first)
    assert not builder.add(second)
    assert theirs(1, builder.build()) == [first]
    assert theirs(1, wrapped(1, Codec.GZIP, [first], most_bytes=1)) == [first]


def test_the_latest_timestamp() -> None:
    late, early = records_from(0, 2)
    records = [late._replace(timestamp=START_MS + 9), early._replace(timestamp=-1)]
    (span,) = cut(memoryview(wrapped(1, Codec.LZ4, records)))
    assert isinstance(span, LegacySpan)
    assert span.timestamp == START_MS + 9
