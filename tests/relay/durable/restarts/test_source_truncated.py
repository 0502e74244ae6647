"""Sources that lost what was copied: the note of what was copied last shows it. Each test plays two lives."""

import asyncio
from unittest.mock import patch

import pytest

from mirror.offsetmap.entries.pins import LastCopied
from mirror.relay.assignment import read_committed
from mirror.relay.durable import notes, writer
from tests.fakes import faults
from tests.fakes.loop import until
from tests.relay.stage.flows import batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, NEVER_S, empty, last_copied, noted, vouches


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
                for fault in (faults.Fault(), faults.held()):
                    destination.next("Produce", fault)
                await until(lambda: last_copied(destination) == LastCopied(3, 0))
                assert flow.partition().queue.acknowledged == 3
        destination.forgive()
        log = destination.log("t")
        log.truncate(3)
        empty(destination)
        if truncated:
            source.log("t").truncate(0)
            source.store("t", 0, *(batch(at, 3, b"other" * 9, leader_epoch=1) for at in range(0, 90, 3)))
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
            with patch.object(notes, "vouch", vouches):
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
