"""Halts that are written down: for whoever takes the partition over, until an operator or their cause ends them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import pytest

from mirror import reasons
from mirror.net.coordinator import NOBODY, Coordinator, Ownership
from mirror.net.errors import NetworkError
from mirror.net.logs.log import Marker, PartitionLog
from mirror.offsetmap.entries.pins import KeptHalt
from mirror.offsetmap.internal.ledger import Ledger
from mirror.reasons import HaltReason, is_durable
from mirror.relay.partition.phases import Phase
from tests.fakes.loop import some_turns, until
from tests.records.builders import raw_batch
from tests.records.cleaner import cleaned, record, written
from tests.relay.stage.flows import batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, halted_by_another, ledger, noted, recreate
from tests.simulation.model.broker import marker_batch


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
        await halted_by_another(source, destination)
        log = destination.log("t")
        log.batches.clear()
        log.end = 0
        with patch.object(Ledger, "halt", lambda *_: None):
            async with mirroring(source, destination) as flow:
                await flow.copied()


async def test_a_halt_is_of_these_topics() -> None:
    """The destination's topic was made anew since: the halt says nothing of it; that it is another one does."""
    async with clusters() as (source, destination):
        await halted_by_another(source, destination)
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
            save = flow.relay.durable.state.save

            async def hesitant(entries: Any, **rest: Any) -> None:
                nonlocal tries
                tries += any(isinstance(one, KeptHalt) for one in entries)
                if 0 < tries < 3:
                    raise NetworkError("not now")
                await save(entries, **rest)

            with patch.object(flow.relay.durable.state, "save", hesitant):
                await flow.relay.start()
                assert await flow.halted() == "foreign_writer"
                await until(lambda: ledger(destination).halts)
            assert tries == 3


@contextmanager
def owners() -> Iterator[dict[str, int]]:
    """A coordinator that says who has taken an id over last; the fake brokers cannot tell. Yields what it knows: the
    epoch of each id."""
    epochs: dict[str, int] = {}

    async def init(_: Any, name: str) -> Ownership:
        epochs[name] = epochs.get(name, -1) + 1
        return Ownership(7, epochs[name])

    async def describe(_: Any, name: str) -> Ownership:
        return Ownership(7, epochs[name]) if name in epochs else NOBODY

    with patch.object(Coordinator, "init_producer_id", init), patch.object(Coordinator, "describe", describe):
        yield epochs


@pytest.mark.parametrize("waits", [False, True], ids=["it has failed", "it waits for other writes"])
@pytest.mark.parametrize("told", [True, False])
async def test_a_halt_is_not_written_once_another_worker_has_the_partition(*, told: bool, waits: bool) -> None:
    """
    1. The partition halts, and the internal topic cannot be reached: the halt is not written down. The partition goes
       to another worker, where it halts, too. An operator resumes it there, and it is copied on.
    2. The first worker reaches the internal topic again. It writes neither the halt nor what was due: the next owner
       would halt for good. (Nor if the coordinator cannot tell whose the partition is, before Kafka 3.0.)
    """
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        log = destination.log("t")
        log.produce(raw_batch(b"x", base_offset=0))
        with owners() if told else nullcontext():
            async with mirroring(source, destination, assigned=True) as first:
                save, tries, reached = first.relay.durable.state.save, [0], asyncio.Event()

                async def cut_off(entries: Any, **rest: Any) -> None:
                    tries[0] += 1
                    if tries[0] == 1:
                        await reached.wait()
                        if not waits:
                            raise NetworkError("not in time")
                    await save(entries, **rest)

                with patch.object(first.relay.durable.state, "save", cut_off):
                    assert first.relay.assignment is not None
                    first.relay.assignment.assign({FIRST})
                    assert await first.halted() == "foreign_writer"
                    await until(lambda: tries[0])
                    writing = first.relay.pausing._writing[first.partition()]
                    first.relay.assignment.lose({FIRST})
                    async with mirroring(source, destination) as second:
                        assert await second.halted() == "foreign_writer"
                        await until(lambda: ledger(destination).halts and ledger(destination).due(SIDE))
                        log.batches.clear()
                        log.end = 0
                        assert await second.relay.resume(FIRST) == ""
                        await noted(second)
                        await second.relay.pins.due.settle([second.partition()], second.relay.locator.owners.owns)
                        rows = [*destination.remembered]
                        reached.set()
                        await until(writing.done)
                        await some_turns()
                        await until(lambda: not first.relay.pins.due._noting)
                        assert destination.remembered == rows
                        assert ledger(destination).halts == []


