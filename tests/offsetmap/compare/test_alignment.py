"""Scripted logs side by side: what was deleted, cleaned away or never appended, on either side; and equal batches."""

from collections.abc import Sequence
from typing import Any

import pytest

from mirror.offsetmap.compare import alignment
from mirror.offsetmap.compare.alignment import Ambiguous, Differs, NeverArrived
from mirror.offsetmap.runs import Run
from mirror.records.identity import Identity
from tests.net.stage.scripted import OWN, stepped
from tests.records.builders import raw_batch
from tests.simulation.model.broker import marker_batch

OTHER = 8


def batch(base: int, text: str, count: int = 3, producer: int = -1, sequence: int = -1, epoch: int = 0) -> bytes:
    """Of either side: the text says what it is a copy of."""
    return raw_batch(
        text.encode(),
        base_offset=base,
        last_offset_delta=count - 1,
        record_count=count,
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
    )


def copy(base: int, text: str, sequence: int, count: int = 3) -> bytes:
    """One of the flow's."""
    return batch(base, text, count, OWN, sequence)


def source(*texts: str, start: int = 0, without: Sequence[int] = ()) -> list[bytes]:
    """A batch of three offsets for each text; some of them are gone."""
    return [batch(start + 3 * at, text) for at, text in enumerate(texts) if at not in without]


ABC = source("a", "b", "c", "d")


async def test_a_copy_that_the_destination_cleaned_away_left_its_offsets() -> None:
    step = await stepped(ABC, [copy(0, "a", 0), copy(6, "c", 6)])
    assert list(step.map) == [Run(0, 0, 3), Run(6, 6, 3)]
    assert (step.source_offset, step.identity) == (9, Identity(OWN, 0, 9))


@pytest.mark.parametrize("between", [[], [batch(3, "other", 3, OTHER, 0)]], ids=["nobody", "another"])
async def test_a_copy_that_was_never_appended_halts(between: list[bytes]) -> None:
    """Batch b was refused, and c taken in its place: there are no offsets in which b can have stood."""
    there = [copy(0, "a", 0), *between, copy(6 if between else 3, "c", 6)]
    with pytest.raises(NeverArrived, match="3 offsets of this flow, from source offset 3 on"):
        await stepped(ABC, there)
    step = await stepped(ABC, there, accept_gap=True)
    assert (step.source_offset, step.lost) == (9, [(3, 6)])


async def test_gaps_of_others_are_room_only_where_a_whole_batch_fits() -> None:
    """Others' batches of one offset were cleaned away, three of them: the batch of three did not stand there."""
    others = [batch(at, "other", 1, OTHER, at) for at in (4, 6)]
    with pytest.raises(NeverArrived):
        await stepped(ABC, [copy(0, "a", 0), *others, copy(8, "c", 6)])


async def test_without_the_room_a_lost_batch_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: what the destination's offsets say is not asked."""
    monkeypatch.setattr(alignment, "without", lambda gaps, offsets, *, whole: gaps)
    step = await stepped(ABC, [copy(0, "a", 0), copy(3, "c", 6)])
    assert (step.source_offset, step.lost) == (9, [])


# -- equal batches, and a source that deleted what was copied ---------------------------------------------------------

SAME = ["same"] * 20


async def test_equal_batches_behind_a_deletion_have_several_places() -> None:
    """Twelve of twenty equal batches were copied, and the source begins with the sixth: any of the first six copies
    can be that one, as far as looks go. With a hole or more among the deleted, sequences do not tell either."""
    here, there = source(*SAME)[5:], [copy(3 * at, "same", 3 * at) for at in range(12)]
    with pytest.raises(Ambiguous, match="the source begins at 15"):
        await stepped(here, there, source_start=15)
    accepted = await stepped(here, there, source_start=15, accept_gap=True)
    assert accepted.source_offset == 36  # no earlier place fits: nothing is lost, nothing is there twice


async def test_batches_that_differ_have_one() -> None:
    texts = [f"text {at}" for at in range(20)]
    here, there = source(*texts)[5:], [copy(3 * at, texts[at], 3 * at) for at in range(12)]
    step = await stepped(here, there, source_start=15)
    assert (step.source_offset, step.alignment.passed, step.alignment.overtaken) == (36, 5, False)
    assert list(step.map) == [Run(15, 15, 21)]


async def test_sequences_bound_where_a_copy_can_belong() -> None:
    """The first of the equal batches that are left is a copy's that three offsets or fewer lie before."""
    there = [copy(0, "a", 0), copy(3, "same", 3), copy(6, "same", 6)]
    step = await stepped(source("a", "same", "same", "same")[1:], there, source_start=3)
    assert (step.source_offset, list(step.map)) == (9, [Run(3, 3, 6)])
    with pytest.raises(Ambiguous):
        await stepped(source("a", "same", "same", "same")[2:], there, source_start=6)


async def test_a_source_that_begins_where_the_copy_ends_was_not_overtaken() -> None:
    texts = ["a", "b", "c", "d"]
    there = [copy(0, "a", 0), copy(3, "b", 3)]
    step = await stepped(source(*texts)[2:], there, source_start=6)
    assert (step.source_offset, step.alignment.overtaken) == (6, False)
    step = await stepped(source(*texts)[3:], there, source_start=9)
    assert (step.source_offset, step.alignment.overtaken) == (6, True)


