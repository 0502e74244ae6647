"""Keys of the internal topic that several owners write: one takes away only what it has seen, not what came since."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.errors import NetworkError
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.pins import KeptHalt, LastCopied, Note
from mirror.relay.durable import due
from mirror.relay.durable.notes import Notes
from mirror.relay.halts import Halted
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from tests.fakes.loop import some_turns, until
from tests.fakes.state import MemoryState
from tests.relay.durable.restarts.test_kept_halts import owners
from tests.relay.stage.flows import Flow, batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, halted_by_another, ledger, noted

CLOCK = [0.0]


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read counts until the clock is moved."""
    CLOCK[0] = 0.0
    monkeypatch.setattr(due, "since_boot", lambda: CLOCK[0])


class Held:
    """A write to the internal topic of this flow that waits, as behind others or in a process that stands still, for
    longer than what was known counts."""

    def __init__(self, flow: Flow, *, forgets: bool = False) -> None:
        """``forgets``: the first write that takes something away; else the first one at all."""
        self.came, self.gate = asyncio.Event(), asyncio.Event()
        self._save = flow.relay.durable.state.save
        self._forgets = forgets

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), **rest: Any) -> None:
        entries, forget = list(entries), list(forget)
        if not self.came.is_set() and (forget or not self._forgets):
            self.came.set()
            await self.gate.wait()
            CLOCK[0] += 3600
        await self._save(entries, forget=forget, **rest)


async def reached(flow: Flow, offset: int) -> None:
    await until(lambda: FIRST in flow.relay.partitions and flow.partition().queue.acknowledged == offset)


async def test_a_note_that_its_writer_has_written_anew() -> None:
    """
    1. One worker has noted a copy up to 60, and lost the partition. Another has copied up to 63, and is about to note
       that and to take the first note away; it stands still.
    2. The first has the partition again, and notes 66. Then the other goes on: that note stays.
    """
    async with clusters() as (source, destination):
        fill(source)
        with owners():
            async with (
                mirroring(source, destination, assigned=True) as first,
                mirroring(source, destination, assigned=True, start=False) as second,
            ):
                ours, theirs = first.relay.assignment, second.relay.assignment
                assert ours is not None
                assert theirs is not None
                ours.assign({FIRST})
                await noted(first)
                ours.lose({FIRST})
                source.store("t", 0, *batches(1, first=60))
                await second.relay.start()
                theirs.assign({FIRST})
                await reached(second, 63)
                held = Held(second)
                with patch.object(second.relay.durable.state, "save", held.save):
                    late = asyncio.create_task(second.relay.durable.write_down())
                    await held.came.wait()
                    source.store("t", 0, *batches(1, first=63))
                    ours.assign({FIRST})
                    await reached(first, 66)
                    await first.relay.durable.write_down()
                    held.gate.set()
                    await late
        assert max(each.copied.offset for each in ledger(destination).notes(SIDE)) == 66


async def test_what_was_due_at_a_halt_of_the_next_owner() -> None:
    """
    1. A partition has halted at 0, was resumed, and is copied: its worker is about to take away what was due at 0.
    2. It stands still. The next owner copies on, and halts at 63. Then the first goes on: what was due at 63 stays.
    """
    async with clusters() as (source, destination):
        fill(source)
        with owners():
            async with mirroring(source, destination) as first:
                await reached(first, 60)
                await MemoryState(destination.remembered).put(due_at(first, 0))
                await first.relay.durable.state.load()
                held = Held(first, forgets=True)
                with patch.object(first.relay.durable.state, "save", held.save):
                    late = asyncio.create_task(first.relay.durable.write_down())
                    await asyncio.wait([asyncio.create_task(held.came.wait()), late], return_when="FIRST_COMPLETED")
                    source.store("t", 0, *batches(1, first=60))
                    async with mirroring(source, destination) as second:
                        await reached(second, 63)
                        second.relay.halt(second.partition(), Halted("foreign_writer", "d", "r"))
                        await until(lambda: (note := ledger(destination).due(SIDE)) and note.copied.offset == 63)
                        held.gate.set()
                        await late
                        found = ledger(destination).due(SIDE)
        assert found is not None
        assert found.copied.offset == 63


def due_at(flow: Flow, offset: int) -> Note:
    """What was due when the partition halted there."""
    source_id, destination_id = flow.relay.pins.ids(flow.partition())
    return Note(
        subject=SIDE,
        writer="halted",
        source_id=source_id,
        destination_id=destination_id,
        copied=LastCopied(offset),
        at_ms=1,
    )