@pytest.mark.parametrize("forgotten", [False, True], ids=["let go", "its id has expired"])
async def test_a_halt_is_written_later_for_the_next_owner(forgotten: bool) -> None:
    """The partition was let go before its halt could be written down, and nobody has taken it over yet; or it is still
    here, and the coordinator has forgotten its transactional id meanwhile."""
    async with clusters() as (source, destination):
        fill(source)
        destination.add_topic("t")
        destination.log("t").produce(raw_batch(b"x", base_offset=0))
        with owners() as epochs:
            async with mirroring(source, destination, assigned=True) as flow:
                save, tries, reached = flow.relay.durable.state.save, [0], [False]

                async def cut_off(entries: Any, **rest: Any) -> None:
                    tries[0] += 1
                    if not reached[0]:
                        raise NetworkError("not now")
                    await save(entries, **rest)

                with patch.object(flow.relay.durable.state, "save", cut_off):
                    assert flow.relay.assignment is not None
                    flow.relay.assignment.assign({FIRST})
                    assert await flow.halted() == "foreign_writer"
                    await until(lambda: tries[0] > 1)
                    if forgotten:
                        epochs.clear()
                    else:
                        flow.relay.assignment.lose({FIRST})
                    reached[0] = True
                    await until(lambda: ledger(destination).halts and ledger(destination).due(SIDE))


async def test_on_gap_continue_goes_over_what_halted_before() -> None:
    """The remedy of a gap is a setting: with it, the halt that was written down counts no more, nor later."""
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
            assert not ledger(destination).halts


@pytest.mark.parametrize("more", [False, True])
async def test_a_gap_that_was_accepted_stays_so(monkeypatch: pytest.MonkeyPatch, *, more: bool) -> None:
    """
    1. The source has deleted what was due, and an operator goes on. The worker is killed when half of it is filled.
    2. The next start fills the rest, and tells nothing twice. Not so if the source has deleted more by then.
    """
    written: list[int] = []

    async def write_markers(self: PartitionLog, marker: Marker, count: int) -> None:
        if written and len(written) == 1:
            written.append(0)
            await asyncio.Event().wait()
        written.append(count)
        for _ in range(3 if len(written) == 1 else count):
            end = destination.log("t").end
            destination.log("t").store(marker_batch(end, marker.producer_id, marker.epoch))

    monkeypatch.setattr(PartitionLog, "write_markers", write_markers)
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination) as flow:
            await noted(flow)
        source.store("t", 0, *batches(5, first=60))
        source.log("t").delete_before(66)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "retention_overtook"
            await until(lambda: ledger(destination).halts)
            assert await flow.relay.resume(FIRST, accept_gap=True) == ""
            await until(lambda: len(written) == 2)
        assert destination.log("t").end == 63
        if more:
            source.log("t").delete_before(69)
        async with mirroring(source, destination) as flow:
            if more:
                assert await flow.halted() == "retention_overtook"
                return
            await until(lambda: flow.partition().queue.acknowledged == 75)
            assert not flow.log.of("skipped")
            assert [each[:5] for each in flow.relay.stats.skipped] == [("t", 0, 60, 66, "on.gap")]


async def test_what_heals_heals_while_it_runs() -> None:
    """
    1. The destination has fewer partitions: halted, and not written down.
    2. They are added: at the next look for topics the partition goes on by itself.
    """
    async with clusters() as (source, destination):
        fill(source, partitions=2)
        destination.add_topic("t")
        async with mirroring(source, destination, refresh_topics_interval_ms=20, create_topics=False) as flow:
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
        async with mirroring(source, destination, create_topics=False) as flow:
            assert await flow.halted(index=1) == "fewer_partitions"
            assert (await flow.relay.resume(("t", 1))).startswith("still fewer_partitions")
            log = destination.topics["t"].logs[0]
            destination.topics["t"].logs[1] = type(log)(leader=log.leader)
            assert await flow.relay.resume(("t", 1)) == ""
            await flow.copied()
            assert await flow.relay.resume(("t", 1)) == "it is active, not halted"


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


async def test_a_halt_that_an_earlier_version_has_kept() -> None:
    """
    1. A partition has halted for a batch that the version of then could not copy, and that is written down.
    2. This version can: it looks at the batch again, and the note goes.
    """
    async with clusters() as (source, destination):
        fill(source)
        source.topics["t"].configs["cleanup.policy"] = "compact"
        with patch.object(HaltReason.SPARSE_BATCH, "heals", None), patch.dict(reasons._HEALING, sparse_batch=None):
            sparse = cleaned(written(60), [record(60), record(62)])
            source.store("t", 0, sparse)
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "sparse_batch"
                await until(lambda: ledger(destination).halts)
        async with mirroring(source, destination, rewrites=True) as flow:
            await until(lambda: destination.log("t").end == 63)
            assert not flow.log.of("halted")
            assert flow.relay.rewriter.opened == {"sparse_batch": 1}
        assert ledger(destination).halts == []


def test_which_reasons_heal() -> None:
    """What says something of the data never does."""
    for reason in (
        HaltReason.FOREIGN_WRITER,
        HaltReason.NOT_A_COPY,
        HaltReason.OVERFILLED,
        HaltReason.RECREATED,
        HaltReason.UNPROVEN,
        HaltReason.SOURCE_TRUNCATED,
        HaltReason.RETENTION_OVERTOOK,
        HaltReason.CHECKPOINT_LOST,
        HaltReason.OTHER_FLOW,
        HaltReason.LOOP,
    ):
        assert is_durable(reason.slug)
    assert not is_durable("fewer_partitions")
