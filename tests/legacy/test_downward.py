"""Down-conversion: the same records in message sets, chunk by chunk, and what is lost on the way counted."""

import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.legacy.downward import ConvertedChunk, LeftOut, OldMagic, RecordRun, UnsupportedCodec, down_convert
from mirror.legacy.entries import LegacySpan, Span, cut
from mirror.legacy.reading import messages
from mirror.records.content.building import dense_batches
from mirror.records.content.opening import NotOpened, Record
from mirror.records.header import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Codec, CorruptBatch
from tests.legacy.samples import (
    MOST,
    OLD_CODECS,
    START_MS,
    WRAPPING,
    bare,
    messages_of,
    patched,
    records_from,
    some_records,
    without_time,
    wrapper_of,
)
from tests.records.builders import RECORDS, kafka_batch, raw_batch, sealed

MAGICS: tuple[OldMagic, OldMagic] = (0, 1)


def converted(
    record_set: bytes, magic: OldMagic, *, most: int = MOST, due: int = 0, chunk_bytes: int = 1 << 17
) -> tuple[list[ConvertedChunk], LeftOut]:
    lost = LeftOut()
    view = memoryview(record_set)
    options = {"most": most, "due": due, "chunk_bytes": chunk_bytes}
    return list(down_convert(view, cut(view), magic=magic, lost=lost, **options)), lost


def read(chunks: list[ConvertedChunk]) -> list[Record]:
    """The records, each chunk read on its own."""
    found = []
    for chunk in chunks:
        view = memoryview(chunk.messages)
        mine: list[Record] = []
        for span in cut(view):
            assert isinstance(span, LegacySpan)
            mine.extend(messages(view, span, most=MOST))
        assert [record.offset for record in mine] == [at for run in chunk.runs for at in range(run[0], sum(run))]
        found.extend(mine)
    return found


def spans_of(chunk: ConvertedChunk) -> list[LegacySpan]:
    return [span for span in cut(memoryview(chunk.messages)) if isinstance(span, LegacySpan)]


@given(st.sampled_from(MAGICS), st.sampled_from(OLD_CODECS), some_records(headers=True), st.integers(1, 3_000))
def test_any_records(magic: OldMagic, codec: Codec, records: list[Record], chunk_bytes: int) -> None:
    """The same records; a chunk is larger than allowed only if it is a single message or wrapper."""
    chunks, lost = converted(b"".join(dense_batches(records, codec)), magic, chunk_bytes=chunk_bytes)
    assert read(chunks) == (bare(records) if magic else without_time(bare(records)))
    assert chunks[-1].next_offset == records[-1].offset + 1
    for chunk in chunks:
        assert len(chunk.messages) <= chunk_bytes or len(spans_of(chunk)) == 1
        assert {(span.magic, span.codec_bits) for span in spans_of(chunk)} <= {(magic, codec)}
        assert all(one.first_offset + one.records < other[0] for one, other in pairwise(chunk.runs))
    assert lost == LeftOut(
        headers=sum(len(record.headers) for record in records),
        headed_records=sum(bool(record.headers) for record in records),
        timestamps=0 if magic else sum(record.timestamp != -1 for record in records),
    )


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", WRAPPING)
def test_a_batch_is_a_wrapper(magic: OldMagic, codec: Codec) -> None:
    """With the offset of its last record, and the latest timestamp."""
    batches = kafka_batch(codec=codec, base_offset=40) + kafka_batch(codec=codec, base_offset=43)
    (chunk,), _ = converted(batches, magic)
    spans = spans_of(chunk)
    assert [span.last_offset for span in spans] == [42, 45]
    assert {span.timestamp for span in spans} == {max(record.timestamp for record in RECORDS) if magic else -1}
    assert chunk.runs == (RecordRun(40, 6),)


def test_a_large_batch_becomes_several_wrappers() -> None:
    """What is made can be opened within the limit within which it was made."""
    records = [Record(at, START_MS, None, b"", ()) for at in range(1_000)]
    (batch,) = dense_batches(records, Codec.GZIP)
    (chunk,), _ = converted(batch, 1, most=12_000)
    assert len(spans_of(chunk)) == 3
    view = memoryview(chunk.messages)
    assert [one for span in spans_of(chunk) for one in messages(view, span, most=12_000)] == records
    assert chunk.runs == (RecordRun(0, 1_000),)


