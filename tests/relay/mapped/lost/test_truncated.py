"""``offsets: mapped``: a source that lost its end and grew again, where the destination has deleted the last copy. Each
test plays two lives of a mirror, or one that goes on."""

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mirror.offsetmap.compare import alignment
from mirror.offsetmap.compare.paths import Path
from mirror.offsetmap.entries.pins import header_digest
from mirror.reasons import HaltReason
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.relay.durable import notes
from mirror.relay.halts import PartitionHalted, halt
from mirror.relay.locate import evidence
from mirror.relay.mapped import lastcopy, reading
from mirror.relay.partition.claim import Committed
from mirror.relay.partition.cursor import Cursor, Mark
from mirror.relay.partition.phases import Phase
from tests.fakes.broker import FakeCluster
from tests.fakes.loop import until
from tests.relay.stage.flows import Flow, batch, batches, clusters, fill, mirroring
from tests.relay.stage.noting import FIRST, SIDE, empty, ledger

END = 60
GROWN = 90


def elect(source: FakeCluster, *, end: int = END, upto: int, payload: bytes | None = None) -> None:
    """Another leader of the source, whose log ends at ``end``; batches of its epoch up to ``upto``."""
    log = source.log("t")
    log.truncate(end)
    source.store("t", 0, *(batch(at, 3, payload, leader_epoch=log.epoch) for at in range(end, upto, 3)))


def truncate(source: FakeCluster) -> None:
    """An unclean election: four batches are gone, and others stand there and behind."""
    elect(source, end=48, upto=GROWN, payload=b"other" * 9)


async def copied(flow: Flow, end: int = END) -> None:
    """Up to this source offset."""
    await until(lambda: flow.partition().queue.acknowledged == end)


async def stopped(source: FakeCluster, destination: FakeCluster) -> None:
    """A first life: all is copied, and it stops in order."""
    fill(source)
    async with mirroring(source, destination, mapped=True) as flow:
        await flow.copied()
        assert await flow.relay.drain()


async def killed(source: FakeCluster, destination: FakeCluster) -> None:
    """A first life: all is copied behind a checkpoint, and it is killed."""
    fill(source)
    async with mirroring(source, destination, mapped=True) as flow:
        await flow.copied()


def forget_notes(destination: FakeCluster) -> None:
    """The checkpoints are of a version that did not note what was copied last."""
    for at, (key, value) in enumerate(destination.remembered):
        if value is not None and json.loads(key)["kind"] == "checkpoint":
            fields = json.loads(value)
            del fields["copied"]
            destination.remembered[at] = key, json.dumps(fields).encode()


async def _vouches(*_: object) -> int:
    return -1


async def _keeps(*_: object) -> None: ...


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("running", [True, False])
async def test_a_source_that_was_truncated_and_grew_again(running: bool, asked: bool) -> None:
    """
    1. All is copied, and the destination deletes it. The source loses its end and grows past where it ended, while the
       mirror is stopped, or while it runs and sees a new leader epoch.
    2. What was copied last is not there any more: halt, also for whoever comes next.
    3. Without asking the source for it, four of its batches are never copied, and nobody says so.
    """
    async with clusters() as (source, destination):
        if not running:
            await stopped(source, destination)
            truncate(source)
            empty(destination)
        else:
            fill(source)
        vouch, check_kept = (evidence.vouch, evidence.check_kept) if asked else (_vouches, _keeps)
        with patch.multiple(notes, vouch=vouch, check_kept=check_kept):
            async with mirroring(source, destination, mapped=True) as flow:
                if running:
                    await flow.copied()
                    empty(destination)
                    truncate(source)
                if asked:
                    assert await flow.halted() == "source_truncated"
                    await until(lambda: ledger(destination).halts)
                else:
                    await copied(flow, GROWN)
        log = destination.log("t")
        assert (log.start, log.end) == (END, END if asked else GROWN)
        if asked:
            async with mirroring(source, destination, mapped=True) as flow:
                assert await flow.halted() == "source_truncated"