async def test_what_was_due_is_taken_away_by_the_owner_alone() -> None:
    """The next owner's copy has begun again, into a topic that was made anew, and halted before the offset up to which
    the former one has copied: that is no reason to take away what was due then."""
    async with clusters() as (source, destination):
        fill(source)
        with owners() as epochs:
            async with mirroring(source, destination) as flow:
                await reached(flow, 60)
                (name,) = epochs
                epochs[name] += 1
                await MemoryState(destination.remembered).put(due_at(flow, 30))
                await flow.relay.durable.state.load()
                await flow.relay.durable.write_down()
                assert ledger(destination).due(SIDE) is not None
                epochs[name] -= 1
                await flow.relay.durable.write_down()
                assert ledger(destination).due(SIDE) is None


async def test_all_notes_are_forgotten_by_the_owner_alone() -> None:
    """Both sides have lost their end, and a worker finds that which has lost the partition: what its next owner has
    noted since stays. It leaves the partition to the other."""
    write_anew, by = Notes.write_anew, []

    async def seen(self: Notes, partition: Partition, copied: LastCopied) -> None:
        by.append(partition.claim.ownership == (7, epochs[name]))
        await write_anew(self, partition, copied)

    async with clusters() as (source, destination):
        fill(source, count=4)
        with owners() as epochs:
            async with mirroring(source, destination) as flow:
                await reached(flow, 12)
                await flow.relay.durable.write_down()
                (name,) = epochs
                destination.log("t").truncate(6)
                source.log("t").truncate(6)
                source.store("t", 0, *(batch(at, payload=b"other", leader_epoch=1) for at in (6, 9)))
                epochs[name] += 1
                with patch.object(Notes, "write_anew", seen):
                    flow.relay.doubt_now(flow.partition(), "test", "")
                    await until(lambda: by)
        assert by == [True]


async def test_a_halt_that_is_gone_over() -> None:
    """``on.gap: continue`` covers a halt. While that is taken away, the partition halts anew elsewhere: it stays so."""
    async with clusters() as (source, destination):
        await halted_by_another(source, destination)
        (halt,) = ledger(destination).halts
        await MemoryState(destination.remembered).put(replace(halt, reason="retention_overtook"))
        async with mirroring(source, destination, start=False, accept_gaps=True) as flow:
            held = Held(flow, forgets=True)
            with patch.object(flow.relay.durable.state, "save", held.save):
                await flow.relay.start()
                await until(lambda: held.came.is_set() or flow.partition().phase is Phase.HALTED)
                await MemoryState(destination.remembered).put(replace(halt, reason="corrupt"))
                held.gate.set()
                await some_turns()
                assert [each.reason for each in ledger(destination).halts] == ["corrupt"]


class Unanswered:
    """The internal topic, as this flow has it: the first write that takes something away lands, and its answer is lost.
    Without ``may``, it is repeated by itself (``InternalTopic.save``), once ``gate`` is open."""

    def __init__(self, flow: Flow) -> None:
        self.came, self.gate = asyncio.Event(), asyncio.Event()
        self._save, self._topic = flow.relay.durable.state.save, MemoryState(flow.destination.remembered)

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), **rest: Any) -> None:
        entries, forget = list(entries), list(forget)
        if forget and not self.came.is_set():
            await self._topic.save(entries, forget=forget, **rest)
            self.came.set()
            await self.gate.wait()
            if "may" in rest:
                raise NetworkError("no answer")
        await self._save(entries, forget=forget, **rest)


@asynccontextmanager
async def halting(*, paused: bool, told: bool = True) -> AsyncIterator[Flow]:
    """A flow whose partition has halted, or is paused, which is written down. ``told``: the coordinator tells whose it
    is (since Kafka 3.0)."""
    async with clusters() as (source, destination):
        fill(source)
        with owners() if told else nullcontext():
            async with mirroring(source, destination) as flow:
                await reached(flow, 60)
                if paused:
                    assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
                else:
                    flow.relay.halt(flow.partition(), Halted("foreign_writer", "d", "r"))
                await until(lambda: ledger(destination).halts and ledger(destination).due(SIDE))
                yield flow


