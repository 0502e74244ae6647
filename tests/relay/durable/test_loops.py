"""A topic that another flow mirrors the other way: seen in the source's internal topics, before anything is copied.

Two real mirrors against each other, and rings of more: ``circles/``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, NetworkError, Unreachable, Unreadable
from mirror.offsetmap.entries.checkpoint import Checkpoint
from mirror.offsetmap.entries.chunks import Order
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import AcceptedLoop, Edge, FlowEntry, Hop, KeptHalt, LastCopied, Note, Pin, Upstream
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.records.identity import Identity
from mirror.relay.durable import loops
from mirror.relay.durable.loops import Loops
from mirror.relay.locate.position import Locator
from mirror.relay.partition.phases import Phase
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import batches, clusters, fill, mirroring
from tests.relay.stage.noting import ledger

BACK = "back"
SIDE = Subject("t", 0, "t")
ONLY_T: dict[str, Any] = {"selects": lambda name: name == "t"}
OFTEN: dict[str, Any] = ONLY_T | {"refresh_topics_interval_ms": 20}


async def write(source: FakeCluster, *entries: Entry, flow: str = BACK) -> None:
    """The opposite mirror writes this at its destination, which is our source."""
    async with await Cluster.open("source", source.options()) as cluster:
        state = InternalTopic(cluster, flow)
        await state.open()
        await state.save(entries)


def opposite(source: FakeCluster, destination: FakeCluster) -> FlowEntry:
    """Who it is."""
    return FlowEntry(flow=BACK, source_cluster=destination.cluster_id, destination_cluster=source.cluster_id)


def pin(destination: FakeCluster, side: Subject = SIDE) -> Pin:
    """What it copies."""
    return Pin(subject=side, source_id=None, destination_id=None, source_cluster=destination.cluster_id)


def checkpoint(side: Subject = SIDE, *, upto: int = 7) -> Checkpoint:
    """The same with ``offsets: mapped``."""
    return Checkpoint(
        subject=side,
        writer="w",
        order=Order(1, 1000, 0),
        source_offset=upto,
        source_epoch=0,
        destination_offset=upto,
        identity=Identity(1000, 0, upto),
    )


def halt_of(source: FakeCluster, destination: FakeCluster, reason: str = "foreign_writer") -> KeptHalt:
    """It has halted, with the topics of now."""
    ids = [cluster.topics["t"].topic_id for cluster in (destination, source)]
    there, here = [each.hex if each else None for each in ids]
    return KeptHalt(subject=SIDE, reason=reason, detail="", remedy="", at_ms=1, source_id=there, destination_id=here)


@contextmanager
def without_the_rule() -> Iterator[None]:
    """The mutation: nothing comes back, ever."""
    with patch.object(Loops, "_ring", lambda *_: None):
        yield


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_flow_the_other_way(*, mapped: bool) -> None:
    """
    1. Another flow copies the topic from our destination into our source: halt, and nothing is written but that.
    2. So it is at the next start; without the rule, all is copied (and would come back).
    """
    async with clusters() as (source, destination):
        fill(source)
        trace = checkpoint() if mapped else pin(destination)
        await write(source, opposite(source, destination), trace)
        for _ in range(2):
            async with mirroring(source, destination, **ONLY_T) as flow:
                assert await flow.halted() == "loop"
                (told,) = flow.log.of("halted")
                assert told["detail"] == (
                    'flow "back" (mirror-internal.back at source) copies t-0 of destination into t-0 of source'
                )
                assert destination.log("t").end == 0
                assert ledger(destination).pin(SIDE) is None
                await until(lambda: ledger(destination).halts)
        destination.remembered.clear()
        with without_the_rule():
            async with mirroring(source, destination, **ONLY_T) as flow:
                await flow.copied(("t", 0))


@pytest.mark.parametrize(
    "case", ["another source", "another destination", "another topic", "renamed", "another partition", "halted"]
)
async def test_what_does_not_come_back(case: str) -> None:
    """A flow from elsewhere (a chain of clusters), one of other topics, and one that has halted."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        who, what = opposite(source, destination), pin(destination)
        if case == "another source":
            who, what = replace(who, source_cluster="c9"), replace(what, source_cluster="c9")
        if case == "another destination":
            who = replace(who, destination_cluster="c9")
        sides = {
            "another topic": Subject("x", 0, "x"),
            "renamed": Subject("x", 0, "t"),
            "another partition": Subject("t", 1, "t"),
        }
        what = replace(what, subject=sides.get(case, SIDE))
        stopped = [halt_of(source, destination)] if case == "halted" else []
        await write(source, who, what, *stopped)
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))


