"""Records read out of messages and wrappers, and what is not believed."""

import struct
import zlib

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.legacy.entries import LegacySpan, cut
from mirror.legacy.lz4_header import with_right_checksum
from mirror.legacy.reading import in_order, messages
from mirror.records.content.opening import NotOpened, Record
from mirror.records.header import Codec, CorruptBatch
from tests.legacy.samples import (
    MOST,
    OLD_CODECS,
    START_MS,
    WRAPPING,
    bare,
    messages_of,
    patched,
    records_from,
    sealed,
    some_records,
    without_time,
    wrapper_of,
)
from tests.records.builders import kafka_batch


def read(record_set: bytes, most: int = MOST) -> list[Record]:
    found: list[Record] = []
    for span in cut(memoryview(record_set)):
        assert isinstance(span, LegacySpan)
        found.extend(messages(memoryview(record_set), span, most=most))
    return found


def stored(magic: int, codec: Codec, records: list[Record]) -> bytes:
    return wrapper_of(magic, codec, records) if codec else messages_of(magic, records)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_every_codec(magic: int, codec: Codec) -> None:
    records = records_from(1_000, 5, magic=magic)
    assert read(stored(magic, codec, records)) == records


@given(st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), some_records())
def test_any_records(magic: int, codec: Codec, records: list[Record]) -> None:
    """As an encoder of others writes them, also with gaps between them, as a log cleaner leaves them."""
    assert read(stored(magic, codec, records)) == (records if magic else without_time(records))


def test_within_a_record_set() -> None:
    """Entries are read where they are: nothing is counted from the beginning."""
    before = messages_of(1, records_from(0, 3))
    entry = wrapper_of(1, Codec.SNAPPY, records_from(3, 3))
    view = memoryview(before + entry + b"behind")
    (span,) = (span for span in cut(view) if span.at == len(before))
    assert isinstance(span, LegacySpan)
    assert list(messages(view, span, most=MOST)) == records_from(3, 3)


def test_the_offset_is_that_of_the_last_message_inside() -> None:
    """In magic 1, those inside count from anywhere; in magic 0 they have offsets of their own."""
    records = records_from(50, 4)
    for base in (50, 47, 0):
        assert read(wrapper_of(1, Codec.GZIP, records, base=base)) == records
    wrapper = wrapper_of(1, Codec.GZIP, records)
    assert [record.offset for record in read(patched(wrapper, 1_003))] == [1_000, 1_001, 1_002, 1_003]
    with pytest.raises(NotOpened, match="offset 2 is damaged: the last message inside has offset 3"):
        read(patched(wrapper, 2))
    absolute = wrapper_of(0, Codec.GZIP, records_from(50, 4, magic=0))
    for offset in (0, 52, 54):
        with pytest.raises(NotOpened, match="is damaged: the last message inside has offset 53"):
            read(patched(absolute, offset))


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_append_times(codec: Codec) -> None:
    """That of a wrapper holds for all inside."""
    records = records_from(0, 3)
    if codec:
        found = read(wrapper_of(1, codec, records, append_time=START_MS + 50_000))
        assert found == [record._replace(timestamp=START_MS + 50_000) for record in records]
    else:
        (alone,) = read(patched(messages_of(1, records[:1]), 0, 0x08, START_MS + 1))
        assert alone.timestamp == START_MS + 1


def test_create_times_of_a_wrapper_are_those_inside() -> None:
    """Whatever timestamp the wrapper has."""
    records = records_from(0, 3)
    assert read(patched(wrapper_of(1, Codec.GZIP, records), 2, Codec.GZIP, 17)) == records


def test_lz4_of_magic_0_with_either_header_checksum() -> None:
    """Clients that knew better wrote the right one."""
    records = records_from(0, 3, magic=0)
    wrapper = wrapper_of(0, Codec.LZ4, records)
    at = wrapper.index(b"\x04\x22\x4d\x18")
    frame = with_right_checksum(wrapper[at:], "x")
    assert frame != wrapper[at:]
    assert read(sealed(wrapper[:at] + frame)) == records
    other = wrapper_of(1, Codec.LZ4, records_from(0, 3))
    at = other.index(b"\x04\x22\x4d\x18")
    with pytest.raises(NotOpened, match="cannot be decompressed"):
        read(sealed(other[: at + 6] + bytes([other[at + 6] ^ 1]) + other[at + 7 :]))


def rewrapped(magic: int, codec: Codec, inside: bytes, offset: int) -> bytes:
    """A wrapper around any bytes."""
    wrapper = wrapper_of(magic, codec, [Record(offset, START_MS, None, b"x", ())])
    at = 30 if magic else 22
    if codec is Codec.LZ4:
        packed = lz4.frame.compress(inside, block_linked=False)
    else:
        packed = zlib.compress(inside, wbits=31)
    return sealed(wrapper[:at] + struct.pack(">i", len(packed)) + packed)


INSIDE = messages_of(1, records_from(0, 4))


