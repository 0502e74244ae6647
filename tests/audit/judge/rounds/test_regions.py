"""What is looked at together, where windows end, and which shift is in force behind them."""

from dataclasses import replace

from mirror.audit.judge.rounds.regions import (
    FIRST_CHUNKS,
    MOST_APART,
    DifferingChunk,
    Window,
    before,
    followed,
    is_opaque,
    of_bounds,
    overlaps,
    reach,
    regions,
    shifts_at,
    unmatched,
)
from mirror.audit.model.differences import Pairs
from mirror.audit.model.places import Bounds, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What
from mirror.audit.prepare.plan import Range

KEY = TopicPartition("t", 0)
WHOLE = of_bounds(Bounds(topic="t", partition=0, source=Span(0, 1_000), destination=Span(0, 990)))


def chunk(start: int, batches: int = 3) -> DifferingChunk:
    """Of ten offsets."""
    return DifferingChunk(Range("t", 0, start, start + 10, start == 0, 10), batches)


def row(base: int, name: str, crc_ok: bool = True) -> BatchRow:
    """A batch of five offsets."""
    return BatchRow(base, base + 4, 5, 0, 0, 0, 100, crc_ok, name.encode())


def log(names: str, start: int = 0) -> dict[int, BatchRow]:
    """A batch for each letter; a dot is one that does not differ."""
    return {start + 5 * at: row(start + 5 * at, name) for at, name in enumerate(names) if name != "."}


def test_chunks_with_equal_ones_between_them_are_regions_of_their_own() -> None:
    """Some without any batch may lie between; the last region ends where the logs do, each at its own end."""
    apart = 20 + 10 * MOST_APART + 20
    found = regions([chunk(980), chunk(0), chunk(20 + 10 * MOST_APART), chunk(10), chunk(apart + 100)], WHOLE)
    assert [[one.where.start for one in region.chunks] for region in found] == [[0, 10, 100], [220], [980]]
    assert [(region.source, region.destination) for region in found] == [
        (Span(0, 110), Span(0, 110)), (Span(220, 230), Span(220, 230)), (Span(980, 1_000), Span(980, 990)),
    ]  # fmt: skip


def test_windows_are_bounded_by_chunks_and_by_batches() -> None:
    (region,) = regions([chunk(start) for start in range(0, 100, 10)], WHOLE)
    window = Window.first_of(region, 100)
    assert window is not None
    assert (len(window.chunks), len(window.rest)) == (FIRST_CHUNKS, 10 - FIRST_CHUNKS)
    narrow = Window.first_of(region, 1)
    assert narrow is not None
    assert len(narrow.chunks) == 1, "one at least, however many batches it has"
    assert Window.first_of(region, 0) is None


def test_holes_of_both_sides_are_cut_where_a_shift_begins() -> None:
    """Both have one across offset 10, where the destination goes on with what the source has from 13 on: from there on
    it is a hole of the source alone, to be looked for at that shift."""
    pairs = Pairs(equal=[Hole(2, 3, What.CONTROL), Hole(8, 12, What.ABORTED), Hole(12, 14, What.CONTROL)])
    cut = before(pairs, source=13, destination=10)
    assert cut.equal == [Hole(2, 3, What.CONTROL), Hole(8, 10, What.ABORTED)]
    assert cut.holes == [Hole(10, 12, What.ABORTED), Hole(12, 13, What.CONTROL)]
    assert cut.markers == []
    assert before(pairs, source=10, destination=13).markers == cut.holes


def test_the_shift_in_force() -> None:
    assert followed(Pairs(log(".bcdefg"), log(".cdefgh"))) == (-5, 35, 5)
    assert followed(Pairs(log("..cdefg"), log("..bcdef"))) == (5, 30, 4)
    assert followed(Pairs(log("abc"), log("xyz"))) == (0, 0, 0)


