"""What a batch becomes when it is rewritten: dense batches within the limit, with the same records."""

import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.content import rewriting
from mirror.records.content.building import compressed
from mirror.records.content.opening import Record as Read
from mirror.records.content.opening import opened
from mirror.records.content.ratio import RatioEstimator
from mirror.records.content.raw import RawRecord, placed_records, raw_records
from mirror.records.content.rewriting import Oversize, Piece, RecordTooLarge, Splits, alone, rewrite
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, Codec
from mirror.records.intact import is_intact
from tests.records.builders import Record, kafka_batch, sealed
from tests.records.cleaner import TIME, cleaned, record, written

CODECS = list(Codec)


def coded(batch: bytes, codec: int) -> bytes:
    """The same batch, compressed (kafka-python does not compress where that gains nothing)."""
    header = BatchHeader.read(batch)
    assert not header.codec_bits
    packed = compressed(Codec(codec), batch[HEADER_SIZE:])
    new = header._replace(attributes=header.attributes | codec, length=HEADER_SIZE - 12 + len(packed))
    return sealed(new.pack() + packed)


def batch_of(sizes: list[int], codec: int = 0, base_offset: int = 500, *, seed: int = 1) -> bytes:
    """A batch of records of these sizes, which do not compress."""
    draw = random.Random(seed)
    records = [Record(at, TIME + at, b"%d" % at, draw.randbytes(size)) for at, size in enumerate(sizes)]
    return coded(kafka_batch(records, base_offset=base_offset), codec)


def pieces_of(batch: bytes, **how: object) -> list[Piece]:
    return list(rewrite(BatchHeader.read(batch), batch[HEADER_SIZE:], **how))  # type: ignore[call-overload]


def read(batch: bytes) -> list[Read]:
    return list(opened(BatchHeader.read(batch), batch[HEADER_SIZE:]))


def read_pieces(pieces: list[Piece]) -> list[Read]:
    return [one for header, records in pieces for one in opened(header, records)]


def check(pieces: list[Piece], codec: int) -> None:
    """Each is a batch that any broker takes."""
    for header, records in pieces:
        assert is_intact(header.pack() + records)
        assert header.is_dense
        assert header.size == HEADER_SIZE + len(records)
        assert header.attributes == codec
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
        times = [one.timestamp for one in opened(header, records)]
        assert header.max_timestamp == max(times)
    assert all(before[0].next_offset <= after[0].base_offset for before, after in pairwise(pieces))


@pytest.mark.parametrize("codec", CODECS)
def test_holes_are_cut_out(codec: Codec) -> None:
    batch = coded(cleaned(written(100, 0), [record(100), record(102)], codec=0), codec)
    pieces = pieces_of(batch)
    check(pieces, codec)
    assert [(piece.header.base_offset, piece.header.record_count) for piece in pieces] == [(100, 1), (102, 1)]
    assert read_pieces(pieces) == read(batch)


def test_a_dense_run_stays_one_batch() -> None:
    pieces = pieces_of(cleaned(written(100), [record(101), record(102)]))
    assert [(piece.header.base_offset, piece.header.record_count) for piece in pieces] == [(101, 2)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("due", [0, 500, 501, 503, 504])
def test_records_before_the_due_one_are_left_out(codec: Codec, due: int) -> None:
    batch = batch_of([10] * 5, codec)
    pieces = pieces_of(batch, due=due)
    check(pieces, codec)
    assert read_pieces(pieces) == [one for one in read(batch) if one.offset >= due]


@pytest.mark.parametrize("codec", CODECS)
def test_append_times_become_the_records_own(codec: Codec) -> None:
    batch = batch_of([10] * 5, codec)
    header = BatchHeader.read(batch)
    appended = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=TIME + 77_777)
    pieces = pieces_of(sealed(appended.pack() + batch[HEADER_SIZE:]))
    check(pieces, codec)
    assert [one.timestamp for one in read_pieces(pieces)] == [TIME + 77_777] * 5
    assert [one.value for one in read_pieces(pieces)] == [one.value for one in read(batch)]


def test_the_cleaner_s_horizon_and_the_transaction_are_not_written_again() -> None:
    batch = coded(cleaned(written(100, 0), [record(100), record(102, value=None)], horizon=True, codec=0), Codec.ZSTD)
    header = BatchHeader.read(batch)
    marked = header._replace(attributes=header.attributes | TRANSACTIONAL, base_timestamp=header.base_timestamp)
    assert header.attributes & DELETE_HORIZON
    pieces = pieces_of(sealed(marked.pack() + batch[HEADER_SIZE:]))
    check(pieces, Codec.ZSTD)
    assert read_pieces(pieces) == read(batch)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("most", [200, 1_000, 2_500, 9_000])
