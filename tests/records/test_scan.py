"""``mirror.records.scan``: batches told from tails, and tails from corruption, at every cut and every length."""

import struct
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirror.records.header import HEADER_SIZE, MAGIC_AT, PREFIX_SIZE, BatchHeader, Codec, CorruptBatch
from mirror.records.scan import MIN_LENGTH, BatchPlace, Remainder, measure, scan, tail
from tests.records.builders import RECORDS, kafka_batch, legacy_message, raw_batch

BATCHES = (
    kafka_batch(RECORDS[2:], base_offset=7),
    kafka_batch(codec=Codec.LZ4, base_offset=10),
    raw_batch(b"", base_offset=13, record_count=0),
)
RECORD_SET = b"".join(BATCHES)
ENDS = (0, *accumulate(len(batch) for batch in BATCHES))


def places(record_set: bytes) -> list[BatchPlace]:
    return list(scan(memoryview(record_set)))


def prefix(base_offset: int, length: int) -> bytes:
    return struct.pack(">qi", base_offset, length)


def with_length(length: int, *, magic: int = 2, size: int = 400) -> bytes:
    """Bytes that begin like a batch with this ``length`` field, whatever its real size."""
    head = bytearray(prefix(5, length) + bytes(HEADER_SIZE - PREFIX_SIZE))
    head[MAGIC_AT] = magic
    return bytes(head.ljust(size, b"\0")[:size])


@pytest.mark.parametrize("cut", range(len(RECORD_SET) + 1))
def test_every_cut_gives_the_whole_batches_and_names_the_tail(cut: int) -> None:
    part = memoryview(RECORD_SET)[:cut]
    expected = [BatchPlace(start, end - start) for start, end in pairwise(ENDS) if end <= cut]
    assert list(scan(part)) == expected
    assert tail(part) is (Remainder.CLEAN if cut in ENDS else Remainder.PARTIAL)


@given(
    before=st.binary(max_size=40),
    after=st.binary(max_size=100),
    codecs=st.lists(st.sampled_from(Codec), max_size=5),
    cut=st.integers(0, 60),
)
def test_only_the_given_range_is_looked_at(before: bytes, after: bytes, codecs: list[Codec], cut: int) -> None:
    """Whatever stands around the record set (the rest of the frame) changes nothing."""
    record_set = b"".join(kafka_batch(codec=codec, base_offset=at * 3) for at, codec in enumerate(codecs))
    record_set = record_set[: max(len(record_set) - cut, 0)]
    frame = memoryview(before + record_set + after)
    start, end = len(before), len(before) + len(record_set)
    assert [(place.at - start, place.size) for place in scan(frame, start, end)] == places(record_set)
    assert tail(frame, start, end) is tail(memoryview(record_set))


def test_places_are_the_batches() -> None:
    view = memoryview(RECORD_SET)
    assert [bytes(view[at : at + size]) for at, size in scan(view)] == list(BATCHES)
    assert [BatchHeader.read(view, at).base_offset for at, _ in scan(view)] == [7, 10, 13]


def test_nothing_is_clean() -> None:
    assert places(b"") == []
    assert tail(memoryview(b"")) is Remainder.CLEAN


# Lengths.


@given(length=st.integers(-(1 << 31), -1), magic=st.integers(0, 255))
@example(length=-1, magic=2)
@example(length=-12, magic=2)
@example(length=-(1 << 31), magic=2)
def test_a_negative_length_is_corrupt(length: int, magic: int) -> None:
    with pytest.raises(CorruptBatch, match=f"length {length} at byte 0"):
        places(with_length(length, magic=magic))


@pytest.mark.parametrize("left", range(PREFIX_SIZE, HEADER_SIZE))
@pytest.mark.parametrize("length", [-1, 0, 13, -(1 << 31)])
def test_an_impossible_length_is_corrupt_however_little_follows(length: int, left: int) -> None:
    """Not "wait for more": no further byte can make it right."""
    with pytest.raises(CorruptBatch):
        places(with_length(length, size=left))


@pytest.mark.parametrize(
    ("magic", "length"), [(magic, length) for magic, least in MIN_LENGTH.items() for length in range(least)]
)
def test_a_length_below_the_magics_least_is_corrupt(magic: int, length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"length {length} "):
        places(with_length(length, magic=magic))


@pytest.mark.parametrize(("magic", "least"), MIN_LENGTH.items())
def test_the_least_length_is_a_batch(magic: int, least: int) -> None:
    assert places(with_length(least, magic=magic, size=PREFIX_SIZE + least)) == [BatchPlace(0, PREFIX_SIZE + least)]


@pytest.mark.parametrize("length", [389, 1 << 20, 1 << 30, (1 << 31) - 1])
@pytest.mark.parametrize("magic", sorted(MIN_LENGTH))
def test_a_length_past_the_end_is_partial_however_large(length: int, magic: int) -> None:
    """Only the caller can know that the batch can never come whole: it asked for it from its first byte."""
    record_set = memoryview(with_length(length, magic=magic))
    assert list(scan(record_set)) == []
    assert tail(record_set) is Remainder.PARTIAL


