"""Batches that expand as far as their codec can, on the deep path: what opening them takes, in a process of its own."""

import pytest

from mirror.records.content import rewriting
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.opening import MOST_OPENED
from mirror.records.content.rewriting import MOST_GROWN, MOST_PLAIN, rewrite
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from tests.records.bombs import LARGEST_WINDOW, RECORD, RECORDS, WINDOW, bomb
from tests.records.builders import Record, kafka_batch

EXPANDS = {Codec.GZIP: 1_000, Codec.ZSTD: 1_000, Codec.LZ4: 250, Codec.SNAPPY: 20}
"""As far as each can: no lz4 block shrinks more than 255 times, no snappy block more than 22 times."""
CODECS = list(EXPANDS)


@pytest.mark.parametrize("codec", CODECS)
def test_rewritten_in_pieces(codec: Codec) -> None:
    """All of it, with a piece or two in memory, and what was compressed."""
    found = bomb("rewrite", codec)
    assert found.plain > EXPANDS[codec] * found.packed
    assert found.plain > RECORDS * RECORD
    assert (found.told, found.records) == ("", -(-RECORDS // (MOST_PLAIN // RECORD - 1)))
    assert found.grown < 5 * MOST_PLAIN + found.packed


@pytest.mark.parametrize("codec", CODECS)
def test_one_large_record(codec: Codec) -> None:
    """It is refused by its size, before it is decompressed."""
    found = bomb("rewrite-one", codec)
    assert "has a record of" in found.told
    assert found.grown < MOST_PLAIN


@pytest.mark.parametrize("codec", CODECS)
def test_read_as_a_whole(codec: Codec) -> None:
    """It is refused when the limit is reached. Until then, zlib makes its result larger by copying it."""
    found = bomb("opened", codec)
    assert f"more than {MOST_OPENED} bytes" in found.told
    assert found.grown < 3 * MOST_OPENED


def test_what_only_a_large_window_made_small() -> None:
    """Our own compression has none: the pieces would become as large as the plain bytes. The window of the frame
    comes on top."""
    found = bomb("rewrite-repeated", Codec.ZSTD)
    assert found.plain > 30 * found.packed
    assert "when it is rewritten" in found.told
    assert found.grown < MOST_GROWN + rewriting.GROWTH * found.packed + 6 * MOST_PLAIN + (1 << WINDOW)


def test_the_largest_window_of_zstd() -> None:
    """What a frame says that its reader has to keep comes on top: up to 128 MiB, as in Kafka's clients."""
    found = bomb("rewrite-window", Codec.ZSTD)
    assert (found.told, found.plain > RECORDS * RECORD) == ("", True)
    assert found.grown < (1 << LARGEST_WINDOW) + 5 * MOST_PLAIN


def test_the_limit_for_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is within the limit was yielded before."""
    batch = kafka_batch([Record(2 * at, 7, None, bytes(50)) for at in range(100)])
    header = BatchHeader.read(batch)
    assert len(list(rewrite(header, batch[HEADER_SIZE:]))) == 100
    monkeypatch.setattr(rewriting, "MOST_GROWN", 600)
    monkeypatch.setattr(rewriting, "GROWTH", 0)
    pieces = rewrite(header, batch[HEADER_SIZE:])
    assert len([next(pieces) for _ in range(10)]) == 10
    with pytest.raises(NotOpened, match=r"the batch at offset 0 .* grows to more than 600 bytes when it is rewritten"):
        next(pieces)
