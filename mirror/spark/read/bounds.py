"""Asks the brokers what a query is to read: which partitions, and from which offsets to which."""

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
"""Partitions of which a batch is fetched at the same time, to see where it begins."""


class Bounds:
    """What a query is to read. ``fetcher``: how to ask."""

    def __init__(self, fetcher: Fetcher, options: ReadOptions) -> None:
        self._fetcher = fetcher
        self._options = options
        self._now = asyncio.get_running_loop().time

    # -- partitions --------------------------------------------------------------------------------------------------

    async def partitions(self) -> list[TopicPartition]:
        """Returns the partitions that the options choose, as the cluster has them now.

        Raises:
            UnknownTopic: a topic or partition that is named does not exist.
            BrokerError: the cluster does not answer, or shows less than it must.
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
        """Returns the offset of each partition for ``timestamp``; -1 if no record is as late. LATEST is what can be
        read: at read_committed, the last stable offset.

        Raises:
            BrokerError: one cannot be had.
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
        """Returns where each partition begins to be read, as the options say.

        Raises:
            InvalidConfig: the options have not exactly these partitions.
            NoOffset: a partition has no record as late as the starting timestamp.
            OffsetOutOfRange: an offset that the log does not have; with failOnDataLoss only.
            BrokerError: the brokers cannot be asked.
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
        """Returns where each partition ends to be read, as the options say.

        Raises:
            InvalidConfig: the options have not exactly these partitions.
            OffsetOutOfRange: an offset behind the log's end; with failOnDataLoss only.
            BrokerError: the brokers cannot be asked.
        """
        limit = self._options.end
        latest = await self.list_offsets(partitions, LATEST)
        found = await self._resolved(limit, partitions)
        for at, offset in found.items():
            if offset < 0:  # no record is as late as the ending timestamp
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
        """Returns the offset of each partition for a limit; -1 if no record is as late as its timestamp."""
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
        """Returns these offsets; in place of those that a log does not have, its own start or end.

        Raises:
            OffsetOutOfRange: there is one, and failOnDataLoss is true.
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
        """Returns where partitions begin that a stream has not read before. They are due from offset 0 on, up to
        ``ends``.

        Raises:
            OffsetOutOfRange: a log begins behind that; with failOnDataLoss only.
            BrokerError: the brokers cannot be asked.
        """
        found = await self.list_offsets(ends, EARLIEST)
        for at, first in found.items():
            base = min(first, ends[at])
            if base and first < ends[at]:
                base = await self._base_of(at, first)  # a batch that the log begins inside of is whole
            if base:
                told = f"{at.topic}-{at.partition} is new, and offsets 0 to {base - 1} are gone"
                lost(told, "by retention, or DeleteRecords", {**at._asdict(), "offset": 0}, fails=self._fails)
        return found

    async def aligned(self, starts: Offsets) -> Offsets:
        """Returns the base offsets of the batches that have these offsets, so that each begins with a whole batch.

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
        """Returns the Spark partitions for what lies between these offsets.

        Args:
            starts: where each partition begins.
            ends: where it ends.
            first: if nothing before that is read (``OffsetRange.first``).
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
        """Returns the bytes of an offset, by samples from the middle of each range."""
        places = [(*each.at, (each.start + each.end) // 2) for each in ranges]
        found = await samples(self._fetcher.cluster, self._options.settings.client_id, places)
        return {TopicPartition(*at): rate for at, rate in found}


async def _together(asking: Mapping[TopicPartition, Coroutine[Any, Any, int]]) -> Offsets:
    """Returns what is asked for of each partition, all at the same time. Raises the first failure."""
    running = {at: asyncio.ensure_future(work) for at, work in asking.items()}
    try:
        found = await asyncio.gather(*running.values())
    finally:
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)
    return dict(zip(running, found, strict=True))


def _check_same(name: str, given: Iterable[TopicPartition], partitions: Iterable[TopicPartition]) -> None:
    """Raises InvalidConfig if the option has not exactly the partitions that are read."""
    given, partitions = set(given), set(partitions)
    lacks, spare = sorted(partitions - given), sorted(given - partitions)
    if lacks or spare:
        told = " and ".join(
            f"{what} {', '.join(f'{topic}-{partition}' for topic, partition in some[:10])}"
            for what, some in (("lacks", lacks), ("has also", spare))
            if some
        )
        raise InvalidConfig(f"{FORMAT}: {name}: {told}; it must have exactly the partitions that are read")