@pytest.mark.parametrize("elected", [True, False])
async def test_a_purged_destination_goes_on(elected: bool) -> None:
    """As Kafka Streams purges its repartition topics, again and again. The source may have a new leader each time, and
    its log is whole."""
    async with clusters() as (source, destination):
        await stopped(source, destination)
        for end in (END, END + 30):
            empty(destination)
            if elected:
                elect(source, end=end, upto=end + 15)
            else:
                source.store("t", 0, *batches(5, first=end))
            async with mirroring(source, destination, mapped=True) as flow:
                await copied(flow, end + 15)
                empty(destination)
                if elected:
                    elect(source, end=end + 15, upto=end + 30)
                else:
                    source.store("t", 0, *batches(5, first=end + 15))
                flow.relay.doubt_now(flow.partition(), "test", "looked for again")
                await copied(flow, end + 30)
                assert await flow.relay.drain()
                assert not flow.log.of("halted")


async def test_a_checkpoint_that_does_not_say_what_was_copied() -> None:
    """
    1. A version that did not note it has written the checkpoint, and the destination was purged: halt, because nothing
       shows that the source is the same.
    2. An operator accepts that: on from the checkpoint, and what is taken on trust is recorded. The next start does not
       ask again.
    """
    async with clusters() as (source, destination):
        await stopped(source, destination)
        forget_notes(destination)
        truncate(source)
        empty(destination)
        async with mirroring(source, destination, mapped=True) as flow:
            assert await flow.halted() == "unproven"
            assert await flow.relay.resume(FIRST, accept_unproven=True) == ""
            await copied(flow, GROWN)
            assert [each[:5] for each in flow.relay.stats.skipped] == [("t", 0, 0, END, "unproven")]
            assert await flow.relay.drain()
        assert [(each.start, each.end, each.cause) for each in ledger(destination).skipped()] == [(0, END, "unproven")]
        checkpoint = ledger(destination).checkpoint(SIDE)
        assert checkpoint is not None
        assert checkpoint.copied is not None
        assert (checkpoint.copied.offset, checkpoint.copied.leader_epoch, checkpoint.copied.digest_at) == (90, 1, 90)
        empty(destination)
        async with mirroring(source, destination, mapped=True) as flow:
            await copied(flow, GROWN)
            assert not flow.log.of("halted")


@pytest.mark.parametrize("truncated", [True, False])
async def test_what_the_group_has_counts_where_the_checkpoint_says_nothing(truncated: bool) -> None:
    """A version that did not note it has committed it to the group at the source."""
    async with clusters() as (source, destination):
        await stopped(source, destination)
        forget_notes(destination)
        last, topic_id = source.log("t").batches[-1], source.topics["t"].topic_id
        assert topic_id is not None
        committed = Committed(END, topic_id.hex, 0, header_digest(last), END, 0)
        if truncated:
            truncate(source)
        empty(destination)
        async with mirroring(source, destination, mapped=True, assigned=True) as flow:
            assert flow.relay.assignment is not None
            flow.relay.assignment.assign({FIRST}, {FIRST: committed})
            if truncated:
                assert await flow.halted() == "source_truncated"
            else:
                await copied(flow)


async def _differs(*_: Any) -> PartitionHalted:
    return halt(HaltReason.NOT_A_COPY, "the source has other records")


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("purged", [False, True])
@pytest.mark.parametrize("upto", [48, 51, GROWN])
async def test_copies_behind_the_checkpoint_that_the_source_has_lost(upto: int, purged: bool, asked: bool) -> None:
    """
    1. All is copied behind a checkpoint, and the worker killed. The source loses its end, and grows less or more than
       it was before; the destination still has the copies, or its leader remembers how many there were.
    2. The source has no more records of the epoch that was copied: it has lost them. Without the rule, it is the copy
       that is wrong, which is the only one. Where nothing is left to compare, that is said.
    """
    async with clusters() as (source, destination):
        await killed(source, destination)
        elect(source, end=48, upto=upto, payload=b"other" * 9)
        if purged:
            empty(destination)
        with patch.object(reading, "differs", lastcopy.differs if asked else _differs):
            async with mirroring(source, destination, mapped=True) as flow:
                reason = await flow.halted()
        if purged and upto == GROWN:
            assert reason == "unproven"
        else:
            assert reason == ("source_truncated" if asked else "not_a_copy")


