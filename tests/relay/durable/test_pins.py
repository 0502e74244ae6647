"""What outlives every process: topic ids, halts, what was copied last. Each test plays two lives of a mirror."""

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.errors import NetworkError
from mirror.offsetmap.entries.pins import LastCopied, Note, Pin
from mirror.offsetmap.internal.ledger import Ledger
from mirror.relay.assignment import read_committed
from mirror.relay.durable import pins, writer
from mirror.relay.halts import Halted
from mirror.relay.partition.claim import Committed
from mirror.relay.partition.phases import Phase
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.flows import Flow, batch, batches, clusters, fill, mirroring
from tests.relay.noting import FIRST, NEVER_S, SIDE, empty, last_copied, ledger, noted, recreate


async def test_what_a_partition_is_is_written_down_first() -> None:
    """Before the first batch; and not again at the next start. A clean stop notes what was copied last."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            here, there = source.topics["t"].topic_id, destination.topics["t"].topic_id
            assert here is not None
            assert there is not None
            assert (pin.source_id, pin.destination_id) == (here.hex, there.hex)
            assert pin.source_cluster == source.cluster_id
            assert await flow.relay.drain()
            copied = last_copied(destination)
            assert copied is not None
            assert (copied.offset, copied.digest_at) == (60, 60)
        written = len(destination.remembered)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert len(destination.remembered) == written


async def test_nothing_is_written_before_it_is_written_down() -> None:
    """The internal topic does not take it: the partition waits, and its log stays empty."""
    async with clusters() as (source, destination):
        fill(source)
        with patch.object(pins.Pins, "pin", _refuse):
            async with mirroring(source, destination) as flow:
                await until(lambda: flow.log.of("position_unknown"))
                assert destination.log("t").end == 0
                assert flow.partition().phase is Phase.LOCATING


async def _refuse(*_: Any, **__: Any) -> None:
    raise NetworkError("not now")


async def test_two_owners_at_once() -> None:
    """
    1. Two workers locate a partition that nobody had before. One of them copies and notes it; then what the other
       has to say comes late, its pin and a note of where it began, and one from an earlier leader.
    2. The destination's records expire. What was noted still counts: it goes on.
    """
    async with clusters() as (source, destination):
        fill(source)
        source.log("t").epoch = 1
        async with mirroring(source, destination) as flow:
            await noted(flow)
        pin = ledger(destination).pin(SIDE)
        assert pin is not None
        late = Note(
            side=SIDE,
            writer="late",
            source_id=pin.source_id,
            destination_id=pin.destination_id,
            copied=LastCopied(0, 1),
        )
        earlier = replace(late, writer="earlier", copied=LastCopied(90, 0))
        destination.remembered += [(each.key(), each.value()) for each in (replace(pin, copied=None), late, earlier)]
        source.store("t", 0, *batches(5, first=60))
        empty(destination)
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 75)
            await flow.relay.durable.write_down()
        (note,) = ledger(destination).notes(SIDE)
        assert note.copied.offset == 75
        destination.remembered.append((pin.key(), replace(pin, copied=None).value()))
        empty(destination)
        with patch.object(Ledger, "notes", lambda *_: []):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "unproven", "the mutation: what counts is the pin that came last"


async def test_a_late_note_says_nothing_of_other_topics() -> None:
    """The operator has resumed over another topic: a note of the one before, from a worker that has lost the partition,
    neither takes that back nor counts as a note of this one."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        (before,) = ledger(destination).notes(SIDE)
        recreate(source, *batches(30))
        empty(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(FIRST, accept_unproven=True) == ""
            await until(lambda: flow.partition().queue.acknowledged == 90)
        assert ledger(destination).notes(SIDE) == []
        destination.remembered.append((before.key(), before.value()))
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            pin = flow.partition().claim.pin
            assert pin is not None
            assert pin.copied is None


async def test_what_both_sides_lost_was_copied_again() -> None:
    """
    1. Source and destination lose their last batches in unclean elections. What the source has there since is copied.
    2. The destination's records expire. Of what this process remembers of the last offset, the newer batch counts.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            destination.log("t").truncate(57)
            source.log("t").truncate(57)
            source.store("t", 0, batch(57, 3, b"other" * 9, leader_epoch=1))
            flow.relay.doubt_now(flow.partition(), "test", "looked for again")
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            await flow.copied()
            assert [each.next_offset for each in flow.partition().cursor.marks][-2:] == [60]
            empty(destination)
            source.store("t", 0, batch(60, leader_epoch=1))
            flow.relay.doubt_now(flow.partition(), "test", "looked for again")
            await until(lambda: flow.partition().queue.acknowledged == 63 or flow.partition().halted)
            assert flow.partition().halted is None


# Topics made anew, and sources that lost what was copied.


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
        with patch.object(pins, "vouch", _vouches):
            async with mirroring(source, destination) as flow:
                await until(lambda: flow.partition().queue.acknowledged == 90)
                assert destination.log("t").start == 60
                assert flow.log.of("prefix_unproven")


async def _vouches(*_: Any) -> int:
    return -1


@pytest.mark.parametrize("noted_before", [True, False])
async def test_a_source_that_was_truncated_and_grew_again(noted_before: bool) -> None:
    """
    1. All is copied, and the destination's records expire. The source loses its end in an unclean election, and grows
       past where it ended, under the same topic id.
    2. What was copied last is not there any more: halt. Without such a note, too, because nothing shows that it is.
    """
    async with clusters() as (source, destination):
        fill(source)
        with patch.multiple(writer, FIRST_NOTE_S=NEVER_S, NOTE_EVERY_S=NEVER_S):
            async with mirroring(source, destination) as flow:
                await flow.copied()
                if noted_before:
                    await flow.relay.durable.write_down()
        source.log("t").truncate(48)
        source.store("t", 0, *(batch(at, 3, b"other" * 9, leader_epoch=1) for at in range(48, 90, 3)))
        empty(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == ("source_truncated" if noted_before else "unproven")
            assert destination.log("t").end == 60


def tells_of_a_batch(note: LastCopied | None) -> bool:
    """Not of a leader epoch alone."""
    return note is not None and bool(note.digest)


async def test_the_first_note_comes_soon() -> None:
    """The destination keeps old records for a moment only, and the worker is killed just then: what was copied first is
    written down by then, so that the next one goes on. (Without that note it halts, see above.)"""
    async with clusters() as (source, destination):
        fill(source)
        with patch.multiple(writer, FIRST_NOTE_S=0.01, NOTE_EVERY_S=NEVER_S):
            async with mirroring(source, destination) as flow:
                await flow.copied()
                await until(lambda: tells_of_a_batch(last_copied(destination)))
                written = len(destination.remembered)
                source.store("t", 0, *batches(5, first=60))
                await flow.copied()
                await asyncio.sleep(0.05)
                assert len(destination.remembered) == written  # not again; then as seldom as ever
        empty(destination)
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 75)
            assert not flow.log.of("halted")


@pytest.mark.parametrize("truncated", [False, True])
async def test_the_first_note_does_not_wait_for_a_whole_record_set(truncated: bool) -> None:
    """
    1. The same, where the first record set is not through yet: of old records, one batch at a time is under way. What
       is through is noted, by its leader epoch alone, and the next one goes on.
    2. Unless the source has lost some of that since: halt.
    """
    async with clusters() as (source, destination):
        fill(source)
        with patch.multiple(writer, FIRST_NOTE_S=0.01, NOTE_EVERY_S=NEVER_S):
            async with mirroring(source, destination) as flow:
                for fault in (faults.Fault(), faults.Fault(), faults.held()):
                    destination.next("Produce", fault)
                await until(lambda: last_copied(destination) == LastCopied(6, 0))
                assert flow.partition().queue.acknowledged == 6
        destination.forgive()
        log = destination.log("t")
        log.truncate(6)
        empty(destination)
        if truncated:
            source.log("t").truncate(3)
            source.store("t", 0, *(batch(at, 3, b"other" * 9, leader_epoch=1) for at in range(3, 90, 3)))
        async with mirroring(source, destination) as flow:
            if truncated:
                assert await flow.halted() == "source_truncated"
            else:
                await until(lambda: flow.partition().queue.acknowledged == 60)
                assert not flow.log.of("halted")


async def test_a_source_truncated_while_it_runs() -> None:
    """The same without a restart: the leader's new epoch is doubt, and what this process remembers is asked."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            empty(destination)
            source.log("t").truncate(48)
            source.store("t", 0, *(batch(at, 3, b"other" * 9, leader_epoch=1) for at in range(48, 90, 3)))
            assert await flow.halted() == "source_truncated"
            assert destination.log("t").end == 60


@pytest.mark.parametrize("asked", [True, False])
async def test_a_source_truncated_before_a_mere_takeover(asked: bool) -> None:
    """
    1. The group takes the partition away and gives it back: what was committed comes along. In between, the source has
       lost its end and grown again, and the destination's records have expired: halt.
    2. Without asking the source for it, four of its batches never arrive.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment = flow.relay.assignment
            assert assignment is not None
            assignment.assign({FIRST})
            await flow.copied()
            committable = (await assignment.revoke({FIRST}, 5))[FIRST]
            empty(destination)
            source.log("t").truncate(48)
            source.store("t", 0, *(batch(at, 3, b"other" * 9, leader_epoch=1) for at in range(48, 90, 3)))
            committed = {FIRST: read_committed(committable.offset, committable.metadata)}
            if asked:
                assignment.assign({FIRST}, committed)
                assert await flow.halted() == "source_truncated"
                assert destination.log("t").end == 60
                return
            with patch.object(pins, "vouch", _vouches):
                assignment.assign({FIRST}, committed)
                await until(lambda: flow.relay.partitions[FIRST].queue.acknowledged == 90)
                assert destination.log("t").start == 60


async def test_a_healthy_source_goes_on() -> None:
    """The destination's records expired, and nothing else happened: as before, with what was noted, at a start."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        empty(destination)
        source.store("t", 0, *batches(5, first=60))
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 75)
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
            assert await flow.relay.resume(("t", 0), accept_unproven=True) in ("", "it is locating, not halted")


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
                flow.relay.source.refreshed_at = 0.0
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
            flow.relay.source.refreshed_at = 0.0
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


# Halts.


def test_a_pin_of_another_version_is_passed_over() -> None:
    """What this program does not know does no harm."""
    found = Ledger()
    found.apply(b'{"kind":"something else","topic":"t","partition":0,"into":"t"}', b"{}")
    assert found.pin(SIDE) is None
    pin = Pin(side=SIDE, source_id=None, destination_id=None)
    found.put(pin)
    assert found.pin(SIDE) == pin
