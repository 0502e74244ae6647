"""Clusters that are upgraded across 2.8: their topics get ids, and are the same topics as before."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import AsyncMock, patch

import pytest

from mirror.offsetmap.entries.pins import LastCopied, Pin, Suspended
from mirror.reasons import HaltReason
from mirror.relay.assignment import copied_to, inherited
from mirror.relay.durable.flows import Flows
from mirror.relay.durable.notes import committed_note, was_copied
from mirror.relay.halts import Halted
from mirror.relay.leading.cleanup import SUSPENDED, Cleanup
from mirror.relay.partition.claim import Claim, Committed
from mirror.relay.partition.cursor import Cursor
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.topics import recreated
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.fakes.state import MemoryState
from tests.records.builders import raw_batch
from tests.relay.durable import test_flows as flows
from tests.relay.durable import test_loops as loops
from tests.relay.holes import test_oversize as oversize
from tests.relay.stage.flows import Log, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, ledger, noted


@asynccontextmanager
async def without_ids() -> AsyncIterator[tuple[FakeCluster, FakeCluster]]:
    """Topic "t" on both sides, with twenty batches at the source."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        take_ids(source, destination)
        yield source, destination


def take_ids(*at: FakeCluster) -> None:
    for cluster in at:
        cluster.topics["t"].topic_id = None


def give_ids(*at: FakeCluster) -> None:
    for cluster in at:
        cluster.topics["t"].topic_id = uuid.uuid4()


@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
async def test_a_pause_stays(sides: tuple[int, ...]) -> None:
    """For whichever side gets ids. It is known as written down, and ends as ever: the topics were not replaced."""
    async with without_ids() as both:
        source, destination = both
        async with mirroring(source, destination) as flow:
            await noted(flow)
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            assert await flow.relay.drain()
        give_ids(*(both[side] for side in sides))
        source.store("t", 0, *batches(2, first=60))
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().halted or flow.partition().queue.acknowledged == 66)
            halted = flow.partition().halted
            assert halted is not None
            assert halted.reason == "paused"
            rows = len(destination.remembered)
            assert await flow.relay.pause_all([FIRST]) == {FIRST: ""}
            assert len(destination.remembered) == rows
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            assert not pin.replaced
        assert not flow.log.of("halted")


