"""What is written down for the flow back: under which id, of which partitions, and once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import StoredInOldFormat
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import FlowEntry, LastCopied, Note, Pin
from mirror.offsetmap.fields import id_text
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.records.identity import producer_id
from mirror.relay.durable.loops import trace
from mirror.service.cutover.adopting import Adopting, NotAdopted
from mirror.service.offsets.ends import PartitionEnds
from tests.fakes.broker import FakeCluster
from tests.records.builders import raw_batch
from tests.relay.stage.flows import batch, batches, clusters

BACK = "east->west"
END = 9


class Scene:
    """East has a copy of topic "t" of west: two partitions, of which one is empty."""

    def __init__(self, west: Cluster, east: Cluster, west_broker: FakeCluster, east_broker: FakeCluster) -> None:
        self.west, self.east, self.west_broker, self.broker = west, east, west_broker, east_broker

        async def log(cluster: Cluster, topic: str, partition: int) -> PartitionLog:
            leader = cluster.leader(topic, partition)
            assert leader is not None
            return PartitionLog(cluster, cluster.topics[topic], partition, leader)

        back: Any = SimpleNamespace(source=east, destination=west, log=log)
        self.adopting = Adopting(back, isolation_level="read_committed", identity="stamped")

    def row(self, partition: int, end: int) -> PartitionEnds:
        return PartitionEnds(
            topic="t", partition=partition, into="t", source_id=id_text(self.west.topics["t"].topic_id),
            destination_id=id_text(self.east.topics["t"].topic_id), source_end=end, source_epoch=2, destination_epoch=4,
        )  # fmt: skip

    @property
    def rows(self) -> list[PartitionEnds]:
        return [self.row(0, END), self.row(1, 0)]

    async def refresh(self) -> None:
        for cluster in (self.west, self.east):
            await cluster.refresh(["t"])

    async def state(self, cluster: Cluster, flow: str) -> InternalTopic:
        state = InternalTopic(cluster, flow, lean=True)
        await state.open()
        return state


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with clusters() as (west, east):
        for cluster in (west, east):
            cluster.add_topic("t", partitions=2)
        west.store("t", 0, *batches(3))
        east.store("t", 0, *batches(2), batch(6, leader_epoch=3))
        async with (
            await Cluster.open("west", west.options()) as here,
            await Cluster.open("east", east.options()) as there,
        ):
            at = Scene(here, there, west, east)
            await at.refresh()
            yield at


async def forward(at: Scene) -> str:
    """The flow that has copied from west to east wrote this down there. Returns what it would be accepted by."""
    state = await at.state(at.east, "west->east")
    flow = FlowEntry(
        flow="west->east", source_cluster=at.west.cluster_id, destination_cluster=at.east.cluster_id, at_ms=1
    )
    subject = Subject("t", 0, "t")
    await state.claim(flow)
    await state.save([Pin(subject=subject, source_id=None, destination_id=None, source_cluster=at.west.cluster_id)])
    return trace(state.ledger, flow, subject)


async def test_what_is_written() -> None:
    """A pin for what holds something, with a note of the last batch that is copied from now on; and the acceptance of
    the flow that came the other way, as far as that has come."""
    async with scene() as at:
        digest = await forward(at)
        adoption = await at.adopting.plan(BACK, at.rows, {})
        assert (adoption.flow_id, adoption.begun) == (BACK, [])
        await at.adopting.write(adoption)
        ledger = (await at.state(at.west, BACK)).ledger
        pin = ledger.pin(Subject("t", 0, "t"))
        assert pin is not None
        assert (pin.adopted, pin.adopted_epoch, pin.source_cluster, pin.offsets) == (
            END, 2, at.east.cluster_id, "exact",
        )  # fmt: skip
        assert (pin.source_id, pin.destination_id) == (at.rows[0].destination_id, at.rows[0].source_id)
        assert pin.copied is not None
        assert (pin.copied.offset, pin.copied.leader_epoch, pin.copied.digest_at) == (END, 4, END)
        assert ledger.pin(Subject("t", 1, "t")) is None
        accepted = ledger.accepted_loop(Subject("t", 0, "t"), "mirror-internal.west_to_east")
        assert accepted is not None
        assert accepted.digest == digest
        assert [flow.source_cluster for flow in ledger.flows] == [at.east.cluster_id]


@pytest.mark.parametrize(("offset", "is_same"), [(END, True), (END + 1, False)])
async def test_the_flow_that_came_the_other_way_writes_its_last_note_later(offset: int, is_same: bool) -> None:
    """It is paused, and notes up to a minute later how far it has copied: to where it is certified to have ended, and
    nothing has come of it since; or further, and the acceptance is of no use any more."""
    async with scene() as at:
        await forward(at)
        await at.adopting.write(await at.adopting.plan(BACK, at.rows, {}))
        accepted = (await at.state(at.west, BACK)).ledger.accepted_loop(
            Subject("t", 0, "t"), "mirror-internal.west_to_east"
        )
        assert accepted is not None
        subject = Subject("t", 0, "t")
        state = await at.state(at.east, "west->east")
        await state.save([
            Note(subject=subject, writer="w", source_id=None, destination_id=None, copied=LastCopied(offset, 4))
        ])  # fmt: skip
        now = trace(state.ledger, state.ledger.flows[0], subject, upto=END)
        assert (now == accepted.digest) is is_same


async def test_twice() -> None:
    """The same is written again; of a partition of which the flow has copied something, nothing is."""
    async with scene() as at:
        await at.adopting.write(await at.adopting.plan(BACK, at.rows, {}))
        again = await at.adopting.plan(BACK, at.rows, {})
        assert (again.flow_id, len(again.pins), again.begun) == (BACK, 1, [])
        state = await at.state(at.west, BACK)
        (pin,) = again.pins
        note = Note(
            subject=pin.subject, writer="w", source_id=pin.source_id, destination_id=pin.destination_id,
            copied=LastCopied(END + 3, 4),
        )  # fmt: skip
        await state.save([replace(pin, copied=LastCopied(END + 3, 4)), note])
        begun = await at.adopting.plan(BACK, at.rows, {})
        assert (begun.flow_id, begun.pins, begun.begun) == (BACK, [], ["t-0"])


async def test_an_id_that_was_used() -> None:
    """By the same flow before, which has batches of its own there: those of another id cannot be taken for them."""
    async with scene() as at:
        await at.adopting.write(await at.adopting.plan(BACK, at.rows, {}))
        later = [at.row(0, END + 6), at.row(1, 0)]
        for broker in (at.west_broker, at.broker):
            broker.store("t", 0, *batches(2, first=END))
        second = await at.adopting.plan(BACK, later, {})
        assert second.flow_id == "east->west.2"
        await at.adopting.write(second)
        assert (await at.adopting.plan(BACK, later, {})).flow_id == "east->west.2"
        assert (await at.adopting.plan(BACK, [at.row(0, END + 3), at.row(1, 0)], {})).flow_id == "east->west.3"


async def test_an_id_that_another_flow_has_in_a_way() -> None:
    """Of a flow that was named otherwise, and gives its internal topic the same name: nothing can be written there."""
    async with scene() as at:
        state = await at.state(at.west, "east_to_west")
        await state.claim(FlowEntry(flow="east_to_west", source_cluster="c", destination_cluster="d", at_ms=1))
        adoption = await at.adopting.plan(BACK, at.rows, {})
        assert adoption.flow_id == "east->west.2"
        await at.adopting.write(adoption)


async def test_the_last_batch_is_gone() -> None:
    """Retention has taken it at what is copied from now on: there is only the offset."""
    async with scene() as at:
        at.broker.log("t").delete_before(END)
        (pin,) = (await at.adopting.plan(BACK, at.rows, {})).pins
        assert pin.copied == LastCopied(END, 4)


async def test_a_certificate_of_an_earlier_version() -> None:
    """It does not say under which leaders it was: the batch has an epoch."""
    async with scene() as at:
        (pin,) = (
            await at.adopting.plan(BACK, [replace(at.row(0, END), source_epoch=-1, destination_epoch=-1)], {})
        ).pins
        assert pin.copied is not None
        assert (pin.adopted_epoch, pin.copied.leader_epoch) == (-1, 3)


@pytest.mark.parametrize("side", ["west", "east"])
async def test_an_end_that_was_lost_and_written_again(side: str) -> None:
    """An unclean election has taken what was certified, and others wrote up to the same end."""
    async with scene() as at:
        broker = at.broker if side == "east" else at.west_broker
        broker.log("t").truncate(6)
        broker.store("t", 0, batch(6, payload=b"other", leader_epoch=5))
        await at.refresh()
        with pytest.raises(NotAdopted, match=rf"t-0 at {side}: the batch at offset 6 was written since the cutover"):
            await at.adopting.plan(BACK, at.rows, {})


async def test_old_messages_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flow writes behind these."""

    async def refused(*_: object) -> None:
        raise StoredInOldFormat("west", "t-0 at 8", "magic 0 or 1")

    async with scene() as at:
        monkeypatch.setattr(PartitionLog, "batch_at", refused)
        with pytest.raises(NotAdopted, match="no way back into such a log"):
            await at.adopting.plan(BACK, at.rows, {})


