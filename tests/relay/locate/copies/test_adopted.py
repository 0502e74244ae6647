"""A flow that leads back to where its source was copied from: what others wrote there before is in its place, up to the
offset that the pin says, and no further."""

import pytest

from mirror.offsetmap.entries.pins import LastCopied, Pin
from mirror.records.admit import Terms
from mirror.records.header import TRANSACTIONAL
from mirror.records.identity import Identity
from mirror.records.transactions import COMMIT
from mirror.relay.partition.location import Location
from tests.fakes.log import ProducerState
from tests.fakes.loop import until
from tests.records.builders import raw_batch
from tests.relay.stage.flows import batch, batches, clusters, copies, mirroring
from tests.relay.stage.scenes import Scene, scene
from tests.simulation.model.broker import marker_batch

WRITER = 77
"""The producer id of whoever wrote to the destination before it was one."""


def theirs(base: int, payload: bytes | None = None, *, attributes: int = 0, leader_epoch: int = 0) -> bytes:
    """A batch of that writer."""
    return batch(
        base, payload=payload, attributes=attributes, producer_id=WRITER, producer_epoch=3, base_sequence=5,
        leader_epoch=leader_epoch,
    )  # fmt: skip


def there_before(at: Scene, number: int) -> int:
    """So many batches on both sides, at the destination by others; the end of that."""
    at.source.store("t", 0, *batches(number))
    for each in range(number):
        at.there.store(theirs(3 * each))
    return at.there.end


async def adopt(at: Scene, end: int) -> None:
    await at.refresh()
    source_id, destination_id = at.pins.ids(at.partition)
    pin = Pin(
        subject=at.partition.subject, source_id=source_id, destination_id=destination_id,
        source_cluster=at.source.cluster_id, copied=LastCopied(end, 0), adopted=end, adopted_epoch=0,
    )  # fmt: skip
    await at.pins.state.save([pin])


async def located(at: Scene) -> Location:
    return await at.locate(takeover=True)


async def test_it_goes_on_behind_that() -> None:
    """
    1. The position is the end of what was there, and proved by its last batches; the flow's identity begins.
    2. Behind its own batches, it goes on as always: also for a worker that takes it over.
    3. Without the pin, that is somebody else's log.
    """
    async with scene() as at:
        end = there_before(at, 6)
        at.source.store("t", 0, *batches(3, first=end))
        await adopt(at, end)
        found = await located(at)
        assert (found.offset, found.proven) == (end, True)
        assert found.identity == Identity(at.owner, 0, 0)
        at.copy_only(batches(2, first=end))
        found = await located(at)
        assert (found.offset, found.identity) == (end + 6, Identity(at.owner, 0, 6))
    async with scene() as at:
        there_before(at, 2)
        assert (await at.halts(takeover=True))[0] == "foreign_writer"


@pytest.mark.parametrize("own", [0, 2])
async def test_others_behind_that(own: int) -> None:
    """Whoever writes there from then on is a foreign writer: behind the flow's own batches, or right away."""
    async with scene() as at:
        end = there_before(at, 3)
        at.source.store("t", 0, *batches(own + 1, first=end))
        at.copy_only(batches(own, first=end))
        at.there.store(theirs(at.there.end))
        await adopt(at, end)
        reason, detail = await at.halts(takeover=True)
        assert reason == "foreign_writer"
        assert f"offsets {end + 3 * own} to {end + 3 * own + 2} were written by others" in detail


async def test_a_batch_across_the_end() -> None:
    """It was not all there."""
    async with scene() as at:
        end = there_before(at, 3)
        await adopt(at, end - 1)
        assert (await at.halts(takeover=True))[0] == "foreign_writer"


async def test_others_between_that_and_our_own() -> None:
    async with scene() as at:
        end = there_before(at, 2)
        stranger = theirs(end)
        at.source.store("t", 0, stranger, *batches(2, first=end + 3))
        at.there.store(stranger)
        at.copy_only(batches(2, first=end + 3))
        await adopt(at, end)
        reason, detail = await at.halts(takeover=True)
        assert reason == "foreign_writer"
        assert f"own records at offsets {end + 3} to {end + 8} stand behind" in detail


@pytest.mark.parametrize("last", [True, False])
async def test_other_records_than_the_source(last: bool) -> None:
    """What is adopted has to be the source's all the same: its last batches are compared."""
    async with scene() as at:
        at.source.store("t", 0, *batches(3))
        for number in range(3):
            payload = b"other" if number == (2 if last else 1) else None
            at.there.store(theirs(3 * number, payload=payload))
        await adopt(at, 9)
        assert (await at.halts(takeover=True))[0] == "not_a_copy"


