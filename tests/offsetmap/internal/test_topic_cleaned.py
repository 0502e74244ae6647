"""The internal topic behind its cleaner, and with a stranger's records in it: what a worker knows of it stays true."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from kafka.record.default_records import DefaultRecordBatch

from mirror.net.cluster import Cluster
from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog, Segment
from mirror.offsetmap.entries.chunks import MapChunk, Order
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.entries.pins import FlowEntry, KeptHalt, Pin
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.maps import whole_map
from mirror.offsetmap.internal.memory import StateUnusable, state_topic
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.offsetmap.runs import OffsetMap, Run
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.restamp import checksum
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.records.builders import Record, kafka_batch, raw_batch

FLOW = "west->east"
SIDE = Subject("t", 0, "t")
HALT = KeptHalt(subject=SIDE, reason="retention_overtook", detail="d", remedy="r", at_ms=5)
PIN = Pin(subject=SIDE, source_id=None, destination_id=None)
FIRST = replace(PIN, subject=Subject("first", 0, "t"))


@asynccontextmanager
async def two() -> AsyncIterator[tuple[InternalTopic, InternalTopic, FakeLog]]:
    """Two workers that have read the topic, and its log."""
    async with FakeCluster() as fake, await Cluster.open("destination", fake.options()) as cluster:
        states = InternalTopic(cluster, FLOW), InternalTopic(cluster, FLOW)
        for state in states:
            assert await state.open()
        yield *states, fake.log(state_topic(FLOW))


def clean(log: FakeLog, *offsets: int) -> None:
    """What the cleaner does to records that are superseded, and to tombstones older than delete.retention.ms."""
    log.batches = [each for each in log.batches if BatchHeader.read(each).base_offset not in offsets]


def without_last(batch: bytes) -> bytes:
    """The batch as the cleaner writes it without its last record: the same offsets, fewer records."""
    header, first = BatchHeader.read(batch), next(DefaultRecordBatch(batch))
    fewer = kafka_batch([Record(0, header.max_timestamp, first.key, first.value)])
    new = BatchHeader.read(fewer)._replace(base_offset=header.base_offset, last_offset_delta=header.last_offset_delta)
    new = new._replace(crc=checksum(new.pack() + fewer[HEADER_SIZE:]))
    return new.pack() + fewer[HEADER_SIZE:]


@pytest.mark.parametrize("rule", [True, False])
@pytest.mark.parametrize("last", [True, False])
async def test_a_tombstone_that_was_cleaned_away_still_counts(*, rule: bool, last: bool) -> None:
    """
    1. One worker has read a halt. Another one has the partition when it is resumed.
    2. The topic's cleaner takes the halt, and later the tombstone.
    3. The first worker takes the partition over: it is not halted. Without the rule, the halt stands again.
    """
    async with two() as (one, other, log):
        for entry in (PIN, HALT):
            await other.save([entry])
        await one.load()
        await other.save([], forget=[HALT.key()])
        if not last:
            await other.save([PIN])
        clean(log, *((1, 2) if last else (0, 1, 2)))
        if rule:
            await one.load()
            assert one.ledger.halt(SIDE) is None
            assert one.ledger.pin(SIDE) == PIN
            return
        with patch.object(InternalTopic, "_read_on", _whatever_is_missing):
            await one.load()
        assert one.ledger.halt(SIDE) == HALT


async def _whatever_is_missing(self: InternalTopic, *_: object) -> bool:
    log = self._log()
    for header, batch in (await log.read(self._next)).batches:
        self._apply(self.ledger, header, batch)
    return True


async def test_within_a_batch_that_the_cleaner_has_rewritten() -> None:
    """The tombstone stood in one batch with other entries, which are still there."""
    async with two() as (one, other, log):
        await other.save([PIN])
        await other.save([HALT])
        await one.load()
        await other.save([PIN], forget=[HALT.key()])
        clean(log, 0, 1)
        header = BatchHeader.read(log.batches[-1])
        assert (header.base_offset, header.record_count) == (2, 2)
        log.batches[-1] = without_last(log.batches[-1])
        await one.load()
        assert one.ledger.halt(SIDE) is None
        assert one.ledger.pin(SIDE) == PIN


async def test_what_was_read_is_not_read_again() -> None:
    """As long as no offset is missing behind it, whatever the cleaner does to what was read before."""
    async with two() as (one, other, log):
        await other.save([PIN, HALT])
        await one.load()
        await other.save([PIN])
        clean(log, 0)
        known = one.ledger
        await one.load()
        await one.load()
        assert one.ledger is known
        assert known.halt(SIDE) == HALT


@pytest.mark.parametrize("rule", [True, False])
@pytest.mark.parametrize("grown", [0, 1, 3])
async def test_a_log_that_lost_its_end(*, grown: int, rule: bool) -> None:
    """
    1. Both workers have read a halt and a pin. An unclean election takes them away; the other worker writes again.
    2. Whether the log ends below the first one's position by then, at it or behind, what stands there is what it knows.
    3. Without the rule, it goes on from where it was, and never knows.
    """
    async with two() as (one, other, log):
        await other.save([FIRST])
        await other.save([HALT])
        await one.load()
        log.truncate(1)
        pins = [replace(PIN, subject=Subject("t", 7 + at, "t")) for at in range(grown)]
        for each in pins:
            await other.save([each])
        with patch.object(InternalTopic, "_is_cut", InternalTopic._is_cut if rule else _never):
            await one.load()
        assert [one.ledger.pin(each.subject) for each in pins] == [
            each if rule or at else None for at, each in enumerate(pins)
        ]
        assert one.ledger.halt(SIDE) == (None if rule else HALT)
        assert one.ledger.pin(FIRST.subject) == FIRST


async def _never(*_: object) -> bool:
    return False


async def test_an_election_that_loses_nothing_reads_on() -> None:
    """Another leader that has all that was read; one that cannot be asked may not have it."""
    async with two() as (one, other, log):
        await other.save([PIN])
        await one.load()
        known = one.ledger
        log.epoch += 1
        await other.save([HALT])
        await one.load()
        assert one.ledger is known
        assert known.halt(SIDE) == HALT
        log.epoch += 1
        with patch.object(PartitionLog, "end_of_epoch", _not_told):
            await one.load()
        assert one.ledger is not known
        assert one.ledger.halt(SIDE) == HALT


async def _not_told(*_: object) -> None:
    return None


async def test_what_was_written_here_and_lost() -> None:
    """It was acknowledged, and is gone with the old leader: at the next write, or the next look, that is noticed."""
    async with two() as (one, _, log):
        await one.save([PIN])
        await one.save([HALT])
        log.truncate(0)
        await one.save([FIRST])
        await one.load()
        assert (one.ledger.pin(SIDE), one.ledger.halt(SIDE), one.ledger.pin(FIRST.subject)) == (None, None, FIRST)
        await one.save([PIN])
        log.truncate(1)
        await one.load()
        assert (one.ledger.pin(SIDE), one.ledger.pin(FIRST.subject)) == (None, FIRST)


@pytest.mark.parametrize("lasting", [True, False])
async def test_a_leader_that_cannot_show_all_yet(*, lasting: bool) -> None:
    """
    1. A worker reads the whole topic. In the middle, its leader's high watermark goes back: nothing comes any more.
    2. That is not the end. What stands behind it is read with another try, or the worker knows what it knew before.
    """
    async with two() as (one, other, _):
        await other.save([PIN])
        await one.load()
        known = one.ledger
        await other.save([HALT])
        await other.save([FIRST])
        read, looks = PartitionLog.read, 0

        async def reads(self: PartitionLog, offset: int, **rest: Any) -> Segment:
            nonlocal looks
            found = await read(self, offset, **rest)
            if offset > 1 and (lasting or looks < 2):
                looks += 1
                return found._replace(batches=[], high_watermark=offset)
            return found._replace(batches=found.batches[:1])

        one._next = 0  # as after a loss: all of it is read
        with patch.object(PartitionLog, "read", reads):
            if lasting:
                with pytest.raises(Unreachable, match="is to be read to 2 only"):
                    await one.load()
                assert one.ledger is known
                return
            await one.load()
        assert (one.ledger.halt(SIDE), one.ledger.pin(FIRST.subject)) == (HALT, FIRST)


def of(flow: str, at_ms: int) -> FlowEntry:
    """Its word."""
    return FlowEntry(flow=flow, source_cluster="s", destination_cluster="d", at_ms=at_ms)


async def test_another_flow_with_the_same_topic() -> None:
    """
    1. ``west->east`` has said that the topic is its own. ``west_to_east`` does not open it, and writes nothing.
    2. Both are there at the same moment: the one that said so first goes on, and the other one takes its word back.
    3. A topic that is shared since before: the later of the two is refused.
    """
    async with FakeCluster() as fake, await Cluster.open("destination", fake.options()) as cluster:
        one, same, other = (InternalTopic(cluster, flow) for flow in (FLOW, FLOW, "west_to_east"))
        assert one.topic == other.topic
        for state in (one, other):
            assert await state.open()
        await one.put(of(FLOW, 5))
        with pytest.raises(StateUnusable, match=r"flow\.id west->east, this one is west_to_east"):
            await other.claim(of("west_to_east", 6))
        await one.claim(of(FLOW, 7))
        await one.load()
        assert one.ledger.flows == [of(FLOW, 5)]
        with pytest.raises(StateUnusable, match=r"set flow\.id: west->east"):
            await InternalTopic(cluster, "west_to_east").open()
        await one.put(of("west_to_east", 6))
        assert await same.open()
        with patch.object(InternalTopic, "_check_flow", lambda _: None):
            assert await InternalTopic(cluster, "west_to_east").open(), "the mutation: they share it in silence"
        assert await InternalTopic(cluster, "any", topic=one.topic).open(create=False), "whoever only reads it"


@pytest.mark.parametrize("codec", range(8))
async def test_a_batch_that_cannot_be_read(codec: int) -> None:
    """Its checksum is right; what is in it is no record, in any codec. The topic is unusable, and says where."""
    async with two() as (one, other, log):
        await other.save([PIN])
        await one.load()
        log.store(raw_batch(b"nothing" * 9, base_offset=1, record_count=1, last_offset_delta=0, attributes=codec))
        with pytest.raises(StateUnusable, match="batch at offset 1: unreadable"):
            await one.load()


async def test_a_record_that_nobody_should_have_written() -> None:
    """Brackets without end: as a key none of ours, as a value under one of ours no entry."""
    async with two() as (one, other, _):
        with patch.object(Pin, "key", lambda _: b"[" * 100_000):
            await other.save([PIN])
        await one.load()
        with patch.object(Pin, "value", lambda _: b"[" * 100_000):
            await other.save([PIN])
        with pytest.raises(StateUnusable, match="RecursionError"):
            await one.load()


def test_maps_that_do_not_fit_together() -> None:
    """Two pieces of one writer's map with the same offsets."""
    order = Order(1, 1000, 0)
    runs = OffsetMap([Run(0, 0, 5)])
    chunks = [MapChunk(subject=SIDE, writer="w", order=order, number=at, since=0, map=runs) for at in range(2)]
    ledger = Ledger()
    ledger.put(chunks[0])
    assert whole_map("mirror-internal.f", ledger, SIDE, gone_to=0) == runs
    ledger.put(chunks[1])
    with pytest.raises(StateUnusable, match="do not make one offset map"):
        whole_map("mirror-internal.f", ledger, SIDE, gone_to=0)
