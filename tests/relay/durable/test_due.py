"""Records that were due when a partition halted, and that the source has deleted since."""

from collections.abc import Iterable, Iterator
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.pins import Note
from mirror.relay.durable.due import Due
from mirror.relay.durable.flows import has_map
from mirror.relay.partition.partition import Partition
from mirror.wire.errors import ErrorCode
from tests.fakes import faults
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.fakes.state import MemoryState
from tests.records.builders import raw_batch
from tests.relay.stage.flows import Flow, batch, batches, clusters, mirroring
from tests.relay.stage.noting import FIRST, SIDE, ledger, recreate
from tests.relay.topics.test_verdicts import LARGE, set_config

DELETED = "retention_overtook"


@pytest.fixture(autouse=True)
def trims(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeCluster]]:
    """The destination that is put in here moves the start of its log."""
    there: list[FakeCluster] = []

    async def delete_before(self: PartitionLog, offset: int) -> None:
        there[0].log("t").delete_before(offset)

    monkeypatch.setattr(PartitionLog, "delete_before", delete_before)
    return iter([there])


def large(source: FakeCluster, destination: FakeCluster) -> None:
    """The first batch is larger than the destination takes; ten more follow."""
    source.add_topic("t", configs={"max.message.bytes": str(LARGE)})
    destination.add_topic("t")
    source.store("t", 0, batch(0, payload=bytes(1_500_000)), *batches(10, first=3))


def told(flow: Flow) -> list[tuple[int, int, str]]:
    return [(each.first, each.next, each.reason) for each in flow.relay.stats.skipped]


async def assert_skipped(flow: Flow, first: int, after: int) -> None:
    """The copy begins at ``after``; what was due before is told, counted and written down, once."""
    await flow.copied()
    assert flow.destination.log("t").start == after
    assert told(flow) == [(first, after, DELETED)]
    (line,) = flow.log.of("skipped")
    assert f"offsets {first} to {after - 1} of the source" in line["detail"]
    found = [(each.start, each.end, each.cause) for each in ledger(flow.destination).skipped()]
    assert found == [(first, after, DELETED)]


@pytest.mark.parametrize("heals", [False, True])
async def test_what_the_source_deletes_while_it_is_halted(trims: Iterator[list[FakeCluster]], *, heals: bool) -> None:
    """
    1. Nothing is copied: the first batch is too large. The source deletes it, and what follows.
    2. Resumed, or healed, the copy begins behind that, and it is told; a restart tells it once.
    """
    async with clusters() as (source, destination):
        next(trims).append(destination)
        large(source, destination)
        async with mirroring(source, destination, refresh_topics_interval_ms=20 if heals else 600_000) as flow:
            assert await flow.halted() == "too_large"
            source.log("t").delete_before(9)
            set_config(destination, "max.message.bytes", str(LARGE))
            if not heals:
                assert await flow.relay.resume(FIRST) == ""
            await assert_skipped(flow, 0, 9)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert told(flow) == [(0, 9, DELETED)]