async def test_by_looks_alone_records_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutation: of several places the first that fits is taken."""

    def first(self: alignment.Alignment) -> Any:
        self._deleted = 0
        return decide(self)

    decide = alignment.Alignment.decide
    monkeypatch.setattr(alignment.Alignment, "decide", first)
    here, there = source(*SAME)[5:], [copy(3 * at, "same", 3 * at) for at in range(12)]
    step = await stepped(here, there, source_start=15)
    assert step.source_offset > 36


# -- a source whose cleaner took batches ------------------------------------------------------------------------------


async def test_copies_whose_originals_were_cleaned_away_are_passed() -> None:
    """The second and third original are gone; the first and last copy have theirs."""
    there = [copy(3 * at, text, 3 * at) for at, text in enumerate(["a", "b", "c", "d"])]
    step = await stepped(source("a", "b", "c", "d", without=[1, 2]), there)
    assert list(step.map) == [Run(0, 0, 3), Run(9, 9, 3)]
    assert (step.source_offset, step.alignment.passed) == (12, 2)


def emptied(base: int, sequence: int) -> bytes:
    """What the destination's cleaner leaves of a copy, of three offsets."""
    return raw_batch(
        b"",
        base_offset=base,
        last_offset_delta=2,
        record_count=0,
        producer_id=OWN,
        producer_epoch=0,
        base_sequence=sequence,
    )


async def test_what_a_cleaner_left_of_a_copy_is_no_proof() -> None:
    """
    1. The first original was copied, and then cleaned away on both sides. The next was not copied: it has as many
       offsets, and the mutation, by which that counts, would lose it.
    2. A copy behind it that is equal says which was which.
    """
    here = source("a", "b", "c", without=[0])
    with pytest.raises(Ambiguous):
        await stepped(here, [emptied(0, 0)])
    step = await stepped(here, [emptied(0, 0), copy(3, "b", 3)])
    assert (list(step.map), step.source_offset, step.alignment.passed) == ([Run(3, 3, 3)], 6, 1)
    step = await stepped(source("a", "b", "c"), [emptied(0, 0)])
    assert (list(step.map), step.source_offset) == ([Run(0, 0, 3)], 3)


async def test_an_original_that_stands_is_never_passed() -> None:
    """Nothing is gone at the source where the copy would belong."""
    with pytest.raises(Differs, match=r"offset 3 of destination differs from offset 3 of source"):
        await stepped(source("a", "c", "d"), [copy(0, "a", 0), copy(3, "b", 3), copy(6, "c", 6)])


async def test_of_equal_copies_the_cleaner_kept_the_last() -> None:
    there = [copy(3 * at, "same", 3 * at) for at in range(3)] + [copy(9, "d", 9)]
    step = await stepped(source("same", "same", "same", "d", without=[0, 1]), there)
    assert list(step.map) == [Run(6, 6, 6)]


async def test_holes_of_a_compacted_source_leave_no_doubt() -> None:
    """Gaps that were there when it was copied: room for every copy, and each of them has its original all the same."""
    here = [batch(10 * at, f"text {at}") for at in range(40)]
    there = [copy(3 * at, f"text {at}", 3 * at) for at in range(40)]
    step = await stepped(here, there)
    assert (step.source_offset, len(step.map), len(step.alignment._paths)) == (393, 40, 1)


# -- copies that nobody sees any more ----------------------------------------------------------------------------------


async def test_behind_a_fence_nothing_of_ours_can_have_stood() -> None:
    """Gaps of the destination behind the last copy: before a marker that keeps us out, and behind it."""
    others = [batch(3, "other", 2, OTHER, 0), batch(9, "other", 1, OTHER, 2), batch(20, "other", 1, OTHER, 3)]
    step = await stepped(ABC, [copy(0, "a", 0), *others], end=21)
    assert (step.unseen(21), step.gone_to(21)) == ([4, 10], 20)
    for producer, epoch, unseen, gone_to in ((OWN, 1, [4], 9), (OWN, 0, [4, 9], 20), (OTHER, 1, [4, 9], 20)):
        marked = [*others[:2], marker_batch(10, producer, epoch), others[2]]
        step = await stepped(ABC, [copy(0, "a", 0), *marked], end=21)
        assert (step.unseen(21), step.gone_to(21)) == (unseen, gone_to), (producer, epoch)


async def test_what_the_destination_deleted_is_counted() -> None:
    """Everything behind the checkpoint is gone; the leader remembered sequence 5."""
    step = await stepped(ABC, [], log_start=9, end=9)
    assert (step.source_offset, step.unseen(9)) == (0, [9])
    await step.count(5, 9)
    step.decide()
    assert (step.source_offset, step.identity, step.unseen(9)) == (6, Identity(OWN, 0, 6), [])


async def test_more_than_can_be_gone_differs() -> None:
    step = await stepped(ABC, [], log_start=3, end=3)
    with pytest.raises(NeverArrived):
        await step.count(5, 3)
    with pytest.raises(Differs):
        await (await stepped(ABC, [], log_start=30, end=30)).count(29, 30)


async def test_the_position_is_behind_the_place_that_an_original_left() -> None:
    """Offset 3 is a marker, 4 to 6 were cleaned away, 7 is a marker."""
    markers = [marker_batch(3, 11, 0), marker_batch(7, 11, 0)]
    here = [batch(0, "x"), markers[0], markers[1], batch(8, "z")]
    step = await stepped(here, [copy(0, "x", 0), copy(3, "gone", 3)])
    assert step.source_offset == 7


async def test_the_position_is_not_inside_an_empty_batch() -> None:
    emptied = raw_batch(b"", base_offset=3, last_offset_delta=5, record_count=0)
    step = await stepped([batch(0, "x"), emptied, batch(9, "z")], [copy(0, "x", 0), copy(3, "gone", 3)])
    assert step.source_offset == 3
