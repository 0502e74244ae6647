"""Record sets of every format, cut into entries, whole and damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.legacy.entries import BatchSpan, LegacySpan, Span, cut, named
from mirror.records.header import Codec, CorruptBatch
from tests.legacy.samples import START_MS, messages_of, records_from, wrapper_of
from tests.records.builders import kafka_batch, raw_batch

ALONE_0 = messages_of(0, records_from(0, 2, magic=0))
WRAPPED_0 = wrapper_of(0, Codec.GZIP, records_from(2, 3, magic=0))
ALONE_1 = messages_of(1, records_from(5, 2))
WRAPPED_1 = wrapper_of(1, Codec.LZ4, records_from(7, 3))
BATCH = kafka_batch(base_offset=10)
MIXED = ALONE_0 + WRAPPED_0 + ALONE_1 + WRAPPED_1 + BATCH


def spans_of(record_set: bytes) -> list[Span]:
    return list(cut(memoryview(record_set)))


def test_all_formats_one_behind_another() -> None:
    spans = spans_of(MIXED)
    assert [type(span) for span in spans] == [LegacySpan] * 6 + [BatchSpan]
    legacy = [span for span in spans if isinstance(span, LegacySpan)]
    assert [span.magic for span in legacy] == [0, 0, 0, 1, 1, 1]
    assert [span.first_offset for span in legacy] == [0, 1, None, 5, 6, None]
    assert [span.last_offset for span in spans] == [0, 1, 4, 5, 6, 9, 12]
    assert [span.is_wrapper for span in legacy] == [False, False, True, False, False, True]
    assert [span.codec_bits for span in legacy] == [0, 0, Codec.GZIP, 0, 0, Codec.LZ4]
    assert [span.timestamp for span in legacy] == [-1, -1, -1, START_MS, START_MS + 2, START_MS + 4]
    assert [span.at + span.size for span in spans] == [*(span.at for span in spans[1:]), len(MIXED)]


def test_a_part_of_a_record_set() -> None:
    at = len(ALONE_0)
    (span,) = cut(memoryview(MIXED), at, at + len(WRAPPED_0))
    assert (span.at, span.size) == (at, len(WRAPPED_0))
    assert list(cut(memoryview(MIXED), at, at + len(WRAPPED_0) - 1)) == []


def test_append_times() -> None:
    (span,) = spans_of(wrapper_of(1, Codec.GZIP, records_from(0, 3), append_time=START_MS + 99))
    assert isinstance(span, LegacySpan)
    assert span.has_append_time
    assert span.timestamp == START_MS + 99
    (plain,) = spans_of(WRAPPED_1)
    assert isinstance(plain, LegacySpan)
    assert not plain.has_append_time


def test_names() -> None:
    spans = spans_of(MIXED)
    assert named(spans[0]) == "the message of magic 0 at offset 0"
    assert named(spans[5]) == "the wrapper of magic 1 at offset 9"
    assert named(spans[6]) == "the batch at offset 10"


def test_a_partial_entry_is_dropped() -> None:
    """Cut anywhere: the whole entries before, and nothing else."""
    every = spans_of(MIXED)
    for end in range(len(MIXED) + 1):
        assert spans_of(MIXED[:end]) == [span for span in every if span.at + span.size <= end]


def test_filler_is_dropped() -> None:
    """Of KIP-283."""
    assert len(spans_of(MIXED + b"\xff" * 8 + (1 << 30).to_bytes(4, "big"))) == 7


@pytest.mark.parametrize("size", [-1, 0, 13, -(1 << 31)])
def test_an_impossible_size(size: int) -> None:
    broken = MIXED + (12).to_bytes(8, "big") + size.to_bytes(4, "big", signed=True) + bytes(60)
    spans = cut(memoryview(broken))
    assert [next(spans) for _ in range(7)] == spans_of(MIXED)
    with pytest.raises(CorruptBatch, match=rf"batch length {size} at byte {len(MIXED)} .* offset 12"):
        next(spans)


@pytest.mark.parametrize("message", [ALONE_0, ALONE_1, WRAPPED_0, WRAPPED_1, BATCH], ids=len)
def test_each_bit(message: bytes) -> None:
    """An error, a partial entry, or what the checksum does not cover: the offset, and a batch's leader epoch. Never
    other contents."""
    (first, *_) = spans_of(message)
    message = message[: first.size]
    for bit in range(8 * min(len(message), 70)):
        damaged = bytearray(message)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            spans = spans_of(bytes(damaged))
        except CorruptBatch:
            continue
        if bit // 8 in range(8, 12):
            assert spans == []
        else:
            assert bit // 8 < 8 or (isinstance(first, BatchSpan) and bit // 8 in range(12, 16))
            (span,) = spans
            assert bytes(damaged[12:]) == message[12:] or isinstance(span, BatchSpan)
            assert span.size == len(message)


def test_a_wrong_checksum_has_a_name() -> None:
    damaged = bytearray(MIXED)
    damaged[len(ALONE_0) + 40] ^= 1
    spans = cut(memoryview(damaged))
    assert [next(spans).last_offset for _ in range(2)] == [0, 1]
    with pytest.raises(CorruptBatch, match=r"the wrapper of magic 0 at offset 4 .* does not match its checksum"):
        next(spans)


@pytest.mark.parametrize(
    ("before", "behind"),
    [(WRAPPED_1, ALONE_1), (BATCH, WRAPPED_1), (BATCH, BATCH), (ALONE_1, kafka_batch(base_offset=6))],
)
def test_offsets_go_up(before: bytes, behind: bytes) -> None:
    with pytest.raises(CorruptBatch, match="stands behind offset"):
        spans_of(before + behind)


def test_a_batch_that_ends_before_it_begins() -> None:
    with pytest.raises(CorruptBatch, match="the batch at offset 1000 has last offset delta -2"):
        spans_of(raw_batch(b"", last_offset_delta=-2))


@pytest.mark.parametrize("beyond", [0, 1, 2])
def test_offsets_that_leave_no_room_behind_them(beyond: int) -> None:
    """No checksum covers them. What is made of such an entry would not fit into 64 bits."""
    last = (1 << 63) - 1
    for record_set in (kafka_batch(base_offset=last - 2 + beyond), wrapper_of(1, Codec.GZIP, records_from(last - 3))):
        with pytest.raises(CorruptBatch, match=f"offset {last}|offset {last + beyond}, behind which there is none"):
            spans_of(record_set)
    assert len(spans_of(kafka_batch(base_offset=last - 3))) == 1


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """Damaged, or nothing: no checksum is matched by chance."""
    try:
        spans = spans_of(data)
    except CorruptBatch:
        return
    assert spans == []


@given(st.integers(0, len(MIXED) - 1), st.binary(min_size=1, max_size=30))
def test_bytes_overwritten(at: int, other: bytes) -> None:
    """Entries that come out have the contents of those that went in."""
    damaged = MIXED[:at] + other + MIXED[at + len(other) :]
    contents = {MIXED[span.at + 16 : span.at + span.size] for span in spans_of(MIXED)}
    found = []
    try:
        for span in cut(memoryview(damaged)):
            found.append(damaged[span.at + 16 : span.at + span.size])
    except CorruptBatch:
        pass
    assert set(found) <= contents
