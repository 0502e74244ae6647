"""Which entries of a response belong to a range: each to one, wherever ranges and responses are cut."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.records.header import Codec
from mirror.spark.read.cutting import CutEntries, Unproved, cut_entries
from mirror.spark.read.ranges import OffsetRange
from mirror.wire.fetch import Fetched
from tests.legacy.samples import records_from, wrapper_of
from tests.net.logs.test_reading import flipped
from tests.records.builders import raw_batch
from tests.spark.read.stage import batches

HIGH = 1 << 40


def cut(
    *stored: bytes,
    start: int = 0,
    end: int = HIGH,
    due: int | None = None,
    first: bool = True,
    fresh: bool | None = None,
    high_watermark: int = HIGH,
    cut_off: int = 0,
) -> CutEntries:
    body = memoryview(b"".join(stored))
    due = start if due is None else due
    fetched = Fetched(
        "t", 0, 0, high_watermark, high_watermark, 0, [], None, None, -1, 0, len(body) - cut_off
    )  # fmt: skip
    wanted = OffsetRange("t", 0, start, end, first)
    return cut_entries(body, fetched, wanted, due, fresh=due == start if fresh is None else fresh, committed=False)


def bases(found: CutEntries, *stored: bytes) -> list[int]:
    body = b"".join(stored)
    return [int.from_bytes(body[entry.place.at :][:8]) for entry in found.entries]


def test_all_of_it() -> None:
    stored = batches(0, 5, 10)
    found = cut(*stored)
    assert (bases(found, *stored), found.next_offset, found.broken) == ([0, 5, 10], 15, "")


def test_a_batch_that_is_cut_off_comes_later() -> None:
    stored = batches(0, 5)
    assert cut(*stored, cut_off=3).next_offset == 5


@pytest.mark.parametrize(("first", "wanted"), [(True, [5, 10]), (False, [10])])
def test_a_start_inside_of_a_batch(first: bool, wanted: list[int]) -> None:
    """The first range has the whole batch; else the one before has it."""
    stored = batches(5, 10)
    assert bases(cut(*stored, start=7, first=first), *stored) == wanted


def test_a_broker_that_begins_earlier() -> None:
    stored = batches(0, 5, 10)
    assert bases(cut(*stored, start=5), *stored) == [5, 10]


def test_an_end_inside_of_a_batch() -> None:
    stored = batches(0, 5, 10)
    found = cut(*stored, end=7)
    assert (bases(found, *stored), found.next_offset) == ([0, 5], 7)


def test_what_was_read_already() -> None:
    stored = batches(0, 5)
    assert bases(cut(*stored, due=5), *stored) == [5]


def test_nothing_due() -> None:
    assert cut(start=3).next_offset == 3
    assert cut(*batches(0), start=5).next_offset == 5


def test_what_compaction_has_left() -> None:
    stored = batches(20)
    found = cut(*stored, start=3, end=30)
    assert (bases(found, *stored), found.next_offset) == ([20], 25)
    assert cut(*stored, start=3, end=10) == CutEntries([], 10)


@given(st.integers(0, 1_000))
def test_each_batch_is_in_one_of_the_ranges_that_touch(seed: int) -> None:
    """Whatever the borders of ranges, and however little a response brings."""
    rng = random.Random(seed)
    base, stored = 0, []
    for _ in range(rng.randrange(1, 12)):
        base += rng.choice([0, 0, rng.randrange(9)])
        delta = rng.randrange(7)
        stored.append(raw_batch(b"", base_offset=base, last_offset_delta=delta))
        base += delta + 1
    borders = sorted({0, base, *(rng.randrange(base + 1) for _ in range(rng.randrange(5)))})
    seen = []
    for start, end in itertools.pairwise(borders):
        due = start
        while due < end:
            there = [each for each in stored if int.from_bytes(each[:8]) + int.from_bytes(each[23:27]) >= due]
            some = there[: rng.randrange(1, 4)]
            found = cut(*some, start=start, end=end, due=due, first=start == 0)
            seen += bases(found, *some)
            assert found.next_offset > due or not some
            due = found.next_offset if some else end
    assert seen == [int.from_bytes(each[:8]) for each in stored]


def test_offsets_that_go_back() -> None:
    """What stands before them is returned; then it is an error."""
    stored = [*batches(0, 5), *batches(3)]
    found = cut(*stored)
    assert (bases(found, *stored), found.next_offset, found.broken) == ([0, 5], 10, "")
    again = cut(raw_batch(b"", base_offset=12), *batches(11), start=0, due=10)
    assert again.next_offset == 17
    assert "magic 9" in cut(flipped(stored[0], 16, 2 ^ 9)).broken


def test_a_damaged_batch_is_a_row() -> None:
    stored = [*batches(0), flipped(batches(5)[0], 70), *batches(10)]
    found = cut(*stored)
    assert [entry.crc_ok for entry in found.entries] == [True, False, True]
    assert found.next_offset == 15


def test_a_damaged_header_leaves_nothing_out() -> None:
    """1. A batch whose last offset is wrong comes last in a response.
    2. The next response begins with it again, and shows what follows.
    """
    wrong = flipped(batches(5)[0], 24)  # the delta is 65540 now
    stored = [*batches(0), wrong]
    found = cut(*stored)
    assert (bases(found, *stored), found.next_offset) == ([0, 5], 6)
    again = [wrong, *batches(10)]
    found = cut(*again, start=0, due=6)
    assert (bases(found, *again), found.next_offset) == ([10], 15)


def test_a_wrong_last_offset_that_only_a_larger_response_would_show() -> None:
    """A broker goes on answering with the batch that claims to have what is due. Neither one behind it that was read
    already, nor one that is cut off, may be passed over by going to where it claims to end.
    """
    wrong = flipped(batches(5)[0], 24)  # the delta is 65540 now
    for stored, due, cut_off in (([wrong, *batches(10)], 15, 0), ([wrong, *batches(10)], 6, 100)):
        found = cut(*stored, start=0, due=due, cut_off=cut_off)
        assert (found.entries, found.next_offset) == ([], due)
        assert "the batch at offset 5 is damaged, and nothing shows where it ends" in found.broken
    alone = cut(wrong, start=0, due=6)
    assert (alone.next_offset, alone.unproved) == (65546, Unproved(5, len(wrong)))
    intact = flipped(batches(5)[0], 70)
    behind = cut(intact, *batches(10), start=0, due=6, cut_off=100)
    assert (behind.next_offset, behind.broken) == (10, "")


def test_a_damaged_batch_at_the_end_of_the_log() -> None:
    (wrong,) = (flipped(each, 70) for each in batches(5))
    assert cut(wrong, start=0, due=5, high_watermark=10).next_offset == 6
    assert cut(wrong, start=0, due=6, high_watermark=10).next_offset == 10
    endless = flipped(wrong, 24)
    assert "nothing shows where it ends" in cut(endless, start=0, due=6, high_watermark=10).broken


def test_old_messages_belong_where_their_offset_is() -> None:
    """A wrapper's is that of its last record."""
    stored = [wrapper_of(1, Codec.GZIP, records_from(5, 4)), *batches(9)]
    assert cut(*stored, start=0, end=8) == CutEntries([], 8)
    later = cut(*stored, start=8, end=20, first=False)
    assert bases(later, *stored) == [8, 9]
    assert [entry.old is not None for entry in later.entries] == [True, False]
    assert bases(cut(*stored, start=6, end=20), *stored) == [8, 9], "a start inside of it has it whole"