async def test_a_halt_stays() -> None:
    """And what was due is still known. An operator ends it, and what was noted of the copy is not forgotten."""
    async with without_ids() as (source, destination):
        async with mirroring(source, destination) as flow:
            await noted(flow)
            assert await flow.relay.drain()
        log = destination.log("t")
        log.produce(raw_batch(b"x", base_offset=0))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            await until(lambda: ledger(destination).halts and ledger(destination).due(SIDE))
        log.batches.pop()
        log.end = 60
        give_ids(source, destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            assert flow.relay.pins.due.at_halt(flow.partition()) == 60
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()
            assert ledger(destination).notes(SIDE)
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            assert not pin.replaced


async def test_what_was_decided_goes_into_the_pin_with_ids() -> None:
    """An adopted beginning, accepted gaps, and others. The ids stay if a broker that is older tells none."""
    async with without_ids() as (source, destination):
        async with mirroring(source, destination) as flow:
            await noted(flow)
        pin = ledger(destination).pin(SIDE)
        assert pin is not None
        decided = replace(pin, adopted=9, adopted_epoch=0, gaps_to=6, aborted_to=3, accepted=12)
        destination.remembered.append((decided.key(), decided.value()))
        give_ids(source, destination)
        for first in (60, 63):
            source.store("t", 0, *batches(1, first=first))
            async with mirroring(source, destination) as flow:
                await noted(flow)
            now = ledger(destination).pin(SIDE)
            assert now is not None
            assert now.source_id is not None
            assert now.destination_id is not None
            same = replace(now, source_id=None, destination_id=None, at_ms=decided.at_ms, copied=decided.copied)
            assert same == decided
            take_ids(source, destination)


async def test_a_record_that_was_passed_over_at_the_end() -> None:
    """Its marker stands where the source has a record: what shows that it stands there rightly still counts."""
    async with clusters() as (source, destination):
        stored = [oversize.records(0, 3), oversize.records(3, 5), oversize.records(8, 1)]
        oversize.begin(source, destination, *stored)
        take_ids(source, destination)
        async with mirroring(source, destination, **oversize.DROP) as flow:
            await oversize.over(flow)
            assert await flow.relay.drain()
        give_ids(source, destination)
        source.store("t", 0, oversize.records(9, 3))
        async with mirroring(source, destination, **oversize.DROP) as flow:
            await oversize.over(flow)
            oversize.assert_passed(source, destination)
            assert not flow.log.of("halted")


@pytest.mark.parametrize("chain", [False, True])
async def test_a_flow_the_other_way_that_has_halted(*, chain: bool) -> None:
    """It copies nothing any more, so nothing comes back: also where its source is out of sight (``chain``)."""
    async with without_ids() as (source, destination):
        who, what = loops.opposite(source, destination), loops.pin(destination)
        stopped = loops.halt_of(source, destination)
        if chain:
            who, what = replace(who, source_cluster="c9"), replace(what, source_cluster="c9", source_id="ab" * 16)
        await loops.write(source, who, what, stopped)
        give_ids(source, destination)
        async with mirroring(source, destination, **loops.ONLY_T) as flow:
            await flow.copied(("t", 0))
            feeds = flow.relay.loops._feeds["t", 0]
            assert [flow.relay.loops._stands(each, flow.partition()) for each in feeds] == [True]


async def test_another_flow_that_has_halted_before_it_copied_anything() -> None:
    """It looks again when it is resumed."""
    async with without_ids() as (source, destination):
        stopped = flows.halt_of(source, destination)
        await flows.write(destination, *flows.begun(source, destination), stopped)
        give_ids(source, destination)
        async with mirroring(source, destination, **flows.ONLY_T) as flow:
            await flow.copied(("t", 0))


def test_a_flow_that_keeps_an_exact_copy() -> None:
    """Nobody appends to it, though it has written down no id of its destination topic."""
    state = MemoryState([])
    partition = Partition("a", 0, "t")
    found = Flows(None, flow="ours", source_cluster="c", state=state, mapped=True)  # type: ignore[arg-type]
    pin = Pin(subject=SIDE, source_id=None, destination_id=None, source_cluster="c9", offsets="exact")
    state.ledger.put(pin)
    assert found._exact_trace(state.ledger, partition, "ab" * 16)
    state.ledger.put(replace(pin, destination_id="cd" * 16))
    assert not found._exact_trace(state.ledger, partition, "ab" * 16)


async def test_what_is_due_of_a_partition_that_was_located() -> None:
    """
    1. The clusters are upgraded while it is copied: its topics have ids now, at the next look. Then it halts.
    2. What is due is noted from its position on, with the leader's epoch: it is evidence, too. So it is if a broker
       that is not upgraded yet tells no ids any more.
    """
    for before, now in ((take_ids, give_ids), (give_ids, take_ids)):
        async with without_ids() as (source, destination):
            before(source, destination)
            async with mirroring(source, destination) as flow:
                await flow.copied()
                now(source, destination)
                await flow.relay.find_topics()
                flow.relay.halt(flow.partition(), Halted.of(HaltReason.CORRUPT, "as an answer would have it"))
                await until(lambda: ledger(destination).due(SIDE))
                note = ledger(destination).due(SIDE)
                assert note is not None
                assert note.copied == LastCopied(60, 0)


async def test_resumed_while_a_broker_tells_no_ids() -> None:
    """What is known of the source is kept: it was not made anew."""
    async with without_ids() as (source, destination):
        give_ids(source, destination)
        async with mirroring(source, destination) as flow:
            await noted(flow)
            partition = flow.partition()
            flow.relay.halt(partition, Halted.of(HaltReason.CORRUPT, "as an answer would have it"))
            take_ids(source, destination)
            with (
                patch.object(Cursor, "forget_source", side_effect=AssertionError),
                patch.object(Claim, "remember_before", side_effect=AssertionError),
            ):
                assert await flow.relay.resume(FIRST) == ""
            await flow.copied()


async def test_what_a_suspended_topic_had_before() -> None:
    """Compaction was suspended before the topic had an id, and is to be as it was."""
    topics = {"t": SimpleNamespace(topic_id=b"\xab" * 16)}
    state = MemoryState([])
    for topic_id, kept in ((None, True), ("ab" * 16, True), ("cd" * 16, False)):
        own = dict(SUSPENDED) | {"cleanup.policy": "compact"}
        await state.save([Suspended(topic="t", topic_id=topic_id, values=own)])
        cleanup = Cleanup(None, SimpleNamespace(topics=topics), "t", (), state, Log())  # type: ignore[arg-type]
        with patch.object(Cleanup, "_intended", AsyncMock(return_value={})):
            assert await cleanup._before() == (own if kept else {})


@pytest.mark.parametrize("known", [b"\xab" * 16, None])
def test_what_the_group_has_committed(known: bytes | None) -> None:
    """It was committed without an id, and the topic has one now; or a broker tells none any more. Of another topic, or
    without anything of ours, it says nothing."""
    text = known.hex() if known else ""
    partition = Partition("t", 0)
    for committed, counts in (
        (Committed(9, "", 3, "ab" * 8, 9, 4), True),
        (Committed(9, "ab" * 16, 3, "ab" * 8, 9, 4), True),
        (Committed(9, "cd" * 16, 3, "ab" * 8, 9, 4), known is None),
        (Committed(9), known is None),
    ):
        partition.inherit(committed, -1)
        partition.claim.identify(known, None)
        counted = counts and bool(committed.digest)
        assert inherited(committed, known) == (9 if counts else -1)
        assert bool(committed_note(partition)) == was_copied(partition) == counted
        assert copied_to(partition, 9)[1:5] == (
            (text, committed.epoch, committed.digest, committed.digest_at) if counts else (text, -1, "", -1)
        )


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("side", [0, 1])
async def test_ids_that_appear_while_it_is_copied(side: int, monkeypatch: pytest.MonkeyPatch, *, mapped: bool) -> None:
    """
    1. A partition is copied, and its cluster is upgraded. It is located once more, goes on, and its topic's id is known
       from then on.
    2. The topic is made anew, and ends where the other one did: the partition halts.
    """
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", 0.02)
    async with without_ids() as both, mirroring(*both, mapped=mapped) as flow:
        await until(lambda: flow.partition().queue.acknowledged == 60)
        give_ids(both[side])
        claim = flow.partition().claim
        await until(lambda: (claim.source_id, claim.destination_id)[side], what="an id")
        await until(lambda: flow.partition().phase is Phase.ACTIVE)
        assert [line["cause"] for line in flow.log.of("resync")] == ["id_unknown"]
        before = both[side].log("t").batches
        give_ids(both[side])
        both[side].log("t").batches = before
        assert await flow.halted() == "recreated"


async def test_ids_that_appear_under_a_copy_of_something_else() -> None:
    """Its topic was made anew before the upgrade was seen, with other records: that is found by what they are."""
    async with without_ids() as (source, destination), mirroring(source, destination) as flow:
        await noted(flow)
        source.log("t").batches[:] = batches(20, size=30)
        give_ids(source)
        await flow.relay.find_topics()
        assert await flow.halted() in ("not_a_copy", "source_truncated")


async def test_ids_that_some_brokers_tell_and_others_do_not() -> None:
    """While the brokers are upgraded one by one, the partition is located once more for that, not at each look."""
    async with without_ids() as (source, destination), mirroring(source, destination) as flow:
        await noted(flow)
        for _ in range(3):
            give_ids(source)
            await flow.relay.find_topics()
            await until(lambda: flow.partition().phase is Phase.ACTIVE)
            take_ids(source)
            await flow.relay.find_topics()
            flow.partition().claim.identify(None, flow.partition().claim.destination_id)
        assert len(flow.log.of("resync")) == 1