@pytest.mark.parametrize("anew", ["corrupt", "paused"])
@pytest.mark.parametrize(("paused", "told"), [(False, True), (True, True), (False, False)])
async def test_a_resume_does_not_end_a_halt_of_later(anew: str, *, paused: bool, told: bool) -> None:
    """
    1. A partition is resumed. That is written, and the answer lost.
    2. Another worker takes the partition over, and it halts there, or is paused there. The first worker tries again:
       that halt stays, and the operator is told that the resume has ended something else.
    """
    async with halting(paused=paused, told=told) as flow:
        lost = Unanswered(flow)
        with patch.object(flow.relay.durable.state, "save", lost.save):
            resuming = asyncio.create_task(flow.relay.resume(FIRST))
            await lost.came.wait()
            async with mirroring(flow.source, flow.destination) as second:
                await reached(second, 60)
                if anew == "paused":
                    await asyncio.sleep(0.002)  # a halt is known by when it was
                    assert await second.relay.pause_all([FIRST]) == {FIRST: ""}
                else:
                    second.relay.halt(second.partition(), Halted("corrupt", "d", "r"))
                await until(lambda: ledger(flow.destination).halts)
                lost.gate.set()
                why_not = await resuming
                await some_turns()
                assert [each.reason for each in ledger(flow.destination).halts] == [anew]
        assert "another worker" in why_not
        assert flow.partition().halted is not None


@pytest.mark.parametrize("paused", [False, True])
async def test_a_resume_is_tried_again(*, paused: bool) -> None:
    """Its answer was lost, and nobody else has the partition: it goes on."""
    async with halting(paused=paused) as flow:
        lost = Unanswered(flow)
        lost.gate.set()
        with patch.object(flow.relay.durable.state, "save", lost.save):
            assert await flow.relay.resume(FIRST) == ""
        assert not ledger(flow.destination).halts
        await until(lambda: flow.partition().phase is Phase.ACTIVE)


async def test_a_resume_ends_a_halt_that_was_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The halt was sent, and its answer not read yet, when an operator resumed: it is our own."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await reached(flow, 60)
            save, came = flow.relay.durable.state.save, asyncio.Event()

            async def saves(entries: Iterable[Entry], **rest: Any) -> None:
                entries = list(entries)
                if any(isinstance(each, KeptHalt) for each in entries) and not came.is_set():
                    destination.remembered.extend((each.key(), each.value()) for each in entries)
                    came.set()
                    await asyncio.Event().wait()
                await save(entries, **rest)

            monkeypatch.setattr(flow.relay.durable.state, "save", saves)
            flow.relay.halt(flow.partition(), Halted("foreign_writer", "d", "r"))
            await came.wait()
            assert await flow.relay.resume(FIRST) == ""
            assert not ledger(destination).halts


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("ends", ["cancelled", "failed"])
async def test_a_resume_that_ends_while_its_write_is_under_way(ends: str, *, paused: bool) -> None:
    """It stays halted here. That the write has landed is not known: the halt is written down again, with the same
    reason."""
    async with halting(paused=paused) as flow:
        (before,) = ledger(flow.destination).halts
        lost = Unanswered(flow)

        async def away() -> None:
            raise NetworkError("away")

        with patch.object(flow.relay.durable.state, "save", lost.save):
            resuming = asyncio.create_task(flow.relay.resume(FIRST))
            await lost.came.wait()
            assert not ledger(flow.destination).halts
            if ends == "cancelled":
                resuming.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await resuming
            else:
                with patch.object(flow.relay.durable.state, "load", away):
                    lost.gate.set()
                    with pytest.raises(NetworkError):
                        await resuming
            assert flow.partition().halted is not None
            await until(lambda: ledger(flow.destination).halts)
        (after,) = ledger(flow.destination).halts
        assert after.reason == before.reason


@pytest.mark.parametrize("reason", ["foreign_writer", "paused"])
async def test_a_resume_does_not_end_a_halt_that_nobody_has_seen(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is resumed that is copied; while the topics are looked at, it halts: the operator is told that."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await reached(flow, 60)
            look = flow.relay.find_topics

            async def looks() -> int:
                flow.relay.halt(flow.partition(), Halted(reason, "d", "r"))
                return await look()

            monkeypatch.setattr(flow.relay, "find_topics", looks)
            assert "it has halted only now" in await flow.relay.resume(FIRST)
            assert flow.partition().halted is not None
            await until(lambda: ledger(destination).halts)
            monkeypatch.undo()
            assert await flow.relay.resume(FIRST) == ""
