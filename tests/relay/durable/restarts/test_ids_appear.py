"""Clusters that are upgraded across 2.8: their topics get ids, and are the same topics as before."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.records.builders import raw_batch
from tests.relay.holes import test_oversize as oversize
from tests.relay.stage.flows import batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, ledger, noted


@asynccontextmanager
async def without_ids() -> AsyncIterator[tuple[FakeCluster, FakeCluster]]:
    """Topic "t" on both sides, with twenty batches at the source."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        take_ids(source, destination)
        yield source, destination


def take_ids(*at: FakeCluster) -> None:
    for cluster in at:
        cluster.topics["t"].topic_id = None


def give_ids(*at: FakeCluster) -> None:
    for cluster in at:
        cluster.topics["t"].topic_id = uuid.uuid4()


@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
async def test_a_pause_stays(sides: tuple[int, ...]) -> None:
    """For whichever side gets ids. It is known as written down, and ends as ever: the topics were not replaced."""
    async with without_ids() as both:
        source, destination = both
        async with mirroring(source, destination) as flow:
            await noted(flow)
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            assert await flow.relay.drain()
        give_ids(*(both[side] for side in sides))
        source.store("t", 0, *batches(2, first=60))
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().halted or flow.partition().queue.acknowledged == 66)
            halted = flow.partition().halted
            assert halted is not None
            assert halted.reason == "paused"
            rows = len(destination.remembered)
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            assert len(destination.remembered) == rows
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            assert not pin.replaced
        assert not flow.log.of("halted")


async def test_a_halt_stays() -> None:
    """And what was due is still known. An operator ends it, and what was noted of the copy is not forgotten."""
    async with without_ids() as (source, destination):
        async with mirroring(source, destination) as flow:
            await noted(flow)
            assert await flow.relay.drain()
        log = destination.log("t")
        log.produce(raw_batch(b"x", base_offset=0))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            await until(lambda: ledger(destination).halts and ledger(destination).due(SIDE))
        log.batches.pop()
        log.end = 60
        give_ids(source, destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            assert flow.relay.pins.due.at_halt(flow.partition()) == 60
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()
            assert ledger(destination).notes(SIDE)
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            assert not pin.replaced


async def test_what_was_decided_goes_into_the_pin_with_ids() -> None:
    """An adopted beginning, accepted gaps, and others. The ids stay if a broker that is older tells none."""
    async with without_ids() as (source, destination):
        async with mirroring(source, destination) as flow:
            await noted(flow)
        pin = ledger(destination).pin(SIDE)
        assert pin is not None
        decided = replace(pin, adopted=9, adopted_epoch=0, gaps_to=6, aborted_to=3, accepted=12)
        destination.remembered.append((decided.key(), decided.value()))
        give_ids(source, destination)
        for first in (60, 63):
            source.store("t", 0, *batches(1, first=first))
            async with mirroring(source, destination) as flow:
                await noted(flow)
            now = ledger(destination).pin(SIDE)
            assert now is not None
            assert now.source_id is not None
            assert now.destination_id is not None
            same = replace(now, source_id=None, destination_id=None, at_ms=decided.at_ms, copied=decided.copied)
            assert same == decided
            take_ids(source, destination)


async def test_a_record_that_was_passed_over_at_the_end() -> None:
    """Its marker stands where the source has a record: what shows that it stands there rightly still counts."""
    async with clusters() as (source, destination):
        stored = [oversize.records(0, 3), oversize.records(3, 5), oversize.records(8, 1)]
        oversize.begin(source, destination, *stored)
        take_ids(source, destination)
        async with mirroring(source, destination, **oversize.DROP) as flow:
            await oversize.over(flow)
            assert await flow.relay.drain()
        give_ids(source, destination)
        source.store("t", 0, oversize.records(9, 3))
        async with mirroring(source, destination, **oversize.DROP) as flow:
            await oversize.over(flow)
            oversize.assert_passed(source, destination)
            assert not flow.log.of("halted")
