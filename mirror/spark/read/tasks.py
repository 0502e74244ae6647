"""Reads the ranges of one Spark task, one after the other, as Arrow batches.

The next Fetch is sent as soon as the headers of a response were read, so that the broker works while the bytes are
copied. After a lost connection or a moved leader, the leader is looked up and asked again, at the next offset that is
due: rows that were read are not read again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from mirror.audit.read.fetching import FetchInFlight
from mirror.loop_thread import driven
from mirror.net.errors import NetworkError, Refused
from mirror.net.logs.leader_requests import EARLIEST, LATEST, in_tiered_storage
from mirror.raw.errors import (
    OffsetOutOfRange,
    TopicRecreated,
    Unavailable,
    UnreadableLog,
    of_network,
)
from mirror.raw.leaders import backoff_of
from mirror.records.header import CorruptBatch
from mirror.spark.read.cutting import NO_END, Unproved, cut_entries, two_from
from mirror.spark.read.fetching import LOG, PATIENCE_S, Answer, Fetcher, is_final
from mirror.spark.read.options import ReadOptions
from mirror.spark.read.ranges import OffsetRange
from mirror.spark.read.rows import arrow_rows, gathered
from mirror.wire.errors import UNREADABLE, ErrorCode

UNREADABLE_TRIES = 3
"""Number of tries if a broker cannot read its log: an error of its disk may be temporary."""
EMPTY_ANSWERS = 3
"""After so many answers without a batch, although the leader's log goes on, there is no batch, or the leader cannot
find it."""
IGNORED = "failOnDataLoss is false"


def read_ranges(options: ReadOptions, ranges: Sequence[OffsetRange]) -> Iterator[Any]:
    """Returns the rows of these ranges in Arrow batches of at most 16 MiB, or one larger record batch.

    Raises:
        RawError: a range cannot be read.
    """
    return driven(gathered(_rows(options, ranges)))


async def _rows(options: ReadOptions, ranges: Sequence[OffsetRange]) -> AsyncIterator[Any]:
    async with await Fetcher.open(options.settings, patience_s=PATIENCE_S) as fetcher:
        for wanted in ranges:
            async for rows in RangeReading(fetcher, options, wanted).rows():
                yield rows


class RangeReading:
    """Reads one range."""

    def __init__(self, fetcher: Fetcher, options: ReadOptions, wanted: OffsetRange) -> None:
        self._fetcher = fetcher
        self._cluster = fetcher.cluster
        self._options = options
        self._wanted = wanted
        self._at = wanted.at
        self._due = wanted.start
        self._fresh = True
        self._backoff = backoff_of(fetcher.cluster)
        self._empty = 0
        self._lost = False
        self._now = asyncio.get_running_loop().time
        self._until = self._now() + PATIENCE_S

    async def rows(self) -> AsyncIterator[Any]:
        """Yields the rows of the range in Arrow batches, in order.

        Raises:
            RawError: the range cannot be read to its end.
        """
        wanted, committed = self._wanted, self._options.settings.committed
        sent: FetchInFlight | None = None
        while self._due < wanted.end:
            answer = await self._answer(sent)
            sent = None
            if answer is None:
                continue
            fetched, frame = answer
            try:
                cut = cut_entries(frame.body, fetched, wanted, self._due, fresh=self._fresh, committed=committed)
                if cut.broken:
                    raise self._unreadable(f"the log is damaged ({cut.broken})")
                if self._due < cut.next_offset < wanted.end and cut.unproved is None:
                    sent = self._fetcher.send_ahead(self._at, cut.next_offset, committed=committed)
                rows = None
                if cut.entries:
                    rows = arrow_rows(*self._at, frame.body, cut.entries, include_batch=self._options.include_batch)
            finally:
                frame.release()
            if cut.unproved is not None and not await self._reaches(cut.unproved, cut.next_offset):
                raise self._unreadable(f"the log is damaged ({NO_END.format(cut.unproved.base)})")
            if cut.next_offset > self._due:
                self._go_to(cut.next_offset, fresh=False)
            else:
                await self._nothing(fetched.last_stable_offset if committed else fetched.high_watermark)
            if rows is not None:
                yield rows

    def _go_to(self, offset: int, *, fresh: bool) -> None:
        """Goes on at an offset. ``fresh``: True if the offsets right before it were not read."""
        self._due, self._fresh = offset, fresh
        self._empty = 0
        self._backoff.reset()
        self._until = self._now() + PATIENCE_S

    async def _answer(self, sent: FetchInFlight | None) -> Answer | None:
        """Returns the answer for the offset that is due; None: call again. ``sent``: a Fetch that was sent ahead.

        Raises:
            RawError: the range cannot be read.
        """
        try:
            if sent is None:
                anew, self._lost = self._lost, False
                sent = await self._fetcher.send(
                    self._at, self._due, until=self._until, anew=anew, committed=self._options.settings.committed
                )
                self._check_topic()
            return await self._fetcher.receive(sent, self._at)
        except Refused as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._pass_over()
                return None
            if error.code in UNREADABLE and self._backoff.tries >= UNREADABLE_TRIES:
                raise self._unreadable(f"the broker cannot read its log ({error})") from error
            await self._again(error)
        except NetworkError as error:
            await self._again(error)
        return None

    async def _again(self, error: NetworkError) -> None:
        """Waits before the next try, for which the leader is looked up again. Raises BrokerError if another try would
        fail, or the time is over."""
        if is_final(error) or self._now() >= self._until:
            raise of_network(error) from error
        LOG.warning("%s at offset %d: %s; trying again", self._wanted.name, self._due, error)
        self._lost = True
        await asyncio.sleep(self._backoff.next_s())

    def _check_topic(self) -> None:
        """Raises TopicRecreated if another topic has the name since the range was made."""
        now, before = self._fetcher.topic_id(self._at.topic), self._wanted.topic_id
        if now and before and now != before:
            told = "the topic was deleted and created again while it was read; run the query again"
            raise TopicRecreated(f"{self._wanted.name}: {told}", **self._place())

    def _place(self) -> dict[str, Any]:
        return {"topic": self._at.topic, "partition": self._at.partition, "offset": self._due}

    def _unreadable(self, why: str) -> UnreadableLog:
        told = f"{self._wanted.name} at offset {self._due}: {why}; repair it, or read the offsets around it"
        return UnreadableLog(told, **self._place())

    # -- nothing there -------------------------------------------------------------------------------------------------

    async def _list(self, timestamp: int) -> int:
        return await self._fetcher.leaders.list_offset(*self._at, timestamp, until=self._until, committed=False)

    async def _pass_over(self) -> None:
        """Handles OFFSET_OUT_OF_RANGE for the offset that is due: goes on at the log's start, if that is allowed.

        Raises:
            OffsetOutOfRange: records are lost, and failOnDataLoss is true.
        """
        start, end = await self._list(EARLIEST), await self._list(LATEST)
        if start <= self._due:
            if self._due <= end:
                await self._again(Refused(f"{self._wanted.name}: Fetch", ErrorCode.OFFSET_OUT_OF_RANGE))
                return
            told = f"offsets {self._due} to {self._wanted.end - 1} are not there: the log ends at {end}"
            self._lose(told, "the topic lost its end, or was created again", self._wanted.end)
        elif start < self._wanted.end and (base := await self.base_of(start)) <= self._due:
            # The log begins inside a batch: the one that is due, or one that was read already.
            self._go_to(start, fresh=self._fresh or base >= self._due)
        else:
            gone = min(start, self._wanted.end)
            told = f"offsets {self._due} to {gone - 1} are gone: the log begins at {start}"
            self._lose(told, "by retention, or DeleteRecords", gone)

    def _lose(self, told: str, why: str, behind: int) -> None:
        """Reports lost offsets, and goes on at ``behind``; with failOnDataLoss, raises OffsetOutOfRange."""
        lost(f"{self._wanted.name}: {told}", why, self._place(), fails=self._options.fail_on_data_loss)
        self._go_to(behind, fresh=True)

    async def base_of(self, offset: int) -> int:
        """Returns the base offset of the batch that holds this offset; the offset itself if there is no such batch.

        Raises:
            RawError: the partition cannot be read.
        """
        first = await self._first_from(offset)
        return offset if first is None else min(first, offset)

    async def _reaches(self, damaged: Unproved, end: int) -> bool:
        """Returns True if a damaged batch really ends before ``end``, as it claims: for the offset before ``end``, the
        broker returns this batch, and the entry behind it, if there is one, begins at ``end`` or later."""
        first, second = await self._two_from(end - 1, damaged.size)
        return first == damaged.base and (second is None or second >= end)

    async def _first_from(self, offset: int) -> int | None:
        """Returns the first offset of the entry that holds ``offset``, or else of the next one; None if the broker
        returns none."""
        return (await self._two_from(offset))[0]

    async def _two_from(self, offset: int, size: int = 0) -> tuple[int | None, int | None]:
        """As ``cutting.two_from``, for a new Fetch at ``offset``. ``size``: bytes of the first entry, if known, which
        are fetched in addition to the usual size."""
        while True:
            anew, self._lost = self._lost, False
            try:
                sent = await self._fetcher.send(
                    self._at, offset, until=self._until, anew=anew, committed=False, more_bytes=size
                )
                answer = await self._fetcher.receive(sent, self._at)
            except NetworkError as error:
                await self._again(error)
                continue
            if answer is None:
                continue
            fetched, frame = answer
            try:
                return two_from(frame.body, fetched, offset)
            except CorruptBatch as error:
                raise self._unreadable(f"the log is damaged ({error})") from error
            finally:
                frame.release()

    async def _nothing(self, visible: int) -> None:
        """Handles an answer without a batch that is due. ``visible``: the high watermark or last stable offset in it.

        Raises:
            Unavailable: ``visible`` stays below the range's end.
            UnreadableLog: the leader has batches at later offsets, so some should have been returned.
        """
        if visible < self._wanted.end:
            # A new leader learns the high watermark only after a while.
            told = f"{self._wanted.name}: the leader shows its log up to offset {visible} only"
            if self._now() >= self._until:
                raise Unavailable(f"{told}, and {self._wanted.end} was its end before; check its brokers")
            self._lost = True
            await asyncio.sleep(self._backoff.next_s())
            return
        self._empty += 1
        if self._empty < EMPTY_ANSWERS:
            return
        if await self._in_tiered_storage():
            if self._now() >= self._until:
                told = f"{self._wanted.name} at offset {self._due}: its tiered storage gives nothing"
                raise Unavailable(f"{told}; see the brokers' logs")
            await asyncio.sleep(self._backoff.next_s())
            return
        if await self._first_from(visible - 1) is not None:
            raise self._unreadable(f"the broker shows nothing, and has a batch with offset {visible - 1}")
        self._go_to(self._wanted.end, fresh=True)  # a log cleaner has left nothing up to the end

    async def _in_tiered_storage(self) -> bool:
        leader = await self._fetcher.leaders.find(*self._at, until=self._until)
        try:
            return await in_tiered_storage(self._cluster, *self._at, leader, self._due)
        except NetworkError:
            return False


def lost(what: str, why: str, place: dict[str, Any], *, fails: bool) -> None:
    """Logs that records are lost, or raises.

    Args:
        what: what is lost, in words.
        why: the probable cause, in words.
        place: ``topic``, ``partition`` and ``offset`` of the error.
        fails: failOnDataLoss.

    Raises:
        OffsetOutOfRange: if ``fails``.
    """
    if fails:
        raise OffsetOutOfRange(f"{what} ({why}); to go on with what is there, set failOnDataLoss to false", **place)
    LOG.warning("%s (%s); %s, so reading goes on with what is there", what, why, IGNORED)
