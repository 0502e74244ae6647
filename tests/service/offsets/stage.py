"""Both sides of a flow on fake brokers, and what a mirror of that flow has written down."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.net.metadata import Metadata
from mirror.offsetmap.entries.chunks import Order
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import Pin
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity, producer_id
from mirror.relay.mapped.copied import CopiedRuns, OpenMap, Unwritten
from mirror.service.offsets.sides import FlowSides
from mirror.service.selection import Selection
from mirror.wire.errors import ErrorCode
from tests.fakes.broker import FakeCluster
from tests.records.builders import sealed
from tests.relay.stage.flows import batches, clusters

FLOW = "west->east"
HIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED
SUBJECT = Subject("t", 0, "t")


def hide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of all topics leave out those with the error ``HIDDEN``, as brokers do; asked by name, they say so."""
    store = Metadata.store

    def stored(self: Metadata, answer: Any, *, of_all: bool, asked_at: float) -> dict[str, int]:
        if of_all:
            answer.topics = [each for each in answer.topics if each.error_code != HIDDEN]
        return store(self, answer, of_all=of_all, asked_at=asked_at)

    monkeypatch.setattr(Metadata, "store", stored)


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

    @property
    def owner(self) -> int:
        """The producer id of partition 0."""
        return producer_id(flow=self.flow.id, cluster_id=self.west.cluster_id, topic="t", partition=0)

    def copies(self, count: int) -> list[bytes]:
        """The first records, in batches of three, as the flow writes them."""
        return [
            sealed(
                header._replace(producer_id=self.owner, producer_epoch=0, base_sequence=header.base_offset).pack()
                + one[HEADER_SIZE:]
            )
            for one in batches(count // 3)
            for header in [BatchHeader.read(one)]
        ]

    def account(self, count: int) -> list[Entry]:
        """What a mirror with ``offsets: mapped`` has written down of so many records, which it has put to the same
        offsets."""
        owner = self.owner
        open_map = OpenMap(SUBJECT, writer="w", order=Order(1, owner, 0), since=0)
        copied = CopiedRuns(
            open_map=open_map, source=0, source_epoch=-1, destination=0, identity=Identity(owner, 0, 0),
            own=frozenset({owner}), confirmed=True,
        )  # fmt: skip
        copied.landed(0, count)
        account = Unwritten.of(copied)
        return [*account.chunks, account.checkpoint]


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