def test_append_times_become_create_times() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        batch = bytearray(kafka_batch(codec=codec))
        batch[22] |= LOG_APPEND_TIME
        (chunk,), _ = converted(sealed(bytes(batch)), 1)
        latest = max(record.timestamp for record in RECORDS)
        assert [record.timestamp for record in read([chunk])] == [latest] * 3
        assert not any(span.has_append_time for span in spans_of(chunk))


def marker(offset: int) -> bytes:
    return raw_batch(
        b"\x20\0\0\0\x08\0\0\0\1\x0c\0\0\0\0\0\0\0", base_offset=offset, attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0, record_count=1, producer_id=7, producer_epoch=0,
    )  # fmt: skip


def test_markers_and_empty_batches_are_passed_over() -> None:
    """The offsets go on behind them, also where there is nothing else."""
    emptied = raw_batch(b"", base_offset=4, last_offset_delta=1, record_count=0, attributes=Codec.ZSTD)
    chunks, lost = converted(kafka_batch(base_offset=0) + marker(3) + emptied + kafka_batch(base_offset=9), 1)
    assert [chunk.runs for chunk in chunks] == [(RecordRun(0, 3), RecordRun(9, 3))]
    assert lost.control_batches == 1
    chunks, lost = converted(marker(3) + emptied, 1)
    assert chunks == [ConvertedChunk(b"", (), 6)]
    assert lost == LeftOut(control_batches=1)
    chunks, _ = converted(kafka_batch(base_offset=0) + marker(3), 1, chunk_bytes=1)
    assert [(len(chunk.runs), chunk.next_offset) for chunk in chunks] == [(1, 1), (1, 2), (1, 4)]


