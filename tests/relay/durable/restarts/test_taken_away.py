"""Keys of the internal topic that several owners write: one takes away only what it has seen, not what came since."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.pins import LastCopied, Note
from mirror.relay.durable import due
from mirror.relay.durable.notes import Notes
from mirror.relay.halts import Halted
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from tests.fakes.loop import some_turns, until
from tests.fakes.state import MemoryState
from tests.records.builders import raw_batch
from tests.relay.durable.restarts.test_kept_halts import owners
from tests.relay.stage.flows import Flow, batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, ledger, noted

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
        fill(source)
        destination.add_topic("t")
        destination.log("t").produce(raw_batch(b"x", base_offset=0))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            await until(lambda: ledger(destination).halts)
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