@pytest.mark.parametrize("forgotten", [True, False])
async def test_what_was_read_before_another_had_it(forgotten: bool) -> None:
    """
    A worker takes a partition over again. What it read before may not be what stands at the source now, and is not
    noted any more (without the rule, ``source_truncated`` at the next takeover).
    """
    async with clusters() as (source, destination):
        fill(source)
        async with mirroring(source, destination, mapped=True) as flow:
            await flow.copied()
            partition = flow.partition()
            read, before = Mark(END, 0, batch(END - 3, 3, b"other" * 9)), partition.queue.copied
            partition.cursor.marks.append(read)
            assert before is not None
            before.astray = True
            with patch.object(Cursor, "forget_read", Cursor.forget_read if forgotten else _keep):
                flow.relay.doubt_now(partition, "test", "looked for again")
                await until(lambda: partition.queue.copied is not before and partition.phase is Phase.ACTIVE)
            assert (read in partition.cursor.marks) != forgotten


def _keep(cursor: Cursor) -> None: ...


async def test_other_records_of_the_same_epoch_are_no_truncation() -> None:
    """The source has another leader since, and all of its records; one of them is not what was copied."""
    async with clusters() as (source, destination):
        await killed(source, destination)
        log = source.log("t")
        log.epoch += 1
        log.batches[16] = batch(48, 3, b"other" * 9)
        async with mirroring(source, destination, mapped=True) as flow:
            assert await flow.halted() == "not_a_copy"


async def test_a_copy_that_is_there_twice_is_no_truncation() -> None:
    """The source has another leader since, and all of its records; the last batch stands at the destination twice."""
    async with clusters() as (source, destination):
        await killed(source, destination)
        source.log("t").epoch += 1
        log = destination.log("t")
        header = BatchHeader.read(log.batches[-1])
        log.store(header._replace(base_offset=log.end).pack() + log.batches[-1][HEADER_SIZE:])
        async with mirroring(source, destination, mapped=True) as flow:
            assert await flow.halted() == "not_a_copy"


@pytest.mark.parametrize("asked", [True, False])
async def test_copies_of_a_lost_end_that_fit_where_the_cleaner_was(asked: bool) -> None:
    """
    1. A compacted source, with a gap of six offsets before its last two batches. All is copied behind a checkpoint.
    2. An unclean election takes the last batch, and another stands in its place. There is room in the gap for both
       copies: they may be of batches that stood there and were cleaned away, and the epoch of the note goes on behind
       that. Or one is of what was lost. Nothing shows which: halt.
    3. Without the rule, the first of them is there twice, and between the two is what the source does not have.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", configs={"cleanup.policy": "compact"})
        source.store("t", 0, *batches(4), *batches(2, first=18))
        async with mirroring(source, destination, mapped=True) as flow:
            await copied(flow, 24)
        elect(source, end=21, upto=24, payload=b"other" * 9)
        with nullcontext() if asked else patch.object(alignment, "replace", _shown):
            async with mirroring(source, destination, mapped=True) as flow:
                if asked:
                    assert await flow.halted() == "unproven"
                else:
                    await copied(flow, 24)
        mine = [header for header in map(BatchHeader.read, destination.log("t").batches) if not header.is_control]
        assert len(mine) == (6 if asked else 8)


def _shown(path: Path, **changes: Any) -> Path:
    return replace(path, **changes | {"unshown": False})


async def test_copies_whose_originals_were_cleaned_away() -> None:
    """The source has had one leader all the time: it cannot have lost them, and the copy goes on."""
    async with clusters() as (source, destination):
        source.add_topic("t", configs={"cleanup.policy": "compact"})
        source.store("t", 0, *batches(5))
        async with mirroring(source, destination, mapped=True) as flow:
            await copied(flow, 15)
        source.log("t").batches.pop()
        source.store("t", 0, batch(15))
        async with mirroring(source, destination, mapped=True) as flow:
            await copied(flow, 18)
            assert not flow.log.of("halted")
