"""The source's end goes on being learned of partitions that stand still, and their last position stays known."""

import asyncio

import pytest

from mirror.relay.partition.phases import Phase
from mirror.relay.watch import ends
from mirror.relay.watch.ends import SourceEnds
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batches, clusters, mirroring


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "LOOK_EVERY_S", 0.02)


async def halt_with_records_behind(flow: Flow) -> None:
    """30 records are copied; then the destination refuses for good, and 300 more come."""
    flow.source.store("t", 0, *batches(10))
    await flow.copied()
    flow.destination.next("Produce", faults.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    flow.source.store("t", 0, *batches(1, first=30))
    assert await flow.halted()
    flow.source.store("t", 0, *batches(99, first=33))


async def test_behind_a_halt() -> None:
    """What came after the halt lags, too: 300 records of it are not 0."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            await halt_with_records_behind(flow)
            await until(lambda: flow.partition().lag == 300)
            assert flow.partition().position == 30
            assert flow.relay.lag_records == 300


async def test_while_it_is_located() -> None:
    """The destination answers nothing any more: the position is the last known one, the end is that of now."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(10))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            for broker in destination.brokers:
                await destination.stop(broker)
            source.store("t", 0, *batches(100, first=30))
            await until(lambda: flow.partition().phase is Phase.LOCATING)
            source.store("t", 0, *batches(100, first=330))
            await until(lambda: flow.partition().lag == 600)
            assert flow.partition().phase is Phase.LOCATING


async def test_another_leader() -> None:
    """A partition that stands still is led by another broker: it is asked, after a look at the metadata."""
    async with clusters(brokers=2) as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            await halt_with_records_behind(flow)
            await until(lambda: flow.partition().lag == 300)
            source.lead("t", 0, 2)
            source.store("t", 0, *batches(1, first=330))
            await until(lambda: flow.partition().lag == 303)


async def test_another_topic_of_that_name() -> None:
    """The source's topic is made anew while the partition stands still: its end says nothing of this copy."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            await halt_with_records_behind(flow)
            await until(lambda: flow.partition().lag == 300)
            del source.topics["t"]
            source.add_topic("t")
            source.store("t", 0, *batches(200))
            await flow.relay.source.refresh(["t"])
            await until(lambda: flow.partition().lag is None)


async def test_a_broker_that_tells_no_id() -> None:
    """While the source is upgraded: it is not known to be another topic, so the end is that of this one."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            await halt_with_records_behind(flow)
            source.topics["t"].topic_id = None
            await flow.relay.source.refresh(["t"])
            source.store("t", 0, *batches(1, first=330))
            await until(lambda: flow.partition().lag == 303)


async def test_mutation_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at the ends, what waits behind a halt is not seen."""

    async def not_at_all(_: SourceEnds) -> None:
        pass

    monkeypatch.setattr(SourceEnds, "keep", not_at_all)
    async with clusters() as (source, destination):
        source.add_topic("t")
        async with mirroring(source, destination) as flow:
            await halt_with_records_behind(flow)
            await asyncio.sleep(5 * ends.LOOK_EVERY_S)
            assert flow.partition().lag == 3