def test_of_payloads_that_are_there_again_and_again_only_those_behind_others_tell() -> None:
    assert followed(Pairs(log("kkk"), log("kkk", 50))).matched == 0
    assert followed(Pairs(log("bkkkk"), log(".bkkkk"))) == (5, 25, 5)


def test_damaged_rows_tell_nothing() -> None:
    ours, theirs = log("ab"), log("ba")
    theirs[0] = row(0, "b", crc_ok=False)
    assert followed(Pairs(ours, theirs)).matched == 1


def test_batches_with_other_borders_are_opaque() -> None:
    assert is_opaque(Pairs(log("abcdefgh"), log("ABCDEFGH")), 0)
    assert not is_opaque(Pairs(log("abcdefgh"), log("ABCDEFGH")), 4)
    assert not is_opaque(Pairs(log("abcdefgh"), log("ABC")), 0)


def test_windows_end_where_their_batches_do() -> None:
    """At the end of what both logs have at the latest; the last offset of a damaged batch says nothing."""
    where = Range("t", 0, 0, 10, True, 10)
    long = row(8, "a")._replace(last_offset=21)
    assert reach(where, Pairs({8: long}), 100) == 22
    assert reach(where, Pairs({8: long}), 15) == 15
    assert reach(where, Pairs({8: long._replace(crc_ok=False)}), 100) == 10
    assert reach(where, Pairs({12: long._replace(base_offset=12)}), 100) == 10


def test_what_moved_may_not_count() -> None:
    """Shifted by two, batches of five reach over each other's ends for ever. What has no counterpart counts."""
    where = Range("t", 0, 0, 12, True, 10)
    there = {
        base + 2: one._replace(base_offset=base + 2, last_offset=base + 6) for base, one in log("abcdefgh").items()
    }
    pairs = Pairs(log("abcdefgh"), there)
    assert reach(where, pairs, 100) == 42
    assert reach(where, pairs, 100, moved=False) == 12
    changed = there | {12: row(12, "x")}
    assert reach(where, Pairs(log("abcdefgh"), changed), 100, moved=False) == 17


def test_shifts_that_may_be_in_force_at_a_border() -> None:
    """What was lost before it has moved it; what was lost right behind it has not. Both are to be tried."""
    lost_before = Pairs(log("abcdefg"), log("bcdefg"))
    assert shifts_at(lost_before, 20) == [-5]
    lost_behind = Pairs(log("....efg"), log("....fg"))
    assert shifts_at(lost_behind, 20) == [-5], "what is right shows by trying"
    added_and_lost = Pairs(log("abcdefg"), log("xabcdfg"))
    assert shifts_at(added_and_lost, 20) == [5]
    assert shifts_at(Pairs(log("abcdefg"), log("xabcdeg")), 25) == [5]
    assert shifts_at(Pairs(log("abcdxfg"), log("bcdyfg")), 20) == [-5]
    assert shifts_at(Pairs(log("ab"), log("ab")), 5) == []


def test_rows_without_a_counterpart_wherever() -> None:
    assert unmatched(Pairs(log("abcd"), log("dcba"))) == 0
    assert unmatched(Pairs(log("aabc"), log("abx"))) == 3


def test_which_regions_reach_into_each_other() -> None:
    """The second may begin with the first, and not where it ends; in one partition only, and looked at in one way."""
    first, second, third = regions([chunk(0), chunk(20 + 10 * MOST_APART), chunk(980)], WHOLE)
    assert not overlaps(first, second)
    wide = replace(first, source=Span(0, second.source.start + 1))
    assert overlaps(wide, second)
    assert overlaps(first, first)
    assert not overlaps(replace(first, source=Span(0, second.source.start)), second)
    assert not overlaps(wide, third)
    assert not overlaps(second, first)
    for other in (
        replace(second, shift=1),
        replace(second, by_record=True),
        replace(second, key=TopicPartition("t", 1)),
    ):
        assert not overlaps(wide, other)
