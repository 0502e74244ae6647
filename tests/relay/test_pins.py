"""What outlives every process: topic ids, halts, what was copied last. Each test plays two lives of a mirror."""

from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.errors import NetworkError
from mirror.records.state import Halt, Ledger, Pin, Side
from mirror.relay import pins
from mirror.relay.assignment import read_committed
from mirror.relay.halts import HEALING, Heals, Trouble, is_durable
from mirror.relay.partition import Phase
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.records.builders import raw_batch
from tests.relay.flows import Flow, batch, batches, clusters, fill, mirroring

SIDE = Side("t", 0, "t")
FIRST = ("t", 0)


def ledger(destination: FakeCluster) -> Ledger:
    """What is written down at the destination."""
    found = Ledger()
    for key, value in destination.remembered:
        found.apply(key, value)
    return found


async def noted(flow: Flow) -> None:
    """All is copied, and what was copied last is written down, as it is at a clean stop."""
    await flow.copied()
    await flow.relay.books.write_down()


def recreate(cluster: FakeCluster, *stored: bytes) -> None:
    """Topic "t" deleted, and made again."""
    del cluster.topics["t"]
    cluster.add_topic("t")
    cluster.store("t", 0, *stored)


def empty(cluster: FakeCluster) -> None:
    """Retention, or DeleteRecords, has taken everything; the end stays."""
    log = cluster.log("t")
    log.delete_before(log.end)


async def test_what_a_partition_is_is_written_down_first() -> None:
    """Before the first batch; and not again at the next start. A clean stop notes what was copied last."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            here, there = source.topics["t"].topic_id, destination.topics["t"].topic_id
            assert here is not None
            assert there is not None
            assert (pin.source_id, pin.destination_id) == (here.hex, there.hex)
            assert (pin.source_cluster, pin.copied) == (source.cluster_id, None)
            assert await flow.relay.drain()
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            assert pin.copied is not None
            assert (pin.copied.offset, pin.copied.digest_at) == (60, 60)
        written = len(destination.remembered)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert len(destination.remembered) == written


async def test_nothing_is_written_before_it_is_written_down() -> None:
    """The internal topic does not take it: the partition waits, and its log stays empty."""
    async with clusters() as (source, destination):
        fill(source)
        with patch.object(pins.Pins, "pin", _refuse):
            async with mirroring(source, destination) as flow:
                await until(lambda: flow.log.of("position_unknown"))
                assert destination.log("t").end == 0
                assert flow.partition().phase is Phase.LOCATING


async def _refuse(*_: Any, **__: Any) -> None:
    raise NetworkError("not now")


# Topics made anew, and sources that lost what was copied.


@pytest.mark.parametrize("stopped", [True, False])
async def test_a_source_topic_made_anew_is_not_forgotten(stopped: bool) -> None:
    """
    1. All is copied. The source's topic is deleted and made again, with more records than before; the destination's
       records expire. The mirror sees it and is killed, or was stopped meanwhile.
    2. The next start halts for the same reason: the new topic's first records would be lost.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
            if not stopped:
                recreate(source, *batches(30))
                empty(destination)
                assert await flow.halted() == "recreated"
                await until(lambda: ledger(destination).halts)
        if stopped:
            recreate(source, *batches(30))
            empty(destination)
        for _ in range(2):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "recreated"
                assert destination.log("t").end == 60
                assert not flow.log.of("prefix_unproven")