def test_what_stands_inside_is_verified() -> None:
    """Each bit of the messages inside: an error, never another record. (The wrapper's own checksum is right here, as if
    a producer had compressed what was damaged.)"""
    expected = read(rewrapped(1, Codec.GZIP, INSIDE, 3))
    assert expected == records_from(0, 4)
    first = len(messages_of(1, records_from(0, 1)))
    for bit in range(8 * (first + 40)):
        damaged = bytearray(INSIDE)
        damaged[bit // 8] ^= 1 << bit % 8
        in_an_offset = bit // 8 in (*range(8), *range(first, first + 8))
        try:
            found = read(rewrapped(1, Codec.GZIP, bytes(damaged), 3))
        except NotOpened as error:
            assert "the wrapper of magic 1 at offset 3" in str(error)  # noqa: PT017 - an offset may be believed
        else:
            assert in_an_offset
            assert [record._replace(offset=0) for record in found] == [record._replace(offset=0) for record in expected]


def test_cut_short_inside() -> None:
    """A message that is cut is seen. (Where none is cut, the last one there is the last: what a producer has compressed
    is not known otherwise.)"""
    ends = [span.at + span.size for span in cut(memoryview(INSIDE))]
    for end in set(range(len(INSIDE))) - set(ends):
        with pytest.raises(NotOpened):
            read(rewrapped(1, Codec.GZIP, INSIDE[:end], 3))


@pytest.mark.parametrize("codec", WRAPPING)
def test_a_stream_without_its_end(codec: Codec) -> None:
    """Whole messages may be missing, and the offsets of those that are there would be wrong."""
    wrapper = wrapper_of(1, codec, records_from(0, 4))
    for end in range(34, len(wrapper)):
        with pytest.raises(NotOpened):
            read(sealed(wrapper[:30] + struct.pack(">i", end - 34) + wrapper[34:end]))


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        (b"", "holds nothing"),
        (b"\0" * 5, "ends in the middle of a message"),
        (INSIDE + b"\0", "ends in the middle of a message"),
        (messages_of(0, records_from(0, 4, magic=0)), "holds another format: the message of magic 0 at offset 0"),
        (kafka_batch(), "holds another format: the batch at offset 0"),
        (wrapper_of(1, Codec.GZIP, records_from(0, 4)), "holds a wrapper"),
        (patched(messages_of(1, records_from(0, 1)), 0, 0x40), "unknown attributes: 0x40"),
        (INSIDE + INSIDE, "stands behind offset 3"),
        (messages_of(1, records_from(0, 1))[:8] + b"\0\0\0\1" + INSIDE[12:], "batch length 1 at byte 0"),
    ],
)
def test_what_may_not_stand_inside(inside: bytes, told: str) -> None:
    with pytest.raises(NotOpened, match=told):
        read(rewrapped(1, Codec.GZIP, inside, 3))


def resized(message: bytes, at: int, size: int) -> bytes:
    return sealed(message[:at] + struct.pack(">i", size) + message[at + 4 :])


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (resized(INSIDE[:159], 26, -2), "a key or value of -2 bytes where 129 are left"),
        (resized(INSIDE[:159], 26, 1 << 30), "a key or value of 1073741824 bytes"),
        (resized(INSIDE[:159], 26, 4), "a key or value of "),
        (resized(INSIDE[:159], 26, 128), "ends before the size of its key or value"),
        (resized(INSIDE[:159], 35, 119), "has 1 bytes behind its value"),
        (resized(INSIDE[:159], 35, -1), "has 120 bytes behind its value"),
        (patched(INSIDE[:159], 0, 0x04), "unknown attributes: 0x04"),
        (patched(INSIDE[:159], 0, 0x07), "unknown attributes: 0x07"),
        (patched(INSIDE[:159], 0, 0x80), "unknown attributes: 0x80"),
        (patched(messages_of(0, records_from(0, 1, magic=0)), 0, 0x08), "unknown attributes: 0x08"),
        (patched(messages_of(1, records_from(2, 1)[:1]), 2, Codec.GZIP), "cannot be decompressed"),
        (sealed(wrapper_of(1, Codec.GZIP, records_from(0, 1))[:30] + b"\xff" * 4), "holds nothing"),
    ],
)
def test_what_may_not_stand_alone(message: bytes, told: str) -> None:
    with pytest.raises(NotOpened, match=told):
        read(message)


@pytest.mark.parametrize("codec", WRAPPING)
@pytest.mark.parametrize("magic", [0, 1])
def test_more_than_may_be_opened(codec: Codec, magic: int) -> None:
    records = records_from(0, 5, magic=magic)
    wrapper = wrapper_of(magic, codec, records)
    size = len(messages_of(magic, records))
    assert read(wrapper, most=size) == records
    with pytest.raises(NotOpened, match=rf"the wrapper of magic {magic} at offset 4 .*more than {size - 1} bytes"):
        read(wrapper, most=size - 1)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_a_bomb_is_not_unpacked(codec: Codec) -> None:
    bomb = rewrapped(1, codec, bytes(1 << 26), 0)
    assert len(bomb) < 1 << 19
    with pytest.raises(NotOpened, match="more than 65536 bytes"):
        read(bomb, most=1 << 16)


def test_nothing_is_returned_before_all_is_verified() -> None:
    damaged = rewrapped(1, Codec.GZIP, INSIDE[:-1] + bytes([INSIDE[-1] ^ 1]), 3)
    view = memoryview(damaged)
    (span,) = cut(view)
    assert isinstance(span, LegacySpan)
    with pytest.raises(NotOpened):
        messages(view, span, most=MOST)  # not even asked for the first


def test_behind_what_stands_before() -> None:
    view = memoryview(wrapper_of(1, Codec.GZIP, records_from(10, 3)))
    (span,) = cut(view)
    assert isinstance(span, LegacySpan)
    assert list(in_order(view, span, most=MOST, before=9)) == records_from(10, 3)
    with pytest.raises(CorruptBatch, match="at offset 12 begins at offset 10, and stands behind offset 10"):
        in_order(view, span, most=MOST, before=10)


def test_bare_records_have_no_headers() -> None:
    assert bare([Record(0, 0, None, None, (("a", b"b"),))]) == [Record(0, 0, None, None, ())]
