"""Records that are cut and not read, against kafka-python's reader."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.content.building import compressed
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.opening import opened
from mirror.records.content.raw import parts, placed_records, raw_records
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Codec
from tests.records.builders import RECORDS, Record, kafka_batch, raw_batch, sealed

CODECS = list(Codec)
KEYS = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), KEYS), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch of a few records at ascending offsets, with gaps."""
    offsets = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=12)))
    records = [
        Record(offset, 1_700_000_000_000 + draw(st.integers(-5_000, 5_000)), draw(KEYS), draw(KEYS), draw(HEADERS))
        for offset in offsets
    ]
    batch = kafka_batch(records, codec=draw(st.sampled_from(CODECS)), base_offset=draw(st.integers(0, 1 << 40)))
    return sealed(BatchHeader.read(batch)._replace(last_offset_delta=offsets[-1]).pack() + batch[HEADER_SIZE:])


def _cut(batch: bytes) -> tuple[BatchHeader, bytes]:
    return BatchHeader.read(batch), batch[HEADER_SIZE:]


@given(batches())
def test_offsets_and_times_are_those_that_a_consumer_reads(batch: bytes) -> None:
    header, records = _cut(batch)
    read = list(opened(header, records))
    assert [(one.offset, one.timestamp) for one in placed_records(header, records)] == [
        (one.offset, one.timestamp) for one in read
    ]


@given(batches())
def test_a_record_with_its_own_deltas_is_what_was_stored(batch: bytes) -> None:
    header, records = _cut(batch)
    stored = b"".join(one.stored(one.offset_delta, one.timestamp_delta) for one in raw_records(header, records))
    plain = b"".join(
        one.stored(one.offset_delta, one.timestamp_delta) for one in raw_records(header._replace(attributes=0), stored)
    )
    again = header._replace(attributes=0, length=HEADER_SIZE - 12 + len(stored))
    assert stored == plain
    assert list(opened(again, stored)) == list(opened(header, records))


def test_append_times_are_the_batch_s() -> None:
    header, records = _cut(kafka_batch())
    appended = header._replace(attributes=LOG_APPEND_TIME, max_timestamp=99)
    assert [one.timestamp for one in placed_records(appended, records)] == [99, 99, 99]


@pytest.mark.parametrize("codec", CODECS)
def test_large_records_across_chunks(codec: Codec) -> None:
    records = [Record(at, 1_700_000_000_000, b"k", bytes([at]) * 700_000) for at in range(4)]
    header, packed = _cut(kafka_batch(records, codec=codec))
    assert [one.content[-2:-1] for one in raw_records(header, packed)] == [bytes([at]) for at in range(4)]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_grows_a_thousandfold_is_never_whole_in_memory(codec: Codec) -> None:
    records = [Record(at, 1_700_000_000_000, None, bytes(1 << 20)) for at in range(100)]
    header, packed = _cut(kafka_batch(records, codec=codec))
    assert len(packed) < 1 << 20
    tracemalloc.start()
    try:
        assert sum(1 for _ in raw_records(header, packed)) == 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_one_record_above_the_limit_is_not_decompressed() -> None:
    header, packed = _cut(kafka_batch([Record(0, 0, None, bytes(50_000_000))], codec=Codec.GZIP))
    tracemalloc.start()
    try:
        with pytest.raises(NotOpened, match=r"a record of 500000\d\d bytes; 1000000 is the limit"):
            list(raw_records(header, packed, most=1_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"record_count": 4}, "behind its record at 1002"),
        ({"record_count": 2}, "bytes behind its 2 records"),
        ({"last_offset_delta": 1}, "behind its record at 1001"),
    ],
)
def test_a_header_that_does_not_fit_the_records(change: dict[str, int], told: str) -> None:
    header, records = _cut(kafka_batch(base_offset=1_000))
    with pytest.raises(NotOpened, match=told):
        list(raw_records(header._replace(**change), records))


def test_offsets_that_leave_no_room_behind_them() -> None:
    """No checksum covers the base offset."""
    header, records = _cut(kafka_batch(base_offset=(1 << 63) - 3))
    with pytest.raises(NotOpened, match=f"it ends at offset {(1 << 63) - 1}, behind which there is none"):
        list(raw_records(header, records))
    assert len(list(raw_records(header._replace(base_offset=(1 << 63) - 4), records))) == 3


def test_offsets_that_do_not_ascend() -> None:
    header, records = _cut(kafka_batch(base_offset=1_000))
    twice = [next(raw_records(header, records))] * 2
    stored = b"".join(one.stored(0, 0) for one in twice)
    with pytest.raises(NotOpened, match="behind its record at 1000"):
        list(raw_records(header._replace(record_count=2), stored))


@given(st.binary(max_size=80), st.sampled_from(CODECS), st.integers(1, 5))
def test_any_bytes_are_read_or_refused(payload: bytes, codec: Codec, count: int) -> None:
    for records in (payload, compressed(codec, payload)):
        header, packed = _cut(raw_batch(records, attributes=codec, record_count=count, last_offset_delta=9))
        told = _refused(header, packed)
        assert told is None or told.startswith("the batch at offset 1000")


def _refused(header: BatchHeader, packed: bytes) -> str | None:
    try:
        assert len(list(raw_records(header, packed))) == header.record_count
    except NotOpened as error:
        return str(error)
    return None


def test_records_of_the_examples() -> None:
    header, records = _cut(kafka_batch())
    contents = [one.content for one in raw_records(header, records)]
    assert len(contents) == len(RECORDS)
    assert contents[1].startswith(b"\x01")  # a key of -1 bytes


@given(batches())
def test_what_an_audit_needs_of_a_record(batch: bytes) -> None:
    header, records = _cut(batch)
    for raw, read in zip(raw_records(header, records), opened(header, records), strict=True):
        size = len(read.key or b"") + len(read.value or b"")
        size += sum(len(name.encode()) + len(value or b"") for name, value in read.headers)
        assert parts(raw.content, "it") == (read.key, read.value is None, size)


@given(st.binary(max_size=30))
def test_content_that_does_not_fit_is_refused(content: bytes) -> None:
    for damaged in (content, b"\x02k\x02v\x00"[:-1], b"\x02k\x02v\x00\x00"):
        try:
            found = parts(damaged, "it")
        except NotOpened:
            continue
        assert damaged == content
        assert found.size <= len(content)