async def test_without_what_was_written_down_records_are_lost() -> None:
    """The same without ids and notes: it goes on behind records that nobody copied, with a warning."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        recreate(source, *batches(30))
        empty(destination)
        destination.remembered.clear()
        with patch.object(pins, "vouch", _vouches):
            async with mirroring(source, destination) as flow:
                await until(lambda: flow.partition().acknowledged == 90)
                assert destination.log("t").start == 60
                assert flow.log.of("prefix_unproven")


async def _vouches(*_: Any) -> int:
    return -1


@pytest.mark.parametrize("noted_before", [True, False])
async def test_a_source_that_was_truncated_and_grew_again(noted_before: bool) -> None:
    """
    1. All is copied, and the destination's records expire. The source loses its end in an unclean election, and grows
       past where it ended, under the same topic id.
    2. What was copied last is not there any more: halt. Without such a note, too, because nothing shows that it is.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            if noted_before:
                await flow.relay.books.write_down()
        source.log("t").truncate(48)
        source.store("t", 0, *(batch(at, 3, b"other" * 9, leader_epoch=1) for at in range(48, 90, 3)))
        empty(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == ("source_truncated" if noted_before else "unproven")
            assert destination.log("t").end == 60


async def test_a_source_truncated_while_it_runs() -> None:
    """The same without a restart: the leader's new epoch is doubt, and what this process remembers is asked."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            empty(destination)
            source.log("t").truncate(48)
            source.store("t", 0, *(batch(at, 3, b"other" * 9, leader_epoch=1) for at in range(48, 90, 3)))
            assert await flow.halted() == "source_truncated"
            assert destination.log("t").end == 60


@pytest.mark.parametrize("asked", [True, False])
async def test_a_source_truncated_before_a_mere_takeover(asked: bool) -> None:
    """
    1. The group takes the partition away and gives it back: what was committed comes along. In between, the source has
       lost its end and grown again, and the destination's records have expired: halt.
    2. Without asking the source for it, four of its batches never arrive.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, assigned=True) as flow:
            assignment = flow.relay.assignment
            assert assignment is not None
            assignment.assign({FIRST})
            await flow.copied()
            committable = (await assignment.revoke({FIRST}, 5))[FIRST]
            empty(destination)
            source.log("t").truncate(48)
            source.store("t", 0, *(batch(at, 3, b"other" * 9, leader_epoch=1) for at in range(48, 90, 3)))
            committed = {FIRST: read_committed(committable.offset, committable.metadata)}
            if asked:
                assignment.assign({FIRST}, committed)
                assert await flow.halted() == "source_truncated"
                assert destination.log("t").end == 60
                return
            with patch.object(pins, "vouch", _vouches):
                assignment.assign({FIRST}, committed)
                await until(lambda: flow.relay.partitions[FIRST].acknowledged == 90)
                assert destination.log("t").start == 60


