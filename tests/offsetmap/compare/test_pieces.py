"""Copies that are pieces of an original: where they fit, and what lock-step makes of them."""

from collections.abc import Sequence
from typing import Any

import pytest

from mirror.offsetmap.compare.alignment import Alignment, Ambiguous, Differs
from mirror.offsetmap.compare.lockstep import LockStep
from mirror.offsetmap.compare.looks import ComparedBatch
from mirror.offsetmap.compare.pieces import PiecePlace, Rows, fits_at, rows_in, rows_of, spots
from mirror.offsetmap.runs import Run
from mirror.records.content.rewriting import rewrite
from mirror.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from mirror.records.identity import Identity
from tests.net.stage.scripted import OWN, stepped
from tests.records.builders import Record, kafka_batch, sealed
from tests.simulation.model.broker import stamped

TIME = 1_700_000_000_000


def batch(base: int, offsets: Sequence[int], *, span: int = 0, **header: Any) -> bytes:
    """One of the source: a record at each of these offsets, which say where they were written."""
    made = kafka_batch(
        [Record(at - base, TIME + at, b"k", b"value %d;" % at * 3) for at in offsets], base_offset=base, leader_epoch=0
    )
    fields = BatchHeader.read(made)._replace(last_offset_delta=(span or offsets[-1] + 1 - base) - 1, **header)
    return sealed(fields.pack() + made[HEADER_SIZE:])


def pieces(original: bytes, *, most: int | None = None, due: int = 0) -> list[bytes]:
    """What is written of it instead, at the source's offsets."""
    made = rewrite(BatchHeader.read(original), original[HEADER_SIZE:], most_size=most, due=due)
    return [header.pack() + records for header, records in made]


def copies(batches: Sequence[bytes], *, start: int = 0, sequence: int = 0) -> list[bytes]:
    """As this flow has written them at the destination, one behind the other."""
    made: list[bytes] = []
    for one in batches:
        header = BatchHeader.read(one)
        fields = header._replace(base_offset=start, producer_id=OWN, producer_epoch=0, base_sequence=sequence)
        made.append(sealed(fields.pack() + one[HEADER_SIZE:]))
        start, sequence = start + header.last_offset_delta + 1, sequence + header.last_offset_delta + 1
    return made


def rows(*deltas: int, of: str = "r") -> Rows:
    return Rows([*deltas], [b"%s%d" % (of.encode(), delta) for delta in deltas])


# -- spots -----------------------------------------------------------------------------------------------------------


def moved(some: Rows, by: int) -> Rows:
    """The same records, so many offsets nearer to the beginning of their batch."""
    return Rows([delta - by for delta in some.deltas], some.digests)


def test_the_next_records_fit() -> None:
    original = rows(0, 1, 2, 5, 6)
    assert list(spots(original, 9, 0, rows(0, 1), 2)) == [PiecePlace(0, 2, True)]
    assert list(spots(original, 9, 3, moved(rows(5, 6), 5), 2)) == [PiecePlace(5, 7, True)]


@pytest.mark.parametrize(
    ("copy", "length"),
    [
        pytest.param(moved(rows(1, 2), 1), 2, id="not the next ones"),
        pytest.param(rows(0, 1, of="x"), 2, id="other records"),
        pytest.param(Rows([0, 1], [b"r0", b"x1"]), 2, id="the second one is another"),
        pytest.param(rows(*range(10)), 10, id="longer than the original"),
    ],
)
def test_nothing_else_fits(copy: Rows, length: int) -> None:
    assert list(spots(rows(0, 1, 2, 5, 6), 9, 0, copy, length)) == []


def test_nothing_is_left() -> None:
    assert list(spots(rows(0, 1), 4, 2, rows(0), 1)) == []


