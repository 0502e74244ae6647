"""A topic that is made anew while it is copied, or where an operator deleted it: seen by its id, and gone on with."""

import asyncio
import math
import time
from typing import Any
from unittest.mock import patch

import pytest

from mirror.offsetmap.runs import OffsetMap, Run
from mirror.reasons import HaltReason
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.relay.durable.pins import Pins
from mirror.relay.fetch import link
from mirror.relay.halts import Halted, of_mapped
from mirror.relay.partition.cursor import Cursor
from mirror.relay.topics import recreated
from mirror.relay.watch import idle
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.loop import until
from tests.records.builders import raw_batch
from tests.relay.stage.flows import Flow, Versions, batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, ledger, recreate

BY_NAME: Versions = {"Produce": (3, 12), "Fetch": (4, 12)}
NEVER_S = 1e9
COPIED = 60
"""Offsets of ``fill``."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(idle, "LOOK_EVERY_S", NEVER_S)


def foreign(cluster: FakeCluster, count: int) -> None:
    """Somebody else's records, a batch each."""
    log = cluster.log("t")
    for _ in range(count):
        log.store(
            raw_batch(
                b"of others %d" % log.end, base_offset=log.end, last_offset_delta=0, record_count=1, leader_epoch=0
            )
        )


def payloads(log: FakeLog) -> list[bytes]:
    """Those of the log's batches, in order; without those of others."""
    return [each[HEADER_SIZE:] for each in log.batches if not each[HEADER_SIZE:].startswith(b"of others")]


async def all_copied(flow: Flow) -> None:
    await until(lambda: flow.partition().queue.acknowledged == flow.source.log("t").end, what=f"{flow.log.lines[-10:]}")


def map_of(destination: FakeCluster) -> OffsetMap:
    return ledger(destination).map(SIDE)


def is_true(flow: Flow) -> None:
    """What was written down of a mapped copy is so."""
    here, there = flow.logs()
    places = {BatchHeader.read(each).base_offset: each[HEADER_SIZE:] for each in there.batches}
    found = map_of(flow.destination)
    assert sum(run.length for run in found) == here.end
    for each in here.batches:
        place = found.to_destination(BatchHeader.read(each).base_offset)
        assert place is not None
        assert places[place.offset] == each[HEADER_SIZE:]