def test_the_batches_before_a_corrupt_one_are_given_first() -> None:
    iterator = scan(memoryview(RECORD_SET + with_length(-5)))
    assert [next(iterator).at for _ in BATCHES] == list(ENDS[:-1])
    with pytest.raises(CorruptBatch, match=f"length -5 at byte {len(RECORD_SET)}"):
        next(iterator)
    with pytest.raises(CorruptBatch):
        tail(memoryview(RECORD_SET + with_length(-5)))


# Magics.


@pytest.mark.parametrize("magic", sorted(set(range(256)) - set(MIN_LENGTH)))
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    with pytest.raises(CorruptBatch, match=f"magic {magic} at byte 0 of 400, offset 5"):
        places(with_length(100, magic=magic))


@pytest.mark.parametrize("magic", [3, 255])
def test_an_unknown_magic_is_corrupt_as_soon_as_it_is_there(magic: int) -> None:
    with pytest.raises(CorruptBatch):
        places(with_length(100, magic=magic, size=MAGIC_AT + 1))
    assert tail(memoryview(with_length(100, magic=magic, size=MAGIC_AT))) is Remainder.PARTIAL


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda codec: codec.name)
def test_old_messages_are_measured_one_by_one(magic: int, codec: Codec) -> None:
    """A compressed wrapper is one place, whatever it holds; magic 2 may follow old messages in one answer."""
    message_set = legacy_message(magic, offset=3, codec=codec, count=3)
    found = places(message_set + BATCHES[0])
    assert len(found) == (4 if codec is Codec.NONE else 2)
    assert sum(place.size for place in found[:-1]) == len(message_set)
    assert found[-1] == BatchPlace(len(message_set), len(BATCHES[0]))
    assert all(message_set[place.at + MAGIC_AT] == magic for place in found[:-1])


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_is_partial_at_every_cut(magic: int) -> None:
    message = legacy_message(magic)
    for cut in range(1, len(message)):
        assert tail(memoryview(message)[:cut]) is Remainder.PARTIAL
    assert tail(memoryview(message)) is Remainder.CLEAN


# KIP-283's filler, as LazyDownConversionRecords of Kafka 2.0 to 3.9 writes it.


def filler(remaining: int) -> bytes:
    """What the broker puts in when ``remaining`` bytes of its answer cannot be filled with a converted batch."""
    return prefix(-1, max(remaining + 1, HEADER_SIZE)).ljust(remaining, b"\0")


@pytest.mark.parametrize("remaining", [12, 13, 16, 17, 60, 61, 62, 400, 4096])
@pytest.mark.parametrize("before", [b"", RECORD_SET, legacy_message(1)], ids=["alone", "behind batches", "behind old"])
def test_filler_is_told_from_a_partial_batch(before: bytes, remaining: int) -> None:
    record_set = memoryview(before + filler(remaining))
    assert list(scan(record_set)) == places(before)
    assert tail(record_set) is Remainder.FILLER


def test_the_twelve_bytes_alone_are_filler_with_any_length_past_the_end() -> None:
    for length in (1, 61, (1 << 31) - 1):
        assert measure(memoryview(prefix(-1, length)), 0, PREFIX_SIZE) is Remainder.FILLER


@pytest.mark.parametrize("size", range(1, PREFIX_SIZE))
def test_less_than_a_prefix_is_partial(size: int) -> None:
    assert tail(memoryview(filler(PREFIX_SIZE)[:size])) is Remainder.PARTIAL


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 49, 388])
def test_offset_minus_one_with_a_length_that_fits_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch, match="base offset -1"):
        places(prefix(-1, length).ljust(400, b"\0"))


@given(base_offset=st.integers(-(1 << 63), -2), length=st.integers(-(1 << 31), (1 << 31) - 1))
def test_any_other_negative_offset_is_corrupt(base_offset: int, length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"base offset {base_offset} "):
        places(prefix(base_offset, length).ljust(100, b"\0"))


# Any bytes at all.


@given(record_set=st.binary(max_size=400))
def test_any_bytes_are_cut_within_themselves_or_refused(record_set: bytes) -> None:
    check_any(record_set)


@given(
    at=st.integers(0, len(RECORD_SET) - 1),
    patch=st.binary(min_size=1, max_size=8),
)
def test_any_damage_is_cut_within_the_bytes_or_refused(at: int, patch: bytes) -> None:
    check_any((RECORD_SET[:at] + patch + RECORD_SET[at + len(patch) :])[: len(RECORD_SET)])


def check_any(record_set: bytes) -> None:
    """Places follow each other without holes and inside the bytes, and the only error names the byte behind them."""
    at, refused = 0, None
    try:
        for place in scan(memoryview(record_set)):
            assert place.at == at
            assert place.size >= PREFIX_SIZE + min(MIN_LENGTH.values())
            at += place.size
            assert at <= len(record_set)
    except CorruptBatch as error:
        refused = str(error)
    if refused is None:
        assert (tail(memoryview(record_set)) is Remainder.CLEAN) == (at == len(record_set))
    else:
        assert f"at byte {at}" in refused
