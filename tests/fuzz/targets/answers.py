"""Answers to Fetch and Produce (``mirror/wire``), in every version."""

from unittest.mock import patch

from mirror.wire import fetch as fetch_module
from mirror.wire.fetch import FetchResponse, read_fetch_response
from mirror.wire.primitives import MalformedFrame
from tests.fuzz.source import Source
from tests.wire.frames import FETCH_RANGE, PRODUCE_RANGE
from tests.wire.produce_frames import read_any


def fetch(data: bytes) -> None:
    """Records lie within the frame, one behind the other; the quick way and the slow one read the same."""
    source = Source(data)
    version = FETCH_RANGE[source.number(1) % len(FETCH_RANGE)]
    frame = memoryview(source.rest())
    response = _read(version, frame)
    with patch.object(fetch_module, "_read_plain", return_value=None):
        assert _read(version, frame) == response
    at = 0
    for one in response.partitions if response else ():
        assert at <= one.start <= one.end <= len(frame)
        at = one.end


def _read(version: int, frame: memoryview) -> FetchResponse | None:
    try:
        return read_fetch_response(version, frame)
    except MalformedFrame:
        return None


def produce(data: bytes) -> None:
    """The quick readers answer only what the full one says, too."""
    source = Source(data)
    version = PRODUCE_RANGE[source.number(1) % len(PRODUCE_RANGE)]
    read_any(version, memoryview(source.rest()))
