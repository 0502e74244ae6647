"""Rings of three clusters and more: each flow hands on the flows that feed its source, and so they come round.

The clusters behind the source are out of reach here; what their flows have written down is put into the source's
internal topics by hand. Real ones: ``test_real_rings``.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.errors import Unreachable
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import (
    MOST_HOPS,
    AcceptedLoop,
    Edge,
    FlowEntry,
    Hop,
    KeptHalt,
    LastCopied,
    Note,
    Pin,
    Upstream,
)
from mirror.relay.durable import loops
from mirror.relay.durable.loops import Loops
from mirror.relay.locate.position import Locator
from mirror.relay.partition.phases import Phase
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import some_turns, until
from tests.relay.durable.test_loops import OFTEN, ONLY_T, SIDE, checkpoint, write
from tests.relay.stage.flows import FLOW, clusters, fill, mirroring
from tests.relay.stage.noting import ledger

MIDDLE, SECOND, FIRST = "cluster-in-the-middle", "second", "first"
ONE, OTHER = "01" * 8, "02" * 8


def second(source: FakeCluster) -> FlowEntry:
    """The flow that feeds our source, from a cluster that is neither of ours."""
    return FlowEntry(flow=SECOND, source_cluster=MIDDLE, destination_cluster=source.cluster_id)


def pin(topic: str = "t", into: str = "t") -> Pin:
    """What it copies."""
    return Pin(subject=Subject(topic, 0, into), source_id="05" * 16, destination_id=None, source_cluster=MIDDLE)


def first(destination: FakeCluster, *, topic: str = "t", into: str = "t", flow: str = FIRST) -> Edge:
    """The flow that feeds that one, from our destination."""
    return Edge(flow, destination.cluster_id, topic, MIDDLE, into)


def fed(*hops: Edge | Hop, side: Subject = SIDE, digest: str = ONE) -> Upstream:
    """What the second flow hands on."""
    return Upstream(subject=side, hops=tuple(hop if isinstance(hop, Hop) else Hop(hop, digest, 1) for hop in hops))


def moved(at: int) -> Note:
    """The second flow has copied on."""
    return Note(subject=SIDE, writer="w", source_id=None, destination_id=None, copied=LastCopied(at))


def handed_on(destination: FakeCluster) -> list[str]:
    """The flows of what our flow hands on."""
    found = ledger(destination).upstream(SIDE)
    return [hop.edge.flow for hop in found.hops] if found is not None else []


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_ring_of_three(*, mapped: bool) -> None:
    """
    1. The flow that feeds our source hands on that it is fed from our destination: halt, and the whole ring is named;
       nothing is written but that. So it is at the next start.
    2. Mutation: without the rule, all is copied (and would come back).
    """
    async with clusters() as (source, destination):
        fill(source)
        trace = replace(checkpoint(), source_id="05" * 16) if mapped else pin()
        await write(source, second(source), trace, fed(first(destination)), flow=SECOND)
        for _ in range(2):
            async with mirroring(source, destination, **ONLY_T) as flow:
                assert await flow.halted() == "loop"
                (told,) = flow.log.of("halted")
                assert told["detail"] == (
                    'a ring of 3 flows: flow "first" (mirror-internal.first at cluster cluster-in-the-middle) copies '
                    't-0 of destination into t-0 of cluster cluster-in-the-middle, flow "second" '
                    "(mirror-internal.second at source) copies t-0 of cluster cluster-in-the-middle into t-0 of "
                    f'source, and this flow ("{FLOW}") would copy t-0 of source into t-0 of destination'
                )
                assert destination.log("t").end == 0
                assert ledger(destination).pin(SIDE) is None
                await until(lambda: ledger(destination).halts)
        destination.remembered.clear()
        with patch.object(Loops, "_ring", lambda *_: None):
            async with mirroring(source, destination, **ONLY_T) as flow:
                await flow.copied(("t", 0))


async def test_the_edge_appears_later() -> None:
    """
    1. A chain: the flows that feed our source are handed on at the destination, the nearest first.
    2. One of them turns out to be fed from our destination: what runs halts at the next look.
    """
    async with clusters() as (source, destination):
        fill(source)
        away = Edge("away", "c8", "t", MIDDLE, "t")
        await write(source, second(source), pin(), fed(away), flow=SECOND)
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            assert handed_on(destination) == [SECOND, "away"]
            assert not flow.log.of("halted")
            await write(source, fed(away, Edge(FIRST, destination.cluster_id, "t", "c8", "t")), flow=SECOND)
            assert await flow.halted() == "loop"
            assert flow.log.of("halted")[0]["detail"].startswith("a ring of 4 flows: ")


async def test_what_feeds_a_partition_is_written_before_its_first_entry() -> None:
    """A flow behind ours that sees our first entry sees that, too."""
    async with clusters() as (source, destination):
        fill(source)
        await write(source, second(source), pin(), fed(Edge("away", "c8", "t", MIDDLE, "t")), flow=SECOND)
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))
        kinds = [kind for key, _ in destination.remembered for kind in (b"upstream", b"partition") if kind in key]
        assert kinds[0] == b"upstream"
        assert b"partition" in kinds


async def test_without_that_being_written_nothing_begins() -> None:
    """The internal topic at the destination does not answer."""

    async def fails(*_: object, **__: object) -> None:
        raise Unreachable("not now")

    async with clusters() as (source, destination):
        fill(source)
        await write(source, second(source), pin(), flow=SECOND)
        with patch.object(Loops, "_hand_on", fails):
            async with mirroring(source, destination, **OFTEN) as flow:
                await until(lambda: flow.log.of("position_unknown"))
                assert destination.log("t").end == 0
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))
            with patch.object(Loops, "_hand_on", fails):
                await flow.relay.loops.renew()
            assert flow.log.of("state_not_written")
            assert flow.partition().phase is Phase.ACTIVE


@pytest.mark.parametrize("case", ["another topic", "another partition", "another cluster", "halted", "into the source"])
async def test_what_is_no_ring(case: str) -> None:
    """
    Another topic of our destination feeds our source; another partition; the second flow has halted; and what others
    say of flows into our source counts for nothing, since these are read there: that one exists no more.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        destination.add_topic("t", partitions=2)
        found, what, more = fed(first(destination)), pin(), []
        if case == "another topic":
            found = fed(first(destination, topic="x"))
        if case == "another partition":
            what, found = (
                replace(what, subject=SIDE._replace(partition=7)),
                replace(found, subject=SIDE._replace(partition=7)),
            )
        if case == "another cluster":
            found = fed(first(destination)._replace(source_cluster="c9"))
        if case == "halted":
            here = source.topics["t"].topic_id
            assert here is not None
            more = [KeptHalt(subject=SIDE, reason="not_a_copy", detail="", remedy="", at_ms=1, source_id=what.source_id,
                             destination_id=here.hex)]  # fmt: skip
        if case == "into the source":
            found = fed(first(destination)._replace(destination_cluster=source.cluster_id))
        await write(source, second(source), what, found, *more, flow=SECOND)
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0), ("t", 1))
            assert not flow.log.of("halted")
            if case in ("halted", "another partition"):
                assert handed_on(destination) == []


