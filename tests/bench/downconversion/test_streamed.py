"""An answer that is read while it comes, against the reader that has it whole."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.downconversion.streamed import FETCH_VERSION, Incoming, Part, parts, request
from mirror.records.header import CorruptBatch
from mirror.records.scan import scan
from mirror.wire.fetch import FetchPartition, read_fetch_response
from mirror.wire.primitives import MalformedFrame
from tests.records.builders import kafka_batch, legacy_message, raw_batch
from tests.wire.frames import Values, fetch_frame

WINDOW = 256
BATCHES = (kafka_batch(base_offset=0), legacy_message(1, offset=3), kafka_batch(base_offset=4), raw_batch(bytes(90)))
FILLER = struct.pack(">qi", -1, 400)


def row(index: int, records: bytes | None, *, aborted: int = 0) -> Values:
    return {
        "partition_index": index, "error_code": 0, "high_watermark": 9, "last_stable_offset": 9, "log_start_offset": 0,
        "aborted_transactions": [(number, 0) for number in range(aborted)], "records": records,
        "preferred_read_replica": -1,
    }  # fmt: skip


def frame_of(*topics: tuple[str, list[Values]], error: int = 0) -> bytes:
    values: Values = {"throttle_time_ms": 0, "error_code": error, "session_id": 0, "responses": list(topics)}
    return bytes(fetch_frame(FETCH_VERSION, values))


def packets(data: bytes, step: int) -> Callable[[memoryview], int]:
    """Receives at most ``step`` bytes at a time."""
    rest = bytearray(data)

    def receive_into(buffer: memoryview) -> int:
        piece = rest[: min(step, len(buffer))]
        del rest[: len(piece)]
        buffer[: len(piece)] = piece
        return len(piece)

    return receive_into


def incoming(frame: bytes, *, step: int = 1 << 20, window: int = WINDOW, cut: int = 0) -> Incoming:
    return Incoming(packets(frame[: len(frame) - cut], step), len(frame), window_bytes=window)


def read(stream: Incoming, *, window: int = WINDOW) -> list[tuple[Part, list[bytes]]]:
    return [(part, [bytes(one) for one in part.record_sets]) for part in parts(stream, window_bytes=window)]


RECORDS = st.none() | st.builds(
    lambda batches, cut, end: b"".join(batches)[: len(b"".join(batches)) - cut] + end,
    st.lists(st.sampled_from(BATCHES), max_size=5),
    st.integers(0, 80),
    st.sampled_from([b"", FILLER]),
)


@given(
    st.lists(st.lists(st.tuples(RECORDS, st.integers(0, 2)), max_size=3), max_size=3),
    st.integers(1, 700),
    st.sampled_from([64, 256, 1_000, 1 << 20]),
)
def test_as_the_whole_reader(topics: list[list[tuple[bytes | None, int]]], step: int, window: int) -> None:
    """The same partitions; of their records the whole entries, whatever the packets and the window."""
    rows = [
        (f"topic-{number}", [row(at, records, aborted=aborted) for at, (records, aborted) in enumerate(one)])
        for number, one in enumerate(topics)
    ]
    frame = frame_of(*rows)
    expected = []
    for one in read_fetch_response(FETCH_VERSION, memoryview(frame)).partitions:
        records = frame[one.start : one.end]
        try:
            whole = sum(place.size for place in scan(memoryview(records)))
        except CorruptBatch:
            return  # filler behind a batch that was cut: not what a broker sends
        expected.append((one.topic, one.partition, one.error, one.high_watermark, records[:whole]))
    found = read(incoming(frame, step=step, window=window), window=window)
    assert [(*part[:4], b"".join(sets)) for part, sets in found] == expected


def test_memory_is_a_window_or_the_largest_batch() -> None:
    """Neither how much there is of a partition, nor how many of them, makes it larger."""
    many = b"".join(kafka_batch(base_offset=3 * at) for at in range(40))
    frame = frame_of(("orders", [row(at, many) for at in range(5)]))
    stream = incoming(frame, window=4_096)
    for part in parts(stream, window_bytes=4_096):
        sets = list(map(len, part.record_sets))
        assert sum(sets) == len(many)
        assert max(sets) <= 4_096
        assert len(sets) < 6
    assert len(stream._buffer) == 4_096
    large = raw_batch(bytes(20_000))
    stream = incoming(frame_of(("orders", [row(0, large + large)])), window=4_096)
    assert [len(sets) for _, sets in read(stream, window=4_096)] == [2]
    assert len(stream._buffer) <= 2 * len(large)


def test_what_is_damaged_is_told() -> None:
    frame = frame_of(("orders", [row(0, BATCHES[0])]))
    with pytest.raises(MalformedFrame, match="error code 6"):
        read(incoming(frame_of(error=6)))
    with pytest.raises(ConnectionError, match="with 355 bytes of an answer left"):
        read(incoming(frame, cut=10, step=7, window=64), window=64)
    with pytest.raises(MalformedFrame, match="3 bytes behind the answer"):
        read(incoming(frame + b"abc"))
    with pytest.raises(MalformedFrame, match="records of"):
        read(Incoming(packets(frame, 99), len(frame) - 20, window_bytes=64))
    with pytest.raises(CorruptBatch):
        read(incoming(frame_of(("orders", [row(0, struct.pack(">qi", 5, -7) + bytes(60))]))))
    broken = frame[:14] + struct.pack(">i", 1 << 30) + frame[18:]
    with pytest.raises(MalformedFrame, match="an array of 1073741824 elements"):
        read(incoming(broken))


def test_records_have_to_be_read_before_the_next_part() -> None:
    frame = frame_of(("orders", [row(0, BATCHES[0]), row(1, None)]))
    found = parts(incoming(frame), window_bytes=WINDOW)
    next(found)
    with pytest.raises(AssertionError, match="not read to their end"):
        next(found)


def test_a_request_has_its_size_in_front() -> None:
    made = request(7, [FetchPartition("orders", 3, 5, 100)], max_bytes=1_000)
    assert struct.unpack_from(">ihhi", made) == (len(made) - 4, 1, FETCH_VERSION, 7)
