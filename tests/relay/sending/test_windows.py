"""Late batches of an end that the source has lost, and right ones behind them.

The owner's batches at these offsets have the same sequences, so the destination takes them for repeats. Whatever the
owner sees of that, the next look finds it.
"""

import asyncio
from collections.abc import Sequence

import pytest

from mirror.reasons import HaltReason
from mirror.relay.locate.resync import Resync
from mirror.relay.partition.phases import Phase
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, batches, clusters, copies, fill, mirroring

LOST = b"of a log that the source has lost"


def late(source: FakeCluster, destination: FakeCluster, some: Sequence[bytes]) -> None:
    """These come now, behind what was copied first."""
    for one in copies(list(some), cluster_id=source.cluster_id, sequence=6):
        assert destination.log("t").produce(one)[0] == 0
    destination.changed()


async def three_under_way(flow: Flow) -> faults.Fault:
    """The source's batches at 6, 9 and 12 are sent, and the answer to the first one is held."""
    held = flow.destination.next("Produce", faults.held())
    flow.source.store("t", 0, *batches(3, first=6))
    await held.came.wait()
    await until(lambda: len(flow.partition().queue.in_flight) == 3)
    return held


async def halts(flow: Flow) -> None:
    await until(lambda: flow.partition().halted is not None)
    halted = flow.partition().halted
    assert halted is not None
    assert halted.reason == HaltReason.NOT_A_COPY.slug
    assert "the batches at offset" in halted.detail


async def test_the_second_repeat_has_other_records() -> None:
    """The first one has the right ones, and the answer to the second comes in doubt."""
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination, rewrites=True) as flow:
            await flow.copied()
            late(source, destination, [batch(6), batch(9, payload=LOST)])
            (await three_under_way(flow)).open()
            await halts(flow)


@pytest.mark.parametrize("rule", [True, False])
async def test_the_answers_are_lost(rule: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. The connection breaks before any answer. The last batch is right, two before it are not.
    2. Mutation: only the last batch is compared. The wrong ones stay, and nobody hears of it.
    """
    if not rule:

        async def nothing(*_: object) -> None:
            pass

        monkeypatch.setattr(Resync, "_prove_window", nothing)
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination, rewrites=True) as flow:
            await flow.copied()
            late(source, destination, [batch(6, payload=LOST), batch(9, payload=LOST)])
            held = await three_under_way(flow)
            for one in copies(batches(1, first=12), cluster_id=source.cluster_id, sequence=12):
                assert destination.log("t").produce(one)[0] == 0
            destination.drop(1)
            held.open()
            if rule:
                await halts(flow)
            else:
                await until(lambda: flow.partition().queue.acknowledged == 15)
                assert flow.partition().halted is None


async def test_it_is_stopped_just_then() -> None:
    """In order. The next start finds it."""
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination, rewrites=True) as flow:
            await flow.copied()
            late(source, destination, [batch(6, payload=LOST)])
            held = await three_under_way(flow)
            drain = asyncio.get_running_loop().create_task(flow.relay.drain())
            await asyncio.sleep(0.02)
            held.open()
            await drain
        async with mirroring(source, destination, rewrites=True) as flow:
            await halts(flow)


async def test_one_worker_alone() -> None:
    """What it had under way when its connection broke comes late, and the source has lost its end meanwhile."""
    async with clusters() as (source, destination):
        fill(source, count=2)
        async with mirroring(source, destination, rewrites=True) as flow:
            await flow.copied()
            flow.relay.doubt_now(flow.partition(), "connection_lost", "as if its connection had broken")
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            late(source, destination, [batch(6), batch(9), batch(12, payload=LOST), batch(15, payload=LOST)])
            source.store("t", 0, *batches(5, first=6))
            await halts(flow)
