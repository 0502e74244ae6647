"""Small batches in a row that become larger ones: what is put into the outbox, and the books that are kept of it."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.reasons import HaltReason
from mirror.records.admit import Halt, RewriteWish, Terms
from mirror.records.header import HEADER_SIZE, BatchHeader, Codec
from mirror.relay.hot import rebatching
from mirror.relay.hot.deep import Rewriter
from mirror.relay.partition.queue import Batch, Hole
from tests.records.builders import Record, kafka_batch, sealed
from tests.records.cleaner import TIME, cleaned, record, written
from tests.relay.hot.test_deep import FORMS, Run, appended, placed

BELOW = 200
SMALL = Terms(rewrites=True, rebatches=BELOW)
LARGE = kafka_batch([Record(each, TIME + each, b"key", b"%d" % each * 200) for each in range(3)], base_offset=106)
DAMAGED = bytearray(written(106))
DAMAGED[-1] ^= 1


def run_of(terms: Terms = SMALL, *, compiled: bool = False) -> Run:
    return Run(terms, compiled=compiled)


def payload(item: Batch | Hole) -> bytes:
    assert isinstance(item, Batch)
    return bytes(item.payload)


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("codec", Codec)
def test_a_row_becomes_one_batch(codec: Codec, compiled: bool) -> None:
    run = run_of(compiled=compiled)
    row = [
        kafka_batch([Record(at, TIME, b"key", b"value" * 20) for at in range(3)], codec=codec, base_offset=base)
        for base in range(100, 130, 3)
    ]
    assert len(row[0]) < BELOW or codec is Codec.NONE
    run.partition.terms = Terms(rewrites=True, rebatches=1_000)
    assert run.take(*row) is None
    assert run.shape == [30]
    assert run.read() == placed(row)
    assert BatchHeader.read(run.items[0].head[-HEADER_SIZE:]).codec_bits == codec
    assert run.rewriter.opened == {"rebatched": 10}
    assert run.partition.cursor.batch_size == len(row[0]), "what the source has counts"
    run.send_all()


@pytest.mark.parametrize("compiled", FORMS)
def test_the_last_batch_of_a_row_is_noted_as_the_source_has_it(compiled: bool) -> None:
    run = run_of(compiled=compiled)
    row = [kafka_batch([record(0)], base_offset=base, leader_epoch=base - 98) for base in (100, 101, 102)]
    run.take(*row)
    (mark,) = run.partition.cursor.marks
    assert mark == (103, 4, row[-1][:HEADER_SIZE])
    assert run.partition.cursor.last_epoch == 4
    assert run.partition.cursor.aligned
    assert run.partition.cursor.batch_size == len(row[0])
    assert all(run.partition.cursor.is_rewritten(offset) for offset in (100, 101, 102))


@pytest.mark.parametrize("compiled", FORMS)
def test_a_large_batch_among_small_ones_goes_as_it_is(compiled: bool) -> None:
    run = run_of(compiled=compiled)
    batches = [written(100), written(103), LARGE, written(109), written(112), written(115)]
    assert len(LARGE) > BELOW
    assert run.take(*batches) is None
    assert run.shape == [6, 3, 9]
    assert payload(run.items[1]) == LARGE[HEADER_SIZE:]
    assert run.read() == placed(batches)
    run.send_all()


def test_a_single_small_batch_goes_as_it_is() -> None:
    run = run_of()
    batches = [written(100), LARGE.replace(LARGE[:8], (103).to_bytes(8), 1), written(106)]
    assert run.take(*batches) is None
    assert [payload(item) for item in run.items] == [batch[HEADER_SIZE:] for batch in batches]
    assert run.rewriter.opened == {}


@pytest.mark.parametrize(("codec", "shape"), [(None, [6, 6]), (Codec.LZ4, [12])])
def test_batches_of_two_codecs(codec: Codec | None, shape: list[int]) -> None:
    """Each row keeps its own; with a codec of the flow, all become one."""
    run = run_of(Terms(rewrites=True, rebatches=BELOW, codec=codec))
    row = [written(100), written(103), written(106, Codec.GZIP), written(109, Codec.GZIP)]
    assert run.take(*row) is None
    assert run.shape == shape
    assert run.read() == placed(row)


@pytest.mark.parametrize(
    ("other", "left"),
    [
        (cleaned(written(106), [record(106), record(108)]), [6, 1, "hole of 1", 1, 3]),
        (appended(written(106), TIME + 9), [6, 3, 3]),
    ],
    ids=["holes", "append times"],
)
@pytest.mark.parametrize("compiled", FORMS)
def test_what_is_rewritten_for_another_reason_ends_a_row(other: bytes, left: list[str | int], compiled: bool) -> None:
    run = run_of(Terms(rewrites=True, compacted=True, rebatches=BELOW), compiled=compiled)
    batches = [written(100), written(103), other, written(109)]
    assert run.take(*batches) is None
    assert run.shape == left
    assert run.read() == placed(batches)
    run.send_all()


def test_a_damaged_batch_goes_as_it_is_and_the_destination_refuses_it() -> None:
    """It never becomes part of another one, whose checksum would be right."""
    run = run_of()
    run.take(written(100), written(103), bytes(DAMAGED), written(109), written(112))
    assert run.shape == [6, 3, 6]
    assert payload(run.items[1]) == DAMAGED[HEADER_SIZE:]


def test_batches_that_cannot_be_opened_go_as_they_are() -> None:
    """Their checksums are right: what is in them is for consumers to read, or not."""
    strange = sealed(written(103)[:HEADER_SIZE] + b"?" * (len(written(103)) - HEADER_SIZE))
    run = run_of()
    assert run.take(written(100), strange, written(106)) is None
    assert run.shape == [3, 3, 3]
    assert run.rewriter.opened == {}
    assert run.partition.cursor.due == 109


def test_a_row_that_comes_to_be_too_large_is_cut() -> None:
    """Pieces end inside of the source's batches; what was put is known."""
    run = run_of(Terms(rewrites=True, rebatches=BELOW, max_batch_size=250))
    row = [written(base, Codec.NONE) for base in range(100, 124, 3)]
    assert run.take(*row) is None
    assert len(run.shape) > 2
    assert all(HEADER_SIZE + len(item.payload) <= 250 for item in run.items if isinstance(item, Batch))
    assert run.read() == placed(row)


