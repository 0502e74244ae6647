"""One partition on both sides, and a locator between them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.records.identity import producer_id
from mirror.relay.durable.pins import Pins
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.position import Locator
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.state import MemoryState
from tests.relay.stage.flows import FLOW, Log, clusters, copies, settings


class Scene:
    """Topic "t" on both sides, and a locator between them."""

    def __init__(
        self, source: FakeCluster, destination: FakeCluster, here: Cluster, there: Cluster, **changes: Any
    ) -> None:
        self.source, self.destination = source, destination
        self.log = Log()
        self.clusters = here, there
        told = settings(**changes)
        self.pins = Pins(
            MemoryState(destination.remembered), source=here, destination=there, settings=told, log=self.log
        )
        self.locator = Locator(source=here, destination=there, settings=told, pins=self.pins, log=self.log)
        self.partition = Partition("t", 0)
        self.owner = producer_id(flow=FLOW, cluster_id=source.cluster_id, topic="t", partition=0)

    def named(self, flow: str) -> Locator:
        """Returns a locator of the same flow under another id."""
        here, there = self.clusters
        told = settings(flow=flow)
        pins = Pins(MemoryState([]), source=here, destination=there, settings=told, log=self.log)
        return Locator(source=here, destination=there, settings=told, pins=pins, log=self.log)

    @property
    def here(self) -> FakeLog:
        return self.source.log("t")

    @property
    def there(self) -> FakeLog:
        return self.destination.log("t")

    def copy(self, stored: list[bytes], sequence: int = 0) -> None:
        """Puts batches into the source, and into the destination as this flow would write them."""
        self.source.store("t", 0, *stored)
        self.copy_only(stored, sequence)

    def copy_only(self, stored: list[bytes], sequence: int = 0) -> None:
        for one in copies(stored, cluster_id=self.source.cluster_id, sequence=sequence):
            assert self.there.produce(one)[0] == 0

    async def refresh(self) -> None:
        for cluster in self.clusters:
            await cluster.refresh(["t"])

    async def locate(self, *, takeover: bool = False) -> Location:
        await self.refresh()
        if takeover:
            await self.pins.recall(self.partition)
        return await self.locator.locate(self.partition, takeover=takeover)

    async def halts(self, *, takeover: bool = False) -> tuple[str, str]:
        """Returns (reason, detail) of the halt that must come."""
        with pytest.raises(PartitionHalted) as caught:
            await self.locate(takeover=takeover)
        halted = caught.value.halted
        assert halted.remedy
        assert "t" in halted.detail
        return halted.reason, halted.detail

    def barriers(self) -> int:
        """Returns how often the destination's true end was asked for."""
        return sum(seen.request.replica_id >= 0 for seen in self.destination.seen("ListOffsets"))


@asynccontextmanager
async def scene(*, max_leading_filler: int = 1_000_000_000, **told: Any) -> AsyncIterator[Scene]:
    async with clusters(**told) as (source, destination):
        source.add_topic("t")
        destination.add_topic("t")
        async with (
            await Cluster.open("source", source.options()) as here,
            await Cluster.open("destination", destination.options()) as there,
        ):
            yield Scene(source, destination, here, there, max_leading_filler=max_leading_filler)