@pytest.mark.parametrize("case", ["other topics", "goes on", "begun anew"])
async def test_a_halt_that_does_not_stand(case: str) -> None:
    """Of another destination topic, one that ``on.gap: continue`` may have gone over, and one of another source."""
    async with clusters() as (source, destination):
        fill(source)
        here = source.topics["t"].topic_id
        assert here is not None
        halted = KeptHalt(
            subject=SIDE,
            reason="retention_overtook" if case == "goes on" else "recreated",
            detail="",
            remedy="",
            at_ms=1,
            source_id="06" * 16 if case == "begun anew" else "05" * 16,
            destination_id="00" * 16 if case == "other topics" else here.hex,
        )
        await write(source, second(source), pin(), fed(first(destination)), halted, flow=SECOND)
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "loop"


async def test_a_flow_that_is_gone_is_forgotten() -> None:
    """Its internal topic is deleted: nothing of it is handed on any more."""
    async with clusters() as (source, destination):
        fill(source)
        await write(source, second(source), pin(), flow=SECOND)
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            assert handed_on(destination) == [SECOND]
            del source.topics[f"mirror-internal.{SECOND}"]
            await until(lambda: handed_on(destination) == [])


async def test_accepted_until_all_of_it_moves() -> None:
    """
    1. One flow of the ring has ended; an operator resumes ours, and it goes on, also after a restart, whatever the
       other one copies.
    2. The one that had ended copies on, too: halt.
    """
    async with clusters() as (source, destination):
        fill(source)
        await write(source, second(source), pin(), fed(first(destination)), flow=SECOND)
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "loop"
            assert await flow.relay.resume(("t", 0)) == ""
            await until(lambda: len(flow.log.of("halted")) == 2)
            assert await flow.halted() == "loop"
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await flow.copied(("t", 0))
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            await write(source, moved(9), flow=SECOND)
            await until(lambda: flow.relay.loops._feeds["t", 0][0].digest)
            for _ in range(3):
                await flow.relay.loops.renew()
            assert not flow.log.of("halted")
            await write(source, fed(first(destination), digest=OTHER), flow=SECOND)
            assert await flow.halted() == "loop"