async def test_what_it_has_copied_back() -> None:
    """The first batch behind the certified end tells, by which id: what that flow has written down is lost. It is the
    beginning of the same flow that is written again."""
    async with scene() as at:
        log = at.west_broker.log("t")
        assert await at.adopting.begun(BACK, at.rows) == {}
        for one in copies_of(at, f"{BACK}.2"):
            assert log.produce(one)[0] == 0
        begun = await at.adopting.begun(BACK, at.rows)
        assert begun == {("t", 0): f"{BACK}.2"}
        with pytest.raises(
            NotAdopted, match=r"t-0 was copied back by flow east->west\.2, and .* is of flow east->west:"
        ):
            await at.adopting.plan(BACK, at.rows, begun)
        assert (await at.adopting.plan(BACK, at.rows, {("t", 0): BACK})).flow_id == BACK
        log.delete_before(END + 3)
        assert await at.adopting.begun(BACK, at.rows) == {}


def copies_of(at: Scene, flow_id: str) -> list[bytes]:
    """Two batches of that flow."""
    owner = producer_id(flow=flow_id, cluster_id=at.east.cluster_id, topic="t", partition=0)
    return [
        raw_batch(
            b"%d" % each, base_offset=0, last_offset_delta=2, record_count=3, producer_id=owner, producer_epoch=0,
            base_sequence=3 * each,
        )
        for each in range(2)
    ]  # fmt: skip


async def test_somebody_wrote_behind_the_end() -> None:
    """That is no flow."""
    async with scene() as at:
        at.west_broker.store("t", 0, *batches(1, first=END))
        assert await at.adopting.begun(BACK, at.rows) == {}