@pytest.mark.parametrize("by", ["ids", "topics", "nothing"])
@pytest.mark.parametrize("side", ["source", "destination"])
@pytest.mark.parametrize("mapped", [True, False])
async def test_while_nothing_is_due(mapped: bool, side: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. All is copied. The topic is made anew on one side, and ends where the other one did: by name nothing is wrong.
    2. The look at the ids, or the look for topics, tells. Without either (the mutation), nothing does.
    """
    if by != "ids":
        monkeypatch.setattr(recreated, "LOOK_EVERY_S", NEVER_S)
    async with clusters(versions=BY_NAME) as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=mapped) as flow:
            await all_copied(flow)
            recreate(source if side == "source" else destination)
            foreign(source if side == "source" else destination, COPIED)
            if by == "nothing":
                asked = len(source.seen("Fetch"))
                await until(lambda: len(source.seen("Fetch")) > asked + 10)
                assert flow.partition().halted is None
                return
            if by == "topics":
                flow.relay.look_now()
            assert await flow.halted() == "recreated"
            assert [line["cause"] for line in flow.log.of("resync")] == ["recreated"]
            assert not flow.log.of("topics_not_refreshed")


@pytest.mark.parametrize("rule", [True, False])
async def test_the_source_goes_on_into_the_new_one(rule: bool) -> None:
    """``offsets: mapped``, a destination that is written to by name: others write to the new topic, more than there
    was. What is due is taken there; it is seen at the next look."""
    async with clusters(versions=BY_NAME) as (source, destination):
        fill(source)
        with patch.object(
            recreated.RecreatedTopics, "compare", recreated.RecreatedTopics.compare if rule else lambda _: None
        ):
            async with mirroring(source, destination, mapped=True) as flow:
                await all_copied(flow)
                recreate(destination)
                foreign(destination, COPIED + 20)
                source.store("t", 0, batch(COPIED))
                if rule:
                    assert await flow.halted() == "recreated"
                    assert flow.partition().halted.remedy == HaltReason.RECREATED_MAPPED.told  # type: ignore[union-attr]
                else:
                    await all_copied(flow)
                    assert len(payloads(destination.log("t"))) == 1


async def test_a_source_without_ids_that_is_another_one_when_its_connection_comes_back() -> None:
    """
    1. All is copied, from brokers before 2.8. The source's connection ends, its topic is made anew, and has grown past
       the copy when it is back.
    2. Nothing of the new one is copied behind the old one's: it halts. (A name is all that a fetch says.)
    """
    async with clusters(versions={"Metadata": (0, 9), "Fetch": (4, 11)}) as (source, destination):
        fill(source, count=5)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            end = destination.log("t").end
            recreate(source, *batches(9, size=40))
            source.drop(1)
            assert await flow.halted() == "source_truncated"
            assert destination.log("t").end == end


@pytest.mark.parametrize("rule", [True, False])
async def test_a_source_without_ids_that_is_another_one_after_a_pause(
    rule: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. All is copied, from brokers before 2.8, and then nothing is fetched for a while: there is no room, say, or a
       limit. In that time the source topic is made anew, and grows past the copy.
    2. Nothing of the new one is copied behind the old one's: it halts. Without the rule, it is.
    """
    monkeypatch.setattr(link, "UNFETCHED_S", 0.2 if rule else math.inf)
    async with clusters(versions={"Metadata": (0, 9), "Fetch": (4, 11)}) as (source, destination):
        fill(source, count=5)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            end = destination.log("t").end
            (fetcher,) = flow.relay.brokers.fetchers.values()
            fetching: list[Any] = [fetcher, fetcher._current, *fetcher._backlog]
            for each in fetching:
                monkeypatch.setattr(each, "pump", lambda: None)
            await until(lambda: not fetcher._current.under_way)
            await asyncio.sleep(0.4)
            recreate(source, *batches(9, size=40))
            for each in fetching:
                monkeypatch.delattr(each, "pump")
            fetcher.pump()
            if rule:
                assert await flow.halted() == "source_truncated"
                assert destination.log("t").end == end
            else:
                await until(lambda: destination.log("t").end > end)


async def test_whoever_waits_for_its_turn_is_not_doubted() -> None:
    """Of thousands with backlog, one is fetched every few minutes: if it came into doubt by that, it would never have
    its turn. Only a pause in which nothing at all was fetched does that."""
    async with clusters(versions={"Metadata": (0, 9), "Fetch": (4, 11)}) as (source, destination):
        fill(source, count=5)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            (fetcher,) = flow.relay.brokers.fetchers.values()
            partition, link_ = flow.partition(), fetcher._backlog[0]
            with patch.object(Cursor, "fetched_at", -math.inf):
                fetcher.backlog_answered.at_s = time.monotonic()
                assert link_._known([partition]) == [partition]
                fetcher.backlog_answered.at_s = -math.inf
                assert link_._known([partition]) == []
            (told,) = flow.log.of("resync")
            assert told["cause"] == "unfetched"


@pytest.mark.parametrize("running", [True, False])
async def test_a_mapped_copy_into_a_new_topic(running: bool) -> None:
    """
    1. The destination topic is deleted and made anew, and others write to the new one: `recreated`.
    2. An operator resumes, without more: all is copied anew, and the map is true. The next start goes on from there.
    """
    async with clusters(versions=BY_NAME) as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await all_copied(flow)
            await flow.relay.durable.write_down()
            if running:
                recreate(destination)
                foreign(destination, 5)
                await _resumed(flow)
        if not running:
            recreate(destination)
            foreign(destination, 5)
            async with mirroring(source, destination, mapped=True) as flow:
                await _resumed(flow)
        async with mirroring(source, destination, mapped=True) as flow:
            source.store("t", 0, batch(COPIED))
            await all_copied(flow)
            assert not flow.log.of("halted")
            await flow.relay.durable.write_down()
            is_true(flow)
        assert payloads(destination.log("t")) == payloads(source.log("t"))


async def _resumed(flow: Flow) -> None:
    assert await flow.halted() == "recreated"
    assert await flow.relay.resume(FIRST) == ""
    await all_copied(flow)
    await flow.relay.durable.write_down()
    assert payloads(flow.destination.log("t")) == payloads(flow.source.log("t"))
    is_true(flow)


async def test_without_the_word_written_down_it_halts_for_ever() -> None:
    """The mutation: the checkpoint names the old topics, and nothing says that the new ones are accepted."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await all_copied(flow)
            await flow.relay.durable.write_down()
            recreate(destination)
            assert await flow.halted() == "recreated"
            with patch.object(Pins, "_pin_of", lambda *_: ledger(destination).checkpoint(SIDE)):
                assert await flow.relay.resume(FIRST) == ""
                assert await flow.halted() == "recreated"


async def test_the_remedy_to_the_letter() -> None:
    """``settings_changed``: the destination topic is deleted, and the topic resumed. It is created and copied anew."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await all_copied(flow)
            await flow.relay.durable.write_down()
        async with mirroring(source, destination, mapped=True, committed=False) as flow:
            assert await flow.halted() == "settings_changed"
            del destination.topics["t"]
            assert await flow.relay.resume(FIRST) == ""
            await all_copied(flow)
            await flow.relay.durable.write_down()
            is_true(flow)


async def test_a_source_made_anew() -> None:
    """``offsets: mapped``: what the new one has is copied behind the old one's, and the map is of the new one."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await all_copied(flow)
            await flow.relay.durable.write_down()
            before = payloads(destination.log("t"))
            recreate(source, *batches(5, count=2))
            source.log("t").delete_before(2)
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(FIRST) == ""
            await all_copied(flow)
            await flow.relay.durable.write_down()
            assert payloads(destination.log("t")) == before + payloads(source.log("t"))
            assert list(map_of(destination)) == [Run(2, COPIED, 8)]


async def test_what_the_new_one_has_of_ours_is_not_doubled_unasked() -> None:
    """
    1. What was due went into the new topic before it was known to be one. Resuming alone does not copy it again, and
       says what is there.
    2. An operator accepts that these records are there twice.
    """
    async with clusters(versions=BY_NAME) as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await all_copied(flow)
            await flow.relay.durable.write_down()
            with patch.object(recreated.RecreatedTopics, "compare", lambda _: None):
                recreate(destination)
                foreign(destination, COPIED)
                source.store("t", 0, batch(COPIED))
                await all_copied(flow)
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(FIRST) == ""
            assert await flow.halted() == "recreated"
            halted = flow.partition().halted
            assert halted is not None
            assert f"batches of this flow already, from offset {COPIED} on" in halted.detail
            assert "there twice" in halted.remedy
            assert len(payloads(destination.log("t"))) == 1
            assert await flow.relay.resume(FIRST, accept_gap=True) == ""
            await all_copied(flow)
            assert payloads(destination.log("t"))[1:] == payloads(source.log("t"))
            await flow.relay.durable.write_down()
            is_true(flow)


@pytest.mark.parametrize("looked", [True, False])
async def test_a_mapped_copy_that_lost_its_end(looked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is due, and the destination ends before the last copy: it is seen, and copied again. Others may write
    behind it."""
    monkeypatch.setattr(idle, "LOOK_EVERY_S", 0.02 if looked else NEVER_S)
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await all_copied(flow)
            await flow.relay.durable.write_down()
            foreign(destination, 3)
            asked = len(destination.seen("ListOffsets"))
            await until(lambda: not looked or len(destination.seen("ListOffsets")) > asked + 5)
            assert not flow.log.of("resync")
            destination.log("t").truncate(30)
            fetched = len(source.seen("Fetch"))
            if looked:
                await until(lambda: len(destination.log("t").batches) == 20)
                assert flow.log.of("destination_lost")
            else:
                await until(lambda: len(source.seen("Fetch")) > fetched + 10)
                assert destination.log("t").end == 30


@pytest.mark.parametrize("under_way", [True, False])
async def test_what_the_new_topic_holds_is_said(under_way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """``offsets: exact``, written to by name: what was under way may stand in the new topic, which is then no copy."""
    monkeypatch.setattr(recreated, "LOOK_EVERY_S", NEVER_S if under_way else 0.02)
    async with clusters(versions=BY_NAME) as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await all_copied(flow)
            recreate(destination)
            if under_way:
                source.store("t", 0, batch(COPIED))
            assert await flow.halted() == "recreated"
            halted = flow.partition().halted
            assert halted is not None
            assert halted.detail.endswith("it holds offsets 0 to 2" if under_way else "it is empty")
            if under_way:
                recreate(destination)
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()


def test_a_mapped_remedy_tells_of_others() -> None:
    """None says only to delete what others may write to."""
    anew = HaltReason.NOT_A_COPY.told
    told = of_mapped(Halted("not_a_copy", "d", anew), ["other"]).remedy
    assert "others may have written to it" in told
    assert told.endswith("so would what this flow has copied of other")
    for each in HaltReason:
        remedy = of_mapped(Halted.of(each, "d"), ()).remedy
        assert "delete the destination topic" not in remedy, each
    recreated = of_mapped(Halted("recreated", "d", HaltReason.RECREATED.told), ())
    assert recreated.remedy == HaltReason.RECREATED_MAPPED.told
