"""What the internal topic is told, in which order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mirror.net.errors import ConnectionLost
from mirror.relay.durable.skips import Skips
from mirror.relay.partition.claim import Committed
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batches, clusters, fill, mirroring
from tests.relay.stage.noting import SIDE, ledger

GAP, END = (6, 20), 26


@asynccontextmanager
async def over_a_gap() -> AsyncIterator[tuple[FakeCluster, Flow]]:
    """``offsets: mapped`` and ``on.gap: continue``: offsets 6 to 19 have no batch."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(2), *batches(2, first=20))
        async with mirroring(source, destination, mapped=True, accept_gaps=True) as flow:
            yield destination, flow


def checkpoint(destination: FakeCluster) -> int:
    found = ledger(destination).checkpoint(SIDE)
    return -1 if found is None else found.source_offset


def ranges(destination: FakeCluster) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in ledger(destination).skipped()]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ranges cannot be written down, until this is called."""
    write = Skips.write
    asked = asyncio.Event()

    async def maybe(self: Skips, *arguments: Any, **rest: Any) -> None:
        if not asked.is_set():
            raise ConnectionLost("the destination is gone")
        await write(self, *arguments, **rest)

    monkeypatch.setattr(Skips, "write", maybe)
    return asked.set


async def test_no_checkpoint_before_the_ranges_that_it_passes_over(refused: Callable[[], None]) -> None:
    """
    1. All is copied, over a gap, which cannot be written down as skipped: no checkpoint says that it was passed.
       (A start from there would have no reason to tell it.)
    2. It can: first the range is there, then the checkpoint behind it.
    """
    async with over_a_gap() as (destination, flow):
        await until(lambda: flow.partition().queue.acknowledged == END)
        await flow.relay.durable.write_down()
        assert ranges(destination) == []
        assert checkpoint(destination) <= GAP[0]
        refused()
        await flow.relay.durable.write_down()
        assert ranges(destination) == [GAP]
        assert checkpoint(destination) == END
        assert len(flow.log.of("skipped")) == 1


async def test_two_workers_begin_at_the_same_time() -> None:
    """
    1. Both find an empty internal topic. One copies a partition and commits; then the group gives it to the other one.
       Nothing was lost, and nothing is said.
    2. The topic loses everything while nobody runs: the next worker says so, once.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        async with mirroring(source, destination, assigned=True) as other:
            async with mirroring(source, destination, assigned=True) as first:
                assert first.relay.assignment is not None
                first.relay.assignment.assign({("t", 0), ("t", 1)})
                await first.copied()
                committed = {key: Committed(*each) for key, each in first.relay.committable().items()}
                assert all(each.digest for each in committed.values())
            assert other.relay.assignment is not None
            other.relay.assignment.assign(committed, committed)
            await other.copied()
            assert not other.log.of("state_lost")
        destination.remembered.clear()
        async with mirroring(source, destination, assigned=True) as again:
            assert again.relay.assignment is not None
            again.relay.assignment.assign(committed, committed)
            await again.copied()
            assert len(again.log.of("state_lost")) == 1