def test_batches_over_the_limit_are_split(codec: Codec, most: int) -> None:
    batch = batch_of([50, 100, 20, 60, 90, 0, 0, 30, 100, 100] * 20, codec)
    splits = Splits()
    pieces = pieces_of(batch, most_size=most, splits=splits)
    check(pieces, codec)
    assert max(piece.header.size for piece in pieces) <= most
    assert read_pieces(pieces) == read(batch)
    assert splits.built == len(pieces) + splits.split


def test_the_limit_itself_is_kept() -> None:
    batch = batch_of([100])
    assert len(pieces_of(batch, most_size=len(batch))) == 1
    with pytest.raises(Oversize):
        pieces_of(batch, most_size=len(batch) - 1)


def test_a_single_record_over_the_limit_is_named_and_what_stands_before_it_is_kept() -> None:
    batch = batch_of([10, 10, 5_000, 10])
    pieces = rewrite(BatchHeader.read(batch), batch[HEADER_SIZE:], most_size=1_000)
    first = next(pieces)
    assert (first.header.base_offset, first.header.record_count) == (500, 2)
    with pytest.raises(Oversize, match="the record at offset 502") as stop:
        next(pieces)
    assert stop.value.offset == 502
    assert stop.value.size > 5_000


@pytest.mark.parametrize("sizes", [[5_000, 10, 10], [10, 10, 5_000], [10, 5_000, 10], [0] * 3_000])
def test_a_split_always_ends(sizes: list[int]) -> None:
    """One record may have nearly all of the bytes; and of empty ones, most bytes stand in front of the content."""
    most = 6_000
    ratios = RatioEstimator()
    ratios._ratios[Codec.ZSTD] = 0.01  # all of it is expected to fit
    batch = batch_of(sizes, Codec.ZSTD)
    pieces = pieces_of(batch, most_size=most, ratios=ratios)
    assert read_pieces(pieces) == read(batch)
    assert max(piece.header.size for piece in pieces) <= most


def test_a_wrong_estimate_costs_one_split_and_is_corrected() -> None:
    ratios, splits = RatioEstimator(), Splits()
    ratios._ratios[Codec.ZSTD] = 0.1
    pieces = pieces_of(batch_of([100] * 100, Codec.ZSTD), most_size=8_000, ratios=ratios, splits=splits)
    assert splits.split == 1
    assert len(pieces) == 2
    assert ratios.ratio(Codec.ZSTD) > 0.9


