"""Variable-length integers, against kafka-python's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import encode_varint

from mirror.records.content.varint import as_i64, read_varint, write_varint


def _by_kafka_python(value: int) -> bytes:
    out = bytearray()
    encode_varint(value, out.append)
    return bytes(out)


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-10_000, 10_000), st.binary(max_size=3))
def test_any_integer(value: int, before: bytes) -> None:
    written = write_varint(value)
    assert written == _by_kafka_python(value)
    assert read_varint(before + written + b"\x80", len(before)) == (value, len(before) + len(written))


def test_an_integer_that_ends_too_early() -> None:
    for cut in (b"", b"\x80", b"\xff\xff"):
        with pytest.raises(IndexError):
            read_varint(cut, 0)


def test_an_integer_of_too_many_bits() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        read_varint(b"\xff" * 11, 0)


def test_sums_wrap_as_64_bits_do() -> None:
    most = (1 << 63) - 1
    assert [as_i64(value) for value in (0, -1, most, most + 1, -most - 2, 2 * most + 2)] == [
        0, -1, most, -most - 1, most, 0,
    ]  # fmt: skip


def test_more_than_64_bits() -> None:
    """Ten bytes have room for 70: what is beyond 64 would be lost when the integer is written again."""
    full = b"\xff" * 9 + b"\x01"
    assert read_varint(full, 0) == (-(1 << 63), 10)
    for beyond in (b"\xff" * 9 + b"\x02", b"\xff" * 9 + b"\x7f", b"\xff" * 10 + b"\x01"):
        with pytest.raises(ValueError, match="more than 64 bits"):
            read_varint(beyond, 0)
