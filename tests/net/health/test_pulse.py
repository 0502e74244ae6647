"""Whether a cluster answers: heard of while data flows, asked when it is quiet, away when nothing comes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from mirror.net.cluster import Cluster
from mirror.net.health import pulse
from mirror.net.health.pulse import Pulse
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until

QUICK_S = 0.5


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "UP_FOR_S", QUICK_S)
    monkeypatch.setattr(pulse, "ASK_AFTER_S", 0.05)
    monkeypatch.setattr(pulse, "LOOK_EVERY_S", 0.02)


@asynccontextmanager
async def watched(brokers: int = 1) -> AsyncIterator[tuple[FakeCluster, Pulse]]:
    async with FakeCluster(brokers=brokers) as fake, await Cluster.open("source", fake.options()) as cluster:
        found = Pulse(cluster)
        keeping = asyncio.create_task(found.keep())
        try:
            yield fake, found
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping


async def test_a_quiet_cluster_is_asked() -> None:
    """Nobody else asks anything, and it is known to be there."""
    async with watched() as (fake, found):
        asked = len(fake.seen("Metadata"))
        await until(lambda: len(fake.seen("Metadata")) > asked + 10)
        await until(lambda: found.up)  # behind a pause of this process, with the next answer


async def test_away_and_back() -> None:
    """Its brokers end; later they are there again, at the same addresses."""
    async with watched(brokers=2) as (fake, found):
        for node_id in fake.brokers:
            await fake.stop(node_id)
        await until(lambda: not found.up)
        await fake.start(2)
        await until(lambda: found.up)


async def test_one_frozen_broker_is_not_the_cluster() -> None:
    """One of two answers nothing any more, on a connection that was the first."""
    async with watched(brokers=2) as (fake, found):
        for _ in range(1_000):
            fake.next("Metadata", faults.silence(), node_id=1)
        asked = len(fake.seen("Metadata"))
        await until(lambda: len(fake.seen("Metadata")) > asked + 20 or not found.up)
        await asyncio.sleep(2 * QUICK_S)
        await until(lambda: found.up)


async def test_a_frozen_cluster_is_away() -> None:
    """It takes requests and connections, and answers none."""
    async with watched() as (fake, found):
        for kind in ("Metadata", "ApiVersions"):
            for _ in range(1_000):
                fake.next(kind, faults.silence())
        await until(lambda: not found.up)
        fake.forgive()
        await until(lambda: found.up)


async def test_mutation_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a question, a quiet cluster seems to be away."""

    async def not_at_all(_: Pulse) -> None:
        pass

    monkeypatch.setattr(Pulse, "_ask", not_at_all)
    async with watched() as (_, found):
        await until(lambda: not found.up)


async def test_a_process_that_stood_still_has_lost_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was stopped for longer than a cluster may be quiet: that says nothing about the cluster. (Without the rule it
    is away at the first look.)"""
    async with watched() as (_, found):
        await until(lambda: found.up)
        for still_s, up in ((2.0, True), (3_600.0, False)):
            monkeypatch.setattr(pulse, "STOOD_STILL_S", still_s)
            found._looked_at -= 60
            found._heard_at -= 60
            assert found.up is up
