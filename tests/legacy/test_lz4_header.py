"""The header checksum of lz4 frames, held against the xxHash library and the lz4 library."""

import lz4.frame
import pytest
import xxhash

from mirror.legacy.lz4_header import with_old_checksum, with_right_checksum, xxh32
from mirror.records.content.opening import NotOpened

PLAIN = b"what is inside " * 50


@pytest.mark.parametrize("size", range(16))
def test_the_same_as_the_library(size: int) -> None:
    for seed in range(40):
        data = bytes((seed * 37 + at * 101) % 256 for at in range(size))
        assert xxh32(data) == xxhash.xxh32(data).intdigest()


@pytest.mark.parametrize("store_size", [False, True])
def test_both_ways(store_size: bool) -> None:
    """The old checksum takes the frame's magic number along. A library refuses it, and takes the frame set right."""
    frame = lz4.frame.compress(PLAIN, block_linked=False, store_size=store_size)
    at = 14 if store_size else 6
    old = with_old_checksum(frame)
    assert old[at] == xxhash.xxh32(frame[:at]).intdigest() >> 8 & 0xFF
    assert old[:at] + old[at + 1 :] == frame[:at] + frame[at + 1 :]
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(old)
    assert with_right_checksum(old, "x") == frame
    assert with_right_checksum(frame, "x") == frame


@pytest.mark.parametrize("cut", [0, 3, 6, 14])
def test_no_frame(cut: int) -> None:
    frame = lz4.frame.compress(PLAIN, store_size=True)
    with pytest.raises(NotOpened, match="the wrapper cannot be decompressed: no lz4 frame"):
        with_right_checksum(frame[:cut], "the wrapper")
    with pytest.raises(NotOpened, match="no lz4 frame"):
        with_right_checksum(b"\0" * 40, "the wrapper")