@pytest.mark.parametrize("durable", [False, True])
async def test_with_a_restart_in_between(trims: Iterator[list[FakeCluster]], *, durable: bool) -> None:
    """The same, with halts of both kinds."""
    reason = "corrupt" if durable else "too_large"
    async with clusters() as (source, destination):
        next(trims).append(destination)
        if durable:
            source.add_topic("t")
            damaged = raw_batch(b"x", base_offset=0, leader_epoch=0, last_offset_delta=2, record_count=2)[:-1] + b"y"
            source.store("t", 0, damaged, *batches(10, first=3))
        else:
            large(source, destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == reason
            await until(lambda: ledger(destination).due(flow.partition().subject))
            assert await flow.relay.drain()
        source.log("t").delete_before(9)
        async with mirroring(source, destination) as flow:
            if durable:
                assert await flow.halted() == reason
                assert await flow.relay.resume(FIRST) == ""
            await assert_skipped(flow, 0, 9)


async def test_a_first_copy_skips_nothing(trims: Iterator[list[FakeCluster]]) -> None:
    """What a source had deleted before anything halted was never due; nor was what another topic had at a halt."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        source.store("t", 0, *batches(10))
        source.log("t").delete_before(9)
        async with mirroring(source, destination) as flow:
            await flow.copied()
            assert told(flow) == []
            assert not flow.log.of("skipped")


async def test_another_topic(trims: Iterator[list[FakeCluster]]) -> None:
    """The source's topic was made anew while the partition was halted: what was due is not of the new one."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        large(source, destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "too_large"
            await until(lambda: ledger(destination).due(flow.partition().subject))
            del source.topics["t"]
            source.add_topic("t")
            source.store("t", 0, *batches(10))
            source.log("t").delete_before(9)
            assert await flow.relay.resume(FIRST) == ""
            await flow.copied()
            assert told(flow) == []


async def test_without_the_rule_they_are_gone_without_a_word(trims: Iterator[list[FakeCluster]]) -> None:
    """The mutation: what was due when it halted is not remembered."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        large(source, destination)
        with patch.object(Due, "note", lambda *_: None):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "too_large"
                source.log("t").delete_before(9)
                set_config(destination, "max.message.bytes", str(LARGE))
                assert await flow.relay.resume(FIRST) == ""
                await flow.copied()
                assert told(flow) == []


def rewriting(source: FakeCluster, destination: FakeCluster, **configs: str) -> None:
    """The destination would change batches, so nothing is looked at; the source begins at 3."""
    source.add_topic("t")
    destination.add_topic("t", configs={"compression.type": "zstd", **configs})
    source.store("t", 0, *batches(10))
    source.log("t").delete_before(3)


async def due_noted(flow: Flow) -> int:
    """Until it is written down from where on records were due."""
    await until(lambda: ledger(flow.destination).due(SIDE), what=f"a note; {flow.log.lines[-9:]}")
    note = ledger(flow.destination).due(SIDE)
    assert note is not None
    return note.copied.offset


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("restart", [False, True])
async def test_halted_before_it_was_located(trims: Iterator[list[FakeCluster]], *, mapped: bool, restart: bool) -> None:
    """
    1. The topics' configs forbid to copy: the partition halts, and nothing of it was looked at.
    2. The source deletes what was due, once while it is halted and once more while nobody runs.
    3. Once the configs allow it, the copy begins behind that, and it is told, once.
    """
    async with clusters() as (source, destination):
        next(trims).append(destination)
        rewriting(source, destination)
        async with mirroring(source, destination, mapped=mapped, refresh_topics_interval_ms=20) as flow:
            assert await flow.halted() == "destination_rewrites"
            assert await due_noted(flow) == 3
            source.log("t").delete_before(9)
            if not restart:
                set_config(destination, "compression.type", "producer")
                await assert_told(flow, 3, 9)
        if restart:
            async with mirroring(source, destination, mapped=mapped) as flow:
                assert await flow.halted() == "destination_rewrites"
            source.log("t").delete_before(12)
            set_config(destination, "compression.type", "producer")
        async with mirroring(source, destination, mapped=mapped) as flow:
            await assert_told(flow, 3, 12 if restart else 9, again=not restart)


async def assert_told(flow: Flow, first: int, after: int, *, again: bool = False) -> None:
    """As ``assert_skipped``, for both kinds of offsets. ``again``: by an earlier life."""
    await until(lambda: flow.partition().queue.acknowledged == flow.source.log("t").end, what=f"{flow.log.lines[-9:]}")
    assert told(flow) == [(first, after, DELETED)]
    assert len(flow.log.of("skipped")) == (not again)
    found = [(each.start, each.end, each.cause) for each in ledger(flow.destination).skipped()]
    assert found == [(first, after, DELETED)]


async def test_a_source_that_does_not_answer_is_asked_until_it_does(trims: Iterator[list[FakeCluster]]) -> None:
    """What was due at a halt is asked of the source, however often that fails."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        rewriting(source, destination)
        for _ in range(3):
            source.next("ListOffsets", faults.refuse(ErrorCode.LEADER_NOT_AVAILABLE, only=("t", 0)))
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "destination_rewrites"
            assert await due_noted(flow) == 3
            assert len(source.seen("ListOffsets")) > 3


async def test_too_many_leading_offsets(trims: Iterator[list[FakeCluster]]) -> None:
    """More lies before the source's first record than the flow may fill: that is found while a position is sought."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(10))
        source.log("t").delete_before(3)
        async with mirroring(source, destination, max_leading_filler=2) as flow:
            assert await flow.halted() == "leading_offsets"
            assert await due_noted(flow) == 3
        source.log("t").delete_before(9)
        async with mirroring(source, destination) as flow:
            await assert_skipped(flow, 3, 9)


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_destination_topic_made_anew_while_it_is_halted(
    trims: Iterator[list[FakeCluster]], *, mapped: bool
) -> None:
    """What was due is of the source's topic: another destination topic does not have it either."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        rewriting(source, destination)
        async with mirroring(source, destination, mapped=mapped) as flow:
            assert await flow.halted() == "destination_rewrites"
            assert await due_noted(flow) == 3
            source.log("t").delete_before(9)
            recreate(destination)
            assert await flow.relay.resume(FIRST) == ""
            await assert_told(flow, 3, 9)


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_source_made_anew_behind_a_copy(trims: Iterator[list[FakeCluster]], *, mapped: bool) -> None:
    """
    1. A topic that was copied is made anew at the source: ``recreated``. Of the new one, all was due then.
    2. The source deletes of it; the operator has the destination topic made anew, and resumes: told.
    """
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, mapped=mapped) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 15)
            await flow.relay.drain()
        recreate(source, *batches(10))
        async with mirroring(source, destination, mapped=mapped) as flow:
            assert await flow.halted() == "recreated"
            await until(lambda: ledger(destination).due(SIDE))
            source.log("t").delete_before(9)
            recreate(destination)
            assert await flow.relay.resume(FIRST) == ""
            await assert_told(flow, 0, 9)


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_note_ends_with_the_first_copy(trims: Iterator[list[FakeCluster]], *, mapped: bool) -> None:
    """What was due at a halt long ago says nothing of a later one."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        rewriting(source, destination)
        async with mirroring(source, destination, mapped=mapped, refresh_topics_interval_ms=20) as flow:
            assert await flow.halted() == "destination_rewrites"
            assert await due_noted(flow) == 3
            set_config(destination, "compression.type", "producer")
            await until(lambda: flow.partition().queue.acknowledged == 30)
            await flow.relay.drain()
            assert ledger(destination).due(SIDE) is None
            assert told(flow) == []


async def test_without_the_rule_nothing_is_known_of_what_was_never_located(
    trims: Iterator[list[FakeCluster]],
) -> None:
    """The mutation: only a partition that was located notes what was due."""

    async def located_only(self: Due, partition: Partition) -> list[Note]:
        return [] if partition.position < 0 else await now(self, partition)

    now = Due.now
    async with clusters() as (source, destination):
        next(trims).append(destination)
        rewriting(source, destination)
        with patch.object(Due, "now", located_only):
            async with mirroring(source, destination, refresh_topics_interval_ms=20) as flow:
                assert await flow.halted() == "destination_rewrites"
                source.log("t").delete_before(9)
                set_config(destination, "compression.type", "producer")
                await flow.copied()
                assert told(flow) == []


def behind_a_copy(source: FakeCluster, destination: FakeCluster) -> None:
    """Five batches are copied, up to 15; the sixth is larger than the destination takes, and ten more follow."""
    source.add_topic("t", configs={"max.message.bytes": str(LARGE)})
    destination.add_topic("t")
    source.store("t", 0, *batches(5), batch(15, payload=bytes(1_500_000)), *batches(10, first=18))


def in_a_larger_topic(destination: FakeCluster) -> None:
    """The destination topic is made anew, as remedies say, and takes what it did not take before."""
    del destination.topics["t"]
    destination.add_topic("t", configs={"max.message.bytes": str(LARGE)})


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("restart", [False, True])
async def test_behind_a_copy_that_is_made_anew(
    trims: Iterator[list[FakeCluster]], *, mapped: bool, restart: bool
) -> None:
    """
    1. A partition halts behind a copy, and the source deletes what was due.
    2. The destination topic is made anew: ``recreated``, also where the copy was too young for a note of its own.
    3. Resumed, it is copied from where the source begins now; what was due before is told.
    """
    async with clusters() as (source, destination):
        next(trims).append(destination)
        behind_a_copy(source, destination)
        async with mirroring(source, destination, mapped=mapped) as flow:
            assert await flow.halted() == "too_large"
            await until(lambda: ledger(destination).due(SIDE))
            await until(lambda: not mapped or has_map(ledger(destination), SIDE))
            source.log("t").delete_before(30)
            in_a_larger_topic(destination)
            if not restart:
                assert await flow.relay.resume(FIRST) == ""
                assert await flow.halted() == "recreated"
                assert await flow.relay.resume(FIRST) == ""
                await assert_told(flow, 15, 30)
                return
            await flow.relay.drain()
        async with mirroring(source, destination, mapped=mapped) as flow:
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(FIRST) == ""
            await assert_told(flow, 15, 30)


async def test_located_and_nothing_copied(trims: Iterator[list[FakeCluster]]) -> None:
    """With ``offsets: mapped`` a checkpoint is there by then, of nothing; the topic that it is of is made anew."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        large(source, destination)
        async with mirroring(source, destination, mapped=True) as flow:
            assert await flow.halted() == "too_large"
            assert await due_noted(flow) == 0
            source.log("t").delete_before(9)
            in_a_larger_topic(destination)
            assert await flow.relay.resume(FIRST) == ""
            await assert_told(flow, 0, 9)


