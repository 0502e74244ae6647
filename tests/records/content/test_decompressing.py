"""Decompressing in chunks, against decompressing at once."""

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.content.building import compressed
from mirror.records.content.decompressing import CHUNK, SLICE, NotOpened, decompressed, plain_chunks
from mirror.records.header import Codec

CODECS = list(Codec)
PLAIN = b"".join(b"%d some text " % at for at in range(60_000))


@pytest.mark.parametrize("codec", CODECS)
def test_chunks_are_the_whole(codec: Codec) -> None:
    assert len(PLAIN) > 3 * CHUNK
    packed = compressed(codec, PLAIN)
    chunks = list(plain_chunks(codec, packed, where="it", most_block=1 << 30))
    assert b"".join(chunks) == PLAIN == decompressed(codec, packed, most=1 << 30, where="it")
    if codec is not Codec.NONE:
        assert max(map(len, chunks)) <= CHUNK


@given(st.binary(max_size=200), st.sampled_from(CODECS))
def test_any_bytes_are_read_or_refused(packed: bytes, codec: Codec) -> None:
    told = ""
    try:
        b"".join(plain_chunks(codec, packed, where="it", most_block=1 << 20))
    except NotOpened as error:
        told = str(error)
    assert not told or told.startswith("it cannot be decompressed")


def test_a_codec_that_does_not_exist() -> None:
    with pytest.raises(NotOpened, match="it cannot be decompressed"):
        list(plain_chunks(7, b"", where="it", most_block=1))


def test_a_block_of_snappy_above_the_limit_is_refused_before_it_is_decompressed() -> None:
    packed = compressed(Codec.SNAPPY, bytes(100_000))
    with pytest.raises(NotOpened, match="more than 1000 bytes"):
        list(plain_chunks(Codec.SNAPPY, packed, where="it", most_block=1_000))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_a_stream_that_is_cut_gives_less(codec: Codec) -> None:
    packed = compressed(codec, PLAIN)
    try:
        got = b"".join(plain_chunks(codec, packed[: len(packed) // 2], where="it", most_block=1 << 30))
    except NotOpened:
        return
    assert len(got) < len(PLAIN)
    assert PLAIN.startswith(got)


def test_a_gzip_stream_of_several_members() -> None:
    """Java reads on behind the end of the first."""
    packed = compressed(Codec.GZIP, PLAIN) + compressed(Codec.GZIP, b"") + compressed(Codec.GZIP, b"more")
    assert b"".join(plain_chunks(Codec.GZIP, packed, where="it", most_block=1)) == PLAIN + b"more"
    assert decompressed(Codec.GZIP, packed, most=1 << 30, where="it", whole=True) == PLAIN + b"more"
    with pytest.raises(NotOpened, match="more than 9 bytes"):
        decompressed(Codec.GZIP, packed, most=9, where="it")
    with pytest.raises(NotOpened):
        decompressed(Codec.GZIP, packed + b"x", most=1 << 30, where="it", whole=True)


def test_an_empty_part_is_not_the_end() -> None:
    """Who asks for the next chunk takes an empty one for the end."""
    gzip = compressed(Codec.GZIP, b"before") + compressed(Codec.GZIP, b"") + compressed(Codec.GZIP, b"behind")
    assert list(plain_chunks(Codec.GZIP, gzip, where="it", most_block=1)) == [b"before", b"behind"]
    blocks = b"\x82SNAPPY\x00" + bytes(8) + b"\0\0\0\3\1\0a" + b"\0\0\0\1\0" + b"\0\0\0\3\1\0b"
    assert list(plain_chunks(Codec.SNAPPY, blocks, where="it", most_block=1)) == [b"a", b"b"]
    for codec in CODECS:
        assert list(plain_chunks(codec, compressed(codec, b""), where="it", most_block=1)) == []


class _Slices:
    """A decompressor that notes how much it is given each time: what it does not use, it copies."""

    def __init__(self, real: Any, given: list[int]) -> None:
        self._real = real
        self._given = given

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def decompress(self, data: bytes, *most: int, **how: int) -> bytes:
        self._given.append(len(data))
        plain: bytes = self._real.decompress(data, *most, **how)
        return plain


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_time_grows_with_the_bytes_and_not_with_their_square(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of empty gzip members, or of little that becomes much: the rest is not copied for each of them."""
    import lz4.frame

    given: list[int] = []
    real, real_lz4 = zlib.decompressobj, lz4.frame.LZ4FrameDecompressor
    monkeypatch.setattr(zlib, "decompressobj", lambda *how: _Slices(real(*how), given))
    monkeypatch.setattr(lz4.frame, "LZ4FrameDecompressor", lambda: _Slices(real_lz4(), given))
    packed = compressed(Codec.GZIP, b"") * 50_000 if codec is Codec.GZIP else compressed(codec, PLAIN)
    plain = b"" if codec is Codec.GZIP else PLAIN
    assert b"".join(plain_chunks(codec, packed, where="it", most_block=1)) == plain
    if codec is Codec.GZIP:
        assert decompressed(codec, packed, most=1, where="it", whole=True) == plain
    assert len(packed) > 4 * SLICE >= 4 * max(given)
