"""``mirror.wire.primitives``: every type at every cut, and lengths that cannot be."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

from mirror.wire.primitives import (
    FULL_UVARINT,
    MAX_UVARINT_BYTES,
    NO_TAGS,
    MalformedFrame,
    array_size,
    cut_short,
    read_array_size,
    read_i16,
    read_i32,
    read_size,
    read_span,
    read_string,
    read_tags,
    read_uvarint,
    string,
    uvarint,
)
from tests.wire.frames import I16, I32, TEXT

Reader = Callable[[memoryview, int], tuple[object, int]]


def check_read(reader: Reader, data: bytes, value: object) -> None:
    """Reads ``value`` from exactly ``data``, at any place, whatever follows, and nothing from any cut of it."""
    assert reader(memoryview(data), 0) == (value, len(data))
    assert reader(memoryview(b"\x81\xff\x7f" + data + b"\xff\x80"), 3) == (value, 3 + len(data))
    for cut in range(len(data)):
        with pytest.raises(MalformedFrame):
            reader(memoryview(data[:cut]), 0)
        with pytest.raises(MalformedFrame):
            reader(memoryview(b"\xff\xff" + data[:cut]), 2)


@given(value=I16)
def test_i16(value: int) -> None:
    check_read(read_i16, value.to_bytes(2, signed=True), value)


@given(value=I32)
def test_i32(value: int) -> None:
    check_read(read_i32, value.to_bytes(4, signed=True), value)


@given(value=st.integers(0, FULL_UVARINT))
@example(value=0)
@example(value=0x7F)
@example(value=0x80)
@example(value=0x3FFF)
@example(value=0x4000)
@example(value=FULL_UVARINT)
def test_uvarint_is_theirs_and_comes_back(value: int) -> None:
    data = uvarint(value)
    assert data == UnsignedVarInt32.encode(value)
    assert len(data) <= MAX_UVARINT_BYTES
    check_read(read_uvarint, data, value)


def test_a_uvarint_may_be_longer_than_it_need_be() -> None:
    assert read_uvarint(memoryview(b"\x81\x80\x80\x80\x00"), 0) == (1, 5)


@pytest.mark.parametrize("last", [0x10, 0x1F, 0x7F])
def test_a_uvarint_above_32_bits_is_malformed(last: int) -> None:
    with pytest.raises(MalformedFrame, match="above 32 bits"):
        read_uvarint(memoryview(b"\xff\xff\xff\xff" + bytes([last])), 0)


@pytest.mark.parametrize("data", [b"\x80" * 5, b"\xff" * 5, b"\xff" * 1_000, b"\x80\x80\x80\x80\x80\x00"])
def test_an_endless_uvarint_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedFrame, match="more than 5 bytes at byte 0"):
        read_uvarint(memoryview(data), 0)


def test_a_span_is_borrowed() -> None:
    buf = memoryview(bytearray(b"abcdef"))
    span, after = read_span(buf, 2, 3)
    buf[2] = ord("X")
    assert (bytes(span), after) == (b"Xde", 5)
    assert read_span(buf, 6, 0)[1] == 6


@pytest.mark.parametrize("size", [-1, -(1 << 31)])
def test_a_negative_span_is_malformed(size: int) -> None:
    with pytest.raises(MalformedFrame, match=f"negative size {size} at byte 1"):
        read_span(memoryview(b"abc"), 1, size)


@pytest.mark.parametrize("size", [3, 1 << 40])
def test_a_span_past_the_end_is_malformed(size: int) -> None:
    with pytest.raises(MalformedFrame, match=f"field of {size} bytes at byte 1 in a frame of 3"):
        read_span(memoryview(b"abc"), 1, size)


def test_cut_short_says_what_and_where() -> None:
    with pytest.raises(MalformedFrame, match="field of 4 bytes at byte 7 in a frame of 9"):
        cut_short(7, 4, 9)


# Lengths.

FORMS: dict[str, Callable[[int], bytes]] = {
    "compact": lambda size: uvarint(size + 1),
    "wide": lambda size: size.to_bytes(4, signed=True),
    "narrow": lambda size: size.to_bytes(2, signed=True),
}


def read_in(form: str, data: bytes) -> tuple[int, int]:
    return read_size(memoryview(data), 0, compact=form == "compact", wide=form == "wide")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [-1, 0, 1, 126, 127, 128, 500])
def test_sizes_that_the_frame_can_hold(form: str, size: int) -> None:
    data = FORMS[form](size)
    assert read_in(form, data + bytes(max(size, 0))) == (size, len(data))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 2, 127, 128, 500, (1 << 15) - 1])
def test_one_byte_too_few_is_malformed(form: str, size: int) -> None:
    with pytest.raises(MalformedFrame, match=f"length {size} at byte 0"):
        read_in(form, FORMS[form](size) + bytes(size - 1))


@pytest.mark.parametrize(
    ("form", "size"),
    [("wide", -2), ("wide", -(1 << 31)), ("narrow", -2), ("narrow", -(1 << 15)), ("wide", (1 << 31) - 1)],
)
def test_negative_and_absurd_sizes_are_malformed(form: str, size: int) -> None:
    with pytest.raises(MalformedFrame, match=f"length {size} at byte 0"):
        read_in(form, FORMS[form](size) + bytes(1_000))


@pytest.mark.parametrize("form", FORMS)
def test_a_size_cut_short_is_malformed(form: str) -> None:
    data = FORMS[form](300)
    for cut in range(len(data)):
        with pytest.raises(MalformedFrame):
            read_in(form, data[:cut])


@pytest.mark.parametrize("compact", [False, True])
def test_arrays(compact: bool) -> None:
    def reader(buf: memoryview, at: int) -> tuple[int, int]:
        return read_array_size(buf, at, compact=compact)

    head = array_size(0, compact=compact)
    assert head == (b"\1" if compact else bytes(4))
    check_read(reader, head, 0)
    assert reader(memoryview(array_size(200, compact=compact) + bytes(200)), 0)[0] == 200
    with pytest.raises(MalformedFrame, match="null array at byte 0"):
        reader(memoryview(b"\0" if compact else b"\xff\xff\xff\xff"), 0)


# Strings.


@pytest.mark.parametrize("compact", [False, True])
@given(value=TEXT | st.none())
def test_strings_come_back(compact: bool, value: str | None) -> None:
    check_read(lambda buf, at: read_string(buf, at, compact=compact), string(value, compact=compact), value)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"a\xed\xa0\x80"])
def test_text_that_is_not_utf8_is_malformed(compact: bool, bad: bytes) -> None:
    data = bytes([len(bad) + 1]) + bad if compact else bytes([0, len(bad)]) + bad
    with pytest.raises(MalformedFrame, match="is not UTF-8") as caught:
        read_string(memoryview(data), 0, compact=compact)
    assert "\\x" not in str(caught.value), "no payload in the message"


# Tags.


def tagged(tags: list[tuple[int, bytes]]) -> bytes:
    return uvarint(len(tags)) + b"".join(uvarint(tag) + uvarint(len(data)) + data for tag, data in tags)


@given(tags=st.dictionaries(st.integers(0, FULL_UVARINT), st.binary(max_size=200), max_size=4))
def test_tags_come_back(tags: dict[int, bytes]) -> None:
    data = tagged(list(tags.items()))
    found, after = read_tags(memoryview(b"x" + data + b"y"), 1)
    assert ({tag: bytes(span) for tag, span in found.items()}, after) == (tags, 1 + len(data))
    for cut in range(len(data)):
        with pytest.raises(MalformedFrame):
            read_tags(memoryview(data[:cut]), 0)


def test_no_tags() -> None:
    assert read_tags(memoryview(NO_TAGS), 0) == ({}, 1)


@pytest.mark.parametrize("count", [2, 127, FULL_UVARINT])
def test_more_tags_than_bytes_are_malformed(count: int) -> None:
    with pytest.raises(MalformedFrame, match=f"{count} tagged fields at byte"):
        read_tags(memoryview(uvarint(count) + b"\0"), 0)


@pytest.mark.parametrize("size", [4, 127, FULL_UVARINT])
def test_a_tag_past_the_end_is_malformed(size: int) -> None:
    with pytest.raises(MalformedFrame, match=f"field of {size} bytes"):
        read_tags(memoryview(b"\1\0" + uvarint(size) + b"abc"), 0)
