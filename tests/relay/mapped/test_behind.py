"""A source whose new leader has all of its log, and shows less of it for a while than the one before did: nothing that
is said of the copy rests on what could not be read."""

from typing import Any
from unittest.mock import patch

import pytest

from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.records.admit import Terms
from mirror.records.header import BatchHeader
from mirror.relay.halts import PartitionHalted
from mirror.relay.mapped import lastcopy, reading
from tests.fakes.broker import FakeCluster
from tests.fakes.log import FakeLog
from tests.fakes.loop import until
from tests.records.cleaner import SIZE, written
from tests.relay.stage.flows import batch, batches, clusters, mirroring
from tests.relay.stage.noting import empty
from tests.relay.stage.scenes import scene

END = 60
COMPACT = {"cleanup.policy": "compact"}


async def killed(source: FakeCluster, destination: FakeCluster, *stored: bytes, compacted: bool = False) -> FakeLog:
    """A first life: all is copied behind a checkpoint, and the worker is killed. Then the source has another leader."""
    source.add_topic("t", configs=COMPACT if compacted else {})
    source.store("t", 0, *stored)
    async with mirroring(source, destination, mapped=True) as flow:
        await until(lambda: flow.partition().queue.acknowledged == source.log("t").end)
    source.log("t").epoch += 1
    return source.log("t")


def copies(destination: FakeCluster) -> int:
    """Batches of data in the destination's log."""
    return sum(not BatchHeader.read(each).is_control for each in destination.log("t").batches)


async def _anything(*_: object) -> None: ...


