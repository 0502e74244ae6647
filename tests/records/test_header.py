"""``mirror.records.header``: the 61 bytes, against kafka-python's reading of them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from mirror.legacy import stand_ins
from mirror.records import header as header_module
from mirror.records.header import CRC_AT, CRC_FROM, HEADER, HEADER_SIZE, MAGIC_AT, SEQUENCES, BatchHeader, Codec
from tests.legacy.samples import messages_of, records_from
from tests.records.builders import RECORDS, header_of, kafka_batch

I8 = st.integers(-(1 << 7), (1 << 7) - 1)
I16 = st.integers(-(1 << 15), (1 << 15) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
U32 = st.integers(0, (1 << 32) - 1)
FIELDS = st.tuples(I64, I32, I32, I8, U32, I16, I32, I64, I64, I64, I16, I32, I32)


@given(fields=FIELDS, before=st.binary(max_size=9), after=st.binary(max_size=9))
def test_what_is_packed_is_read_wherever_it_lies(fields: tuple[int, ...], before: bytes, after: bytes) -> None:
    header = BatchHeader(*fields)
    packed = header.pack()
    assert len(packed) == HEADER_SIZE
    for buf in (before + packed + after, memoryview(before + packed + after), bytearray(before + packed + after)):
        assert BatchHeader.read(buf, len(before)) == header


@given(raw=st.binary(min_size=HEADER_SIZE, max_size=HEADER_SIZE))
def test_any_61_bytes_are_read_and_packed_again_as_they_were(raw: bytes) -> None:
    assert BatchHeader.read(raw).pack() == raw


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_fewer_than_61_bytes_are_the_callers_bug(size: int) -> None:
    with pytest.raises(struct.error):
        BatchHeader.read(bytes(size))


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("transactional", [False, True])
def test_reads_as_kafka_python_does(codec: Codec, transactional: bool) -> None:
    batch = kafka_batch(
        codec=codec,
        base_offset=1 << 40,
        leader_epoch=7,
        transactional=transactional,
        producer_id=9,
        producer_epoch=2,
        base_sequence=SEQUENCES - 2,
    )
    header, theirs = BatchHeader.read(batch), DefaultRecordBatch(batch)
    assert header.size == len(batch) == theirs.size_in_bytes
    assert header.codec_bits == codec == theirs.compression_type
    assert header.is_transactional is transactional is theirs.is_transactional
    assert header.is_control is theirs.is_control_batch is False
    assert header.record_count == len(RECORDS) == theirs.records_count
    assert header.is_dense
    assert (header.last_offset, header.next_offset) == (theirs.last_offset, theirs.next_offset)
    assert header.last_sequence == 0 == theirs.last_sequence, "the third record's sequence wrapped"
    for name in (
        "base_offset",
        "leader_epoch",
        "magic",
        "crc",
        "attributes",
        "last_offset_delta",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    ):
        assert getattr(header, name) == getattr(theirs, name), name
    assert header.base_timestamp == theirs.first_timestamp


def test_named_positions_are_those_of_the_fields() -> None:
    """Every field but one is 0: the byte that differs tells where it lies."""
    for field, at in (
        ("magic", MAGIC_AT),
        ("crc", CRC_AT + 3),
        ("attributes", CRC_FROM + 1),
        ("producer_id", header_module.PRODUCER_ID_AT + 7),
        ("record_count", header_module.RECORD_COUNT_AT + 3),
        ("length", header_module.PREFIX_SIZE - 1),
    ):
        packed = BatchHeader(*[0] * 13)._replace(**{field: 1}).pack()
        assert [index for index, byte in enumerate(packed) if byte] == [at]
    assert HEADER.size == HEADER_SIZE


@given(base=st.integers(0, SEQUENCES - 1), delta=st.integers(0, SEQUENCES - 1))
def test_sequences_wrap_from_the_highest_to_zero(base: int, delta: int) -> None:
    last = header_of(base_sequence=base, last_offset_delta=delta).last_sequence
    assert 0 <= last < SEQUENCES
    assert last == (base + delta if base + delta < SEQUENCES else base + delta - SEQUENCES)


@pytest.mark.parametrize(
    ("attributes", "control", "transactional", "codec"),
    [
        (0, False, False, 0),
        (0x20, True, False, 0),
        (0x30, True, True, 0),
        (0x14, False, True, 4),
        (0x47, False, False, 7),
    ],
)
def test_attribute_bits(attributes: int, control: bool, transactional: bool, codec: int) -> None:
    header = header_of(attributes=attributes)
    assert (header.is_control, header.is_transactional, header.codec_bits) == (control, transactional, codec)


@pytest.mark.parametrize(("count", "delta", "dense"), [(5, 4, True), (4, 4, False), (0, 0, False), (1, 0, True)])
def test_dense_means_a_record_for_every_offset(count: int, delta: int, dense: bool) -> None:
    assert header_of(record_count=count, last_offset_delta=delta).is_dense is dense


def test_what_a_hostile_producer_says_of_its_id_makes_no_stand_in() -> None:
    """A broker stores it, with its own leader epoch."""
    header = BatchHeader.read(stand_ins(memoryview(messages_of(1, records_from(3, 1)))).batches[0])
    assert header.is_stand_in
    assert not header._replace(leader_epoch=0).is_stand_in