def aborted_there(at: Scene, *, source_has: bool = False) -> int:
    """An aborted transaction: the source, which was copied from there, has markers only. ``source_has``: not so."""
    end = there_before(at, 2)
    at.there.store(theirs(end, attributes=TRANSACTIONAL))
    at.there.store(marker_batch(end + 3, WRITER, 3))
    at.there.aborted.append((WRITER, end))
    if source_has:
        at.source.store("t", 0, batch(end, payload=b"other"), marker_batch(end + 3, 1, 1))
    else:
        at.source.store("t", 0, *(marker_batch(end + each, 1, 1) for each in range(4)))
    return end + 4


async def test_an_aborted_transaction_at_its_end() -> None:
    """Nothing can be compared there; an earlier batch can."""
    async with scene() as at:
        end = aborted_there(at)
        await adopt(at, end)
        found = await located(at)
        assert (found.offset, found.proven) == (end, True)
    async with scene() as at:
        await adopt(at, aborted_there(at, source_has=True))
        reason, detail = await at.halts(takeover=True)
        assert reason == "not_a_copy"
        assert "the batches at offset 6 differ" in detail


async def test_an_own_batch_where_the_source_has_only_markers() -> None:
    """That is excused for what is adopted alone: the flow itself copies nothing that was aborted."""
    async with scene() as at:
        at.source.store("t", 0, *(marker_batch(each, 1, 1) for each in range(4)))
        own = batch(0, attributes=TRANSACTIONAL, producer_id=at.owner, producer_epoch=0, base_sequence=0)
        at.there.store(own)
        assert (await at.halts(takeover=True))[0] == "not_a_copy"


async def test_the_pin_is_written_anew() -> None:
    """By a decision of an operator's: what was adopted stays so."""
    async with scene() as at:
        end = there_before(at, 2)
        await adopt(at, end)
        await located(at)
        await at.pins.pin(at.partition, end=end, given_up=(end, end + 2))
        pin = at.pins.state.ledger.pin(at.partition.subject)
        assert pin is not None
        assert (pin.gaps_to, pin.adopted, pin.adopted_epoch) == (end + 2, end, 0)


@pytest.mark.parametrize("compacted", [False, True])
async def test_somebody_writes_where_its_end_was_lost(compacted: bool) -> None:
    """The destination has lost its end in an unclean election, and somebody writes there, under a later leader. Where
    the source is compacted, it may have nothing at these offsets that would show it."""
    async with scene() as at:
        there_before(at, 3)
        at.source.store("t", 0, *batches(3, first=12 if compacted else 9))
        await adopt(at, 18)
        at.there.epoch = 1
        at.there.store(theirs(9, payload=b"other", leader_epoch=1))
        at.partition.judge_by(Terms(compacted=compacted))
        reason, detail = await at.halts(takeover=True)
        assert reason == "foreign_writer"
        assert "offsets 9 to 11 were written by others" in detail


async def test_its_end_was_lost() -> None:
    """What the destination has lost of it is copied again, as the flow's own."""
    async with scene() as at:
        end = there_before(at, 4)
        await adopt(at, end)
        at.there.truncate(6)
        found = await located(at)
        assert (found.offset, found.proven, found.identity) == (6, True, Identity(at.owner, 0, 0))
        at.copy_only(batches(1, first=6))
        found = await located(at)
        assert (found.offset, found.identity) == (9, Identity(at.owner, 0, 3))


async def test_a_committed_transaction_where_the_source_has_markers() -> None:
    """Only what was aborted is excused: of what was committed, the source has to have the records."""
    async with scene() as at:
        end = there_before(at, 2)
        at.there.store(theirs(end, attributes=TRANSACTIONAL))
        at.there.store(marker_batch(end + 3, WRITER, 3, kind=COMMIT))
        at.source.store("t", 0, *(marker_batch(end + each, 1, 1) for each in range(4)))
        await adopt(at, end + 4)
        reason, detail = await at.halts(takeover=True)
        assert reason == "not_a_copy"
        assert "the batches at offset 6 differ" in detail


async def test_a_batch_that_a_cleaner_has_emptied() -> None:
    """The source has markers there, since it was empty already when it was copied from there."""
    async with scene() as at:
        end = there_before(at, 2)
        at.there.store(
            raw_batch(b"", base_offset=end, leader_epoch=0, last_offset_delta=2, record_count=0, producer_id=WRITER)
        )
        at.source.store("t", 0, *(marker_batch(end + each, 1, 1) for each in range(3)))
        await adopt(at, end + 3)
        found = await located(at)
        assert (found.offset, found.proven) == (end + 3, True)


