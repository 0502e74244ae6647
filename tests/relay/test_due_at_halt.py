"""Records that a halt was about, of a partition of which nothing was copied, and that the source has deleted since."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from mirror.net.log import PartitionLog
from mirror.relay.pins import Pins
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.records.builders import raw_batch
from tests.relay.flows import Flow, batch, batches, clusters, mirroring
from tests.relay.noting import FIRST, ledger
from tests.relay.test_verdicts import LARGE, set_config

DELETED = "retention_overtook"


@pytest.fixture(autouse=True)
def trims(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeCluster]]:
    """The destination that is put in here moves the start of its log."""
    there: list[FakeCluster] = []

    async def delete_before(self: PartitionLog, offset: int) -> None:
        there[0].log("t").delete_before(offset)

    monkeypatch.setattr(PartitionLog, "delete_before", delete_before)
    return iter([there])


def large(source: FakeCluster, destination: FakeCluster) -> None:
    """The first batch is larger than the destination takes; ten more follow."""
    source.add_topic("t", configs={"max.message.bytes": str(LARGE)})
    destination.add_topic("t")
    source.store("t", 0, batch(0, payload=bytes(1_500_000)), *batches(10, first=3))


def told(flow: Flow) -> list[tuple[int, int, str]]:
    return [(each.first, each.next, each.reason) for each in flow.relay.stats.skipped]


async def assert_skipped(flow: Flow, first: int, after: int) -> None:
    """The copy begins at ``after``; what was due before is told, counted and written down, once."""
    await flow.copied()
    assert flow.destination.log("t").start == after
    assert told(flow) == [(first, after, DELETED)]
    (line,) = flow.log.of("skipped")
    assert f"offsets {first} to {after - 1} of the source" in line["detail"]
    found = [(each.start, each.end, each.cause) for each in ledger(flow.destination).skipped()]
    assert found == [(first, after, DELETED)]


@pytest.mark.parametrize("heals", [False, True])
async def test_what_the_source_deletes_while_it_is_halted(trims: Iterator[list[FakeCluster]], *, heals: bool) -> None:
    """
    1. Nothing is copied: the first batch is too large. The source deletes it, and what follows.
    2. Resumed, or healed, the copy begins behind that, and it is told; a restart tells it once.
    """
    async with clusters() as (source, destination):
        next(trims).append(destination)
        large(source, destination)
        async with mirroring(source, destination, refresh_topics_interval_ms=20 if heals else 600_000) as flow:
            assert await flow.halted() == "too_large"
            source.log("t").delete_before(9)
            set_config(destination, "max.message.bytes", str(LARGE))
            if not heals:
                assert await flow.relay.resume(FIRST) == ""
            await assert_skipped(flow, 0, 9)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert told(flow) == [(0, 9, DELETED)]


@pytest.mark.parametrize("durable", [False, True])
async def test_with_a_restart_in_between(trims: Iterator[list[FakeCluster]], *, durable: bool) -> None:
    """The same, with halts of both kinds."""
    reason = "sparse_batch" if durable else "too_large"
    async with clusters() as (source, destination):
        next(trims).append(destination)
        if durable:
            source.add_topic("t")
            sparse = raw_batch(b"x", base_offset=0, leader_epoch=0, last_offset_delta=2, record_count=2)
            source.store("t", 0, sparse, *batches(10, first=3))
        else:
            large(source, destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == reason
            await until(lambda: ledger(destination).notes(flow.partition().side))
            assert await flow.relay.drain()
        source.log("t").delete_before(9)
        async with mirroring(source, destination) as flow:
            if durable:
                assert await flow.halted() == reason
                assert await flow.relay.resume(FIRST) == ""
            await assert_skipped(flow, 0, 9)


async def test_a_first_copy_skips_nothing(trims: Iterator[list[FakeCluster]]) -> None:
    """What a source had deleted before anything halted was never due; nor was what another topic had at a halt."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        source.store("t", 0, *batches(10))
        source.log("t").delete_before(9)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert told(flow) == []
            assert not flow.log.of("skipped")


async def test_another_topic(trims: Iterator[list[FakeCluster]]) -> None:
    """The source's topic was made anew while the partition was halted: what was due is not of the new one."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        large(source, destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "too_large"
            await until(lambda: ledger(destination).notes(flow.partition().side))
            del source.topics["t"]
            source.add_topic("t")
            source.store("t", 0, *batches(10))
            source.log("t").delete_before(9)
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()
            assert told(flow) == []


async def test_without_the_rule_they_are_gone_without_a_word(trims: Iterator[list[FakeCluster]]) -> None:
    """The mutation: what was due when it halted is not remembered."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        large(source, destination)
        with patch.object(Pins, "due_at_halt", lambda *_: -1):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "too_large"
                source.log("t").delete_before(9)
                set_config(destination, "max.message.bytes", str(LARGE))
                assert await flow.relay.resume(FIRST) == ""
                await flow.copied()
                assert told(flow) == []
