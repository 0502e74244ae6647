"""Where source and destination part: what the source lost is told from what never was a copy."""

from typing import Any

import pytest

from mirror.offsetmap.entries.pins import LastCopied, Note, header_digest
from mirror.reasons import HaltReason
from mirror.records.admit import Terms
from mirror.records.header import HEADER_SIZE, TRANSACTIONAL, BatchHeader
from mirror.relay.locate.compare import Comparison
from tests.records.builders import sealed
from tests.relay.stage.flows import batch, batches, copies
from tests.relay.stage.scenes import Scene, scene
from tests.simulation.model.broker import marker_batch


async def _halts(at: Scene) -> tuple[str, str]:
    """(reason, detail), of a halt whose remedy has nothing deleted that was not saved."""
    reason, detail = await at.halts()
    remedy = next(each.told for each in HaltReason if each.slug == reason)
    assert remedy.lower().index("save") < remedy.index("delete the topic") < remedy.index("mirror resume")
    return reason, detail


@pytest.mark.parametrize("left", [1, 3, 6])
async def test_shorter_than_the_copy(left: int) -> None:
    """The source ends before the destination, also at a second look, and both agree up to there."""
    async with scene() as at:
        at.copy(batches(7))
        at.here.truncate(3 * left)
        reason, detail = await _halts(at)
        assert reason == "source_truncated"
        assert f"both agree up to offset {3 * left - 1}, of leader epoch 0, and the source ends there" in detail
        assert f"the source ends at {3 * left}, the destination at 21" in detail
        assert f"only the destination has what the source had at offsets {3 * left} to 20" in detail


@pytest.mark.parametrize("written_since", [1, 3, 9])
async def test_truncated_and_written_again(written_since: int) -> None:
    """It goes on in a later leader epoch from where both still agree, and is shorter than the copy, or longer."""
    async with scene() as at:
        at.copy(batches(5))
        at.here.truncate(6)
        for number in range(written_since):
            at.source.store("t", 0, batch(6 + 3 * number, payload=b"other %d" % number, leader_epoch=1))
        reason, detail = await _halts(at)
        assert reason == "source_truncated"
        assert (
            "both agree up to offset 5, of leader epoch 0, and the source goes on with other records, of leader"
            in detail
        )
        assert f"the source ends at {6 + 3 * written_since}, the destination at 15" in detail
        assert "offsets 6 to 14" in detail


async def test_truncated_with_holes() -> None:
    """Markers on both sides between the batches do not keep it from being found."""
    async with scene() as at:
        for number in range(6):
            epoch = 2 * number
            at.source.store("t", 0, batch(at.here.end))
            (copy,) = copies(at.here.batches[-1:], cluster_id=at.source.cluster_id)
            header = BatchHeader.read(copy)._replace(base_offset=at.there.end, producer_epoch=epoch)
            at.there.store(sealed(header.pack() + copy[HEADER_SIZE:]))
            at.source.store("t", 0, marker_batch(at.here.end, 7, 0))
            at.there.store(marker_batch(at.there.end, at.owner, epoch + 1))
        at.here.truncate(11)
        reason, detail = await _halts(at)
        assert reason == "source_truncated"
        assert "both agree up to offset 10" in detail
        assert "only the destination has what the source had at offsets 11 to 23" in detail


