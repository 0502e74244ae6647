"""Decompressing in chunks, against decompressing at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.content.building import compressed
from mirror.records.content.decompressing import CHUNK, NotOpened, decompressed, plain_chunks
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
