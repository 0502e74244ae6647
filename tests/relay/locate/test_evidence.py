"""What vouches for a copy that cannot be compared: notes of what was copied last, held against the source."""

import pytest

from mirror.legacy import stand_ins
from mirror.net.logs.leader_requests import EpochEnd
from mirror.offsetmap.entries.pins import LastCopied, header_digest
from mirror.records.header import BatchHeader
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.evidence import Known, Unseen, vouch
from tests.fakes.log import FakeLog
from tests.legacy.samples import messages_of, records_from
from tests.relay.stage.flows import batch

END = 12
LAST = batch(9, leader_epoch=2)
"""The source's batch before ``END``."""
NOTE = LastCopied(END, 2, header_digest(LAST), END)


class Source:
    """A source's log: four batches of epoch 2, and four of epoch 3 behind them."""

    def __init__(self, *, knows_epochs: bool = True) -> None:
        self.log = FakeLog(epoch=3)
        self.knows_epochs = knows_epochs
        for base in range(0, 24, 3):
            self.log.store(batch(base, leader_epoch=2 if base < END else 3))

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        data = self.log.read(offset, 1, whole_first=True)
        return (BatchHeader.read(data), data) if data else None

    async def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        found, end = self.log.end_of_epoch(epoch)
        return EpochEnd(found, end) if self.knows_epochs else None


class OldSource(Source):
    """Its broker has no epochs, as where ``log.message.format.version`` is below 0.11."""

    async def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        return EpochEnd(-1, -1)


def known(*copied: LastCopied, **changes: bool | int) -> Known:
    usual = Known(name="t-0", pinned=True, has_ids=True, copied=copied, accepted=0, compacted=False)
    return usual._replace(**changes)  # type: ignore[arg-type]


def unseen(*, end: int = END, source_start: int = 0, data: bool = False, cleaned: bool = False) -> Unseen:
    return Unseen("the log holds no record", end, source_start, log_start=end, data=data, cleaned=cleaned)


async def verdict(source: Source, facts: Known, gap: Unseen) -> str | int:
    """The epoch, or the reason to halt."""
    try:
        return await vouch(source, facts, gap)
    except PartitionHalted as stop:
        halted = stop.halted
    assert "t-0" in halted.detail
    return halted.reason


async def test_the_source_still_has_it() -> None:
    """By its last batch, and by its epoch; the first gives the epoch of the batch before the end."""
    assert await verdict(Source(), known(NOTE), unseen()) == 2
    assert await verdict(Source(knows_epochs=False), known(NOTE), unseen()) == 2
    assert await verdict(Source(), known(NOTE._replace(digest="")), unseen()) == -1


async def test_the_source_was_truncated_and_grew_again() -> None:
    """In the same place stands another batch, of a later epoch: each of the two shows it."""
    source = Source()
    source.log.truncate(6)
    for base in (6, 9, 12, 15):
        source.log.store(batch(base, payload=b"other" * 9, leader_epoch=4))
    assert await verdict(source, known(NOTE), unseen()) == "source_truncated"
    assert await verdict(source, known(NOTE._replace(digest="")), unseen()) == "source_truncated"
    source.knows_epochs = False
    assert await verdict(source, known(NOTE), unseen()) == "source_truncated"


@pytest.mark.parametrize(("leader_epoch", "expected"), [(2, -1), (1, "source_truncated")])
async def test_a_note_that_is_older_than_the_copy(leader_epoch: int, expected: str | int) -> None:
    """It ends at 6 and the copy at 12: enough if its epoch goes on to 12, for then nothing can have been truncated."""
    note = LastCopied(6, leader_epoch, header_digest(batch(3)), 6)
    assert await verdict(Source(), known(note), unseen()) == expected


async def test_a_note_that_proves_too_little() -> None:
    """The copy ends at 18, the note at 6, and epoch 2 at 12: what lies between may be another source's."""
    note = LastCopied(6, 2, header_digest(batch(3)), 6)
    assert await verdict(Source(), known(note), unseen(end=18)) == "unproven"
    assert await verdict(Source(), known(note, LastCopied(18, 3)), unseen(end=18)) == -1, "the newest counts"


