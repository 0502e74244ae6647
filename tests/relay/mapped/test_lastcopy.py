"""Whether the source still has what was copied: logs that only answer what they are told to."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.errors import Unreachable
from mirror.net.metadata import Leader
from mirror.offsetmap.entries.chunks import Order
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import LastCopied, header_digest
from mirror.offsetmap.runs import Run
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.evidence import Unseen
from mirror.relay.mapped.copied import CopiedRuns, OpenMap
from mirror.relay.mapped.lastcopy import Sides, check_copied, check_end, check_last
from mirror.relay.partition.cursor import Mark
from tests.records.builders import Record, kafka_batch
from tests.simulation.model.broker import stamped

OWN = 7
LAST = Run(0, 100, 10)
"""Ten offsets, the last batch of which holds two."""


def batch(base_offset: int, value: bytes = b"value", *, producer_id: int = -1, leader_epoch: int = 3) -> bytes:
    records = [Record(at, 0, None, value) for at in range(2)]
    return kafka_batch(records, base_offset=base_offset, producer_id=producer_id, leader_epoch=leader_epoch)


class Held:
    """A log: one batch, and ends that are told one after the other."""

    def __init__(self, found: bytes | None, *ends: int, high_watermark: int = 20) -> None:
        self.leader = Leader(1, 4)
        self.name = "source: t-0"
        self._high_watermark = high_watermark
        self._found = found
        self._ends = list(ends)

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        return None if self._found is None else (BatchHeader.read(self._found), self._found)

    async def true_end(self) -> int:
        return self._ends.pop(0)

    async def visible_end(self) -> int:
        return self._high_watermark


def sides(here: Held, there: Held | None = None, *, compacted: bool = False, log_start: int = 0) -> Sides:
    logs: Any = SimpleNamespace(here=here, there=there)
    return Sides("t-0", logs.here, logs.there, 0, log_start, compacted, asyncio.Lock())


COPY = Held(batch(108, producer_id=OWN, leader_epoch=0))
NOTED = LastCopied(10, 2, "digest", 10)


class Asked:
    """Who asks the source for what was written down."""

    def __init__(self) -> None:
        self.questions: list[tuple[Unseen, LastCopied | None]] = []

    async def __call__(self, unseen: Unseen, noted: LastCopied | None) -> int:
        self.questions.append((unseen, noted))
        return 7


async def test_it_is_the_one() -> None:
    found = await check_last(sides(Held(batch(8)), COPY), LAST, {OWN})
    assert found is not None
    assert found[1] == batch(8)


LARGER = kafka_batch([Record(at, 0, None, b"value") for at in range(4)], base_offset=8, leader_epoch=3)
"""Offsets 8 to 11: the last copy is a piece of it."""


@pytest.mark.parametrize("of", [batch(8), LARGER], ids=["whole", "piece"])
async def test_the_time_of_its_append(of: bytes) -> None:
    """The destination's broker has put it in, where the flow takes that."""
    stamps = Held(stamped(batch(108, producer_id=OWN, leader_epoch=0), 9_000))
    found = await check_last(sides(Held(of), stamps)._replace(append_times=True), LAST, {OWN})
    assert found is not None
    with pytest.raises(PartitionHalted, match="source_truncated"):
        await check_last(sides(Held(of), stamps), LAST, {OWN})


async def test_a_piece_of_it_says_nothing_of_where_it_ends() -> None:
    """Nobody is asked, since the records were compared; what was noted of an earlier batch stays."""
    asked = Asked()
    checked = await check_copied(sides(Held(LARGER), COPY), LAST, 10, {OWN}, LastCopied(9, 2, "digest", 8), asked)
    assert (checked.source_epoch, checked.copied) == (3, LastCopied(10, 4, "digest", 8))
    assert asked.questions == []


async def test_a_piece_of_another_batch() -> None:
    other = kafka_batch([Record(at, 0, None, b"VALUE") for at in range(4)], base_offset=8, leader_epoch=3)
    with pytest.raises(PartitionHalted, match="source_truncated: t-0: the source's batch at offset 9 is not the one"):
        await check_copied(sides(Held(other), COPY), LAST, 10, {OWN}, NOTED, Asked())


@pytest.mark.parametrize("found", [batch(8, b"VALUE"), batch(9), None], ids=["others", "elsewhere", "nothing"])
async def test_a_source_that_was_truncated_and_has_grown(found: bytes | None) -> None:
    """What stands there now was never copied, and what was copied is nowhere at the source: going on would lose it."""
    with pytest.raises(PartitionHalted, match="source_truncated: t-0: the source's batch at offset 9 is not the one"):
        await check_copied(sides(Held(found), COPY), LAST, 10, {OWN}, NOTED, Asked())


async def test_a_new_leader_whose_high_watermark_lags() -> None:
    """It has the batch, and shows it a moment later."""
    with pytest.raises(Unreachable, match="offset 9 is there, and not to be read yet"):
        await check_last(sides(Held(None, high_watermark=8), COPY), LAST, {OWN})