async def test_another_way_is_not_accepted() -> None:
    """A third flow closes the ring beside the one that has ended."""
    async with clusters() as (source, destination):
        fill(source)
        await write(source, second(source), pin(), fed(first(destination)), flow=SECOND)
        async with mirroring(source, destination, **OFTEN) as flow:
            assert await flow.halted() == "loop"
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await flow.copied(("t", 0))
            beside = [first(destination), first(destination, flow="beside")]
            await write(source, moved(9), fed(*beside), flow=SECOND)
            assert await flow.halted() == "loop"
            assert 'flow "beside"' in flow.log.of("halted")[-1]["detail"]


async def test_the_newest_digest_of_a_flow_counts() -> None:
    """Two flows feed the source, and both are fed by one; the one of them has heard of it later."""
    async with clusters() as (source, destination):
        fill(source)
        edge = Edge("away", "c8", "t", MIDDLE, "t")
        await write(source, second(source), pin(), fed(Hop(edge, ONE, 5)), flow=SECOND)
        third = replace(second(source), flow="third")
        await write(source, third, pin(), fed(Hop(edge, OTHER, 4)), flow="third")
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))
        found = ledger(destination).upstream(SIDE)
        assert found is not None
        assert [hop.digest for hop in found.hops if hop.edge == edge] == [ONE]


async def test_no_more_than_so_many_are_handed_on() -> None:
    """More than any mirror would write: the nearest."""
    async with clusters() as (source, destination):
        fill(source)
        hops = [Edge(f"f{at}", f"c{at}", "t", MIDDLE, "t") for at in range(MOST_HOPS)]
        await write(source, second(source), pin(), fed(*hops), flow=SECOND)
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))
            assert len(handed_on(destination)) == MOST_HOPS
            assert handed_on(destination)[0] == SECOND


async def test_one_that_only_goes_on_is_handed_on_now_and_then() -> None:
    """
    1. The second flow copies on: its digest is handed on once in ``LOOK_EVERY_S``, however often is looked.
    2. Then again.
    """
    async with clusters() as (source, destination):
        fill(source)
        await write(source, second(source), pin(), flow=SECOND)
        async with mirroring(source, destination, **OFTEN) as flow:
            await flow.copied(("t", 0))
            await until(lambda: handed_on(destination) == [SECOND])
            before = ledger(destination).upstream(SIDE)
            await write(source, moved(9), flow=SECOND)
            await flow.relay.loops.renew()
            await flow.relay.loops.renew()
            assert ledger(destination).upstream(SIDE) == before
            flow.relay.loops._hand_on_at = 0.0
            await flow.relay.loops.renew()
            after = ledger(destination).upstream(SIDE)
            assert before is not None
            assert after is not None
            assert (after.hops[0].edge, after.hops[0].digest != before.hops[0].digest) == (before.hops[0].edge, True)


