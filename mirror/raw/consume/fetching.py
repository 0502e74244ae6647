"""Fetches partitions for a raw consumer: one request under way to each broker, and at most one answer of each kept.

It runs in the consumer's event loop. Memory is bounded (KIP-74): a broker's response has at most ``fetch.max.bytes``,
or one larger batch, and the next request is sent only when the program has taken the response. A partition that had
data goes to the end of the next requests, so that each partition has its turn.

Once a partition was put again or dropped, data that was fetched for its old ``RawCursor`` is thrown away, whenever it
arrives.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from mirror.net.buffers import OVERHEAD, Frame, FramePool
from mirror.net.cluster import Cluster
from mirror.net.errors import Damaged, NetworkError, Refused
from mirror.net.logs.reading import OldFormat, check_end, intact
from mirror.net.metadata import Leader
from mirror.net.rights import DENIED, READ, TOPIC, Right
from mirror.raw import errors
from mirror.raw.batches import records_of
from mirror.raw.consume.cursor import NO_EPOCH, NOTHING, FetchedRecords, RawCursor, ReadBefore
from mirror.raw.consume.link import RawFetchLink
from mirror.raw.errors import RawError, heals, of_network
from mirror.raw.leaders import Leaders, backoff_of
from mirror.raw.model import TopicPartition
from mirror.raw.settings import ConsumerSettings
from mirror.records.header import CorruptBatch
from mirror.wire.errors import UNREADABLE, ErrorCode, error_name
from mirror.wire.fetch import Fetched, FetchResponse

LOG = logging.getLogger("mirror.raw")
UNREADABLE_TRIES = 3
"""Number of tries if a broker cannot read its log: an error of its disk may be temporary."""


class Fetching:
    """See the module's docstring. All methods are called in the event loop's thread."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._cluster = cluster
        self._leaders = Leaders(cluster)
        self._settings = settings
        self._committed = settings.isolation_level == "read_committed"
        size = settings.fetch_max_bytes + OVERHEAD
        self._pool = FramePool(budget=size, frame_size=size)
        self._cursors: dict[TopicPartition, RawCursor] = {}
        """The current cursors, in the order in which they are fetched next."""
        self._answers: deque[tuple[int | None, list[FetchedRecords]]] = deque()
        """(broker, its data) of responses that were not taken yet; (None, …): an error of one partition."""
        self._unread: set[int] = set()
        """Brokers with a response that was not taken yet."""
        self._links: dict[int, RawFetchLink] = {}
        self._wakes: dict[int, asyncio.Event] = {}
        """Broker -> event that is set when there may be a partition to fetch from it."""
        self._arrived = asyncio.Event()
        """Set when there is data or an error to take."""
        self._leaderless = asyncio.Event()
        """Set when the leader of a partition may be unknown, or be a broker for which there is no task yet."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._broken: BaseException | None = None
        self._told: dict[str, str] = {}
        self._now: Callable[[], float] = asyncio.get_running_loop().time
        self._go(self._find_leaders())

    def _go(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine as a task until the consumer is closed. If it fails, which is a bug, ``take`` raises its
        error."""

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and task.exception() is not None:
                self._broken = task.exception()
                self._arrived.set()

        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(ended)

    async def close(self) -> None:
        """Ends all requests, and drops everything that was not taken."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in self._links.values():
            link.close()
        self._cursors.clear()
        self._answers.clear()

    # -- for the consumer --------------------------------------------------------------------------------------------

    def put(
        self, offsets: Mapping[TopicPartition, int], before: Mapping[TopicPartition, ReadBefore] = MappingProxyType({})
    ) -> None:
        """Begins to fetch these partitions at these offsets. Data fetched of them before is thrown away. ``before``:
        what was read before the offset, of partitions where that is known."""
        for at, offset in offsets.items():
            self._cursors.pop(at, None)
            self._cursors[at] = RawCursor(at, offset, backoff_of(self._cluster), before.get(at, NOTHING))
        self._leaderless.set()
        self._throw_away()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops fetching these partitions. Data fetched of them is thrown away."""
        for at in partitions:
            self._cursors.pop(at, None)
        self._throw_away()

    def again(self, at: TopicPartition) -> None:
        """Resumes fetching a partition whose error was taken."""
        cursor = self._cursors.get(at)
        if cursor is not None:
            cursor.busy = False
            cursor.wait(self._now())
            self._leaderless.set()
            self._wake_all()

    def _throw_away(self) -> None:
        """Throws away data of cursors that are not current any more. Their brokers may then be asked again."""
        kept = [(node_id, live) for node_id, chunks in self._answers if (live := self._live(chunks))]
        self._unread = {node_id for node_id, _ in kept if node_id is not None}
        self._answers = deque(kept)
        self._wake_all()

    def _live(self, chunks: Iterable[FetchedRecords]) -> list[FetchedRecords]:
        return [chunk for chunk in chunks if self._is_current(chunk.cursor)]

    def _is_current(self, cursor: RawCursor) -> bool:
        return self._cursors.get(cursor.at) is cursor

    async def take(self, timeout_s: float) -> list[FetchedRecords]:
        """Returns the data of one broker's response, or one partition's error. Waits up to ``timeout_s`` for it; empty
        if there is none in time."""
        until = self._now() + timeout_s
        while not self._answers:
            if self._broken is not None:
                raise self._broken
            left = until - self._now()
            if left <= 0:
                return []
            self._arrived.clear()
            await _wait(self._arrived, left)
        node_id, chunks = self._answers.popleft()
        if node_id is not None:
            self._unread.discard(node_id)
            for chunk in chunks:
                chunk.cursor.busy = False
            self._wakes[node_id].set()
        return chunks

    async def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Returns the offset of each partition for ``timestamp`` (EARLIEST, LATEST). With read_committed, LATEST is the
        last stable offset.

        Raises:
            BrokerError: some offsets could not be looked up in time.
        """
        until = self._now() + timeout_s
        wanted = list(partitions)
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._offset(at, timestamp, until)) for at in wanted]
        found = [one.result() for one in asked]
        for one in found:
            if isinstance(one, RawError):
                raise one
        return {at: one for at, one in zip(wanted, found, strict=True) if isinstance(one, int)}

    async def _offset(self, at: TopicPartition, timestamp: int, until: float) -> int | RawError:
        try:
            return await self._leaders.list_offset(*at, timestamp, until=until, committed=self._committed)
        except RawError as error:
            return error

    # -- news --------------------------------------------------------------------------------------------------------

    def _wake_all(self) -> None:
        """Makes the tasks of all brokers look again for partitions to fetch."""
        for wake in self._wakes.values():
            wake.set()

    def _tell(self, what: str, problem: object) -> None:
        """Logs a problem that the consumer recovers from by itself, once. ``what``: the partition or broker."""
        if self._told.get(what) != str(problem):
            self._told[what] = str(problem)
            LOG.warning("%s; trying again", problem)

    def _report(self, cursor: RawCursor, error: RawError) -> None:
        """Queues a partition's error behind the records that have arrived: the program gets it in that order."""
        if self._is_current(cursor):
            cursor.busy = True
            self._answers.append((None, [FetchedRecords(cursor, [], cursor.offset, NO_EPOCH, error)]))
            self._arrived.set()

    # -- leaders -----------------------------------------------------------------------------------------------------

    def _leader(self, cursor: RawCursor) -> Leader | None:
        return None if cursor.lost else self._cluster.leader(*cursor.at)

    async def _find_leaders(self) -> None:
        """Finds the leaders of partitions whose leader is not known, and starts a task for each new broker."""
        backoff = backoff_of(self._cluster)
        while True:
            self._leaderless.clear()
            for leader in {self._leader(cursor) for cursor in self._cursors.values()}:
                if leader is not None and leader.node_id not in self._links:
                    link = RawFetchLink(self._cluster, leader.node_id, self._settings, self._pool.take)
                    self._links[leader.node_id], self._wakes[leader.node_id] = link, asyncio.Event()
                    self._go(self._serve(leader.node_id, link))
            lost = [each for each in self._cursors.values() if self._leader(each) is None and not each.busy]
            if not lost:
                backoff.reset()
                await self._leaderless.wait()
                continue
            try:
                failed = await self._cluster.refresh({cursor.at.topic for cursor in lost})
            except NetworkError as error:
                for cursor in lost if not heals(error) else ():
                    self._report(cursor, of_network(error))
                self._tell("metadata", error)
            else:
                self._told.pop("metadata", None)
                for cursor in lost:
                    cursor.lost = False
                    self._look(cursor, failed)
                self._wake_all()
                if all(self._leader(cursor) is not None for cursor in lost):
                    continue
            await asyncio.sleep(backoff.next_s())

    def _look(self, cursor: RawCursor, failed: dict[str, int]) -> None:
        """Logs or reports why a partition still has no leader by the newest metadata. ``failed``: what
        ``Cluster.refresh`` returned."""
        problem = self._leaders.lack(*cursor.at, failed)
        if isinstance(problem, errors.Unavailable):
            self._tell(cursor.name, problem)
        elif problem is not None:
            self._report(cursor, problem)

    # -- one broker --------------------------------------------------------------------------------------------------

    async def _serve(self, node_id: int, link: RawFetchLink) -> None:
        """Fetches all partitions that this broker leads, until the consumer is closed."""
        backoff = backoff_of(self._cluster)
        wake = self._wakes[node_id]
        while True:
            wake.clear()
            due, pause_s = self._due(node_id)
            if not due:
                await _wait(wake, pause_s)
                continue
            for cursor in due:
                cursor.busy = True
            ids = {cursor.at.topic: self._topic_id(cursor.at.topic) for cursor in due}
            try:
                answer, frame = await link.fetch(due, ids)
            except NetworkError as error:
                self._failed(node_id, due, error)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self._told.pop(f"broker {node_id}", None)
            try:
                await self._answered(node_id, due, answer, frame, ids)
            finally:
                frame.release()

    def _due(self, node_id: int) -> tuple[list[RawCursor], float | None]:
        """Returns the partitions to fetch from the broker now, in the order of their turns, and the seconds to wait if
        there are none (None: until it is woken)."""
        due: list[RawCursor] = []
        waits: list[float] = []
        now = self._now()
        for cursor in self._cursors.values() if node_id not in self._unread else ():
            leader = self._leader(cursor)
            if leader is None:
                self._leaderless.set()
            if cursor.busy or leader is None or leader.node_id != node_id or self._is_recreated(cursor):
                continue
            if cursor.waits_until > now:
                waits.append(cursor.waits_until - now)
            else:
                due.append(cursor)
        return due, min(waits, default=None)

    def _failed(self, node_id: int, due: list[RawCursor], error: NetworkError) -> None:
        """Handles a failed request: its partitions (``due``) are fetched again after their leaders were looked up."""
        self._tell(f"broker {node_id}", error)
        for cursor in due:
            cursor.busy = False
            if heals(error):
                cursor.lost = True
            else:
                self._report(cursor, of_network(error))
        self._leaderless.set()

    def _topic_id(self, topic: str) -> bytes | None:
        known = self._cluster.topics.get(topic)
        return known.topic_id if known is not None else None

    def _is_recreated(self, cursor: RawCursor) -> bool:
        """Returns True, and reports ``TopicRecreated``, if another topic has the name now."""
        now = self._topic_id(cursor.at.topic)
        if cursor.topic_id is None or now is None:
            cursor.topic_id = cursor.topic_id or now
            return False
        if cursor.topic_id == now:
            return False
        told = (
            "the topic was deleted and created again, so that this offset means nothing any more; seek() to where the "
            "new one is to be read, or seek_to_beginning()"
        )
        self._report(cursor, cursor.error(errors.TopicRecreated, told))
        return True

    # -- answers -----------------------------------------------------------------------------------------------------

    async def _answered(
        self, node_id: int, due: list[RawCursor], answer: FetchResponse, frame: Frame, ids: Mapping[str, bytes | None]
    ) -> None:
        """Turns a response into one ``FetchedRecords`` for each partition with data."""
        asked = {
            (name, cursor.at.partition): cursor for cursor in due for name in (cursor.at.topic, ids[cursor.at.topic])
        }
        chunks: list[FetchedRecords] = []
        for found in answer.partitions:
            cursor = asked.get((found.topic, found.partition))
            if cursor is None or not self._is_current(cursor):
                continue
            chunk = None if self._refused(cursor, found, answer) else await self._chunk(cursor, found, frame)
            if chunk is not None and self._is_current(cursor):
                chunks.append(chunk)
                # The partition goes to the end of the next requests.
                self._cursors[cursor.at] = self._cursors.pop(cursor.at)
        waiting = {chunk.cursor for _, told in self._answers for chunk in told} | {chunk.cursor for chunk in chunks}
        for cursor in due:
            cursor.busy = cursor in waiting
        if chunks := self._live(chunks):
            self._unread.add(node_id)
            self._answers.append((node_id, chunks))
            self._arrived.set()

    def _refused(self, cursor: RawCursor, found: Fetched, answer: FetchResponse) -> bool:
        """Returns True if the response has an error for the partition. The error is reported to the program, or the
        partition will be fetched again."""
        code = found.error
        if found.diverging is not None:
            epoch, end = found.diverging
            told = (
                f"the log was truncated: it now has records of leader epoch {epoch} up to offset {end} only; undo what "
                f"was done with the records behind that, and seek() to offset {end} or before"
            )
            self._report(cursor, cursor.error(errors.LogTruncated, told))
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE and cursor.fetch_offset < cursor.offset:
            cursor.fetch_offset = cursor.offset  # the previous batch was deleted; it was returned already
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            told = "the log does not have this offset; seek() to one that it has"
            self._report(cursor, cursor.error(errors.OffsetOutOfRange, told))
        elif code in DENIED:
            needs = Right(READ, TOPIC, cursor.at.topic, self._cluster.name)
            self._report(cursor, of_network(Refused(f"{self._cluster.name}: Fetch", code, needs=needs)))
        elif code in UNREADABLE and cursor.backoff.tries >= UNREADABLE_TRIES:
            told = f"the broker cannot read its log ({error_name(code)}); repair it, or seek() behind this offset"
            self._report(cursor, cursor.error(errors.UnreadableLog, told))
        elif code:
            hinted = found.leader is not None and self._cluster.hint(*cursor.at, found.leader, answer.nodes)
            cursor.lost = not hinted and code not in UNREADABLE
            cursor.wait(self._now())
            self._leaderless.set()
            self._wake_all()
            self._tell(cursor.name, f"{cursor.name} at {self._cluster.name}: Fetch: {error_name(code)}")
        else:
            cursor.backoff.reset()
            return False
        return True

    async def _chunk(self, cursor: RawCursor, found: Fetched, frame: Frame) -> FetchedRecords | None:
        """Returns the partition's verified records in the response; None if there are none, or an error was reported.

        If good batches precede damaged data, they are returned, and the damage is reported with the next response.
        """
        try:
            batches, _, wrong = intact(frame.body[found.start : found.end], cursor.offset)
            if wrong is not None and not batches:
                raise wrong
            visible = found.last_stable_offset if self._committed else found.high_watermark
            leader = self._leader(cursor)
            if leader is not None:
                await check_end(self._cluster, *cursor.at, leader, batches, visible)
            records = records_of(cursor.at, cursor.offset, batches, found.aborted, committed=self._committed)
        except OldFormat as error:
            told = (
                f"the log has no record batches there ({error}): it was written before Kafka 0.11; read these records "
                "with another client, and seek() behind them"
            )
            self._report(cursor, cursor.error(errors.UnreadableLog, told))
        except (CorruptBatch, Damaged, errors.NotSendable) as error:
            told = f"the log is damaged ({error}); repair it, or seek() behind the damage"
            self._report(cursor, cursor.error(errors.UnreadableLog, told))
        except NetworkError as error:  # the end of the log could not be asked for
            cursor.lost = True
            cursor.wait(self._now())
            self._leaderless.set()
            self._tell(cursor.name, error)
        else:
            if batches:
                header = batches[-1][0]
                cursor.offset, cursor.last_epoch = header.next_offset, header.leader_epoch
                cursor.fetch_offset = header.next_offset if wrong is None else header.last_offset
                return FetchedRecords(cursor, records, header.next_offset, header.leader_epoch)
            cursor.fetch_offset = cursor.offset
        return None


async def _wait(event: asyncio.Event, timeout_s: float | None) -> None:
    """Waits until the event is set, or ``timeout_s`` is over (None: never)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