@pytest.mark.parametrize("case", ["other topics", "goes on"])
async def test_a_halt_that_does_not_stand(case: str) -> None:
    """One of topics that are no more; and one that ``on.gap: continue`` may have gone over since."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        stopped = halt_of(source, destination, reason="retention_overtook" if case == "goes on" else "recreated")
        if case == "other topics":
            stopped = replace(stopped, source_id="00" * 16)
        await write(source, opposite(source, destination), pin(destination), stopped)
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "loop"


async def test_the_second_mirror_comes_later() -> None:
    """It does not look (an earlier version): the first one sees it with the next look for topics, and halts."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            await write(source, opposite(source, destination))
            await write(source, pin(destination))
            assert await flow.halted() == "loop"


@pytest.mark.parametrize("rule", [True, False])
async def test_both_begin_at_the_same_moment(*, rule: bool) -> None:
    """
    1. The opposite mirror writes down that it copies the topic when we have looked, and have written down the same.
    2. We look once more, before the first batch. Mutation: without that, all is copied.
    """
    locate = Locator.locate

    async def meanwhile(self: Locator, *args: Any, **options: Any) -> Any:
        found = await locate(self, *args, **options)
        await write(source, opposite(source, destination), pin(destination))
        return found

    async def known(self: Loops, partition: Any) -> None:
        """No second look."""

    async with clusters() as (source, destination):
        fill(source)
        with patch.object(Locator, "locate", meanwhile), patch.object(Loops, "behind", Loops.behind if rule else known):
            async with mirroring(source, destination, **ONLY_T) as flow:
                if rule:
                    assert await flow.halted() == "loop"
                    assert destination.log("t").end == 0
                else:
                    await flow.copied(("t", 0))


async def test_a_resume_that_accepts_nothing() -> None:
    """Such as one of all that have halted: it is looked at anew, and the flow the other way is still there."""
    async with clusters() as (source, destination):
        fill(source)
        await write(source, opposite(source, destination), checkpoint())
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "loop"
            assert await flow.relay.resume(("t", 0)) == ""
            await until(lambda: len(flow.log.of("halted")) == 2)
            assert await flow.halted() == "loop"
            assert destination.log("t").end == 0


async def test_resumed() -> None:
    """
    1. The other flow is stopped, or does without the topic; an operator resumes ours: it goes on, also later.
    2. The other flow copies on: halt.
    """
    async with clusters() as (source, destination):
        fill(source)
        await write(source, opposite(source, destination), checkpoint())
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "loop"
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await flow.copied(("t", 0))
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            await write(source, checkpoint(upto=9))
            assert await flow.halted() == "loop"


@pytest.mark.parametrize("apart", [True, False])
async def test_an_exact_copy_that_goes_on(*, apart: bool) -> None:
    """What an opposite flow in exact mode notes of its progress is more than was accepted, too; versions before had it
    in the pin."""
    async with clusters() as (source, destination):
        fill(source)
        await write(source, opposite(source, destination), pin(destination))
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "loop"
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await flow.copied(("t", 0))
            note = Note(subject=SIDE, writer="w", source_id=None, destination_id=None, copied=LastCopied(9))
            await write(source, note if apart else replace(pin(destination), copied=note.copied))
            with patch.object(loops, "LOOK_EVERY_S", 0.01):
                flow.relay.work(flow.partition(), flow.relay.loops.keep())
                assert await flow.halted() == "loop"