def _as_if_shown(*given: Any, **more: Any) -> Any:
    """A copy that nothing of the source shows counts as one that is shown."""
    return lastcopy.check_copied(*given, **more | {"unshown": False})


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("purged", [False, True])
async def test_what_cannot_be_read_is_not_lost(purged: bool, asked: bool) -> None:
    """
    1. The destination has the copies, or remembers how many; the last two originals are not shown.
    2. It is looked at again, and goes on once they can be read. Without the rule it halts, and says that they are lost.
    """
    async with clusters() as (source, destination):
        log = await killed(source, destination, *batches(END // 3))
        log.hidden = 6
        if purged:
            empty(destination)
        with patch.object(reading, "check_seen", lastcopy.check_seen if asked else _anything):
            async with mirroring(source, destination, mapped=True) as flow:
                if not asked:
                    assert await flow.halted() == "source_truncated"
                    return
                await until(lambda: "not to be read yet" in str(flow.partition().waiting))
                log.hidden = 0
                source.store("t", 0, batch(END, 3, leader_epoch=log.epoch))
                await until(lambda: flow.partition().queue.acknowledged == END + 3)
        assert copies(destination) == (1 if purged else END // 3 + 1)


@pytest.mark.parametrize("asked", [True, False])
async def test_an_original_that_is_not_shown_is_not_cleaned_away(asked: bool) -> None:
    """
    1. The source's cleaner has left a gap before its last batch, which is as long; that batch is copied, and not shown.
    2. Its copy is not taken for one of what stood in the gap. Without the rule, and that for copies of which nothing of
       the source shows that it had them, it is copied once more.
    """
    async with clusters() as (source, destination):
        log = await killed(source, destination, *batches(4), batch(15, 3), compacted=True)
        log.hidden = 3
        with (
            patch.object(reading, "check_seen", lastcopy.check_seen if asked else _anything),
            patch.object(reading, "check_copied", lastcopy.check_copied if asked else _as_if_shown),
        ):
            async with mirroring(source, destination, mapped=True) as flow:
                if asked:
                    await until(lambda: "not to be read yet" in str(flow.partition().waiting))
                else:
                    await until(lambda: flow.partition().queue.acknowledged >= 0)
                log.hidden = 0
                source.store("t", 0, batch(18, 3, leader_epoch=log.epoch))
                await until(lambda: flow.partition().queue.acknowledged == 21)
        assert copies(destination) == (6 if asked else 7)


@pytest.mark.parametrize("asked", [True, False])
async def test_what_is_gone_there_may_be_a_copy_of_what_is_not_shown(asked: bool) -> None:
    """
    1. The destination has deleted all behind the checkpoint, and its leader has forgotten who wrote it. The source
       shows nothing: whether that may have been copies is not known before it does.
    2. Then it halts. Without the rule, nothing is there that may have been copied, and it is copied again.
    """
    async with clusters() as (source, destination):
        log = await killed(source, destination, *batches(4))
        log.hidden = log.end
        empty(destination)
        destination.log("t").producers.clear()
        with patch.object(reading, "check_read", lastcopy.check_read if asked else _anything):
            async with mirroring(source, destination, mapped=True) as flow:
                if asked:
                    await until(lambda: "not to be read yet" in str(flow.partition().waiting))
                    log.hidden = 0
                    assert await flow.halted() == "checkpoint_behind"
                else:
                    await until(lambda: flow.partition().queue.acknowledged >= 0)
                    log.hidden = 0
                    source.store("t", 0, batch(12, 3, leader_epoch=log.epoch))
                    await until(lambda: flow.partition().queue.acknowledged == 15)
        assert copies(destination) == (0 if asked else 5)


async def _no_more(log: PartitionLog) -> int:
    """The end that is shown is the end that there is."""
    return await log.visible_end()


@pytest.mark.parametrize("asked", [True, False])
async def test_a_gap_that_ends_where_nothing_is_shown_any_more(asked: bool) -> None:
    """
    1. The cleaner has taken the batch before the last, which is not shown yet: below the high watermark, an offset is
       answered with nothing.
    2. It waits, and goes on. Without the rule it says that the source's disk is damaged.
    """
    async with clusters() as (source, destination):
        source.add_topic("t", configs=COMPACT)
        source.store("t", 0, *batches(4), batch(15, 3))
        log = source.log("t")
        log.hidden = 3
        with patch.object(PartitionLog, "true_end", PartitionLog.true_end if asked else _no_more):
            async with mirroring(source, destination, mapped=True) as flow:
                if not asked:
                    assert await flow.halted() == "corrupt"
                    return
                await until(lambda: "while not all of it can be read" in str(flow.log.of("resync")))
                log.hidden = 0
                await until(lambda: flow.partition().queue.acknowledged == 18)
        assert copies(destination) == 5


async def test_the_batch_to_compare_stood_before_what_is_not_shown() -> None:
    """In exact mode: the cleaner has taken the original, and all that stands behind it is not shown yet."""
    async with scene() as at:
        at.partition.terms = Terms(compacted=True)
        at.copy([written(0), written(SIZE)])
        del at.here.batches[0]
        at.here.hidden = SIZE
        at.there.truncate(SIZE)
        with pytest.raises(Unreachable, match="not to be read yet"):
            await at.locate()
        at.here.hidden = 0
        reason, detail = await at.halts()
        assert (reason, "has compacted the batch at 0 away" in detail) == ("unproven", True)
        at.here.hidden = SIZE
        with patch.object(PartitionLog, "true_end", _no_more), pytest.raises(PartitionHalted, match="corrupt"):
            await at.locate()


async def test_it_is_shown_between_two_questions() -> None:
    """The batch that was copied last is not answered, and then the high watermark is behind it: it is asked for again,
    and not said to be lost."""
    async with clusters() as (source, destination):
        source.add_topic("t")
        source.store("t", 0, *batches(4))
        async with mirroring(source, destination, mapped=True) as flow:
            await flow.copied()
            assert await flow.relay.drain()
        log, usual = source.log("t"), PartitionLog.batch_at
        log.epoch += 1
        log.hidden = 3

        async def shown(asked: PartitionLog, offset: int) -> tuple[BatchHeader, bytes] | None:
            found = await usual(asked, offset)
            log.hidden = log.hidden if found else 0
            return found

        with patch.object(PartitionLog, "batch_at", shown):
            async with mirroring(source, destination, mapped=True) as flow:
                await until(lambda: flow.partition().queue.acknowledged == 12)
                assert not log.hidden