@pytest.mark.parametrize("mapped", [False, True])
async def test_a_source_made_anew_while_it_is_halted(trims: Iterator[list[FakeCluster]], *, mapped: bool) -> None:
    """All of the new topic was due from when it was found; what it deletes before the halt heals is told."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        rewriting(source, destination)
        async with mirroring(source, destination, mapped=mapped, refresh_topics_interval_ms=20) as flow:
            assert await flow.halted() == "destination_rewrites"
            assert await due_noted(flow) == 3
            recreate(source, *batches(10))
            await until(lambda: (note := ledger(destination).due(SIDE)) is not None and note.copied.offset == 0)
            source.log("t").delete_before(9)
            set_config(destination, "compression.type", "producer")
            await assert_told(flow, 0, 9)


async def test_the_first_answer_counts(trims: Iterator[list[FakeCluster]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The note cannot be written for a while, and the source deletes meanwhile."""
    save, fails = MemoryState.save, [True]

    async def failing(self: MemoryState, entries: Iterable[Entry], **options: Any) -> None:
        entries = list(entries)
        if fails and any(isinstance(each, Note) for each in entries):
            fails.append(True)
            raise Unreachable("not enough replicas")
        await save(self, entries, **options)

    monkeypatch.setattr(MemoryState, "save", failing)
    async with clusters() as (source, destination):
        next(trims).append(destination)
        rewriting(source, destination)
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "destination_rewrites"
            await until(lambda: len(fails) > 2)
            source.log("t").delete_before(9)
            tries = len(fails)
            await until(lambda: len(fails) > tries + 2)
            fails.clear()
            assert await due_noted(flow) == 3