@pytest.mark.parametrize("own", [0, 1])
async def test_a_transaction_that_is_open(own: int) -> None:
    """The destination has lost its marker. None was open when it was certified, and nobody ends it any more."""
    async with scene() as at:
        end = there_before(at, 2)
        at.source.store("t", 0, *batches(own, first=end))
        await adopt(at, end)
        at.copy_only(batches(own, first=end))
        at.there.open_from = 3
        reason, detail = await at.halts(takeover=True)
        assert reason == "not_a_copy"
        assert "a transaction is open at the destination from offset 3 on" in detail


async def test_where_they_part_behind_an_aborted_transaction() -> None:
    """The last batch on which both agree stands behind it, and shows that the source has lost its end."""
    async with scene() as at:
        end = aborted_there(at)
        at.source.store("t", 0, *batches(1, first=end), batch(end + 3, payload=b"other", leader_epoch=1))
        for base in (end, end + 3):
            at.there.store(theirs(base))
        await adopt(at, end + 6)
        reason, detail = await at.halts(takeover=True)
        assert reason == "source_truncated"
        assert f"both agree up to offset {end + 2}" in detail


@pytest.mark.parametrize(("ends_inside", "halted"), [(False, "overfilled"), (True, "source_truncated")])
async def test_the_source_ends_at_an_aborted_transaction(ends_inside: bool, halted: str) -> None:
    """A marker of somebody's stands behind it, or the source ends among the markers in its place."""
    async with scene() as at:
        end = aborted_there(at)
        await adopt(at, end)
        if ends_inside:
            at.here.truncate(end - 2)
        else:
            at.there.store(marker_batch(end, WRITER, 3))
        assert (await at.halts(takeover=True))[0] == halted


async def test_a_lone_marker_behind_that() -> None:
    """A transaction without records that is aborted late leaves one: it takes the offset of what is due."""
    async with scene() as at:
        end = there_before(at, 2)
        at.source.store("t", 0, *batches(1, first=end))
        await adopt(at, end)
        at.there.store(marker_batch(end, WRITER, 3))
        assert (await at.halts(takeover=True))[0] == "overfilled"


async def test_the_leader_remembers_its_writer() -> None:
    """That tells nothing of the flow's own batches: of these, it takes any sequence, so the end has to stand still."""
    async with scene() as at:
        end = there_before(at, 2)
        await adopt(at, end)
        state = at.there.producers[WRITER] = ProducerState(3)
        state.batches.append((5, 7, end - 3))
        await located(at)
        looks = at.barriers()
        assert (await at.locate()).settled_at == 0.0
        assert at.barriers() == looks + 2


async def test_the_source_begins_inside_a_batch_of_it() -> None:
    """Somebody has deleted records there. Those at the destination are not the flow's to delete."""
    async with scene() as at:
        end = there_before(at, 2)
        at.source.store("t", 0, *batches(1, first=end))
        await adopt(at, end)
        at.here.start = 1
        at.partition.start(await located(at), topic_head=b"")
        at.copy_only(batches(1, first=end))
        await at.locator.cut(at.partition, end + 3)
        assert at.there.start == 0


@pytest.mark.parametrize("own", [0, 2])
async def test_its_internal_topic_is_lost(own: int) -> None:
    """Nothing says any more that what others wrote is in its place. Once that is written down again, it goes on."""
    source, destination = batches(3 + own + 2), [theirs(3 * each) for each in range(3)]
    async with clusters() as (here, there):
        for cluster in (here, there):
            cluster.add_topic("t")
        here.store("t", 0, *source)
        there.store("t", 0, *destination)
        for one in copies(source[3 : 3 + own], cluster_id=here.cluster_id):
            assert there.log("t").produce(one)[0] == 0
        async with mirroring(here, there) as flow:
            assert await flow.halted() == "foreign_writer"
            halted = flow.partition().halted
            assert halted is not None
            assert "run the command again that prepared the way back" in halted.remedy
            source_id, destination_id = flow.relay.pins.ids(flow.partition())
            await flow.relay.pins.state.save([
                Pin(
                    subject=flow.partition().subject, source_id=source_id, destination_id=destination_id,
                    source_cluster=here.cluster_id, copied=LastCopied(9, 0), adopted=9, adopted_epoch=0,
                )
            ])  # fmt: skip
            assert await flow.relay.resume_all([("t", 0)]) == {("t", 0): ""}
            await until(lambda: there.log("t").end == here.log("t").end)
            assert flow.partition().halted is None
