"""Both sides of a flow on fake brokers, and what a mirror of that flow has written down."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mirror.net.cluster import Cluster
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import Pin
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.service.offsets.sides import FlowSides
from mirror.service.selection import Selection
from tests.fakes.broker import FakeCluster
from tests.relay.stage.flows import batches, clusters

FLOW = "west->east"
SUBJECT = Subject("t", 0, "t")


class Sides:
    """Topic "t" is at west, with nine records, and at east, with as many as are ``copied`` there."""

    def __init__(self, west: FakeCluster, east: FakeCluster, flow: FlowSides) -> None:
        self.west, self.east, self.flow = west, east, flow

    def copied(self, count: int) -> None:
        """Puts the first records, in batches of three, to the destination."""
        if "t" not in self.east.topics:
            self.east.add_topic("t")
        self.east.store("t", 0, *batches(count // 3))

    async def write(self, *entries: Entry) -> None:
        """Writes entries into the flow's internal topic."""
        async with await Cluster.open("east", self.east.options()) as east:
            state = InternalTopic(east, self.flow.id)
            await state.open()
            await state.save(entries)

    def pin(self, **changes: Any) -> Pin:
        """The pin of partition 0, of the topics of now."""
        ids = (cluster.topics["t"].topic_id for cluster in (self.west, self.east))
        source, destination = (None if each is None else each.hex for each in ids)
        usual: dict[str, Any] = {"subject": SUBJECT, "source_id": source, "destination_id": destination}
        return Pin(**(usual | changes))


@asynccontextmanager
async def sides(*, exact: bool = True, topics: tuple[str, ...] = ("t",)) -> AsyncIterator[Sides]:
    """A flow from west to east that selects these topics."""
    async with clusters() as (west, east):
        west.add_topic("t")
        west.store("t", 0, *batches(3))
        flow = FlowSides(
            name=FLOW, id=FLOW, source=west.options(), destination=east.options(), selection=Selection(topics),
            exact=exact, committed=True,
        )  # fmt: skip
        yield Sides(west, east, flow)