def test_records_that_the_source_has_lost_since() -> None:
    """Of 0 to 3, the first and the third are gone: the copy has all four, and begins before what is left."""
    copy = rows(0, 1, 2, 3)
    assert list(spots(rows(1, 3), 4, 0, copy, 4)) == [PiecePlace(0, 4, True)]
    assert list(spots(rows(1, 3), 4, 1, copy, 4)) == []


def test_equal_records_leave_a_choice() -> None:
    """Two of the copy's equal the one that is left: it may be the copy of either."""
    copy = Rows([0, 1], [b"same", b"same"])
    assert list(spots(Rows([2], [b"same"]), 4, 0, copy, 2)) == [PiecePlace(1, 3, True), PiecePlace(2, 4, True)]


def test_records_that_the_destination_has_lost_since() -> None:
    original = rows(0, 1, 2, 3)
    assert fits_at(original, 0, rows(0, 2), 3) == PiecePlace(0, 3, False)
    assert fits_at(original, 0, rows(0), 1) == PiecePlace(0, 1, True)
    assert fits_at(rows(0, 1), 0, Rows([0, 1], [b"r0", b"x1"]), 2) is None


def test_the_destination_has_lost_the_first_of_them() -> None:
    assert list(spots(rows(0, 1, 2, 3), 4, 0, rows(1, 2), 3)) == [PiecePlace(0, 3, False)]
    assert list(spots(rows(0, 1, 2, 3), 4, 0, Rows([], []), 2)) == [PiecePlace(0, 2, False)]


def test_what_only_one_side_has_left_speaks_against_nothing() -> None:
    assert fits_at(rows(1, 2), 0, Rows([0, 1], [b"r0", b"r1"]), 2) == PiecePlace(0, 2, True)
    assert fits_at(Rows([0, 1], [b"a", b"b"]), 0, Rows([0], [b"a"]), 2) == PiecePlace(0, 2, False)


def test_nothing_in_common_is_no_proof() -> None:
    """Another log may have a hole where the copy's record was."""
    assert fits_at(rows(0, 5), 2, rows(0, 1), 2) == PiecePlace(2, 4, False)


@pytest.mark.parametrize(
    ("inside", "count", "places"),
    [
        pytest.param(0, 2, [2], id="no hole before it"),
        pytest.param(0, 3, [3, 6], id="the hole may have been one"),
        pytest.param(0, 4, [4, 6, 7], id="or both may"),
        pytest.param(2, 1, [3, 6], id="from within a hole on"),
        pytest.param(4, 3, [7], id="to the last one"),
        pytest.param(4, 5, [9], id="and behind it"),
        pytest.param(4, 6, [], id="more than there are"),
        pytest.param(4, 0, [], id="none"),
    ],
)
def test_places_behind_so_many_offsets(inside: int, count: int, places: list[int]) -> None:
    assert rows(0, 1, 5, 6).places(inside, 9, count) == places


async def test_rows_are_of_what_consumers_see() -> None:
    """Times of their append are the times of the records; offsets are counted from the first."""
    appended = batch(5, [5, 6, 8], attributes=LOG_APPEND_TIME, max_timestamp=TIME)
    (one, other) = pieces(appended)
    whole = await rows_of(ComparedBatch.of(BatchHeader.read(appended), memoryview(appended)))
    parts = [await rows_in(BatchHeader.read(each), memoryview(each)[HEADER_SIZE:]) for each in (one, other)]
    assert whole is not None
    assert whole.deltas == [0, 1, 3]
    assert [part.deltas for part in parts if part] == [[0, 1], [0]]
    assert [digest for part in parts if part for digest in part.digests] == whole.digests
    assert (whole.left(2), whole.next(2), whole.next(4)) == (1, 3, None)


async def test_what_cannot_be_read_has_no_rows() -> None:
    damaged = sealed(batch(0, [0, 1])[:-2])
    assert await rows_in(BatchHeader.read(damaged), memoryview(damaged)[HEADER_SIZE:]) is None
    assert await rows_in(BatchHeader.read(damaged), None) is None


