"""Topics that are made anew, with or without a trace of what was copied. Each test plays two lives of a mirror."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from mirror.offsetmap.entries.pins import LastCopied, Pin
from mirror.relay.durable import notes
from mirror.relay.halts import Halted
from mirror.relay.partition.claim import Committed
from mirror.relay.partition.phases import Phase
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, empty, last_copied, ledger, noted, recreate, vouches


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_source_topic_made_anew_is_not_forgotten(stopped: bool) -> None:
    """
    1. All is copied. The source's topic is deleted and made again, with more records than before; the destination's
       records expire. The mirror sees it and is killed, or was stopped meanwhile.
    2. The next start halts for the same reason: the new topic's first records would be lost.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
            if not stopped:
                recreate(source, *batches(30))
                empty(destination)
                assert await flow.halted() == "recreated"
                await until(lambda: ledger(destination).halts)
        if stopped:
            recreate(source, *batches(30))
            empty(destination)
        for _ in range(2):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "recreated"
                assert destination.log("t").end == 60
                assert not flow.log.of("prefix_unproven")


async def test_without_what_was_written_down_records_are_lost() -> None:
    """The same without ids and notes: it goes on behind records that nobody copied, with a warning."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        recreate(source, *batches(30))
        empty(destination)
        destination.remembered.clear()
        with patch.object(notes, "vouch", vouches):
            async with mirroring(source, destination) as flow:
                await until(lambda: flow.partition().queue.acknowledged == 90)
                assert destination.log("t").start == 60
                assert flow.log.of("prefix_unproven")


async def test_resumed_over_a_change() -> None:
    """
    1. The source was made anew, the destination's log is empty and ends at 60. An operator resumes: the ids are those
       of now, and nothing shows that it is a copy.
    2. The operator accepts that, too: it goes on at the end. The next start does not ask again.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        recreate(source, *batches(30))
        empty(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(("t", 0)) == ""
            await until(lambda: flow.partition().halted)
            assert flow.partition().halted.reason == "unproven"  # type: ignore[union-attr]
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await until(lambda: flow.partition().queue.acknowledged == 90)
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            assert (pin.accepted, pin.copied) == (60, None)
            assert ledger(destination).notes(SIDE) == []
            assert flow.log.of("skipped")
            assert [each[:5] for each in flow.relay.stats.skipped] == [("t", 0, 0, 60, "unproven")]
        assert [(each.start, each.end, each.cause) for each in ledger(destination).skipped()] == [(0, 60, "unproven")]
        empty(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "unproven", "what was copied since was not noted"
            assert [each[:5] for each in flow.relay.stats.skipped] == [("t", 0, 0, 60, "unproven")]
        async with mirroring(source, destination) as flow:
            told = await flow.relay.resume(("t", 0), accept_unproven=True)
            assert told in ("", "it is locating, not halted", "it has halted only now; see why, and resume it again")


@pytest.mark.parametrize("restarted", [True, False])
async def test_a_source_made_anew_that_begins_where_the_copy_ends(restarted: bool) -> None:
    """
    1. The source was made anew, and begins where the destination's log ends. Nobody can miss what it does not have; but
       what the destination holds is another topic's. An operator resumes, which says nothing of that: `unproven`.
    2. Once more after a restart. The operator accepts it: it goes on, and what is taken on trust is written down.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
            if not restarted:
                _begin_anew(source, 60)
                flow.relay.source._refreshed.clear()
                flow.relay.doubt_now(flow.partition(), "test", "looked for again")
                assert await flow.halted() == "recreated"
                assert await _resumed(flow) == "unproven"
        if restarted:
            _begin_anew(source, 60)
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "recreated"
                assert await _resumed(flow) == "unproven"
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "unproven"
            assert "the source topic was recreated" in flow.partition().halted.detail  # type: ignore[union-attr]
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await until(lambda: flow.partition().queue.acknowledged == 90)
            assert [each[:5] for each in flow.relay.stats.skipped] == [("t", 0, 0, 60, "unproven")]
            await flow.relay.durable.write_down()
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 90)


async def test_mutation_a_resume_counts_as_proof() -> None:
    """As a rule it would: the copy of one topic goes on with another one's records."""
    load = Pin.load.__func__  # type: ignore[attr-defined]
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        _begin_anew(source, 60)
        with patch.object(Pin, "load", classmethod(lambda *of: replace(load(*of), replaced=False))):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "recreated"
                assert await flow.relay.resume(("t", 0)) == ""
                await until(lambda: flow.partition().queue.acknowledged == 90)


async def test_a_shorter_source_made_anew_is_not_called_the_one_that_was_copied() -> None:
    """Resumed, it has fewer records than the destination, and none that was copied: no copy, and no truncation."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        recreate(source, *batches(5))
        source.log("t").delete_before(source.log("t").end)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"
            assert await _resumed(flow) == "not_a_copy"


def _begin_anew(source: FakeCluster, start: int) -> None:
    """The topic made anew, with other records, and a start of its own."""
    recreate(source, *batches(30))
    source.log("t").delete_before(start)


async def _resumed(flow: Flow) -> str:
    """What it halts for next, when it is resumed."""
    before = flow.partition().halted
    assert await flow.relay.resume(("t", 0)) == ""
    await until(lambda: flow.partition().halted not in (None, before))
    return flow.partition().halted.reason  # type: ignore[union-attr]


async def test_what_needs_no_trust_is_not_recorded() -> None:
    """An operator accepts what stands there, and what is written down shows that it is a copy: nothing is skipped, and
    what was known of it still counts."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
            partition = flow.partition()
            empty(destination)
            flow.relay.halt(partition, Halted("not_a_copy", "as if", "see"))
            await until(lambda: ledger(destination).halts)
            assert await flow.relay.resume(FIRST, accept_unproven=True) == ""
            await until(lambda: partition.phase is Phase.ACTIVE)
            assert not flow.relay.stats.skipped
        pin = ledger(destination).pin(SIDE)
        assert pin is not None
        assert pin.accepted == 0
        assert last_copied(destination) is not None


@pytest.mark.parametrize("where", ["source", "destination", "both"])
@pytest.mark.parametrize("running", [True, False])
async def test_made_anew_before_anything_was_copied(where: str, running: bool) -> None:
    """A topic without a record is deleted and made again, on one side or on both: there is nothing to protect. What the
    partition is is written down anew, and the new topic is copied from its beginning."""
    async with clusters() as (source, destination):
        source.add_topic("t")

        def anew() -> None:
            if where != "source":
                recreate(destination)
            if where != "destination":
                recreate(source)
            source.store("t", 0, *batches(5))

        async with mirroring(source, destination) as flow:
            await noted(flow)
            before = ledger(destination).pin(SIDE)
            if running:
                anew()
                flow.relay.doubt_now(flow.partition(), "test", "looked for again")
                await flow.copied()
                assert flow.log.of("begun_anew")
        if not running:
            anew()
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert len(flow.log.of("begun_anew")) == (not running)
            assert not flow.log.of("halted")
        after = ledger(destination).pin(SIDE)
        assert before is not None
        assert after is not None
        assert (before.source_id != after.source_id) == (where != "destination")
        assert (before.destination_id != after.destination_id) == (where != "source")


@pytest.mark.parametrize("trace", ["log", "start", "pin", "accepted", "group", "memory"])
async def test_made_anew_with_any_trace_of_a_copy(trace: str) -> None:
    """The same, and something says that there may have been a copy: it halts as before."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            await noted(flow)
            partition = flow.partition()
            recreate(source, *batches(5))
            match trace:
                case "log":
                    destination.store("t", 0, batch(0))
                case "start":
                    destination.store("t", 0, batch(0))
                    empty(destination)
                case "pin":
                    assert partition.claim.pin is not None
                    partition.claim.pin = replace(partition.claim.pin, copied=LastCopied(3, 0, "d", 3))
                case "accepted":
                    assert partition.claim.pin is not None
                    partition.claim.pin = replace(partition.claim.pin, accepted=3)
                case "group":
                    partition.claim.committed = Committed(3, "another", 0, "d", 3)
                case _:
                    partition.claim.begun.until = 3
            flow.relay.source._refreshed.clear()
            flow.relay.doubt_now(partition, "test", "looked for again")
            assert await flow.halted() == "recreated"


async def test_another_cluster_under_the_same_name() -> None:
    """The source's cluster id is another one than it was written down."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        source.cluster_id = "another"
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"