def test_transactional_data_is_data() -> None:
    """Whether it was aborted is for the caller to know."""
    batch = kafka_batch(transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    assert len(read(converted(batch, 1)[0])) == 3


def test_zstd_is_refused_by_name() -> None:
    """What stands before it comes first."""
    view = memoryview(kafka_batch(base_offset=0) + kafka_batch(base_offset=3, codec=Codec.ZSTD))
    chunks = down_convert(view, cut(view), magic=1, most=MOST)
    first = next(chunks)
    assert (first.runs, first.next_offset) == ((RecordRun(0, 3),), 3)
    with pytest.raises(UnsupportedCodec, match="the batch at offset 3 has codec zstd, which magic 1 does not have"):
        next(chunks)
    with pytest.raises(UnsupportedCodec, match="has codec 6"):
        converted(raw_batch(b"x", attributes=6), 0)


MIXED = [
    messages_of(0, records_from(0, 2, magic=0)),
    wrapper_of(0, Codec.LZ4, records_from(2, 3, magic=0)),
    messages_of(1, records_from(5, 2)),
    wrapper_of(1, Codec.SNAPPY, records_from(7, 3)),
    kafka_batch(base_offset=10),
]


def test_what_is_old_enough_goes_as_it_is() -> None:
    (chunk,), _ = converted(b"".join(MIXED), 1)
    assert chunk.messages.startswith(b"".join(MIXED[:4]))
    assert chunk.runs == (RecordRun(0, 13),)
    assert chunk.next_offset == 13
    (chunk,), lost = converted(b"".join(MIXED), 0)
    assert chunk.messages.startswith(b"".join(MIXED[:2]))
    assert {span.magic for span in spans_of(chunk)} == {0}
    assert {span.codec_bits for span in spans_of(chunk)} == {0, Codec.LZ4, Codec.SNAPPY}
    assert lost == LeftOut(timestamps=2 + 3 + 3, headers=2, headed_records=1)
    assert read([chunk])[5:10] == without_time(records_from(5, 2) + records_from(7, 3))


def test_append_times_of_old_messages_become_create_times() -> None:
    wrapper = wrapper_of(1, Codec.GZIP, records_from(0, 3), append_time=START_MS + 99)
    alone = patched(messages_of(1, records_from(3, 1)), 3, 0x08, START_MS + 100)
    (chunk,), _ = converted(wrapper + alone, 1)
    assert [record.timestamp - START_MS for record in read([chunk])] == [99, 99, 99, 100]
    assert not any(span.has_append_time for span in spans_of(chunk))


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("due", range(14))
def test_from_the_middle(magic: OldMagic, due: int) -> None:
    """Of every kind of entry."""
    chunks, _ = converted(b"".join(MIXED), magic, due=due)
    assert [record.offset for record in read(chunks)] == list(range(due, 13))
    assert [chunk.next_offset for chunk in chunks[-1:]] == ([13] if due < 13 else [])


def test_records_that_are_left_out_are_not_counted() -> None:
    _, lost = converted(kafka_batch(), 0, due=1)
    assert lost == LeftOut(timestamps=2)


@pytest.mark.parametrize(
    ("bad", "error", "told"),
    [
        (raw_batch(b"x", base_offset=3, attributes=Codec.GZIP), NotOpened, "the batch at offset 3 is damaged"),
        (raw_batch(b"x", base_offset=3, attributes=0x100), NotOpened, "offset 3 has unknown attributes: 0x0100"),
        (kafka_batch(base_offset=3)[:-1] + b"!", CorruptBatch, "offset 3 .* does not match its checksum"),
        (wrapper_of(1, Codec.GZIP, records_from(2, 4)), CorruptBatch, "begins at offset 2, and stands behind offset 2"),
        (patched(wrapper_of(1, Codec.GZIP, records_from(3, 4)), 6, Codec.LZ4), NotOpened, "at offset 6 cannot be"),
    ],
)
def test_what_stands_before_damage_comes_first(bad: bytes, error: type[Exception], told: str) -> None:
    view = memoryview(kafka_batch(base_offset=0, codec=Codec.LZ4) + bad)
    chunks = down_convert(view, cut(view), magic=1, most=MOST)
    assert next(chunks).next_offset == 3
    with pytest.raises(error, match=told):
        next(chunks)


def test_offsets_in_a_batch_go_up() -> None:
    """A checksum does not show what a producer did wrong."""
    batch = bytearray(kafka_batch([record._replace(headers=()) for record in RECORDS]))
    second = batch.index(b"\x02\x01", 61 + 100)  # offset delta 1, null key
    for delta, told in ((0, "a record of offset 0 behind 0"), (6, "a record of offset 3 behind 0")):
        batch[second] = delta
        with pytest.raises(CorruptBatch, match=f"the batch at offset 0 has {told}"):
            converted(sealed(bytes(batch)), 1)


@pytest.mark.parametrize("codec", WRAPPING)
def test_the_limit(codec: Codec) -> None:
    with pytest.raises(NotOpened, match=r"the batch at offset 0 .*more than 100 bytes"):
        converted(kafka_batch(codec=codec), 1, most=100)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = raw_batch(zlib.compress(bytes(1 << 26), wbits=31), attributes=Codec.GZIP)
    with pytest.raises(NotOpened, match="more than 65536 bytes"):
        converted(bomb, 1, most=1 << 16)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_memory(codec: Codec) -> None:
    """64 batches of 128 KiB: at no time more than a few times one of them, and a chunk, whatever the fetch."""
    records = [Record(at, START_MS, None, bytes([at % 251]) * 1_000, ()) for at in range(8_192)]
    record_set = b"".join(b for at in range(0, 8_192, 128) for b in dense_batches(records[at : at + 128], codec))
    view = memoryview(record_set)
    made = 0
    tracemalloc.start()
    try:
        for chunk in down_convert(view, cut(view), magic=1, most=1 << 18, chunk_bytes=1 << 14):
            made += sum(run.records for run in chunk.runs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made == 8_192
    assert peak < 6 * (128 << 10) + 2 * (1 << 14)


def test_it_is_lazy() -> None:
    view = memoryview(b"".join(kafka_batch(base_offset=3 * at) for at in range(10)))
    taken = []

    def counting() -> object:
        for span in cut(view):
            taken.append(span)
            yield span

    spans: list[Span] = taken
    chunks = down_convert(view, counting(), magic=1, most=MOST, chunk_bytes=400)  # type: ignore[arg-type]
    next(chunks)
    assert len(spans) == 2


def test_nothing() -> None:
    assert converted(b"", 1) == ([], LeftOut())
    assert list(down_convert(memoryview(b""), [], magic=0, most=MOST)) == []
