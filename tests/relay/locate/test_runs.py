"""Somebody else has written to the destination's log, between or before the flow's own batches: the sequences tell."""

import pytest

from mirror.records.filler import filler_batch
from mirror.relay.locate import resync, runs
from mirror.relay.locate.compare import Comparison
from mirror.relay.locate.runs import MOST_STRANGERS
from tests.records.builders import raw_batch
from tests.relay.stage.flows import batches, copies
from tests.relay.stage.scenes import Scene, scene

OURS = 3
"""Offsets of each batch."""


def come_back(at: Scene, *, before: int, strangers: int, behind: int) -> None:
    """The destination: so many of the flow's batches, then of others (one offset each), then of the flow's again. The
    source has at each offset what the destination has there: it got it from there."""
    at.copy(batches(before))
    first = OURS * before
    for offset in range(first, first + strangers):
        stranger = raw_batch(b"of others", base_offset=offset, last_offset_delta=0, record_count=1, leader_epoch=0)
        at.source.store("t", 0, stranger)
        at.there.store(stranger)
    at.copy(batches(behind, first=first + strangers), sequence=first)


@pytest.mark.parametrize("behind", [1, 2, 9])
@pytest.mark.parametrize("before", [0, 1, 4])
async def test_our_batches_came_back(before: int, behind: int) -> None:
    """The last batches equal the source's at their offsets, and others have written before them: the halt names what
    others wrote, and which of our own records stand behind it."""
    async with scene() as at:
        come_back(at, before=before, strangers=2, behind=behind)
        reason, detail = await at.halts()
        assert reason == "foreign_writer"
        first = OURS * before
        assert f"offset {first + 1} is of producer id -1" in detail
        assert f"offsets {first} to {first + 1} were written by others" in detail
        assert f"own records at offsets {first + 2} to {at.there.end - 1} stand behind" in detail


async def test_many_strangers() -> None:
    """A bounded number of them is looked at."""
    async with scene() as at:
        come_back(at, before=1, strangers=30, behind=2)
        assert f"at least offsets {OURS + 30 - MOST_STRANGERS - 1} to {OURS + 29} were" in (await at.halts())[1]


async def test_deleted_up_to_the_middle_of_the_run() -> None:
    """Where the epoch began was deleted long ago: from the log's start on, it is as it should be, or not."""
    async with scene() as at:
        at.copy(batches(9))
        at.there.delete_before(12)
        assert (await at.locate()).offset == 27
    async with scene() as at:
        come_back(at, before=5, strangers=1, behind=3)
        at.there.delete_before(9)
        assert (await at.halts())[0] == "foreign_writer"


async def test_deleted_up_to_the_middle_of_what_others_wrote() -> None:
    """The log begins inside of it, and what is before it is not asked for."""
    async with scene() as at:
        at.copy(batches(5))
        stranger = raw_batch(b"of others", base_offset=15, leader_epoch=0)
        at.source.store("t", 0, stranger)
        at.there.store(stranger)
        at.copy(batches(3, first=20), sequence=15)
        at.there.delete_before(17)
        reason, detail = await at.halts()
        assert reason == "foreign_writer"
        assert "offsets 15 to 19 were written by others" in detail


async def test_a_marker_between_our_batches() -> None:
    """A marker that is not ours took the offset of a record, and ours came back behind it."""
    async with scene() as at:
        at.copy(batches(2))
        marker = raw_batch(b"x", base_offset=6, attributes=0x30, last_offset_delta=0, record_count=1, producer_id=5)
        at.source.store("t", 0, marker)
        at.there.store(marker)
        at.copy(batches(1, first=7), sequence=6)
        reason, detail = await at.halts()
        assert reason == "overfilled"
        assert "a marker of producer id 5 at offset 6" in detail


async def test_our_own_batches_stand_elsewhere() -> None:
    """One batch is missing, and the next took its place: the sequences have a gap where the offsets have none."""
    async with scene() as at:
        at.copy(batches(2))
        at.source.store("t", 0, *batches(2, first=6))
        at.there.producers.clear()
        at.copy_only(batches(1, first=6), sequence=9)
        reason, detail = await at.halts()
        assert reason == "not_a_copy"
        assert "batches at offsets 6 to 8 do not stand where their sequences say" in detail


async def test_our_own_batch_came_twice() -> None:
    """The broker had forgotten the epoch, and took its first batch again, behind its last: that is no record that the
    source has lost. Mutation: without the rule, it is called that."""
    for rule in (True, False):
        async with scene() as at:
            at.copy(batches(3))
            at.there.producers.clear()
            at.copy_only(batches(1))
            with pytest.MonkeyPatch.context() as patched:
                if not rule:
                    patched.setattr(runs, "_is_displaced", lambda before, last: False)
                assert (await at.halts())[0] == ("not_a_copy" if rule else "source_truncated")


@pytest.mark.parametrize("rule", [True, False], ids=["", "mutation"])
async def test_a_late_marker_displaced_our_batch(monkeypatch: pytest.MonkeyPatch, rule: bool) -> None:
    """A marker too many behind a hole, and the first batch of the next epoch stands behind it: the source, where that
    batch is found one offset lower, is not damaged."""
    if not rule:

        async def never(*arguments: object) -> bool:
            return False

        monkeypatch.setattr(Comparison, "_stands", never)
    async with scene() as at:
        at.copy(batches(2))
        at.source.store("t", 0, *batches(3, first=6))
        marker = raw_batch(
            b"x",
            base_offset=6,
            attributes=0x30,
            last_offset_delta=0,
            record_count=1,
            producer_id=at.owner,
            producer_epoch=1,
        )
        displaced = copies(batches(1, first=6), cluster_id=at.source.cluster_id, epoch=2)
        at.there.store(marker)
        assert at.there.produce(displaced[0]) == (0, 7)
        reason, detail = await at.halts()
        assert reason == ("overfilled" if rule else "corrupt"), detail
        if rule:
            assert "a record at offset 6, and the destination a marker; what stands from offset 7 on is not" in detail


async def test_leading_filler_is_ours() -> None:
    """Filler that a kill brought back stands before the first batch, and is no stranger."""
    async with scene() as at:
        filler = at.locator.rules(at.partition).filler
        at.there.produce(filler_batch(producer=filler, offset=0, count=6, timestamp=0))
        at.here.start = at.here.end = 6
        at.copy(batches(2, first=6))
        await at.refresh()
        here, there = at.locator.logs(at.partition)
        found = await resync.Resync(here, there, at.locator.rules(at.partition), at.log).run(settle=False)
        assert found.offset == 12


async def test_without_the_rule_they_are_taken_for_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: the last batch alone is looked at."""

    async def unlooked(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(resync, "check_run", unlooked)
    monkeypatch.setattr(resync.Resync, "_prove_window", unlooked)
    async with scene() as at:
        come_back(at, before=1, strangers=1, behind=1)
        found = await at.locate()
        assert (found.offset, found.proven) == (7, True)