# -- lock-step -------------------------------------------------------------------------------------------------------

LARGE = batch(0, range(6))
SPARSE = batch(6, [6, 7, 10], span=6)
"""Offsets 6 to 11."""
BEHIND = batch(12, [12, 13])
SOURCE = [LARGE, SPARSE, BEHIND]
HALF = len(LARGE) // 2 + 61


async def follow(there: Sequence[bytes], here: Sequence[bytes] = SOURCE, **changes: Any) -> LockStep:
    return await stepped(here, there, **{"may_be_cut": True} | changes)


@pytest.mark.parametrize("which", ["all", "some", "none"])
@pytest.mark.parametrize("cut", [True, False])
async def test_times_of_the_append_at_the_destination(which: str, cut: bool) -> None:
    """Of pieces and whole batches: each copy is judged by its own mark, if such copies are allowed."""
    here = [LARGE, batch(6, [6, 7])]
    there = copies([*pieces(LARGE, most=HALF), here[1]] if cut else here)
    marks = {"all": there, "some": there[::2], "none": []}[which]
    stored = [stamped(one, TIME + 77_000) if one in marks else one for one in there]
    step = await follow(stored, here, append_times=True)
    assert (step.source_offset, list(step.map)) == (8, [Run(0, 0, 8)])
    if marks:
        with pytest.raises(Differs):
            await follow(stored, here)


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("part", [False, True])
async def test_a_cleaned_copy_with_the_time_of_its_append(changed: bool, part: bool) -> None:
    """The cleaner has written that time into its records: all else of them is compared."""
    whole = batch(0, range(6))
    (one,) = copies([pieces(whole, most=HALF)[0] if part else whole])
    header = BatchHeader.read(one)
    last = header.last_offset_delta
    left = [Record(last, TIME + 77_000, b"k", b"VALUE" if changed else b"value %d;" % last * 3)]
    made = kafka_batch(left, base_offset=0)
    kept = header._replace(
        length=BatchHeader.read(made).length, record_count=1, base_timestamp=TIME + 77_000, attributes=0
    )
    stored = stamped(kept.pack() + made[HEADER_SIZE:], TIME + 77_000)
    if changed:
        with pytest.raises(Differs):
            await follow([stored], [whole], append_times=True)
    else:
        step = await follow([stored], [whole], append_times=True)
        assert step.source_offset == last + 1


async def test_all_of_it() -> None:
    written = copies([*pieces(LARGE, most=HALF), *pieces(SPARSE), BEHIND])
    assert len(written) > 4
    step = await follow(written)
    assert (step.source_offset, step.identity) == (14, Identity(OWN, 0, 11))
    assert list(step.map) == [Run(0, 0, 8), Run(10, 8, 1), Run(12, 9, 2)]


@pytest.mark.parametrize(("count", "behind"), [(0, 0), (1, 6), (2, 8), (3, 11), (4, 14)])
async def test_it_ends_behind_any_piece(count: int, behind: int) -> None:
    written = copies([LARGE, *pieces(SPARSE), BEHIND])
    step = await follow(written[:count])
    assert step.source_offset == behind
    again = await follow(
        written[count:],
        source_offset=behind,
        destination_offset=BatchHeader.read(written[count]).base_offset if count < 4 else 11,
        identity=step.identity,
    )
    assert again.source_offset == 14


async def test_behind_half_a_batch_its_epoch_is_known() -> None:
    first, *_ = pieces(LARGE, most=HALF)
    step = await follow(copies([first]))
    assert 0 < step.source_offset < 6
    assert step.source_epoch == 0
    coming = await step.next_of_source()
    assert coming is not None
    assert coming.header.base_offset == 0


async def test_a_piece_with_another_record_differs() -> None:
    first, second, *_ = pieces(LARGE, most=HALF)
    wrong = batch(0, range(100, 100 + BatchHeader.read(second).record_count), span=0)
    with pytest.raises(Differs, match="differs from offset 0 of source"):
        await follow(copies([first, wrong]))


