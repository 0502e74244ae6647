"""Up-conversion: the same records, in dense batches."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.legacy.entries import BatchSpan, cut
from mirror.legacy.upward import Converted, StandIns, stand_ins, up_convert
from mirror.records.admit import Forward, Terms, admit
from mirror.records.content.opening import NotOpened, Record, opened
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec, CorruptBatch, StoredMessages
from mirror.records.intact import is_intact
from tests.legacy.samples import (
    MOST,
    OLD_CODECS,
    START_MS,
    WRAPPING,
    messages_of,
    patched,
    records_from,
    some_records,
    without_time,
    wrapper_of,
)
from tests.records.builders import kafka_batch


def converted(record_set: bytes, **options: int) -> list[bytes]:
    """The batches that come out, each of which is sound and fit to be forwarded."""
    view = memoryview(record_set)
    batches = []
    for one in up_convert(view, cut(view), **{"most": MOST, **options}):
        if isinstance(one, Converted):
            assert one.header == BatchHeader.read(one.batch)
            batches.append(one.batch)
        else:
            batches.append(bytes(view[one.at : one.at + one.size]))
    for batch in batches:
        header = BatchHeader.read(batch)
        assert is_intact(batch)
        assert len(batch) == header.size
        assert admit(header, header.base_offset, Terms()) == Forward(attributes=header.codec_bits)
    return batches


def records_of(batches: list[bytes]) -> list[Record]:
    return [one for batch in batches for one in opened(BatchHeader.read(batch), batch[HEADER_SIZE:])]


def counts(batches: list[bytes]) -> list[int]:
    return [BatchHeader.read(batch).record_count for batch in batches]


@given(st.sampled_from([0, 1]), st.sampled_from(OLD_CODECS), some_records())
def test_any_records(magic: int, codec: Codec, records: list[Record]) -> None:
    """Each run of offsets is a batch with the codec of its wrapper, and stands where its first record stood."""
    batches = converted(wrapper_of(magic, codec, records) if codec else messages_of(magic, records))
    assert records_of(batches) == (records if magic else without_time(records))
    headers = [BatchHeader.read(batch) for batch in batches]
    assert {header.codec_bits for header in headers} == {codec}
    assert all((one.producer_id, one.producer_epoch, one.base_sequence) == (-1, -1, -1) for one in headers)
    runs = 1 + sum(one.offset + 1 != other.offset for one, other in pairwise(records))
    assert len(batches) == runs


def test_all_formats_one_behind_another() -> None:
    """Batches of magic 2 come as they are; what is gathered ends where the magic changes."""
    batch = kafka_batch(base_offset=14)
    record_set = b"".join(
        [
            messages_of(0, records_from(0, 2, magic=0)),
            wrapper_of(0, Codec.LZ4, records_from(2, 3, magic=0)),
            messages_of(0, records_from(5, 2, magic=0)),
            messages_of(1, records_from(7, 2)),
            wrapper_of(1, Codec.SNAPPY, records_from(9, 3)),
            messages_of(1, records_from(12, 2)),
            batch,
            messages_of(1, records_from(17, 1)),
        ]
    )
    batches = converted(record_set)
    assert counts(batches) == [2, 3, 2, 2, 3, 2, 3, 1]
    assert [BatchHeader.read(one).codec_bits for one in batches] == [0, 3, 0, 0, 2, 0, 0, 0]
    assert batches[6] == batch
    assert [record.offset for record in records_of(batches)] == list(range(18))


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_append_times_are_kept_as_create_times(codec: Codec) -> None:
    if codec:
        batches = converted(wrapper_of(1, codec, records_from(0, 3), append_time=START_MS + 99))
        assert [record.timestamp for record in records_of(batches)] == [START_MS + 99] * 3
    else:
        batches = converted(patched(messages_of(1, records_from(0, 1)), 0, 0x08, START_MS + 99))
        assert [record.timestamp for record in records_of(batches)] == [START_MS + 99]
    (header,) = map(BatchHeader.read, batches)
    assert header.attributes == codec
    assert header.base_timestamp == header.max_timestamp == START_MS + 99


def test_what_is_gathered_is_bounded() -> None:
    record_set = messages_of(1, records_from(0, 10))
    (whole,) = converted(record_set)
    assert counts(converted(record_set, gathered_records=4)) == [4, 4, 2]
    assert counts(converted(record_set, gathered_bytes=len(whole))) == [10]
    assert counts(converted(record_set, gathered_bytes=len(whole) - 1)) == [9, 1]
    assert counts(converted(record_set, gathered_bytes=1)) == [1] * 10
    assert counts(converted(wrapper_of(1, Codec.GZIP, records_from(0, 10)), gathered_records=4)) == [10]


def test_the_gathered_come_as_soon_as_they_are_complete() -> None:
    """No more is held than one batch."""
    view = memoryview(messages_of(1, records_from(0, 10)))
    taken = []

    def counting() -> object:
        for span in cut(view):
            taken.append(span.last_offset)
            yield span

    batches = up_convert(view, counting(), most=MOST, gathered_records=4)  # type: ignore[arg-type]
    next(batches)
    assert taken == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("due", range(12))
def test_from_the_middle(due: int) -> None:
    """Records before the one that is due are left out. A batch of magic 2 is not cut: that is for others to do."""
    record_set = (
        messages_of(1, records_from(0, 3)) + wrapper_of(1, Codec.GZIP, records_from(3, 4)) + kafka_batch(base_offset=7)
    )
    expected = [offset for offset in range(10) if offset >= due or (offset >= 7 and due < 10)]
    assert [record.offset for record in records_of(converted(record_set, due=due))] == expected


def test_what_is_before_is_not_opened() -> None:
    """It may be damaged inside: nobody wants it."""
    broken = patched(wrapper_of(1, Codec.GZIP, records_from(3, 4)), 6, Codec.LZ4)
    record_set = broken + messages_of(1, records_from(7, 2))
    assert counts(converted(record_set, due=7)) == [2]
    with pytest.raises(NotOpened):
        converted(record_set, due=6)


GOOD = messages_of(1, records_from(0, 3))


@pytest.mark.parametrize(
    ("bad", "error", "told"),
    [
        (patched(wrapper_of(1, Codec.GZIP, records_from(3, 4)), 6, Codec.LZ4), NotOpened, "wrapper .* at offset 6"),
        (wrapper_of(1, Codec.GZIP, records_from(2, 4)), CorruptBatch, "begins at offset 2, and stands behind offset 2"),
        (messages_of(1, records_from(3, 1))[:-1] + b"!", CorruptBatch, "offset 3 .* does not match its checksum"),
        (b"\0" * 12, CorruptBatch, "batch length 0"),
    ],
)
def test_what_stands_before_damage_comes_first(bad: bytes, error: type[Exception], told: str) -> None:
    view = memoryview(GOOD + bad)
    batches = up_convert(view, cut(view), most=MOST)
    (batch,) = [next(batches)]
    assert isinstance(batch, Converted)
    assert batch.header.record_count == 3
    with pytest.raises(error, match=told):
        next(batches)


@pytest.mark.parametrize("codec", WRAPPING)
def test_the_limit(codec: Codec) -> None:
    record_set = wrapper_of(1, codec, records_from(0, 4))
    size = len(messages_of(1, records_from(0, 4)))
    assert counts(converted(record_set, most=size)) == [4]
    with pytest.raises(NotOpened, match=f"more than {size - 1} bytes"):
        converted(record_set, most=size - 1)


def test_nothing() -> None:
    assert converted(b"") == []
    assert converted(kafka_batch(), due=3) == []


def test_spans_are_the_callers_choice() -> None:
    view = memoryview(GOOD + kafka_batch(base_offset=3))
    spans = list(cut(view))
    found = list(up_convert(view, spans[1:2], most=MOST))
    assert [one.header.base_offset for one in found] == [1]
    assert isinstance(next(up_convert(view, spans[3:], most=MOST)), BatchSpan)


# -- stand-ins ---------------------------------------------------------------------------------------------------------


def headers_of(made: StandIns) -> list[BatchHeader]:
    return [BatchHeader.read(batch) for batch in made.batches]


def stored(message: bytes) -> tuple[int, int, int]:
    """The producer fields of the batch that stands for it."""
    return StoredMessages(int.from_bytes(message[12:16]), message[16], len(message)).producer


@given(st.sampled_from([0, 1]), st.sampled_from(WRAPPING), some_records())
def test_a_stand_in_of_a_wrapper_has_all_its_records(magic: int, codec: Codec, records: list[Record]) -> None:
    wrapper = wrapper_of(magic, codec, records)
    made = stand_ins(memoryview(wrapper))
    assert (made.stop, made.wrong) == (len(wrapper), None)
    (header,) = headers_of(made)
    assert is_intact(made.batches[0])
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)
    assert (header.record_count, header.codec_bits, header.leader_epoch) == (len(records), codec, -1)
    assert header[9:12] == stored(wrapper)
    assert header.is_stand_in
    assert header.stored_size == len(wrapper)
    assert records_of(made.batches) == (records if magic else without_time(records))


def test_stand_ins_of_messages_on_their_own_are_gathered() -> None:
    """The batch says what its last message is. Alone, that has a batch which says the same."""
    records = [*records_from(0, 5), *records_from(7, 2)]
    log = messages_of(1, records)
    last = messages_of(1, records[-1:])
    made = stand_ins(memoryview(log))
    assert counts(made.batches) == [5, 2]
    assert headers_of(made)[1][9:12] == stored(last)
    alone = stand_ins(memoryview(log), gathered_records=1)
    assert counts(alone.batches) == [1] * 7
    assert headers_of(alone)[-1][9:12] == stored(last)
    assert records_of(alone.batches) == records_of(made.batches) == records


def test_stand_ins_end_where_another_format_begins() -> None:
    """Also from the middle of a record set, and with a message that is cut off behind them."""
    new = kafka_batch(base_offset=20)
    log = messages_of(1, records_from(0, 4)) + wrapper_of(1, Codec.GZIP, records_from(4, 4))
    made = stand_ins(memoryview(new + log + new), len(new))
    assert (counts(made.batches), made.stop, made.wrong) == ([4, 4], len(new + log), None)
    cut_off = stand_ins(memoryview(new + log + log[:30]), len(new))
    assert (cut_off.batches, cut_off.stop, cut_off.wrong) == (made.batches, len(new + log), None)
    assert stand_ins(memoryview(new)) == StandIns([], 0)
    assert stand_ins(memoryview(log + new), 0, len(log) - 1).batches == made.batches[:1]


def test_stand_ins_from_the_offset_that_is_due() -> None:
    """What lies before it is left out. A wrapper that holds it comes whole: it may have to be known as the one."""
    log = messages_of(1, records_from(0, 4)) + wrapper_of(1, Codec.GZIP, records_from(4, 4))
    for due, expected in ((2, [(2, 3), (4, 7)]), (4, [(4, 7)]), (6, [(4, 7)]), (8, [])):
        made = stand_ins(memoryview(log), due=due)
        assert [(header.base_offset, header.last_offset) for header in headers_of(made)] == expected
        assert (made.stop, made.wrong) == (len(log), None)


def test_stand_ins_end_at_what_is_wrong() -> None:
    good = messages_of(1, records_from(0, 4))
    wrapper = bytearray(wrapper_of(1, Codec.GZIP, records_from(4, 4)))
    wrapper[-1] ^= 1
    made = stand_ins(memoryview(good + bytes(wrapper)))
    assert (counts(made.batches), made.stop) == ([4], len(good))
    assert isinstance(made.wrong, CorruptBatch)
    again = stand_ins(memoryview(good + good))
    assert isinstance(again.wrong, CorruptBatch), "offsets that do not go up"
    assert again.stop == len(good)
    bomb = wrapper_of(1, Codec.GZIP, [Record(4, START_MS, None, bytes(100_000), ())])
    too_large = stand_ins(memoryview(good + bomb), most=50_000)
    assert (counts(too_large.batches), too_large.stop) == ([4], len(good))
    assert isinstance(too_large.wrong, NotOpened)


def test_a_wrapper_whose_times_no_batch_can_hold() -> None:
    """Nothing of it is left out: the deltas of a batch's records have 64 bits, and so have the times of messages."""
    records = [Record(0, -(1 << 62), None, b"a", ()), Record(1, (1 << 63) - 1, None, b"b", ())]
    made = stand_ins(memoryview(wrapper_of(1, Codec.GZIP, records)))
    assert made.batches == []
    assert isinstance(made.wrong, NotOpened)
    assert counts(stand_ins(memoryview(messages_of(1, records))).batches) == [1, 1]


def test_no_more_than_so_many_at_a_time() -> None:
    """The others come with the next call. A wrapper is taken whole."""
    log = messages_of(1, records_from(0, 4)) + wrapper_of(1, Codec.GZIP, records_from(4, 4))
    behind = messages_of(1, records_from(8, 1))
    first = stand_ins(memoryview(log + behind), at_a_time=3)
    assert (counts(first.batches), first.more) == ([3], True)
    second = stand_ins(memoryview(log + behind), first.stop, at_a_time=3)
    assert (counts(second.batches), second.stop, second.more) == ([1, 4], len(log), True)
    third = stand_ins(memoryview(log + behind), second.stop, at_a_time=3)
    assert (counts(third.batches), third.stop, third.more) == ([1], len(log + behind), False)