def test_a_gap_ends_a_row() -> None:
    run = run_of(Terms(rewrites=True, compacted=True, rebatches=BELOW))
    row = [written(100), written(103), written(108), written(111)]
    assert run.take(*row) is None
    assert run.shape == [6, "hole of 2", 6]
    assert run.read() == placed(row)


def test_large_batches_on_average_are_not_looked_at_one_by_one() -> None:
    run = run_of()
    run.partition.cursor.measured(BELOW, holes=False)
    assert run.take(written(100), written(103)) is None
    assert run.shape == [3, 3]
    assert run.partition.cursor.batch_size < BELOW
    assert run.take(written(106), written(109)) is None
    assert run.shape == [3, 3, 6]


def test_not_too_much_at_a_time() -> None:
    """Other partitions have their turn; the rest is fetched again."""
    row = [written(base) for base in range(100, 130, 3)]
    run = run_of()
    with patch.object(rebatching, "AT_A_TIME", 6), patch.object(rebatching, "ENOUGH_RECORDS", 6):
        assert run.take(*row) is None
        assert run.partition.cursor.due == 106
        assert run.take(*row[2:]) is None
    assert run.shape == [6, 6]
    assert run.read() == placed(row[:4])
    run.send_all()


def test_not_too_many_plain_bytes_at_a_time() -> None:
    """However few records and bytes they were compressed to."""
    row = [
        kafka_batch([Record(0, TIME, b"", bytes(3 << 20))], codec=Codec.ZSTD, base_offset=at) for at in range(100, 120)
    ]
    assert sum(map(len, row)) < 10_000
    run = run_of(Terms(rewrites=True, rebatches=10_000))
    with patch.object(rebatching, "ENOUGH_RECORDS", 2):
        assert run.take(*row) is None
    assert run.partition.cursor.due == 106
    assert run.shape == [2, 2, 2]