async def test_a_healthy_source_goes_on() -> None:
    """The destination's records expired, and nothing else happened: as before, with what was noted, at a start."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        empty(destination)
        source.store("t", 0, *batches(5, first=60))
        async with mirroring(source, destination) as flow:
            await until(lambda: flow.partition().acknowledged == 75)
            assert flow.log.of("prefix_unproven")


async def test_resumed_over_a_change() -> None:
    """
    1. The source was made anew, the destination's log is empty and ends at 60. An operator resumes: the ids are those
       of now, and nothing shows that it is a copy.
    2. The operator accepts that, too: it goes on at the end. The next start does not ask again.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        recreate(source, *batches(30))
        empty(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(("t", 0)) == ""
            await until(lambda: flow.partition().halted)
            assert flow.partition().halted.reason == "unproven"  # type: ignore[union-attr]
            assert await flow.relay.resume(("t", 0), accept_unproven=True) == ""
            await until(lambda: flow.partition().acknowledged == 90)
            pin = ledger(destination).pin(SIDE)
            assert pin is not None
            assert (pin.accepted, pin.copied) == (60, None)
        empty(destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "unproven", "what was copied since was not noted"
        async with mirroring(source, destination) as flow:
            assert await flow.relay.resume(("t", 0), accept_unproven=True) in ("", "not halted but locating")


async def test_another_cluster_under_the_same_name() -> None:
    """The source's cluster id is another one than it was written down."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        source.cluster_id = "another"
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"


# Halts.


async def test_a_halt_stays_for_whoever_takes_the_partition_over() -> None:
    """
    1. A foreign batch: the partition halts, and that is written down.
    2. The batch is gone (an operator's hand). The next start halts with the old reason and time, and does not look.
    3. Resumed: it goes on; the next start as well.
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
            assert await flow.relay.drain()
        log = destination.log("t")
        log.produce(raw_batch(b"x", base_offset=0))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            await until(lambda: ledger(destination).halts)
            assert flow.relay.stats.halts == {"foreign_writer": 1}
        log.batches.pop()
        log.end = 60
        (halt,) = ledger(destination).halts
        asked = len(destination.seen("ListOffsets"))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            halted = flow.partition().halted
            assert halted is not None
            assert (halted.at_ms, halted.detail) == (halt.at_ms, halt.detail)
            assert flow.log.of("halted")[0]["since_ms"] == halt.at_ms
            assert not flow.relay.stats.halts, "it was counted when it was found"
            assert len(destination.seen("ListOffsets")) == asked
            source.store("t", 0, *batches(1, first=60))
            assert await flow.relay.resume(("t", 0)) == ""
            await flow.copied()
            assert ledger(destination).halts == []
        async with mirroring(source, destination) as flow:
            await flow.copied()


async def test_without_the_note_of_it_a_halt_is_forgotten() -> None:
    """The same halt, not looked for: the next start goes on."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        destination.log("t").produce(raw_batch(b"x", base_offset=0))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            await until(lambda: ledger(destination).halts)
        log = destination.log("t")
        log.batches.clear()
        log.end = 0
        with patch.object(Ledger, "halt", lambda *_: None):
            async with mirroring(source, destination) as flow:
                await flow.copied()


async def test_a_halt_is_of_these_topics() -> None:
    """The destination's topic was made anew since: the halt says nothing of it; that it is another one does."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        destination.log("t").produce(raw_batch(b"x", base_offset=0))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "foreign_writer"
            await until(lambda: ledger(destination).halts)
        recreate(destination)
        async with mirroring(source, destination) as flow:
            await flow.copied()


async def test_a_halt_is_written_until_it_is_there() -> None:
    """The internal topic does not take it at first; the partition halts all the same, at once."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        destination.log("t").produce(raw_batch(b"x", base_offset=0))
        async with mirroring(source, destination, start=False) as flow:
            tries = 0
            save = flow.relay.books.state.save

            async def hesitant(entries: Any, **rest: Any) -> None:
                nonlocal tries
                tries += any(isinstance(one, Halt) for one in entries)
                if 0 < tries < 3:
                    raise NetworkError("not now")
                await save(entries, **rest)

            with patch.object(flow.relay.books.state, "save", hesitant):
                await flow.relay.start()
                assert await flow.halted() == "foreign_writer"
                await until(lambda: ledger(destination).halts)
            assert tries == 3


async def test_on_gap_continue_goes_over_what_halted_before() -> None:
    """The remedy of a gap is a setting: with it, the halt that was written down counts no more."""
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        source.store("t", 0, *batches(5, first=60))
        source.log("t").delete_before(66)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "retention_overtook"
            await until(lambda: ledger(destination).halts)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "retention_overtook"
            assert flow.log.of("halted")[0]["since_ms"]
        async with mirroring(source, destination, accept_gaps=True) as flow:
            await until(lambda: flow.partition().phase is Phase.ACTIVE)


async def test_what_heals_heals_while_it_runs() -> None:
    """
    1. The destination has fewer partitions: halted, and not written down.
    2. They are added: at the next look for topics the partition goes on by itself.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        destination.add_topic("t")
        async with mirroring(source, destination, refresh_topics_interval_ms=20) as flow:
            await flow.copied(("t", 0))
            assert await flow.halted(index=1) == "fewer_partitions"
            assert ledger(destination).halts == []
            log = destination.topics["t"].logs[0]
            destination.topics["t"].logs[1] = type(log)(leader=log.leader)
            await flow.copied()
            assert flow.log.of("healed")


async def test_resumed_and_healed_at_the_same_look() -> None:
    """An operator adds the partitions, and resumes: the look for topics heals it, and that is no refusal."""
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        destination.add_topic("t")
        async with mirroring(source, destination) as flow:
            assert await flow.halted(index=1) == "fewer_partitions"
            assert (await flow.relay.resume(("t", 1))).startswith("still fewer_partitions")
            log = destination.topics["t"].logs[0]
            destination.topics["t"].logs[1] = type(log)(leader=log.leader)
            assert await flow.relay.resume(("t", 1)) == ""
            await flow.copied()
            assert await flow.relay.resume(("t", 1)) == "not halted but active"


async def test_a_larger_limit_heals_too_large() -> None:
    """``max.message.bytes`` was too small, and is raised: the partition goes on."""
    async with clusters() as (source, destination):
        fill(source, size=500)
        destination.add_topic("t", configs={"max.message.bytes": "300"})
        async with mirroring(source, destination, refresh_topics_interval_ms=20) as flow:
            assert await flow.halted() == "too_large"
            topic = destination.topics["t"]
            topic.configs["max.message.bytes"] = "100000"
            topic.logs[0].max_batch_size = 100_000
            await flow.copied()


def test_which_reasons_heal() -> None:
    """What says something of the data never does."""
    assert all(isinstance(heals, Heals) for heals in HEALING.values())
    for trouble in (
        Trouble.FOREIGN_WRITER,
        Trouble.NOT_A_COPY,
        Trouble.OVERFILLED,
        Trouble.RECREATED,
        Trouble.UNPROVEN,
        Trouble.TRUNCATED,
        Trouble.RETENTION_OVERTOOK,
        Trouble.CHECKPOINT_LOST,
        Trouble.OTHER_FLOW,
    ):
        assert is_durable(trouble.reason)
    assert not is_durable("fewer_partitions")


def test_a_pin_of_another_version_is_passed_over() -> None:
    """What this program does not know does no harm."""
    found = Ledger()
    found.apply(b'{"kind":"something else","topic":"t","partition":0,"into":"t"}', b"{}")
    assert found.pin(SIDE) is None
    pin = Pin(side=SIDE, source_id=None, destination_id=None)
    found.put(pin)
    assert found.pin(SIDE) == pin
