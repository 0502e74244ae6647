"""Where share groups begin: what is sent, and answers that are whole, cut anywhere, or refused."""

import struct

import pytest

from mirror.wire.primitives import MalformedFrame, string
from mirror.wire.share import (
    ShareOffsets,
    ShareStart,
    alter_request,
    describe_request,
    read_altered,
    read_described,
)

HEAD = struct.pack(">i", 7) + b"\0"
"""Correlation id, no tags."""
TOPIC_ID = bytes(range(16))


def text(value: str | None) -> bytes:
    return string(value, compact=True)


def partition(version: int, index: int, start: int, lag: int, error: int = 0) -> bytes:
    lags = struct.pack(">q", lag) if version else b""
    return (
        struct.pack(">iqi", index, start, 5) + lags + struct.pack(">h", error) + text("why" if error else None) + b"\0"
    )


def described(version: int) -> bytes:
    """Two groups: one with two partitions, of which one has an error; one that is refused."""
    rows = partition(version, 0, 30, 0) + partition(version, 3, -1, -1) + partition(version, 4, 1, 1, error=3)
    first = text("g") + b"\2" + text("t") + TOPIC_ID + b"\4" + rows + b"\0" + struct.pack(">h", 0) + text(None) + b"\0"
    second = text("no") + b"\1" + struct.pack(">h", 30) + text("denied") + b"\0"
    return HEAD + struct.pack(">i", 0) + b"\3" + first + second + b"\0"


ALTERED = (
    HEAD + struct.pack(">ih", 0, 0) + text(None) + b"\2" + text("t") + TOPIC_ID + b"\3"
    + struct.pack(">ih", 0, 0) + text(None) + b"\0" + struct.pack(">ih", 1, 3) + text("why") + b"\0" + b"\0" + b"\0"
)  # fmt: skip


@pytest.mark.parametrize("version", [0, 1])
def test_described(version: int) -> None:
    """Before version 1, nobody tells the lag."""
    first, second = read_described(version, memoryview(described(version)))
    starts = {("t", 0): ShareStart(30, 0 if version else -1), ("t", 3): ShareStart(-1, -1)}
    assert first == ShareOffsets("g", 0, None, starts)
    assert second == ShareOffsets("no", 30, "denied", {})


def test_altered() -> None:
    assert read_altered(memoryview(ALTERED)) == (0, None, {("t", 0): 0, ("t", 1): 3})


@pytest.mark.parametrize("cut", range(len(ALTERED)))
def test_any_cut_of_an_alteration(cut: int) -> None:
    with pytest.raises(MalformedFrame):
        read_altered(memoryview(ALTERED[:cut]))


@pytest.mark.parametrize("cut", range(len(described(1))))
def test_any_cut_of_a_description(cut: int) -> None:
    with pytest.raises(MalformedFrame):
        read_described(1, memoryview(described(1)[:cut]))


def test_requests() -> None:
    assert describe_request(["g", "h"]) == b"\3" + text("g") + b"\0\0" + text("h") + b"\0\0" + b"\0"
    rows = struct.pack(">iq", 0, 7) + b"\0" + struct.pack(">iq", 1, 8) + b"\0"
    assert (
        alter_request("g", {("t", 1): 8, ("t", 0): 7}) == text("g") + b"\2" + text("t") + b"\3" + rows + b"\0" + b"\0"
    )
