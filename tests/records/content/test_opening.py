"""Records read out of batches of every codec, and what cannot be read."""

import zlib

import pytest
import zstandard

from mirror.records.content import opening
from mirror.records.content.building import compressed
from mirror.records.content.decompressing import decompressed
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from tests.records.builders import RECORDS, kafka_batch, raw_batch

BASE = 1_000
EXPECTED = [Record(BASE + one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in RECORDS]


def split(batch: bytes) -> tuple[BatchHeader, bytes]:
    return BatchHeader.read(batch), batch[HEADER_SIZE:]


@pytest.mark.parametrize("codec", Codec)
def test_every_codec(codec: Codec) -> None:
    assert list(opened(*split(kafka_batch(codec=codec, base_offset=BASE)))) == EXPECTED


def test_snappy_without_frames() -> None:
    """As librdkafka writes it."""
    import snappy

    header, plain = split(kafka_batch(base_offset=BASE))
    packed = header._replace(attributes=Codec.SNAPPY)
    assert list(opened(packed, snappy.compress(plain))) == EXPECTED


def test_an_emptied_batch() -> None:
    """What the cleaner leaves of a producer's last batch: a header."""
    assert list(opened(*split(raw_batch(b"", attributes=Codec.ZSTD, record_count=0)))) == []


@pytest.mark.parametrize("codec", Codec)
def test_damaged(codec: Codec) -> None:
    """Cut anywhere, or other bytes: an error that says which batch, unless all records are there."""
    header, records = split(kafka_batch(codec=codec, base_offset=BASE))
    for cut in range(len(records)):
        try:
            found = list(opened(header, records[:cut]))
        except NotOpened as error:
            assert "the batch at offset 1000" in str(error)  # noqa: PT017 - it may be well
        else:
            assert found == EXPECTED
    with pytest.raises(NotOpened):
        list(opened(header, b"\xff" * len(records)))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_more_than_is_opened(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_OPENED", 100)
    with pytest.raises(NotOpened, match="more than 100 bytes"):
        list(opened(*split(kafka_batch(codec=codec, base_offset=BASE))))


@pytest.mark.parametrize("codec", Codec)
def test_a_limit_of_ones_own(codec: Codec) -> None:
    header, records = split(kafka_batch(codec=codec, base_offset=BASE))
    size = len(split(kafka_batch())[1])
    assert list(opened(header, records, size)) == EXPECTED
    with pytest.raises(NotOpened, match=f"the batch at offset 1000 .*more than {size - 1} bytes"):
        list(opened(header, records, size - 1))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
def test_a_stream_that_has_to_be_whole(codec: Codec) -> None:
    """Where nothing else tells how much there should be."""
    plain = bytes(range(256)) * 4_000
    packed = compressed(codec, plain)
    assert decompressed(codec, packed, most=len(plain), where="it", whole=True) == plain
    for missing in (1, 4, len(packed) // 2):
        with pytest.raises(NotOpened, match=f"it cannot be decompressed: its {codec.name.lower()} stream has no end"):
            decompressed(codec, packed[:-missing], most=len(plain), where="it", whole=True)
    assert plain.startswith(decompressed(codec, packed[:-4], most=len(plain), where="it"))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_a_bomb_is_not_unpacked(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is decompressed than is opened."""
    monkeypatch.setattr(opening, "MOST_OPENED", 1 << 16)
    zeros = bytes(1 << 26)
    packed = zstandard.compress(zeros) if codec is Codec.ZSTD else zlib.compress(zeros, wbits=31)
    with pytest.raises(NotOpened, match="more than 65536 bytes"):
        list(opened(*split(raw_batch(packed, attributes=codec))))


def test_timestamps_wrap_as_they_do_in_kafka() -> None:
    """Nobody keeps a producer from times at the end of 64 bits, and what is made of them has to have room for them."""
    header, records = split(kafka_batch(base_offset=BASE))
    late = (1 << 63) - 1
    found = [one.timestamp for one in opened(header._replace(base_timestamp=late), records)]
    assert found == [late, -(1 << 63) + 6, -(1 << 63) + 2]


def test_an_unknown_codec() -> None:
    with pytest.raises(NotOpened):
        list(opened(*split(raw_batch(b"x", attributes=7))))


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(NotOpened, match="no library for lz4"):
        list(opened(*split(kafka_batch(codec=Codec.LZ4))))