def test_no_row_is_longer_than_enough() -> None:
    row = [written(base) for base in range(100, 130, 3)]
    run = run_of()
    with patch.object(rebatching, "ENOUGH_BYTES", 2 * len(row[0])):
        assert run.take(*row) is None
    assert run.shape == [6, 6, 6, 6, 6]


def test_timestamps_far_apart() -> None:
    """Deltas relate to the first batch of the row, and wrap as those of Kafka's clients do."""
    row = [
        kafka_batch([Record(0, at, b"key", b"value")], base_offset=100 + index)
        for index, at in enumerate((-1, (1 << 63) - 1, 0, -(1 << 63), TIME))
    ]
    run = run_of()
    assert run.take(*row) is None
    assert run.shape == [5]
    assert run.read() == placed(row)


def test_what_is_cut_off_is_fetched_again() -> None:
    run = run_of()
    row = [written(100), written(103), written(106)]
    assert run.take(*row[:2], row[2][:-1]) is None
    assert (run.shape, run.partition.cursor.due) == ([6], 106)


def test_it_halts_behind_a_row_as_without_one() -> None:
    run = run_of(Terms(rewrites=True, rebatches=BELOW))
    halt = run.take(written(100), written(103), written(100))
    assert isinstance(halt, Halt)
    assert halt.reason is HaltReason.CORRUPT
    assert run.shape == [6]


KINDS = st.sampled_from(["small", "small", "small", "large", "empty", "holes", "appended", "gap", "other codec"])


@given(kinds=st.lists(KINDS, max_size=12), compiled=st.sampled_from(FORMS), enough=st.sampled_from([1, 300, 100_000]))
def test_whatever_stands_in_a_record_set(kinds: list[str], compiled: bool, enough: int) -> None:
    """The destination gets the same records at the same offsets as without it."""
    batches, base = list[bytes](), 100
    for kind in kinds:
        base += 4 if kind == "gap" else 0
        batch = written(base, Codec.GZIP if kind == "other codec" else Codec.ZSTD)
        if kind == "large":
            batch = LARGE.replace(LARGE[:8], base.to_bytes(8), 1)
        elif kind == "empty":
            batch = cleaned(batch, [])
        elif kind == "holes":
            batch = cleaned(batch, [record(base + 1)])
        elif kind == "appended":
            batch = appended(batch, TIME + base)
        batches.append(batch)
        base += 3
    terms = Terms(rewrites=True, compacted=True)
    plain, larger = Run(terms, compiled=compiled), Run(replace(terms, rebatches=BELOW), compiled=compiled)
    with patch.object(rebatching, "ENOUGH_BYTES", enough):
        found = plain.take(*batches)
        assert larger.take(*batches) == found
    assert plain.read() == larger.read()
    assert found is not None or plain.read() == placed(batches)  # a gap may have to be proven
    here, there = plain.partition.cursor, larger.partition.cursor
    assert (here.due, here.last_epoch, here.max_timestamp) == (there.due, there.last_epoch, there.max_timestamp)
    assert [*here.marks] == [*there.marks]
    assert sum(item.records for item in plain.items) == sum(item.records for item in larger.items)
    for run in (plain, larger):
        run.send_all()


def test_without_a_rewriter_of_the_process_there_is_one() -> None:
    """As for all that is opened: see ``forward``."""
    assert Rewriter().rebatch("t", [(BatchHeader.read(written(0)), written(0)[HEADER_SIZE:])], SMALL) is not None
    assert RewriteWish.REBATCHED.slug == "rebatched"