async def test_a_halt_of_before_without_a_note(trims: Iterator[list[FakeCluster]]) -> None:
    """A halt was written down, and the process was killed before it had asked the source: the next one asks."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination) as flow:
            await flow.copied()
            await flow.relay.drain()
        recreate(source, *batches(10))
        with patch.object(Due, "now", AsyncMock(side_effect=Unreachable("no answer"))):
            async with mirroring(source, destination) as flow:
                assert await flow.halted() == "recreated"
                await until(lambda: ledger(destination).halt(SIDE))
        assert ledger(destination).due(SIDE) is None
        async with mirroring(source, destination) as flow:
            assert await flow.halted() == "recreated"
            assert await due_noted(flow) == 0
            source.log("t").delete_before(9)
            recreate(destination)
            assert await flow.relay.resume(FIRST) == ""
            await assert_told(flow, 0, 9)


@pytest.mark.parametrize("mapped", [False, True])
async def test_what_was_copied_is_not_called_skipped(trims: Iterator[list[FakeCluster]], *, mapped: bool) -> None:
    """A copied partition halts at the next start before it is looked at, and goes on; much later its source deletes,
    and the destination topic is made anew."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, mapped=mapped) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 15)
            await flow.relay.drain()
        set_config(destination, "compression.type", "zstd")
        async with mirroring(source, destination, mapped=mapped, refresh_topics_interval_ms=20) as flow:
            assert await flow.halted() == "destination_rewrites"
            assert await due_noted(flow) == 15
            set_config(destination, "compression.type", "producer")
            await until(lambda: flow.partition().queue.acknowledged == 15)
            await flow.relay.drain()
        source.log("t").delete_before(9)
        recreate(destination)
        async with mirroring(source, destination, mapped=mapped) as flow:
            assert await flow.halted() == "recreated"
            assert await flow.relay.resume(FIRST) == ""
            await until(lambda: flow.partition().queue.acknowledged == 15)
            assert told(flow) == []


