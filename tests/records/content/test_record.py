"""Single records, held against a reader and a writer that are not ours (kafka-python's)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from mirror.offsetmap.entries.entry import StateError
from mirror.offsetmap.internal.batches import records_of
from mirror.records.content import opening
from mirror.records.content.building import compressed
from mirror.records.content.record import Record, read_record, write_record
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, Codec
from tests.records.builders import kafka_batch, raw_batch

BYTES = st.none() | st.binary(max_size=40) | st.integers(60, 20_000).map(bytes)
NAMES = st.text(st.characters(codec="utf-8"), max_size=9)
RECORDS = st.builds(
    Record,
    offset=st.integers(0, 1 << 20),
    timestamp=st.integers(-(1 << 40), 1 << 50),
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(NAMES, BYTES), max_size=3).map(tuple),
)
BASE_MS = 1_700_000_000_000
EMPTY = BatchHeader.read(raw_batch(b"", base_offset=0))


def header(**fields: int) -> BatchHeader:
    return EMPTY._replace(base_offset=1_000, base_timestamp=BASE_MS, max_timestamp=BASE_MS + 7, **fields)


def written(record: Record) -> bytes:
    return write_record(record, offset_delta=record.offset, timestamp_delta=record.timestamp)


@given(RECORDS)
def test_as_kafka_python_writes_and_reads_it(record: Record) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    assert builder.append(0, 0, b"", b"", []) is not None  # the deltas of the next one are to this
    start = builder.size()
    builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    assert written(record) == theirs[start:]
    (_, read) = DefaultRecordBatch(theirs)
    found, end = read_record(theirs, start, EMPTY._replace(base_timestamp=0))
    assert (found, end) == (record, len(theirs))
    assert (read.offset, read.timestamp, read.key, read.value, tuple(read.headers)) == record


@given(RECORDS, st.data())
def test_whatever_is_cut_or_changed_is_read_or_refused(record: Record, data: st.DataObject) -> None:
    """Never more than there is, never another error."""
    whole = bytearray(written(record))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    for plain in (bytes(whole), written(record)[:at]):
        try:
            _, end = read_record(plain, 0, header())
        except (ValueError, IndexError):
            continue
        assert end <= len(plain)


def test_a_record_that_is_cut_is_refused() -> None:
    """Also where the sizes in it agree: kafka-python's reader takes what is there for the value."""
    whole = written(Record(0, 0, b"key", b"value of a record", ()))
    for size in range(len(whole)):
        with pytest.raises((ValueError, IndexError)):
            read_record(whole[:size], 0, header())


@pytest.mark.parametrize("name", [b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", "ä€".encode()])
def test_a_name_that_is_no_text(name: bytes) -> None:
    """Kept as it is: librdkafka takes any bytes."""
    plain = b"\0\0\0\x01\x01\x02" + bytes([len(name) << 1]) + name + b"\x02x"
    plain = bytes([len(plain) << 1]) + plain
    record, _ = read_record(plain, 0, header())
    assert record.headers[0][0].encode("utf-8", "surrogateescape") == name
    assert write_record(record, offset_delta=0, timestamp_delta=0) == plain
    batch = raw_batch(plain, record_count=1, last_offset_delta=0)
    (found,) = opening.opened(BatchHeader.read(batch), batch[HEADER_SIZE:])
    assert found.headers == record.headers


def test_times() -> None:
    plain = write_record(Record(0, 0, None, None, ()), offset_delta=3, timestamp_delta=5)
    assert read_record(plain, 0, header())[0] == Record(1_003, BASE_MS + 5, None, None, ())
    assert read_record(plain, 0, header(attributes=LOG_APPEND_TIME))[0].timestamp == BASE_MS + 7


def test_a_strangers_batch_in_the_internal_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened up to a limit, and an error says that it was not."""
    monkeypatch.setattr(opening, "MOST_OPENED", 100_000)
    batch = kafka_batch(codec=Codec.GZIP)
    assert [record.offset for record in records_of(memoryview(batch))] == [0, 1, 2]
    bomb = raw_batch(compressed(Codec.GZIP, bytes(1_000_000)), attributes=Codec.GZIP, record_count=1)
    with pytest.raises(StateError, match="unreadable: the batch at offset"):
        records_of(memoryview(bomb))