class TestRenamed:
    """Records come back, and each time round they get one more name: ``a.orders``, ``b.a.orders``, ``a.b.a.orders``."""

    @staticmethod
    def ours(source: FakeCluster, destination: FakeCluster, topic: str = "x") -> Edge:
        return Edge(FLOW, source.cluster_id, topic, destination.cluster_id, f"a.{topic}")

    async def write(self, source: FakeCluster, destination: FakeCluster, topic: str = "x", into: str = "t") -> None:
        """A flow copies ``a.x`` of our destination into a topic of our source; ``a.x`` is our copy of ``x``."""
        back = FlowEntry(flow="back", source_cluster=destination.cluster_id, destination_cluster=source.cluster_id)
        side = Subject(f"a.{topic}", 0, into)
        what = Pin(subject=side, source_id=None, destination_id=None, source_cluster=destination.cluster_id)
        await write(source, back, what, fed(self.ours(source, destination, topic), side=side))

    async def test_what_has_passed_this_flow(self) -> None:
        """
        1. It halts, and each hop is named.
        2. An operator accepts that: it is copied once more, also when the other flow goes on, and after a restart.
        """
        async with clusters() as (source, destination):
            fill(source)
            await self.write(source, destination)
            async with mirroring(source, destination, **ONLY_T) as flow:
                assert await flow.halted() == "loop"
                (told,) = flow.log.of("halted")
                assert told["detail"] == (
                    f'records come back under another name: flow "{FLOW}" (mirror-internal.source_to_destination at '
                    'destination) copies x-0 of source into a.x-0 of destination, then flow "back" '
                    "(mirror-internal.back at source) copies a.x-0 of destination into t-0 of source, then this flow "
                    f'("{FLOW}") would copy t-0 of source into t-0 of destination'
                )
                assert "one more name" in told["remedy"]
                assert destination.log("t").end == 0
                assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
                await flow.copied(("t", 0))
            async with mirroring(source, destination, **OFTEN) as flow:
                await flow.copied(("t", 0))
                note = Note(
                    subject=Subject("a.x", 0, "t"),
                    writer="w",
                    source_id=None,
                    destination_id=None,
                    copied=LastCopied(9),
                )
                await write(source, note)
                await flow.relay.loops.renew()
                assert not flow.log.of("halted")
                accepted = [each for each in ledger(destination).about({SIDE}) if isinstance(each, AcceptedLoop)]
                assert len(accepted) == 1

    async def test_another_name_of_the_copy_alone(self) -> None:
        """Our flow had another ``topic.rename`` once, which is the remedy for a ring: what comes back to ``t`` is a
        copy of ``t`` under that name. Nothing goes round any more."""
        async with clusters() as (source, destination):
            fill(source)
            await self.write(source, destination, topic="t")
            async with mirroring(source, destination, **ONLY_T) as flow:
                await flow.copied(("t", 0))

    async def test_another_flow_of_that_name(self) -> None:
        """Between other clusters: flow ids are chosen by people."""
        async with clusters() as (source, destination):
            fill(source)
            other = Edge(FLOW, "c8", "x", MIDDLE, "t")
            await write(source, second(source), pin(), fed(other), flow=SECOND)
            async with mirroring(source, destination, **ONLY_T) as flow:
                await flow.copied(("t", 0))


@pytest.mark.parametrize("often", [True, False])
async def test_it_is_looked_for_often_behind_a_beginning(*, often: bool) -> None:
    """
    1. A partition begins; at the same moment a ring closes, somewhere out of sight.
    2. It is seen long before the next regular look; mutation: without those looks, it is not.
    """
    real = Loops._look_often

    def look_often(self: Loops) -> None:
        if often:
            real(self)

    async with clusters() as (source, destination):
        fill(source)
        with patch.object(loops, "WATCH_EVERY_S", 0.02), patch.object(Loops, "_look_often", look_often):
            async with mirroring(source, destination, **ONLY_T) as flow:
                await flow.copied(("t", 0))
                await write(source, second(source), pin(), fed(first(destination)), flow=SECOND)
                if often:
                    assert await flow.halted() == "loop"
                else:
                    await some_turns(20)
                    assert not flow.log.of("halted")


async def test_the_looks_become_rarer() -> None:
    """The pause doubles, until it is the usual one."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, **ONLY_T) as flow:
            await flow.copied(("t", 0))
            found = flow.relay.loops
            looks: list[float] = []

            async def renew() -> None:
                looks.append(found._pause_s)

            with (
                patch.object(loops, "WATCH_EVERY_S", 0.001),
                patch.object(loops, "LOOK_EVERY_S", 0.02),
                suppress(TimeoutError),
            ):
                found._look_often()
                with patch.object(found, "renew", renew):
                    flow.relay.work(flow.partition(), found.keep())
                    await until(lambda: len(looks) > 4)
            assert looks[:5] == [0.002, 0.004, 0.008, 0.016, 0.02]


async def test_two_that_begin_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring closes between our look and our first entry: we look once more, before the first batch."""
    locate = Locator.locate

    async def meanwhile(self: Locator, *args: Any, **options: Any) -> Any:
        found = await locate(self, *args, **options)
        await write(source, second(source), pin(), fed(first(destination)), flow=SECOND)
        return found

    async with clusters() as (source, destination):
        fill(source)
        monkeypatch.setattr(Locator, "locate", meanwhile)
        async with mirroring(source, destination, **ONLY_T) as flow:
            assert await flow.halted() == "loop"
            assert destination.log("t").end == 0