@pytest.mark.parametrize("trimmed", ["source", "destination"])
async def test_a_map_that_cannot_be_made_anew(trims: Iterator[list[FakeCluster]], *, trimmed: str) -> None:
    """One log has deleted more than the other: no copy is called wrong for that, and nothing is copied twice."""
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, mapped=True) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 15)
            await flow.relay.drain()
        source.store("t", 0, *batches(10, first=15))
        (source if trimmed == "source" else destination).log("t").delete_before(6)
        chunks = {each.key() for each in ledger(destination).chunks(SIDE)}
        destination.remembered[:] = [row for row in destination.remembered if row[0] not in chunks]
        end = destination.log("t").end
        async with mirroring(source, destination, mapped=True) as flow:
            assert await flow.halted() == "checkpoint_lost"
            assert await flow.relay.resume(FIRST, accept_gap=True) == ""
            await until(lambda: len(flow.log.of("halted")) == 2)
            (*_, last) = flow.log.of("halted")
            assert last["reason"] == "checkpoint_lost"
            assert "the two logs no longer begin at the same record" in last["detail"]
            assert destination.log("t").end == end


@pytest.mark.parametrize("here", [30, 14])
async def test_a_map_that_is_made_anew(trims: Iterator[list[FakeCluster]], *, here: int) -> None:
    """
    The map of a copy up to 15 is lost, and both logs have deleted all of that, and more or less.

    1. The source has deleted behind it: what was due is told.
    2. It has a batch from before it: that is not copied a second time.
    """
    async with clusters() as (source, destination):
        next(trims).append(destination)
        source.add_topic("t")
        destination.add_topic("t")
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, mapped=True) as flow:
            await until(lambda: flow.partition().queue.acknowledged == 15)
            await flow.relay.drain()
        source.store("t", 0, *batches(10, first=15))
        source.log("t").delete_before(here)
        destination.log("t").delete_before(15)
        chunks = {each.key() for each in ledger(destination).chunks(SIDE)}
        destination.remembered[:] = [row for row in destination.remembered if row[0] not in chunks]
        async with mirroring(source, destination, mapped=True) as flow:
            assert await flow.halted() == "checkpoint_lost"
            assert await flow.relay.resume(FIRST, accept_gap=True) == ""
            if here == 30:
                await assert_told(flow, 15, 30)
            else:
                assert await flow.halted() == "checkpoint_lost"
                (*_, last) = flow.log.of("halted")
                assert "would be there twice" in last["detail"]
                assert destination.log("t").end == 15
