"""``offsets: mapped``: topics that are made anew before anything was copied of them, or not quite before that."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from mirror.offsetmap.internal.batches import KeyValue
from mirror.relay.mapped.beginning import Beginning
from mirror.relay.partition.claim import Committed
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, batches, clusters, mirroring
from tests.relay.stage.noting import SIDE, ledger, recreate
from tests.simulation.model.broker import marker_batch

OTHERS = batches(4, first=0)
"""What somebody else has written to the destination topic before."""


async def taken_over(flow: Flow) -> None:
    """It has its place, and that is written down; nothing was there to copy."""
    await until(lambda: flow.partition().queue.copied is not None, what="a position")


def anew(source: FakeCluster, destination: FakeCluster, where: str) -> None:
    """The topic is deleted and made again, on one side or on both; then there is something to copy."""
    if where != "source":
        recreate(destination)
    if where != "destination":
        recreate(source)
    source.store("t", 0, *batches(5))


@pytest.mark.parametrize("where", ["source", "destination", "both"])
@pytest.mark.parametrize("stopped", ["killed", "in order", "never"])
async def test_made_anew_before_anything_was_copied(where: str, stopped: str) -> None:
    """There is nothing to protect: the new topic is copied from its beginning, and the next start goes on with it."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        destination.store("t", 0, *OTHERS)
        async with mirroring(source, destination, mapped=True) as flow:
            await taken_over(flow)
            if stopped == "never":
                anew(source, destination, where)
                flow.relay.doubt_now(flow.partition(), "test", "looked for again")
                await until(lambda: flow.partition().queue.acknowledged == 15, what=f"{flow.log.lines[-9:]}")
                assert flow.log.of("begun_anew")
            elif stopped == "in order":
                assert await flow.relay.drain()
        if stopped != "never":
            anew(source, destination, where)
        async with mirroring(source, destination, mapped=True) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 15, what=f"{flow.log.lines[-9:]}")
            assert not flow.log.of("halted")
            assert len(flow.log.of("begun_anew")) == (stopped != "never")
        assert destination.log("t").end == 15 + (12 if where == "source" else 0)


@pytest.mark.parametrize("trace", ["map", "log", "memory", "deleted", "cleaned", "last", "group"])
async def test_with_any_trace_of_a_copy(trace: str) -> None:
    """A batch was sent, and the checkpoint that tells of it was written or not; or its place was deleted, or cleaned
    away before others' batches or at the log's end: halt."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        async with mirroring(source, destination, mapped=True) as flow:
            await taken_over(flow)
            if trace != "group":
                source.store("t", 0, *batches(1))
                await until(lambda: flow.partition().queue.acknowledged == 3)
            if trace == "map":
                await flow.relay.durable.write_down()
        log = destination.log("t")
        if trace in ("memory", "deleted"):
            log.delete_before(log.end)
        if trace == "cleaned":
            log.store(batch(log.end))
        if trace in ("cleaned", "last"):
            del log.batches[0]
        if trace in ("log", "deleted", "cleaned", "last"):
            log.producers.clear()
        recreate(source, *batches(5))
        async with mirroring(source, destination, mapped=True, assigned=trace == "group") as flow:
            if trace == "group":
                assert flow.relay.assignment is not None
                flow.relay.assignment.assign({("t", 0)}, {("t", 0): Committed(3, "another", 0, "d", 3)})
            await until(lambda: ("t", 0) in flow.relay.partitions)
            assert await flow.halted() == "recreated"


@pytest.mark.parametrize("fenced", [True, False])
async def test_what_is_gone_behind_the_fence_was_others(*, fenced: bool) -> None:
    """A cleaner has taken others' batches behind the marker that keeps out who has written the checkpoint, or before:
    only there a copy may have stood."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        async with mirroring(source, destination, mapped=True) as flow:
            await taken_over(flow)
        # As it is written down: the partition's own is there a moment later.
        identity = ledger(destination).checkpoints(SIDE)[-1].identity
        log = destination.log("t")
        if fenced:
            log.store(marker_batch(log.end, identity.producer_id, identity.epoch + 1))
        log.store(batch(log.end))
        log.store(batch(log.end))
        del log.batches[-2]
        recreate(source, *batches(5))
        async with mirroring(source, destination, mapped=True) as flow:
            if fenced:
                await until(lambda: flow.partition().queue.acknowledged == 15, what=f"{flow.log.lines[-9:]}")
                assert flow.log.of("begun_anew")
            else:
                assert await flow.halted() == "recreated"


async def test_without_looking_two_topics_are_mixed() -> None:
    """The mutation: an empty map is taken for no copy; what was sent behind it stands in front of another topic's."""

    async def nothing(*_: object) -> list[str]:
        return []

    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        async with mirroring(source, destination, mapped=True) as flow:
            await taken_over(flow)
            source.store("t", 0, *batches(1))
            await until(lambda: flow.partition().queue.acknowledged == 3)
        recreate(source, *batches(5))
        with patch.object(Beginning, "_traces", nothing):
            async with mirroring(source, destination, mapped=True) as flow:
                await until(lambda: flow.partition().queue.acknowledged == 15)
        assert destination.log("t").end == 18


@pytest.mark.parametrize("rule", [True, False])
async def test_copies_that_were_only_counted(*, rule: bool) -> None:
    """
    1. A batch was copied, the worker killed, and the destination emptied. The next one knows of it by the leader's
       memory only, and stops in order: its map is empty.
    2. The topic is made anew: halt. Without the rule, it begins anew, as if nothing had been copied.
    """
    async with clusters() as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        async with mirroring(source, destination, mapped=True) as flow:
            await taken_over(flow)
            source.store("t", 0, *batches(1))
            await until(lambda: flow.partition().queue.acknowledged == 3)
        destination.log("t").delete_before(3)
        async with mirroring(source, destination, mapped=True) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 3)
            assert await flow.relay.drain()
        destination.log("t").producers.clear()
        recreate(source, *batches(5))
        if not rule:
            destination.remembered.append(_as_unused(destination))
        async with mirroring(source, destination, mapped=True) as flow:
            if rule:
                assert await flow.halted() == "recreated"
            else:
                await until(lambda: flow.partition().queue.acknowledged == 15)


def _as_unused(destination: FakeCluster) -> KeyValue:
    """The checkpoint as it would be, were what was counted no copy."""
    checkpoint = ledger(destination).checkpoint(SIDE)
    assert checkpoint is not None
    assert checkpoint.closed
    assert not checkpoint.unused
    return checkpoint.key(), replace(checkpoint, unused=True).value()
