"""``spark.readStream.format("kafka-raw-batches")``: the reader of a stream.

Its offsets have the form of Spark's own Kafka connector: ``{"orders": {"0": 23, "1": 42}}``, the next offset of each
partition. A stream begins with whole batches, and a micro-batch has those whose base offsets lie between its two
offsets. So no batch is doubled or left out, wherever micro-batches are cut.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mirror.loop_thread import LoopThread
from mirror.net.backoff import Backoff
from mirror.net.logs.leader_requests import LATEST
from mirror.raw.model import TopicPartition
from mirror.spark.read.batch import read_partition
from mirror.spark.read.bounds import Bounds, Offsets
from mirror.spark.read.fetching import Fetcher
from mirror.spark.read.options import ReadOptions
from mirror.spark.read.ranges import limited
from mirror.spark.read.tasks import lost

T = TypeVar("T")
Told = dict[str, dict[str, int]]
"""An offset as Spark stores it."""

LOOKS = 6
"""How often a log end that has gone back is looked at again: a new leader learns the high watermark only after a
while."""
CLOSE_S = 60.0
ASK_S = 600.0
"""Limit for one call, above every time limit inside it."""


def told(offsets: Mapping[TopicPartition, int]) -> Told:
    """Returns offsets as Spark stores them."""
    found: Told = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def heard(offsets: Told) -> Offsets:
    """Returns offsets that Spark has stored."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


class RawBatchStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See the module's docstring. Spark keeps one reader for each query in a separate process; that one opens
    connections. The readers that Spark pickles for tasks have none."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._thread: LoopThread | None = None
        self._fetcher: Fetcher | None = None
        self._until: Offsets | None = None
        """With Trigger.AvailableNow: the offsets at which the query ends."""
        self._latest: Told | None = None

    # -- Spark's questions -------------------------------------------------------------------------------------------

    def initialOffset(self) -> Told:
        """Returns the offset at which the stream begins if it has no checkpoint yet.

        Raises:
            RawError: the options do not fit the cluster's topics, or the brokers do not answer.
        """
        return self._ask(self._initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns ``maxOffsetsPerTrigger``, or no limit."""
        most = self._options.most_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Notes where the partitions end now: later records are not read. Raises RawError if the brokers do not
        answer."""
        self._until = self._ask(self._ends())

    def latestOffset(self, start: Told, limit: ReadLimit) -> Told:
        """Returns the offset at which the next micro-batch ends.

        Args:
            start: the offset at which it begins.
            limit: how many offsets it may have.

        Raises:
            OffsetOutOfRange: partitions are gone, or end before ``start``, or are new and have lost their beginning;
                only with failOnDataLoss.
            RawError: the brokers do not answer.
        """
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return told(self._ask(self._next(heard(start), most)))

    def reportLatestOffset(self) -> Told | None:
        """Returns where the partitions ended when they were last looked at, for the progress of the query."""
        return self._latest

    def partitions(self, start: Told, end: Told) -> Sequence[InputPartition]:
        """Returns the Spark partitions of a micro-batch. Raises RawError if they cannot be planned."""
        return self._ask(self._tasks(heard(start), heard(end)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yields the rows of a Spark partition in Arrow batches."""
        return read_partition(self._options, partition)

    def stop(self) -> None:
        """Closes all connections."""
        thread, fetcher = self._thread, self._fetcher
        self._thread = self._fetcher = None
        if thread is not None:
            if fetcher is not None:
                thread.run(fetcher.close(), CLOSE_S)
            thread.stop()

    # -- the brokers' answers ----------------------------------------------------------------------------------------

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the event loop that has the connections, and returns its result."""
        if self._thread is None:
            self._thread = LoopThread("kafka-raw-batches", timeout_s=CLOSE_S)
            self._thread.start()
        return self._thread.run(work, ASK_S)

    async def _bounds(self) -> Bounds:
        if self._fetcher is None:
            self._fetcher = await Fetcher.open(self._options.settings)
        return Bounds(self._fetcher, self._options)

    async def _initial(self) -> Told:
        bounds = await self._bounds()
        return told(await bounds.aligned(await bounds.starts(await bounds.partitions())))

    async def _ends(self) -> Offsets:
        bounds = await self._bounds()
        return await bounds.list_offsets(await bounds.partitions(), LATEST)

    async def _next(self, start: Offsets, most: int | None) -> Offsets:
        bounds = await self._bounds()
        ends = await self._ends()
        self._latest = told(ends)
        if self._until is not None:
            ends = {at: end for at, end in ends.items() if at in self._until}
        ends = await self._not_before(start, ends)
        if self._until is not None:
            ends = {at: min(end, max(self._until[at], start.get(at, 0))) for at, end in ends.items()}
        new = await bounds.beginnings({at: end for at, end in ends.items() if at not in start})
        return ends if most is None else limited({**start, **new}, ends, most)

    async def _not_before(self, start: Offsets, ends: Offsets) -> Offsets:
        """Returns the newest ends. Reports partitions that are gone, or that end before ``start``, as data loss.

        Raises:
            OffsetOutOfRange: there are such partitions, and failOnDataLoss is true.
        """
        bounds = await self._bounds()
        backoff = Backoff(least_ms=100, most_ms=2_000)
        while back := [at for at, end in ends.items() if end < start.get(at, 0)]:
            if backoff.tries >= LOOKS:
                break
            await asyncio.sleep(backoff.next_s())
            ends = {**ends, **await bounds.list_offsets(back, LATEST)}
        for at in sorted(start):
            place = {**at._asdict(), "offset": start[at]}
            if at not in ends:
                why = "the topic was deleted, or is not chosen any more"
                self._lost(f"{at.topic}-{at.partition} is gone", why, place)
            elif at in back:
                what = f"{at.topic}-{at.partition} ends at {ends[at]}, and was read up to {start[at]}"
                self._lost(what, "the topic lost its end, or was created again", place)
        return ends

    def _lost(self, what: str, why: str, place: dict[str, Any]) -> None:
        lost(what, why, place, fails=self._options.fail_on_data_loss)

    async def _tasks(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Returns the Spark partitions of a micro-batch. Partitions that are new in it are read from their beginning,
        which is looked up again: a micro-batch from the checkpoint is planned a second time, and more of them may have
        been deleted since."""
        bounds = await self._bounds()
        assert self._fetcher is not None
        if any(self._fetcher.cluster.leader(*at) is None for at in end):
            await bounds.partitions()  # metadata are lacking if the query begins with a micro-batch of its checkpoint
        new = await bounds.beginnings({at: offset for at, offset in end.items() if at not in start})
        return await bounds.tasks({**start, **new}, end, first=lambda at: at in new)