@pytest.mark.parametrize(("offset", "halts"), [(9, False), (12, True)])
async def test_the_flow_that_is_led_back_notes_its_end_late(offset: int, *, halts: bool) -> None:
    """It has copied up to offset 9, from where this one leads back. Its last note comes when that is already accepted:
    up to 9 it says nothing new, and beyond it says that records go round."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        destination.store("t", 0, *batches(3))
        there = Ledger()
        for entry in (flow := opposite(source, destination), pin(destination)):
            there.apply(entry.key(), entry.value())
        await write(source, flow, pin(destination))
        ids = [cluster.topics["t"].topic_id for cluster in (source, destination)]
        source_id, destination_id = [each.hex if each else None for each in ids]
        adopted = replace(
            pin(source), source_id=source_id, destination_id=destination_id, adopted=9, adopted_epoch=0,
            copied=LastCopied(9, 0),
        )  # fmt: skip
        accepted = AcceptedLoop(
            subject=SIDE, by="mirror-internal.back", digest=loops.trace(there, flow, SIDE, upto=9)
        )  # fmt: skip
        destination.remembered += [(entry.key(), entry.value()) for entry in (accepted, adopted)]
        await write(
            source, Note(subject=SIDE, writer="w", source_id=None, destination_id=None, copied=LastCopied(offset))
        )
        async with mirroring(source, destination, **ONLY_T) as mirror:
            if halts:
                assert await mirror.halted() == "loop"
            else:
                await mirror.copied(("t", 0))


async def test_an_internal_topic_that_cannot_be_read() -> None:
    """Told once; all goes on, since nobody may have written there but others."""
    async with clusters() as (source, destination):
        fill(source)
        source.add_topic("mirror-internal.of_somebody", configs={"cleanup.policy": "delete"})
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            await flow.relay.loops.renew()
            (told,) = flow.log.of("loops_not_seen")
            assert "mirror-internal.of_somebody at source" in told["detail"]


@pytest.mark.parametrize("failure", [Damaged("source", "a wrong checksum"), Unreadable("source", "Fetch", 2)])
async def test_an_internal_topic_that_is_damaged_on_disk(failure: NetworkError) -> None:
    """Somebody else's, at either side: partitions that have nothing to do with it are copied, and none halts."""

    async def damaged(self: InternalTopic, *args: Any, **options: Any) -> bool:
        if "somebody" in self.topic:
            raise failure
        return await whole(self, *args, **options)

    whole = InternalTopic.open
    async with clusters() as (source, destination):
        fill(source)
        for cluster in (source, destination):
            cluster.add_topic("mirror-internal.of_somebody", configs={"cleanup.policy": "compact"})
        with patch.object(InternalTopic, "open", damaged):
            async with mirroring(source, destination, **ONLY_T) as flow:
                await flow.copied(("t", 0))
                assert not flow.log.of("halted")
                (seen,) = flow.log.of("loops_not_seen")
                assert "delete that topic" in seen["remedy"]


async def test_not_to_be_known_now() -> None:
    """An internal topic without a leader: nothing is begun, and what runs goes on."""
    async with clusters() as (source, destination):
        fill(source)
        await write(source, FlowEntry(flow="x", source_cluster="c9", destination_cluster=""))
        with patch.object(InternalTopic, "open", _unreachable):
            async with mirroring(source, destination, **ONLY_T) as flow:
                await until(lambda: flow.log.of("position_unknown"))
                assert flow.log.of("loops_not_looked_for")
                assert destination.log("t").end == 0
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))
            source.add_topic("mirror-internal.new")
            with patch.object(InternalTopic, "open", _unreachable):
                await flow.relay.loops.renew()
            assert flow.log.of("loops_not_looked_for")
            assert flow.partition().phase is Phase.ACTIVE


async def test_not_to_be_known_after_a_restart() -> None:
    """An internal topic without a leader: what has begun goes on, and what it had written down of the flows that feed
    it stays. A partition that has not begun waits."""
    async with clusters() as (source, destination):
        fill(source)
        await write(source, FlowEntry(flow="x", source_cluster="c9", destination_cluster=""))
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))
            edge = Edge(flow="x", source_cluster="c9", topic="t", destination_cluster=source.cluster_id, into="t")
            fed = Upstream(subject=SIDE, hops=(Hop(edge, "0" * 16, 1),), at_ms=1)
            await flow.relay.durable.state.save([fed])
            assert await flow.relay.drain()
        source.store("t", 0, *batches(2, first=60))
        source.add_topic("u")
        source.store("u", 0, *batches(2))
        both: dict[str, Any] = {"selects": lambda name: name in ("t", "u")}
        with patch.object(InternalTopic, "open", _unreachable):
            async with mirroring(source, destination, **both) as flow:
                await flow.copied(("t", 0))
                assert flow.log.of("loops_not_looked_for")
                await until(lambda: flow.log.of("position_unknown"))
                assert {line["topic"] for line in flow.log.of("position_unknown")} == {"u"}
                assert destination.log("u").end == 0
                assert ledger(destination).upstream(SIDE) == fed
        async with mirroring(source, destination, **both) as flow:
            await flow.copied(("t", 0), ("u", 0))


async def _unreachable(*_: Any, **__: Any) -> bool:
    raise Unreachable("not now")