async def test_an_end_that_nothing_shows() -> None:
    """The source has nothing that shows where it had the last copies. So it is not enough that the epoch of the note
    goes on to the end that was reckoned: the source must have had no other leader since, who may have lost them."""
    gap = unseen(end=9)
    note = LastCopied(6, 2, header_digest(batch(3)), 6)
    assert await verdict(Source(), known(note, leader_epoch=3), gap) == -1
    assert await verdict(Source(), known(note, leader_epoch=3), gap._replace(unshown=True)) == "unproven"
    assert await verdict(Source(), known(note, leader_epoch=2), gap._replace(unshown=True)) == -1


async def test_both_sides_lost_their_end_and_less_was_copied_again() -> None:
    """Another worker's older note reaches further, into what both have lost: the later epoch is the newer note."""
    lost = LastCopied(18, 2, header_digest(batch(15, leader_epoch=2)), 18)
    again = batch(12, leader_epoch=3)
    newer = LastCopied(15, 3, header_digest(again), 15)
    for notes in ((lost, newer), (newer, lost)):
        assert await verdict(Source(), known(*notes), unseen(end=15)) == 3


async def test_nothing_is_known() -> None:
    """No note, or no ids: a halt, unless the source has nothing left that could be missed."""
    assert await verdict(Source(), known(), unseen()) == "unproven"
    assert await verdict(Source(), known(), unseen(source_start=END)) == -1
    assert await verdict(Source(), known(pinned=False), unseen(source_start=END)) == "unproven"
    assert await verdict(Source(), known(NOTE, pinned=False), unseen()) == "unproven"


async def test_nothing_was_ever_copied() -> None:
    """The log has been there since the source's start, and has markers only."""
    assert await verdict(Source(), known(), unseen()._replace(log_start=0)) == -1
    assert await verdict(Source(), known(), unseen()._replace(log_start=0, data=True)) == "unproven"


async def test_topics_without_ids() -> None:
    """A topic made anew may have the old one's epochs: only the last batch itself proves anything."""
    old = {"has_ids": False, "pinned": False}
    assert await verdict(Source(), known(NOTE, **old), unseen()) == 2
    assert await verdict(Source(), known(NOTE._replace(digest=""), **old), unseen()) == "unproven"
    assert await verdict(Source(), known(NOTE._replace(digest=""), has_ids=False), unseen()) == "unproven"


async def test_what_the_cleaner_changed() -> None:
    """On a compacted topic the last batch may have been cleaned: the epoch decides; else a changed batch is another."""
    source = Source()
    source.log.batches[3] = batch(9, leader_epoch=2, attributes=0x40)
    assert await verdict(source, known(NOTE, compacted=True), unseen()) == -1
    assert await verdict(source, known(NOTE), unseen()) == "source_truncated"
    assert await verdict(source, known(compacted=True), unseen(data=True, cleaned=True)) == -1


async def test_what_an_operator_has_accepted() -> None:
    """Notes from before say nothing, and nothing is asked for; what was copied since has to be there."""
    assert await verdict(Source(), known(NOTE._replace(digest="0" * 16), accepted=END), unseen()) == -1
    assert await verdict(Source(), known(NOTE, accepted=END), unseen(end=18)) == "unproven"


async def test_a_note_from_the_beginning_counts() -> None:
    """Of before anything was copied: all of the copy was made in that epoch if it ends at the copy's end or later."""
    assert await verdict(Source(), known(LastCopied(0, 2)), unseen()) == -1
    assert await verdict(Source(), known(LastCopied(0, 2)), unseen(end=END + 3)) == "unproven"
    assert await verdict(Source(), known(LastCopied(3, 2), accepted=3), unseen()) == "unproven"


async def test_old_messages_have_no_epochs() -> None:
    """A broker that stores an old format says that it knows no epoch. The last message itself decides."""
    source = OldSource()
    (stand_in,) = stand_ins(memoryview(messages_of(1, records_from(9, 3)))).batches
    (alone,) = stand_ins(memoryview(messages_of(1, records_from(9, 3)[2:]))).batches
    note = LastCopied(END, 7, header_digest(stand_in), END)
    source.log.batches[3] = alone
    assert await verdict(source, known(note), unseen()) == -1
    source.log.batches[3] = stand_ins(memoryview(messages_of(1, records_from(11, 1)))).batches[0]
    assert await verdict(source, known(note), unseen()) == "source_truncated"
    assert await verdict(source, known(note, compacted=True), unseen(cleaned=True)) == -1
    assert await verdict(source, known(note._replace(digest="")), unseen()) == "unproven"
    source.log.batches[3] = LAST
    assert await verdict(source, known(note), unseen()) == "source_truncated", "batches of magic 2 have epochs"
