"""A program's positions, through what happens between its calls, at a scripted cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NamedTuple

import pytest

from mirror.raw import RawConsumer, TopicPartition, errors
from mirror.raw.model import ConsumerRecord
from tests.fakes.broker import FakeCluster
from tests.raw.consume.test_fetching import batches

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class Site(NamedTuple):
    """A cluster, and a consumer of it in another thread: it waits for what the cluster answers in this one."""

    fake: FakeCluster
    consumer: RawConsumer

    async def polled(self) -> list[ConsumerRecord]:
        """What the next poll() returns."""
        return await asyncio.to_thread(self.consumer.poll, 60_000)


@asynccontextmanager
async def consuming(*partitions: TopicPartition) -> AsyncIterator[Site]:
    """Each partition has two batches, and is assigned."""
    async with FakeCluster() as fake:
        fake.add_topic("t", partitions=2)
        for at in partitions:
            fake.store(*at, *batches(0, 5))
        config = {"bootstrap.servers": f"127.0.0.1:{fake.brokers[1].port}", "auto.offset.reset": "earliest"}
        consumer = await asyncio.to_thread(RawConsumer, config)
        try:
            consumer.assign(partitions)
            yield Site(fake, consumer)
        finally:
            await asyncio.to_thread(consumer.close)


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which asyncio does not pass on."""


def interrupted_once(consumer: RawConsumer) -> Callable[..., Any]:
    """``LoopThread.run``, interrupted the first time before anything is done in the loop."""
    run, calls = consumer._thread.run, count()

    def interrupted(work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        if next(calls):
            return run(work, timeout_s)
        work.close()
        raise Interrupted

    return interrupted


def truncated(fake: FakeCluster) -> None:
    """An unclean election: there are other records from offset 5 on."""
    fake.log("t").truncate(5)
    fake.lead("t", 0, 1)
    fake.store("t", 0, *batches(5, 10, epoch=1))


def recreated(fake: FakeCluster) -> None:
    """Another topic has the name, and as many records."""
    fake.add_topic("t", partitions=2)
    fake.store("t", 0, *batches(0, 5, 10))


@pytest.mark.parametrize("how", ["paused", "interrupted"])
@pytest.mark.parametrize(("change", "error"), [(truncated, errors.LogTruncated), (recreated, errors.TopicRecreated)])
async def test_another_log_meanwhile(
    monkeypatch: pytest.MonkeyPatch, how: str, change: Any, error: type[Exception]
) -> None:
    """
    1. A partition is paused, or an interrupt has everything fetched again.
    2. Before it is fetched again, the log loses records that were read, or is deleted and made anew.
    3. The program is told, as without a pause. A seek() goes on.
    """
    async with consuming(AT) as site:
        consumer = site.consumer
        assert [record.base_offset for record in await site.polled()] == [0, 5]
        if how == "paused":
            await asyncio.to_thread(consumer.pause, AT)
            change(site.fake)
            await asyncio.to_thread(consumer._thread.run, consumer._cluster.refresh(["t"]))  # of another partition
            await asyncio.to_thread(consumer.resume, AT)
        else:
            with monkeypatch.context() as patch:
                patch.setattr(consumer._thread, "run", interrupted_once(consumer))
                with pytest.raises(Interrupted):
                    await site.polled()
            change(site.fake)
        with pytest.raises(error):
            await site.polled()
        await asyncio.to_thread(consumer.seek, AT, 5)
        assert [record.base_offset for record in await site.polled()] == [5, 10]


async def test_interrupted_while_a_partition_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of a partition that the consumer does not have any more are not returned, and the others go on."""
    async with consuming(AT, OTHER) as site:
        await asyncio.to_thread(site.consumer.seek, AT, 5)
        await asyncio.to_thread(site.consumer.seek, OTHER, 0)
        with monkeypatch.context() as patch:
            patch.setattr(site.consumer._thread, "run", interrupted_once(site.consumer))
            with pytest.raises(Interrupted):
                site.consumer.assign([OTHER])
        found: list[ConsumerRecord] = []
        while len(found) < 2 or len(site.consumer._fetching._cursors) > 1:
            found += await asyncio.to_thread(site.consumer.poll, 100)
        assert [(record.partition, record.base_offset) for record in found] == [(1, 0), (1, 5)]
        assert list(site.consumer._fetching._cursors) == [OTHER]


async def test_an_interrupted_seek_still_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop never heard of it: what it has fetched at the old position is not returned."""
    async with consuming(AT) as site:
        assert [record.base_offset for record in await site.polled()] == [0, 5]
        with monkeypatch.context() as patch:
            patch.setattr(site.consumer._thread, "run", interrupted_once(site.consumer))
            with pytest.raises(Interrupted):
                site.consumer.seek(AT, 0)
        site.fake.store("t", 0, *batches(10))
        found = [record.base_offset for record in await site.polled()]
        assert found[:1] == [0]


async def test_an_interrupted_pause_and_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    1. pause() is interrupted before the event loop hears of it: the partition is paused all the same.
    2. resume() is interrupted likewise: it goes on where it was.
    """
    async with consuming(AT, OTHER) as site:
        consumer = site.consumer
        found: list[ConsumerRecord] = []
        while len(found) < 4:
            found += await site.polled()
        for change in (consumer.pause, consumer.resume):
            with monkeypatch.context() as patch:
                patch.setattr(consumer._thread, "run", interrupted_once(consumer))
                with pytest.raises(Interrupted):
                    change(AT)
            site.fake.store("t", 0, *batches(10 if change == consumer.pause else 15))
            site.fake.store("t", 1, *batches(10 if change == consumer.pause else 15))
            if change == consumer.pause:
                assert [(record.partition, record.base_offset) for record in await site.polled()] == [(1, 10)]
                assert await asyncio.to_thread(consumer.poll, 200) == []
        found = []
        while len(found) < 3:
            found += await site.polled()
        assert sorted((record.partition, record.base_offset) for record in found) == [(0, 10), (0, 15), (1, 15)]


async def test_assigned_again_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the event loop still fetches for an earlier assignment is not returned, also while the new position cannot
    be looked up."""
    async with consuming(AT) as site:
        assert [record.base_offset for record in await site.polled()] == [0, 5]
        with monkeypatch.context() as patch:
            patch.setattr(site.consumer._thread, "run", interrupted_once(site.consumer))
            with pytest.raises(Interrupted):
                site.consumer.assign([])
        site.fake.store("t", 0, *batches(10))
        site.consumer.assign([AT])
        with monkeypatch.context() as patch:
            patch.setattr(site.consumer, "_locate", lambda *_, **__: False)
            assert await asyncio.to_thread(site.consumer.poll, 500) == []
        found = [record.base_offset for record in await site.polled()]
        assert found[:1] == [0]


async def test_interrupted_with_records_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt after the event loop has given its records away: the next poll() returns them."""
    async with consuming(AT) as site:
        await asyncio.to_thread(site.consumer.position, AT)
        run = site.consumer._thread.run

        def interrupted(work: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
            if run(work, timeout_s):
                monkeypatch.setattr(site.consumer._thread, "run", run)
                raise Interrupted
            return []

        monkeypatch.setattr(site.consumer._thread, "run", interrupted)
        with pytest.raises(Interrupted):
            await site.polled()
        assert [record.base_offset for record in await site.polled()] == [0, 5]