def test_topics_of_ratio_ten_and_two_in_turn_split_fewer_than_one_in_ten() -> None:
    """KIP-126's own claim, with one estimator per topic."""
    draw = random.Random(7)
    topics = {ratio: RatioEstimator() for ratio in (10, 2)}
    splits = Splits()
    for number in range(200):
        ratio = (10, 2)[number % 2]
        values = [(draw.randbytes(1_000 // ratio) * ratio) for _ in range(200)]
        batch = kafka_batch([Record(at, TIME, None, value) for at, value in enumerate(values)], codec=Codec.ZSTD)
        pieces = pieces_of(batch, most_size=16_000, ratios=topics[ratio], splits=splits)
        assert read_pieces(pieces) == read(batch)
    assert splits.built > 1_000
    assert splits.split / splits.built < 0.1


@pytest.mark.parametrize("wanted", Codec)
@pytest.mark.parametrize("codec", Codec)
def test_another_codec(codec: Codec, wanted: Codec) -> None:
    """The same records; one that does not compress is cut all the same if it is too large then."""
    batch = kafka_batch([Record(at, TIME + at, b"k", b"value " * 90) for at in range(6)], codec=codec)
    for most in (None, 1_500):
        pieces = pieces_of(batch, codec=wanted, most_size=most)
        assert read_pieces(pieces) == read(batch)
        assert {piece.header.codec_bits for piece in pieces} == {wanted}
        assert most is None or all(piece.header.size <= most for piece in pieces)
    (record, *_) = raw_records(BatchHeader.read(batch), batch[HEADER_SIZE:])
    assert rewriting.alone(BatchHeader.read(batch), record, codec=wanted).header.codec_bits == wanted


def test_the_same_bytes_each_time() -> None:
    batch = cleaned(written(100), [record(100), record(102)])
    assert pieces_of(batch) == pieces_of(batch)


def test_memory_is_bounded_for_a_batch_that_grows_a_thousandfold() -> None:
    records = [Record(at, TIME, None, bytes(1 << 20)) for at in range(64)]
    batch = kafka_batch(records, codec=Codec.ZSTD)
    tracemalloc.start()
    try:
        pieces = pieces_of(batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(piece.header.record_count for piece in pieces) == 64
    assert len(pieces) > 64 * (1 << 20) // rewriting.MOST_PLAIN
    assert peak < 5 * rewriting.MOST_PLAIN


VALUES = st.none() | st.binary(max_size=90)


@st.composite
def holed(draw: st.DrawFn) -> tuple[bytes, int, int]:
    """A batch with holes, the offset that is due, and a limit."""
    offsets = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=40)))
    records = [
        Record(
            at, TIME + draw(st.integers(-9, 9)), draw(st.none() | st.binary(max_size=9)), draw(st.binary(max_size=90))
        )
        for at in offsets
    ]
    codec = draw(st.sampled_from(CODECS))
    batch = coded(kafka_batch(records, base_offset=1_000), codec)
    last = max(offsets[-1], draw(st.integers(0, 70)))
    header = BatchHeader.read(batch)._replace(last_offset_delta=last)
    return sealed(header.pack() + batch[HEADER_SIZE:]), draw(st.integers(1_000, 1_060)), draw(st.integers(400, 3_000))


@given(holed())
def test_any_batch(case: tuple[bytes, int, int]) -> None:
    batch, due, most = case
    pieces = pieces_of(batch, due=due, most_size=most)
    check(pieces, BatchHeader.read(batch).codec_bits)
    assert read_pieces(pieces) == [one for one in read(batch) if one.offset >= due]
    assert all(piece.header.size <= most for piece in pieces)


@pytest.mark.parametrize(("base", "delta"), [(-1, -(1 << 63)), ((1 << 63) - 1, 1), (-(1 << 63), -1)])
@pytest.mark.parametrize("most", [None, 150])
def test_timestamps_that_do_not_fit_into_64_bits_wrap_as_clients_have_them(
    base: int, delta: int, most: int | None
) -> None:
    """A broker takes them where its limits for timestamps are wide: no arithmetic may end the worker."""
    header = BatchHeader.read(batch_of([40] * 4))
    stored = b"".join(
        RawRecord(at, delta if at % 2 else 0, 0, b"\x01\x50" + bytes(40) + b"\x00").stored(at, delta if at % 2 else 0)
        for at in range(4)
    )
    batch = header._replace(base_timestamp=base, max_timestamp=base, length=HEADER_SIZE - 12 + len(stored))
    pieces = list(rewrite(batch, stored, due=501, most_size=most))
    read_again = [one for header, records in pieces for one in placed_records(header, records)]
    assert read_again == [one for one in placed_records(batch, stored) if one.offset >= 501]
    for piece, records in pieces:
        assert is_intact(piece.pack() + records)
        assert piece.max_timestamp == max(one.timestamp for one in placed_records(piece, records))


def test_a_record_s_attributes_stay() -> None:
    header = BatchHeader.read(batch_of([40] * 2))
    stored = b"".join(RawRecord(at, 0, 0x85, b"\x01\x50" + bytes(40) + b"\x00").stored(at, 0) for at in range(2))
    (piece,) = rewrite(header._replace(length=HEADER_SIZE - 12 + len(stored)), stored)
    assert [one.attributes for one in placed_records(*piece)] == [0x85, 0x85]


@pytest.mark.parametrize("codec", range(5))
def test_records_over_the_limit_are_passed_over_in_their_places(codec: int) -> None:
    """Each record is yielded once, as part of a batch or as passed over, in order; the size is that of a batch of its
    own."""
    batch = batch_of([3_000, 90, 90, 3_000, 3_000, 90, 3_000], codec)
    header = BatchHeader.read(batch)
    made = list(rewrite(header, batch[HEADER_SIZE:], most_size=1_000, passes_over=1_000))
    shown = [
        one.offset if isinstance(one, RecordTooLarge) else (one.header.base_offset, one.header.record_count)
        for one in made
    ]
    assert shown == [500, (501, 2), 503, 504, (505, 1), 506]
    check([one for one in made if isinstance(one, Piece)], codec)
    sizes = {
        header.base_offset + each.offset_delta: alone(header, each).header.size
        for each in raw_records(header, batch[HEADER_SIZE:])
    }
    assert all(one.size == sizes[one.offset] > 1_000 for one in made if isinstance(one, RecordTooLarge))


def test_one_record_alone() -> None:
    batch = batch_of([90, 5_000, 90], 3)
    header = BatchHeader.read(batch)
    record = list(raw_records(header, batch[HEADER_SIZE:]))[1]
    piece = alone(header, record)
    check([piece], 3)
    assert read_pieces([piece]) == read(batch)[1:2]
