"""Where micro-batches of a stream begin and end, at a scripted cluster; and real streams in Spark."""

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from mirror.raw.errors import OffsetOutOfRange
from mirror.spark.read import streaming
from mirror.spark.read.ranges import OffsetRange, RangesPartition
from mirror.spark.read.streaming import RawBatchStreamReader, Told, heard, told
from tests.fakes.broker import FakeCluster
from tests.spark.read.stage import batches, of, scripted

T = TypeVar("T")
ALL = ReadAllAvailable()


class Stream:
    """A reader, called as Spark calls it: from another thread than the brokers'."""

    def __init__(self, reader: RawBatchStreamReader) -> None:
        self.reader = reader

    async def call(self, method: Callable[..., T], *given: Any) -> T:
        return await asyncio.to_thread(partial(method, *given))

    async def initial(self) -> Told:
        return await self.call(self.reader.initialOffset)

    async def latest(self, start: Told, most: int | None = None) -> Told:
        return await self.call(self.reader.latestOffset, start, ALL if most is None else ReadMaxRows(most))

    async def ranges(self, start: Told, end: Told) -> list[OffsetRange]:
        found = await self.call(self.reader.partitions, start, end)
        return [each for task in found if isinstance(task, RangesPartition) for each in task.ranges]

    async def bases(self, start: Told, end: Told) -> list[int]:
        """The base offsets of a micro-batch."""
        found = []
        for task in await self.call(self.reader.partitions, start, end):
            for batch in await self.call(lambda task=task: list(self.reader.read(task))):
                found += batch.column("base_offset").to_pylist()
        return found


@asynccontextmanager
async def stream(fake: FakeCluster, **given: str) -> AsyncIterator[Stream]:
    reader = RawBatchStreamReader(of(fake, True, **given))
    assert pickle.loads(pickle.dumps(reader)) is not None
    try:
        yield Stream(reader)
    finally:
        await asyncio.to_thread(reader.stop)


def at(*offsets: int) -> Told:
    return {"t": {str(partition): offset for partition, offset in enumerate(offsets)}}


def test_offsets_are_those_of_sparks_own_connector() -> None:
    offsets = {("b", 10): 5, ("b", 2): 3, ("a", 0): 1}
    found = told(heard(told(offsets)))  # type: ignore[arg-type]
    assert found == {"a": {"0": 1}, "b": {"2": 3, "10": 5}}


async def test_where_a_stream_begins() -> None:
    async with scripted(*batches(0, 5), partitions=2) as fake:
        for given, wanted in (
            ({}, at(10, 0)),
            ({"startingOffsets": "earliest"}, at(0, 0)),
            ({"startingOffsets": '{"t": {"0": 7, "1": -1}}'}, at(5, 0)),
        ):
            async with stream(fake, **given) as here:
                assert await here.initial() == wanted


async def test_each_batch_is_in_one_micro_batch() -> None:
    """1. It begins inside of a batch: with the whole of it.
    2. Micro-batches end inside of batches, and go on there.
    """
    async with scripted(*batches(*range(0, 50, 5))) as fake:
        async with stream(fake, startingOffsets='{"t": {"0": 8}}', maxOffsetsPerTrigger="7") as here:
            assert here.reader.getDefaultReadLimit() == ReadMaxRows(7)
            start, found, ends = await here.initial(), [], []
            while (end := await here.latest(start, 7)) != start:
                found.append(await here.bases(start, end))
                ends.append(end["t"]["0"])
                start = end
        assert ends == [12, 19, 26, 33, 40, 47, 50]
        assert found == [[5, 10], [15], [20, 25], [30], [35], [40, 45], []]


async def test_a_partition_that_is_new() -> None:
    """From its beginning on, also what a log that begins inside of its first batch has of it."""
    async with scripted(*batches(0)) as fake, stream(fake, startingOffsets="earliest") as here:
        start = await here.initial()
        fake.add_topic("t", partitions=2)
        fake.store("t", 0, *batches(0))
        fake.store("t", 1, *batches(0, 5))
        fake.log("t", 1).delete_before(3)
        end = await here.latest(start)
        assert end == at(5, 10)
        assert [each[1:5] for each in await here.ranges(start, end)] == [(0, 0, 5, False), (1, 3, 10, True)]
        assert await here.bases(start, end) == [0, 0, 5]
        assert await here.latest(start, 4) == at(1, 5)
        assert here.reader.reportLatestOffset() == at(5, 10)