@pytest.mark.parametrize(
    ("at", "last"),
    [
        (sides(Held(batch(8)), COPY), None),
        (sides(Held(batch(8, b"VALUE")), COPY, log_start=110), LAST),
        (sides(Held(batch(8, b"VALUE")), Held(batch(108))), LAST),
        (sides(Held(None), COPY, compacted=True), LAST),
        (sides(Held(batch(12)), COPY, compacted=True), LAST),
    ],
    ids=["nothing copied", "deleted at the destination", "another's", "cleaned away", "cleaned away, more behind"],
)
async def test_nothing_can_be_said(at: Sides, last: Run | None) -> None:
    """Then what was written down is asked of the source, if it has anything before the position; or nothing was written
    down, which is for the one who is asked to judge."""
    assert await check_last(at, last, {OWN}) is None
    for noted in (NOTED, None):
        asked = Asked()
        found = await check_copied(at, last, 10, {OWN}, noted, asked)
        assert [(unseen.end, unseen.source_start, note) for unseen, note in asked.questions] == [(10, 0, noted)]
        assert found == (7, LastCopied(10, 4, *(noted[2:] if noted is not None else ("", -1))))
    asked = Asked()
    await check_copied(at._replace(source_start=10), last, 10, {OWN}, NOTED, asked)
    assert not asked.questions, "the source has nothing that could be missed"


@pytest.mark.parametrize(
    ("upto", "noted", "asks"),
    [(10, NOTED, 0), (15, NOTED, 1), (15, NOTED._replace(offset=15), 1), (15, None, 0)],
    ids=["nothing behind it", "copies that are gone", "passed over", "no note"],
)
async def test_the_last_batch_vouches_for_what_is_before_it(upto: int, noted: LastCopied | None, asks: int) -> None:
    """Offsets that were passed over behind it (an aborted transaction) may be records by now: the source is asked, if
    there is something to ask for. One that cannot tell is believed, unless copies behind it are gone as well. What is
    written down from then on is of the batch that was seen, and of the leader of now; that batch's epoch is asked for
    with the next fetch if it is the one before the position."""
    asked = Asked()
    found = await check_copied(sides(Held(batch(8)), COPY), LAST, upto, {OWN}, noted, asked)
    assert [unseen.cleaned for unseen, _ in asked.questions] == [noted is not None and noted.offset == upto] * asks
    assert found.copied == LastCopied(upto, 4, header_digest(batch(8)), 10)
    assert found.source_epoch == (7 if asks else 3 if upto == 10 else -1)


@pytest.mark.parametrize("upto", [10, 15])
async def test_copies_that_nothing_shows(upto: int) -> None:
    """The position rests on them, so the last batch that compares as equal is not enough, whatever was noted."""
    asked = Asked()
    noted = NOTED._replace(offset=15)
    await check_copied(sides(Held(batch(8)), COPY), LAST, upto, {OWN}, noted, asked, unshown=True)
    assert [(unseen.unshown, unseen.cleaned) for unseen, _ in asked.questions] == [(True, False)]


def test_what_was_copied_since_is_noted() -> None:
    """The last batch of a record set that was acknowledged; of a later one, only how far it was."""
    marks = [Mark(at, 0, b"%061d" % at) for at in (3, 6, 12)]
    copied = CopiedRuns(
        open_map=OpenMap(Subject("t", 0, "t"), writer="w", order=Order(1, OWN, 0), since=0),
        source=0,
        source_epoch=-1,
        destination=0,
        identity=Identity(OWN, 0, 0),
        own=frozenset({OWN}),
        last=LastCopied(0, 4, "before", 0),
        marks=marks,
    )
    assert copied.note() == (0, 4, "before", 0)
    copied.landed(0, 2)
    assert copied.note() == (2, 4, "before", 0)
    copied.landed(2, 8)
    assert copied.note() == (10, 4, header_digest(marks[1].header), 6)
    assert copied.checkpoint(0).copied == copied.note()


async def test_a_source_that_ends_before() -> None:
    """Seen twice; once may be a leader that is still catching up."""
    await check_end(sides(Held(None, 10)), 10, 0.0)
    await check_end(sides(Held(None, 6, 10)), 10, 0.0)
    with pytest.raises(PartitionHalted, match="source_truncated: t-0: copied up to offset 10, and the source ends at"):
        await check_end(sides(Held(None, 6, 6)), 10, 0.0)


def test_an_epoch_is_of_its_batch() -> None:
    """The epoch of what was copied first, asked for with what was copied last, would make a healthy source look
    truncated after any election."""
    open_map = OpenMap(Subject("t", 0, "t"), writer="w", order=Order(1, OWN, 0), since=0)
    copied = CopiedRuns(
        open_map=open_map, source=0, source_epoch=5, destination=0, identity=Identity(OWN, 0, 0), own=frozenset({OWN})
    )
    copied.landed(0, 3)
    assert (copied.source, copied.source_epoch) == (3, -1)