async def test_truncated_behind_a_hole() -> None:
    """What both still have ends with an aborted batch, of which the destination has markers: the source goes on in a
    later epoch behind that."""
    async with scene() as at:
        at.copy(batches(2))
        at.source.store("t", 0, batch(6, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
        at.source.store("t", 0, marker_batch(9, 7, 0), batch(10, payload=b"lost"))
        for _ in range(4):
            at.there.store(marker_batch(at.there.end, at.owner, 1))
        (copy,) = copies(at.here.batches[-1:], cluster_id=at.source.cluster_id, epoch=2)
        assert at.there.produce(copy)[0] == 0
        at.here.truncate(10)
        at.source.store("t", 0, batch(10, payload=b"later", leader_epoch=1))
        reason, detail = await _halts(at)
        assert reason == "source_truncated"
        assert "both agree up to offset 5, of leader epoch 0" in detail


async def test_records_and_markers_behind_the_end_of_the_source() -> None:
    """Behind the source's end there are only markers; but the last record is one that it has lost."""
    async with scene() as at:
        at.copy(batches(3))
        for _ in range(6):
            at.there.store(marker_batch(at.there.end, at.owner, 1))
        at.here.truncate(6)
        at.source.store("t", 0, batch(6, payload=b"later", leader_epoch=1), batch(9, leader_epoch=1))
        reason, detail = await _halts(at)
        assert reason == "source_truncated"
        assert "the source ends at 12, the destination at 15" in detail


async def test_other_records_in_the_same_epoch() -> None:
    """A leader writes one batch at an offset: the copy is wrong, not the source."""
    async with scene() as at:
        at.source.store("t", 0, *batches(4))
        at.copy_only([*batches(2), batch(6, payload=b"other")])
        reason, detail = await _halts(at)
        assert reason == "not_a_copy"
        assert "the batches at offset 6 differ; both agree up to offset 5, of leader epoch 0" in detail


async def test_nothing_agrees() -> None:
    """Another log altogether, longer or shorter."""
    async with scene() as at:
        at.source.store("t", 0, *batches(2))
        at.copy_only([batch(3 * number, payload=b"other %d" % number) for number in range(4)])
        reason, detail = await _halts(at)
        assert reason == "not_a_copy"
        assert "the source ends at 6, the destination at 12" in detail


async def _note(at: Scene, copied: LastCopied) -> None:
    """Located once, and written down by somebody."""
    await at.locate(takeover=True)
    source_id, destination_id = at.pins.ids(at.partition)
    side = at.partition.subject
    note = Note(subject=side, writer="w", source_id=source_id, destination_id=destination_id, copied=copied, at_ms=0)
    await at.pins.state.save([note])


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("noted", [True, False])
async def test_nothing_agrees_with_what_was_noted(noted: bool, accepted: bool) -> None:
    """The source has lost all that it had, or all that the destination still has: only a note tells that from a log
    that never was the copied one. A marker in the place of a record is not to blame for it. What differs is not taken
    on trust, whatever an operator accepts."""
    async with scene() as at:
        at.there.store(marker_batch(0, at.owner, 1))
        at.source.store("t", 0, batch(0, 1, producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL))
        at.source.store("t", 0, batch(1), marker_batch(4, 7, 0))
        (copy,) = copies(at.here.batches[1:2], cluster_id=at.source.cluster_id, epoch=2)
        assert at.there.produce(copy)[0] == 0
        if noted:
            await _note(at, LastCopied(4, 0, header_digest(at.here.batches[1]), 4))
        at.here.truncate(0)
        at.source.store("t", 0, *(batch(3 * n, payload=b"later %d" % n, leader_epoch=1) for n in range(3)))
        at.partition.claim.accept_unproven = accepted
        assert (await at.halts())[0] == ("source_truncated" if noted else "overfilled")


@pytest.mark.parametrize("noted", [True, False])
async def test_a_compacted_source_that_has_nothing_there_may_have_lost_it(noted: bool) -> None:
    """The last copy's original is gone, and the one before is there. Where the epoch that it was copied under ends
    before it, no cleaner took it."""
    async with scene() as at:
        at.partition.terms = Terms(compacted=True)
        at.copy(batches(3))
        if noted:
            await _note(at, LastCopied(9, 0, header_digest(at.here.batches[-1]), 9))
        at.here.truncate(6)
        at.source.store("t", 0, batch(10, payload=b"later", leader_epoch=1))
        if noted:
            assert (await at.halts())[0] == "source_truncated"
        else:
            assert (await at.locate()).offset == 9


async def test_a_compacted_source_that_goes_on_inside_of_the_last_copy() -> None:
    """Its batches begin elsewhere since it has lost its end: nobody has changed what the source stores."""
    async with scene() as at:
        at.partition.terms = Terms(compacted=True)
        at.copy(batches(3))
        at.here.truncate(6)
        at.source.store("t", 0, batch(7, payload=b"later", leader_epoch=1))
        assert (await _halts(at))[0] == "source_truncated"


@pytest.mark.parametrize(("known", "expected"), [(True, "source_truncated"), (False, "not_a_copy")])
async def test_shorter_than_a_copy_that_was_deleted(known: bool, expected: str) -> None:
    """The destination holds nothing any more, and ends behind the source: no marker is to blame for that, and by its id
    the source may be known for the one that was copied."""
    async with scene() as at:
        at.copy(batches(4))
        if known:
            await at.locate()
        at.there.delete_before(12)
        at.here.truncate(6)
        reason, detail = await _halts(at)
        assert reason == expected
        assert "the source ends at 6, the destination at 12" in detail


async def test_markers_behind_the_end_of_the_source() -> None:
    """They are too many, or the source lost its own: nothing that the source had is missing there."""
    async with scene() as at:
        at.copy(batches(2))
        for _ in range(3):
            at.there.store(marker_batch(at.there.end, at.owner, 1))
        reason, detail = await _halts(at)
        assert reason == "overfilled"
        assert "the destination ends at 9 and the source at 6; there are only markers from 6 on" in detail


async def test_without_a_common_past_a_truncated_source_is_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: where both last agreed is not looked for."""

    async def nowhere(*_: Any) -> tuple[None, None]:
        return None, None

    monkeypatch.setattr(Comparison, "_last_agreed", nowhere)
    async with scene() as at:
        at.copy(batches(4))
        at.here.truncate(6)
        assert (await at.halts())[0] == "not_a_copy"


@pytest.mark.parametrize("compacted", [True, False])
async def test_a_copy_behind_a_marker_too_many(compacted: bool) -> None:
    """
    1. Compacted: the source may have a gap there, and its batch a damaged offset; the halt says that it may be either.
    2. Not compacted: it is the copy that is displaced, since the source has the batch where it says.
    """
    async with scene() as at:
        at.copy(batches(2))
        at.source.store("t", 0, batch(6, count=2))
        at.there.store(marker_batch(6, at.owner, 1))
        (copy,) = copies(at.here.batches[-1:], cluster_id=at.source.cluster_id)
        header = BatchHeader.read(copy)._replace(base_offset=7, producer_epoch=2)
        at.there.store(sealed(header.pack() + copy[HEADER_SIZE:]))
        at.source.store("t", 0, batch(8))
        at.partition.terms = Terms(compacted=compacted, compacted_there=compacted)
        reason, detail = await at.halts()
        assert reason == ("corrupt" if compacted else "overfilled")
        assert ("it is the copy that stands at a wrong offset" in detail) is compacted