async def test_a_piece_twice_differs() -> None:
    first, *_ = pieces(LARGE, most=HALF)
    with pytest.raises(Differs):
        await follow(copies([first, first]))


async def test_pieces_that_the_destination_has_lost() -> None:
    """By their sequences, they were there: the position is behind as many records."""
    written = copies([*pieces(LARGE, most=HALF), *pieces(SPARSE), BEHIND])
    step = await follow([written[0], *written[2:]])
    assert step.source_offset == 14
    none = await stepped(SOURCE, [], may_be_cut=True, end=0)
    await none.count(6, 7)
    none.decide()
    assert none.source_offset == 7


async def test_a_batch_may_have_been_cut_by_another_limit() -> None:
    """Of what is gone, only the number is known, and not the limit of that day."""
    step = await stepped(SOURCE, [], may_be_cut=True, end=0)
    await step.count(3, 4)
    step.decide()
    assert step.source_offset == 4
    never = await stepped(SOURCE, [], end=0)
    with pytest.raises(Differs):
        await never.count(3, 4)


async def test_a_batch_with_holes_may_have_gone_as_a_whole() -> None:
    """12 offsets are gone: the first two batches with all their offsets, or the records of all three."""
    step = await stepped([LARGE, SPARSE, batch(12, [12, 13, 14])], [], may_be_cut=True, end=0)
    await step.count(11, 12)
    with pytest.raises(Ambiguous):
        step.decide()


async def test_records_that_the_source_has_lost_behind_the_position() -> None:
    """They were copied in a piece of their own, which nothing at the source shows any more."""
    written = copies([batch(at, [at, at + 1]) for at in (0, 2, 4)])
    left = batch(0, [0, 1, 4, 5])
    step = await follow(written, [left, SPARSE])
    assert step.source_offset == 6
    assert list(step.map) == [Run(0, 0, 2), Run(4, 4, 2)]
    assert step.alignment.passed == 1


async def test_pieces_that_are_gone_may_have_stood_apart() -> None:
    """Of the first batch, two records stood before somebody else's, and four behind it."""
    other = sealed(BatchHeader.read(batch(2, [2]))._replace(producer_id=8, base_sequence=0).pack() + batch(2, [2])[61:])
    behind = copies(pieces(SPARSE)[:1], start=7, sequence=6)
    step = await follow([other, *behind])
    assert (step.source_offset, list(step.map)) == (8, [Run(6, 7, 2)])


async def test_room_before_a_batch_leaves_several_places_inside_of_it() -> None:
    """Of the two that are gone, the first may have been one that the source's cleaner has taken since."""
    step = await stepped([batch(1, range(1, 7))], [], may_be_cut=True, end=0)
    await step.count(1, 2)
    with pytest.raises(Ambiguous):
        step.decide()


async def test_behind_the_last_record_is_one_place() -> None:
    """The batch takes one offset more: nobody has to choose between that one and the next batch."""
    step = await stepped([batch(6, [6, 7, 8], span=4), batch(10, [10])], [], source_offset=6, may_be_cut=True, end=0)
    await step.count(2, 3)
    step.decide()
    assert step.source_offset == 9


async def test_a_hole_may_have_been_a_record_when_its_piece_was_copied() -> None:
    """Three of the batch were copied, and are gone at the destination. Then the source's cleaner took the second. If it
    was there, the position is before the fourth; behind it, that one would be lost."""
    step = await stepped([batch(0, [0, 2, 3, 4, 5])], [], may_be_cut=True, end=0)
    await step.count(2, 3)
    with pytest.raises(Ambiguous):
        step.decide()


async def test_what_comes_behind_tells_whether_a_hole_was_a_record() -> None:
    first, second = batch(0, [0, 1, 2]), batch(3, [3, 4, 5])
    step = await follow(copies([first, second])[1:], [batch(0, [0, 2, 3, 4, 5])])
    assert (step.source_offset, list(step.map)) == (6, [Run(3, 3, 3)])


