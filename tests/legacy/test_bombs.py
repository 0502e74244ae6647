"""Wrappers and batches that expand as far as their codec can, converted: what that takes, in a process of its own."""

import pytest

from mirror.legacy import CHUNK_BYTES
from mirror.records.content.opening import MOST_OPENED
from mirror.records.header import Codec
from tests.records.bombs import bomb
from tests.records.content.test_bombs import EXPANDS

CODECS = [codec for codec in EXPANDS if codec is not Codec.ZSTD]
"""Those that the old formats have."""


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("way", ["down", "messages", "up"])
def test_refused_at_the_limit(way: str, codec: Codec) -> None:
    found = bomb(way, codec)
    assert found.plain > EXPANDS[codec] * found.packed
    assert f"more than {MOST_OPENED} bytes" in found.told
    assert found.records == 0
    assert found.grown < 3 * MOST_OPENED


@pytest.mark.parametrize("codec", CODECS)
def test_converted_if_it_fits(codec: Codec) -> None:
    """A few copies of what fits into the limit: decompressed, in the reader, in the wrapper, and compressed."""
    found = bomb("down-fitting", codec)
    assert found.plain > EXPANDS[codec] * found.packed
    assert (found.told, found.records) == ("", 1)
    assert found.grown < 6 * MOST_OPENED + CHUNK_BYTES