@pytest.mark.parametrize(
    ("deleted", "gone", "bases"),
    [
        (5, "offsets 0 to 4 are gone", [5, 10]),
        (12, "offsets 0 to 9 are gone", [10]),
        (15, "offsets 0 to 14 are gone", []),
    ],
)
async def test_what_a_new_partition_has_lost(
    caplog: pytest.LogCaptureFixture, deleted: int, gone: str, bases: list[int]
) -> None:
    """
    1. A partition is new, and its log does not begin at 0 any more: what was before was never read.
    2. That is said when the micro-batch is made; and when it is made once more, from the checkpoint, and more is gone.
    3. Mutation: it begins where its log does, or is left out, without a word.
    """
    async with scripted(*batches(0)) as fake:
        fake.add_topic("t", partitions=2)
        fake.store("t", 0, *batches(0))
        fake.store("t", 1, *batches(0, 5, 10))
        fake.log("t", 1).delete_before(deleted)
        async with stream(fake) as here:
            for asked in (here.latest(at(5)), here.ranges(at(5), at(5, 15))):
                with pytest.raises(OffsetOutOfRange, match=f"t-1 is new, and {gone} .*failOnDataLoss"):
                    await asked
        async with stream(fake, failOnDataLoss="false") as here:
            with caplog.at_level(logging.WARNING, "mirror.spark"):
                assert await here.latest(at(5)) == at(5, 15)
                assert caplog.text.count(f"t-1 is new, and {gone}") == 1
                assert await here.bases(at(5), at(5, 15)) == bases
                assert caplog.text.count(f"t-1 is new, and {gone}") == 2


async def test_available_now() -> None:
    """What comes after the query began is not read."""
    async with scripted(*batches(0)) as fake, stream(fake, startingOffsets="earliest") as here:
        assert here.reader.getDefaultReadLimit() == ALL
        await here.call(here.reader.prepareForTriggerAvailableNow)
        fake.store("t", 0, *batches(5))
        fake.add_topic("u")
        assert await here.latest(at(0)) == at(5)
        assert await here.latest(at(5)) == at(5)
        assert await here.latest(at(7)) == at(7), "it was read further before"


async def test_a_stream_whose_checkpoint_has_a_micro_batch() -> None:
    """Spark asks for its partitions first."""
    async with scripted(*batches(0, 5)) as fake, stream(fake) as here:
        assert await here.bases(at(5), at(10)) == [5]


async def test_what_is_gone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A log that has lost its end, and a partition that is not there any more."""
    monkeypatch.setattr(streaming, "LOOKS", 2)
    async with scripted(*batches(0)) as fake:
        async with stream(fake) as here:
            with pytest.raises(OffsetOutOfRange, match=r"t-0 ends at 5, and was read up to 8 .*failOnDataLoss"):
                await here.latest(at(8))
            with pytest.raises(OffsetOutOfRange, match="t-1 is gone"):
                await here.latest(at(5, 3))
        async with stream(fake, failOnDataLoss="false") as here:
            with caplog.at_level(logging.WARNING, "mirror.spark"):
                assert await here.latest(at(8, 3)) == at(5)
            assert "t-0 ends at 5" in caplog.text
            assert "t-1 is gone" in caplog.text
            assert await here.ranges(at(8, 3), at(5)) == []


async def test_an_end_that_goes_back_for_a_moment() -> None:
    """After an election, a leader knows only by and by what all replicas have."""
    async with scripted(*batches(0, 5)) as fake, stream(fake) as here:
        log = fake.log("t")
        log.hidden = 5

        async def later() -> None:
            await asyncio.sleep(0.15)
            log.hidden = 0

        _, found = await asyncio.gather(later(), here.latest(at(10)))
        assert found == at(10)


async def test_lost_connections() -> None:
    async with scripted(*batches(0)) as fake, stream(fake) as here:
        start = await here.initial()
        for node_id in fake.brokers:
            fake.drop(node_id)
        fake.store("t", 0, *batches(5))
        assert await here.latest(start) == at(10)


async def test_a_pattern_that_matches_nothing_yet() -> None:
    async with scripted() as fake, stream(fake, subscribePattern="new.*", startingOffsets="earliest") as here:
        start = await here.initial()
        assert start == {}
        fake.add_topic("new-1")
        fake.store("new-1", 0, *batches(0))
        end = await here.latest(start)
        assert end == {"new-1": {"0": 5}}
        assert await here.bases(start, end) == [0]
