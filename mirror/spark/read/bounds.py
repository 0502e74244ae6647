"""Finds out what a query has to read: which partitions, and from which offsets to which."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from mirror.audit.prepare.estimate import samples
from mirror.net.logs.leader_requests import EARLIEST, LATEST
from mirror.raw.errors import InvalidConfig, NoOffset, UnknownTopic
from mirror.raw.model import TopicPartition
from mirror.spark.read.fetching import PATIENCE_S, Fetcher, asked
from mirror.spark.read.options import Limit, ReadOptions
from mirror.spark.read.ranges import GUESS, OffsetRange, RangesPartition, Sized, tasks
from mirror.spark.read.tasks import RangeReading, lost
from mirror.spark.schema import FORMAT

Offsets = dict[TopicPartition, int]
ASKED_AT_ONCE = 16
"""For how many partitions at a time a batch is fetched, to see where it begins."""


class Bounds:
    """Finds out what a query has to read. ``fetcher``: for the requests to the brokers."""

    def __init__(self, fetcher: Fetcher, options: ReadOptions) -> None:
        self._fetcher = fetcher
        self._options = options
        self._now = asyncio.get_running_loop().time

    # -- partitions --------------------------------------------------------------------------------------------------

    async def partitions(self) -> list[TopicPartition]:
        """Returns the partitions that the options choose, as the cluster has them now.

        Raises:
            UnknownTopic: a topic or partition in the options does not exist.
            BrokerError: the cluster does not answer, or a right is missing.
        """
        topics, pattern, chosen = self._options.selection
        cluster, until = self._fetcher.cluster, self._now() + PATIENCE_S
        if pattern:
            await asked(cluster, lambda: cluster.refresh(None), until=until)
            whole = re.compile(pattern)
            found = (name for name, topic in cluster.topics.items() if whole.fullmatch(name) and not topic.internal)
            topics = tuple(sorted(found))
            if not topics and not self._options.streaming:
                told = f"{cluster.name} has no topic that matches {pattern!r}, or shows none to this client"
                raise UnknownTopic(f"{told}; check subscribePattern, and the right Describe")
        else:
            names = topics or tuple({at.topic for at in chosen})
            await asked(cluster, lambda: cluster.refresh(names), until=until)
        for at in [*chosen, *(TopicPartition(name, 0) for name in topics)]:
            if cluster.leader(*at) is None:
                await self._fetcher.leaders.find(*at, until=until)
        return sorted(chosen) or [
            TopicPartition(name, index) for name in topics for index in sorted(cluster.topics[name].leaders)
        ]

    # -- offsets -----------------------------------------------------------------------------------------------------

    async def list_offsets(self, partitions: Iterable[TopicPartition], timestamp: int) -> Offsets:
        """Returns the offset of each partition for ``timestamp`` (ms since 1970, EARLIEST, LATEST); -1 if no record has
        this timestamp or a later one. At read_committed, LATEST is the last stable offset.

        Raises:
            BrokerError: the offset of a partition could not be looked up.
        """
        return await self._list({at: timestamp for at in partitions})

    async def _list(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        until = self._now() + PATIENCE_S
        committed = self._options.settings.committed
        ask = self._fetcher.leaders.list_offset
        return await _together(
            {at: ask(*at, timestamp, until=until, committed=committed) for at, timestamp in wanted.items()}
        )

    async def starts(self, partitions: list[TopicPartition]) -> Offsets:
        """Returns the offset of each partition at which reading begins, according to the options.

        Raises:
            InvalidConfig: the partitions in the options are not exactly these.
            NoOffset: a partition has no record with the starting timestamp or a later one.
            OffsetOutOfRange: the log does not have the offset; only with failOnDataLoss.
            BrokerError: the brokers do not answer.
        """
        found = await self._resolved(self._options.start, partitions)
        late = [at for at, offset in found.items() if offset < 0]
        if late and not self._options.latest_if_later:
            name = f"{late[0].topic}-{late[0].partition}"
            told = f"{FORMAT}: {self._options.start.name}: {name} has no record as late as that"
            remedy = "take an earlier time, or set startingOffsetsByTimestampStrategy to latest"
            raise NoOffset(f"{told}; {remedy}", **late[0]._asdict(), offset=-1)
        found |= await self.list_offsets(late, LATEST)
        if self._options.start.offsets is not None:
            found = await self._within_logs(found)
        return found

    async def ends(self, partitions: list[TopicPartition]) -> Offsets:
        """Returns the offset of each partition before which reading ends, according to the options.

        Raises:
            InvalidConfig: the partitions in the options are not exactly these.
            OffsetOutOfRange: an offset is above the log's end; only with failOnDataLoss.
            BrokerError: the brokers do not answer.
        """
        limit = self._options.end
        latest = await self.list_offsets(partitions, LATEST)
        found = await self._resolved(limit, partitions)
        for at, offset in found.items():
            if offset < 0:  # no record has the ending timestamp or a later one
                found[at] = latest[at]
            elif offset > latest[at]:
                self._beyond(limit.name, at, offset, latest[at])
                found[at] = latest[at]
        return found

    def _beyond(self, name: str, at: TopicPartition, offset: int, end: int) -> None:
        told = f"{at.topic}-{at.partition}: {name} has offset {offset}, and what can be read ends at {end}"
        lost(told, "a wrong offset, or the topic lost its end", {**at._asdict(), "offset": offset}, fails=self._fails)

    @property
    def _fails(self) -> bool:
        return self._options.fail_on_data_loss

    async def _resolved(self, limit: Limit, partitions: list[TopicPartition]) -> Offsets:
        """Returns the offset of each partition for a limit; -1 if no record has its timestamp or a later one."""
        if limit.offset is not None:
            return await self.list_offsets(partitions, limit.offset)
        if limit.time is not None:
            return await self.list_offsets(partitions, limit.time)
        if limit.times is not None:
            _check_same(limit.name, limit.times, partitions)
            return await self._list(limit.times)
        assert limit.offsets is not None
        _check_same(limit.name, limit.offsets, partitions)
        special = {at: offset for at, offset in limit.offsets.items() if offset < 0}
        return {**limit.offsets, **await self._list(special)}

    async def _within_logs(self, starts: Offsets) -> Offsets:
        """Returns these offsets. One that the log does not have is replaced by the log's start or end.

        Raises:
            OffsetOutOfRange: there is such an offset, and failOnDataLoss is true.
        """
        first, end = await self.list_offsets(starts, EARLIEST), await self.list_offsets(starts, LATEST)
        found = dict(starts)
        for at, offset in starts.items():
            if offset > end[at]:
                self._beyond(self._options.start.name, at, offset, end[at])
                found[at] = end[at]
            elif offset < first[at]:
                if first[at] == end[at] or await self._base_of(at, first[at]) > offset:
                    told = f"{at.topic}-{at.partition}: offsets {offset} to {first[at] - 1} are gone"
                    why = "the log begins behind them: by retention, or DeleteRecords"
                    lost(told, why, {**at._asdict(), "offset": offset}, fails=self._fails)
                found[at] = first[at]
        return found

    async def beginnings(self, ends: Offsets) -> Offsets:
        """Returns the starting offsets of partitions that are new to a stream. They have to be read from offset 0 on,
        up to ``ends``.

        Raises:
            OffsetOutOfRange: a log begins above offset 0; only with failOnDataLoss.
            BrokerError: the brokers do not answer.
        """
        found = await self.list_offsets(ends, EARLIEST)
        for at, first in found.items():
            base = min(first, ends[at])
            if base and first < ends[at]:
                base = await self._base_of(at, first)  # if the log begins inside a batch, the whole batch is there
            if base:
                told = f"{at.topic}-{at.partition} is new, and offsets 0 to {base - 1} are gone"
                lost(told, "by retention, or DeleteRecords", {**at._asdict(), "offset": 0}, fails=self._fails)
        return found

    async def aligned(self, starts: Offsets) -> Offsets:
        """Returns the base offsets of the batches that hold these offsets, so that each partition begins with a whole
        batch.

        Raises:
            BrokerError: a partition cannot be read.
        """
        ends = await self.list_offsets(starts, LATEST)
        gate = asyncio.Semaphore(ASKED_AT_ONCE)

        async def one(at: TopicPartition, offset: int) -> int:
            async with gate:
                return await self._base_of(at, offset)

        inside = {at: offset for at, offset in starts.items() if 0 < offset < ends[at]}
        return {**starts, **await _together({at: one(at, offset) for at, offset in inside.items()})}

    async def _base_of(self, at: TopicPartition, offset: int) -> int:
        return await RangeReading(self._fetcher, self._options, OffsetRange(*at, offset, offset + 1)).base_of(offset)

    # -- Spark partitions --------------------------------------------------------------------------------------------

    async def tasks(
        self, starts: Offsets, ends: Offsets, *, first: Callable[[TopicPartition], bool]
    ) -> list[RangesPartition]:
        """Returns the Spark partitions for the offsets between ``starts`` and ``ends``.

        Args:
            starts: first offset of each partition.
            ends: offset behind the last one of each partition.
            first: returns ``OffsetRange.first`` for a partition: True if the query reads nothing before it.
        """
        ranges = [
            OffsetRange(*at, starts[at], end, first(at), self._fetcher.topic_id(at.topic))
            for at, end in sorted(ends.items())
            if starts[at] < end
        ]
        rates = await self._rates(ranges)
        sized = [Sized(each, rates.get(each.at, GUESS) * (each.end - each.start)) for each in ranges]
        options = self._options
        return tasks(sized, most_bytes=options.partition_bytes, least_tasks=options.least_partitions)

    async def _rates(self, ranges: list[OffsetRange]) -> dict[TopicPartition, float]:
        """Returns the bytes per offset, measured by a sample from the middle of each range."""
        places = [(*each.at, (each.start + each.end) // 2) for each in ranges]
        found = await samples(self._fetcher.cluster, self._options.settings.client_id, places)
        return {TopicPartition(*at): rate for at, rate in found}


async def _together(asking: Mapping[TopicPartition, Coroutine[Any, Any, int]]) -> Offsets:
    """Awaits all coroutines at the same time, and returns their results by partition. Raises the first failure."""
    running = {at: asyncio.ensure_future(work) for at, work in asking.items()}
    try:
        found = await asyncio.gather(*running.values())
    finally:
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)
    return dict(zip(running, found, strict=True))


def _check_same(name: str, given: Iterable[TopicPartition], partitions: Iterable[TopicPartition]) -> None:
    """Raises InvalidConfig if the option does not have exactly the partitions that are read."""
    given, partitions = set(given), set(partitions)
    lacks, spare = sorted(partitions - given), sorted(given - partitions)
    if lacks or spare:
        told = " and ".join(
            f"{what} {', '.join(f'{topic}-{partition}' for topic, partition in some[:10])}"
            for what, some in (("lacks", lacks), ("has also", spare))
            if some
        )
        raise InvalidConfig(f"{FORMAT}: {name}: {told}; it must have exactly the partitions that are read")