async def test_all_that_was_taken_from_behind_the_last_record_may_have_been_copied() -> None:
    """Six offsets of the first batch were copied in pieces; its cleaner has left four, the last two are gone."""
    first, second = batch(0, range(3)), batch(3, [3, 4, 5])
    written = copies([first, second, batch(6, [6, 7])])
    step = await follow(written[2:], [batch(0, range(4), span=6), batch(6, [6, 7])])
    assert (step.source_offset, list(step.map)) == (8, [Run(6, 6, 2)])


async def test_a_limit_that_was_raised_since_hides_no_place() -> None:
    """Nine offsets are gone: three records, and the six behind them; or six that had a record then, and half of the
    others. It does not matter that these would go as a whole now."""
    step = await stepped([batch(0, [0, 2, 5]), batch(6, range(6, 12))], [], may_be_cut=True, end=0)
    await step.count(8, 9)
    with pytest.raises(Ambiguous):
        step.decide()
    written = copies([batch(0, range(6)), batch(6, [6, 7, 8]), batch(9, [9, 10, 11])])
    step = await follow(written[2:], [batch(0, [0, 2, 5]), batch(6, range(6, 12))])
    assert (step.source_offset, list(step.map)) == (12, [Run(9, 9, 3)])


async def test_many_ways_to_go_over_what_is_gone_are_looked_at_once_each() -> None:
    """Cleaned batches with gaps between them: the ways to share out what is gone are beyond counting."""
    here = [batch(10 * at + 5, [10 * at + 5, 10 * at + 7], span=5) for at in range(40)]
    step = await stepped(here, [], may_be_cut=True, end=0)
    with pytest.raises(Ambiguous, match="too many places"):
        await step.count(99, 100)


async def test_a_piece_that_has_lost_records_makes_nothing_sure() -> None:
    """The copies fit the batch, the first of them in what is left of it. Or both are of what stood before the batch."""
    written = copies([batch(6, [6, 8], span=3), batch(9, [9, 10])])
    with pytest.raises(Ambiguous):
        await follow(written, [batch(6, range(6, 12))])
    assert (await follow(written, [batch(0, range(6)), batch(6, range(6, 12))], source_offset=6)).source_offset == 11


async def test_what_is_left_of_a_batch_that_was_copied_in_part() -> None:
    first, *_ = pieces(LARGE, most=HALF)
    step = await follow(copies([first]))
    inside = step.source_offset
    assert 0 < inside < 6
    assert step.alignment.certain == inside
    assert await step.alignment.left_of(0, 1_000) == 14 - inside


async def test_a_source_that_shows_more_while_it_is_sought() -> None:
    """
    1. What is due begins inside of the first batch. A new leader shows none yet at first, and all right behind: nothing
       is concluded from what came in between. (Otherwise the position inside of the first batch was taken for one
       inside of the third, whose copy then differed.)
    2. At the next look, the copies fit.
    """
    here = [batch(0, [0, 1]), batch(2, [2, 3, 4]), batch(5, [5, 6, 7])]
    hidden = [True]

    async def fetch() -> ComparedBatch | None:
        if hidden:
            hidden.clear()
            return None
        return ComparedBatch.of(BatchHeader.read(here[0]), memoryview(here.pop(0))) if here else None

    rest = [*pieces(here[0], due=1), *here[1:]]
    there = [ComparedBatch.of(BatchHeader.read(one), memoryview(one)) for one in copies(rest)]
    alignment = Alignment(fetch, source_offset=1, source_start=0)
    assert not await alignment.take(there[0])
    assert alignment.ended
    assert await alignment.goes_on()
    for copy in there:
        assert await alignment.take(copy)
    assert alignment.decide()[0] == [Run(1, 0, 1), Run(2, 1, 3), Run(5, 4, 3)]
