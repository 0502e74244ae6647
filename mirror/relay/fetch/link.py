"""One connection to a source broker, with at most one outstanding Fetch request.

A request is sent only after room for its response was reserved, so memory is bounded before bytes arrive, not after.
"""

import math
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mirror.net.backoff import Backoff
from mirror.net.buffers import OVERHEAD, Frame
from mirror.net.connection import Connection
from mirror.net.errors import NetworkError
from mirror.net.stream import SIZE_ONLY
from mirror.relay.fetch.sizes import LEAST_FETCH
from mirror.relay.holes.parking import worth_asking
from mirror.relay.hot.link import Link
from mirror.relay.partition.cursor import Hearing
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.wire.fetch import (
    NO_SESSION,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchPartition,
    FetchResponse,
    TopicKey,
    fetch_request,
    read_fetch_response,
)
from mirror.wire.header import SIZE, request_header
from mirror.wire.primitives import MalformedFrame
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_KEY, FETCH_TOPIC_IDS, FETCH_VERSIONS

if TYPE_CHECKING:
    from mirror.relay.fetch.fetcher import Fetcher

FRAMES_PER_PARTITION = 2
"""A partition is fetched only while fewer frames than this wait for its acknowledgements: one goes out while the next
comes in. With more, a slow destination broker could keep the frames that other partitions need."""
BATCHES_PER_SHARE = 16
UNFETCHED_S = 5.0
"""If nothing was fetched for this long, partitions without topic ids come into doubt."""
HURRY_MS = 10
"""``max_wait_ms`` while a partition is left out of the request, because it must not wait for the others' data."""

PartitionKey = tuple[TopicKey, int]
"""Topic (name or id, as the request has it) and partition index."""


class Asked(NamedTuple):
    """A requested partition, with the generation of the position that was requested."""

    partition: Partition
    generation: int


class FetchLink(Link):
    """One connection with at most one outstanding Fetch request; see the module's docstring."""

    def __init__(self, fetcher: "Fetcher") -> None:
        super().__init__(fetcher.node_id)
        self._fetcher = fetcher
        self._relay = fetcher.relay
        settings = self._relay.settings
        self._least = min(max(LEAST_FETCH, 2 * settings.fetch_min_bytes), settings.fetch_max_bytes)
        self._most = self._least
        self._reserved = 0
        self._waits = False
        self._version = self._asked_version = 0
        self._sent_at = self._began_at = 0.0
        self._wait_s = self._transfer_s = 0.0
        """Of the last response: seconds from the request until it began, and from there until it was complete."""
        self._backoff = Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms)
        self.under_way = False
        """True from sending a request until its response, or until the end of the connection."""

    @abstractmethod
    def _answered(self, frame: Frame, fetch: FetchResponse) -> None:
        """Processes the response to the outstanding request."""

    @abstractmethod
    def _unanswered(self) -> None:
        """Cleans up after the outstanding request, which will not be answered."""

    @property
    @abstractmethod
    def _answered_last(self) -> Hearing:
        """When a request for partitions of this kind was last answered."""

    @property
    def _paused(self) -> bool:
        """True if none was answered for ``UNFETCHED_S``."""
        return time.monotonic() - self._answered_last.at_s > UNFETCHED_S

    @property
    def reserves(self) -> bool:
        """True while room is reserved for a response that has not begun."""
        return self._reserved > 0

    # -- asking ------------------------------------------------------------------------------------------------------

    def _ready(self, *, urgent: bool) -> Connection | None:
        """Returns the connection if a request can be sent now. Otherwise returns None, and ``pump`` is called when it
        can be.

        Args:
            urgent: True if it is for fresh data, which the flow's limit holds back last.
        """
        if self.under_way or self._closed:
            return None
        connection = self._connection
        if connection is None or connection.closed:
            self._dial()
            return None
        if self._waits:
            return None
        pause_s = max(connection.throttled_s, self._relay.limits.wait_s(urgent=urgent))
        if pause_s:
            self._pump_later(pause_s)
            return None
        return connection

    def _reserve(self, *, spare: int = 0, urgent: bool = False) -> bool:
        """Reserves room for a response of ``_most`` bytes, which may be reduced for that. Returns False if there is no
        room; then ``pump`` is called when there may be.

        Args:
            spare: bytes that have to be left for others.
            urgent: True if it does not queue behind others that wait for room.
        """
        pool = self._relay.pool
        self._most = self._relay.limits.most_bytes(self._most)
        if pool.copied:
            # Responses are made smaller, so that two of them have room beside the copies.
            self._most = max(min(self._most, (pool.budget - pool.copied) // 2 - OVERHEAD), self._least)
        if urgent:
            # A smaller response now is better than a full one once the backlog has released its frames.
            self._most = max(min(self._most, pool.room - OVERHEAD), self._least)
        size = self._most + OVERHEAD
        if not pool.reserve(size, spare=spare, urgent=urgent):
            self._waits = True
            pool.when_room(size + spare, self._has_room, urgent=urgent)
            self._relay.no_room()
            return False
        self._reserved = size
        return True

    def _unlimited(self, partitions: Iterable[Partition]) -> tuple[list[Partition], float]:
        """Splits the active ones among the partitions by whether their topic's limit allows fetching them now. If it
        allows none, ``pump`` is called again when it does.

        Returns:
            The partitions that can be fetched, and the least time in seconds that any other has to wait; infinite:
            there is no other.
        """
        active = [partition for partition in partitions if partition.phase is Phase.ACTIVE]
        limits = self._relay.limits
        if not limits.any:
            return active, math.inf
        may, wait_s = limits.split(active)
        if not may and wait_s < math.inf:
            self._pump_later(wait_s)
        return may, wait_s

    def _known(self, partitions: list[Partition]) -> list[Partition]:
        """Returns the partitions that can be fetched further, and puts the others into doubt.

        After a pause in fetching (because of a limit, for example), the name of a topic without id may belong to
        another topic, whose records would be taken for the topic's own. So such partitions are located again, and
        compared with what was copied.

        This needs a pause of all such partitions: with thousands of them, one that waits for its turn would be put into
        doubt each time, and would never have its turn.
        """
        if not self._paused:
            return partitions
        since = time.monotonic() - UNFETCHED_S
        known = [each for each in partitions if each.claim.source_id is not None or each.cursor.fetched_at >= since]
        if len(known) < len(partitions):
            kept = set(known)
            for partition in [each for each in partitions if each not in kept]:
                detail = f"{partition.name} was not fetched for {UNFETCHED_S:g} s, and its topic has no id"
                self._relay.doubt_now(partition, "unfetched", detail)
        return known

    def _has_room(self) -> None:
        """Called once when there may be room for a response."""
        self._waits = False
        self.pump()

    def _by_id(self, partitions: Sequence[Partition]) -> bool:
        """Returns True if the request can name all the partitions by their topics' ids (KIP-516)."""
        return self._version >= FETCH_TOPIC_IDS and all([partition.claim.source_id for partition in partitions])

    def _send(
        self,
        connection: Connection,
        partitions: Sequence[FetchPartition],
        *,
        by_id: bool,
        max_wait_ms: int,
        session: tuple[int, int] = NO_SESSION,
        forgotten: Sequence[PartitionKey] = (),
    ) -> None:
        settings = self._relay.settings
        version = self._version if by_id else min(self._version, FETCH_TOPIC_IDS - 1)
        body = fetch_request(
            version,
            partitions,
            max_wait_ms=max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=self._most,
            isolation_level=READ_COMMITTED if settings.committed else READ_UNCOMMITTED,
            rack=self._relay.replicas.rack_for(self.node_id),
            session=session,
            forgotten=forgotten,
        )
        correlation_id = connection.next_correlation_id()
        head = request_header(
            api_key=FETCH_KEY,
            version=version,
            correlation_id=correlation_id,
            client_id=connection.options.client_id,
            flexible=version >= FETCH_FLEXIBLE,
        )
        self.under_way = True
        self._asked_version = version
        self._sent_at = time.monotonic()
        self._relay.stats.fetch_requests += 1
        connection.expect(correlation_id, self, max_wait_ms / 1000 + connection.options.request_timeout_s)
        connection.write([SIZE.pack(len(head) + len(body)) + head + body])

    # -- responses ---------------------------------------------------------------------------------------------------

    def _allocate(self, size: int) -> Frame:
        """Returns a frame for a response. The connection calls it once the response's size is known."""
        self._began_at = time.monotonic()
        reserved, self._reserved = self._reserved, 0
        if size > reserved:
            self._relay.stats.oversize_frames += 1
        return self._relay.pool.take(size, reserved=reserved)

    def receive(self, response: memoryview | Frame) -> None:
        """Processes a Fetch response: forwards its batches, sends the next request, then has the batches sent."""
        assert isinstance(response, Frame)
        self.under_way = False
        now = time.monotonic()
        self._wait_s, self._transfer_s = self._began_at - self._sent_at, now - self._began_at
        self._relay.source.durations.note("Fetch", now - self._sent_at)
        size = len(response.body)
        try:
            try:
                fetch = read_fetch_response(self._asked_version, response.body)
            except MalformedFrame:
                self._unanswered()
                raise
            self._backoff.reset()
            self._relay.stats.fetched_bytes += size
            if fetch.throttle_ms and self._connection is not None:
                self._connection.throttle(fetch.throttle_ms)
                self._relay.stats.throttled(self._relay.source.name, fetch.throttle_ms)
            tracer = self._relay.tracer
            followed = tracer.fetched(self.node_id, fetch) if tracer.on else ()
            self._answered(response, fetch)
            for each in followed:
                each.done()
        finally:
            self._adapt(size)
            response.release()
        # The request goes first, so that the broker works on the next response while this one is forwarded.
        self._fetcher.pump()
        self._relay.pump_sinks()

    def _adapt(self, size: int) -> None:
        """Doubles the bytes to request from the broker after a response that is at least half full, and halves them
        after one that is less than a quarter full."""
        most = self._fetcher.sizes.most_bytes
        if 2 * size >= self._most:
            self._most = 2 * self._most
        elif 4 * size < self._most:
            self._most = max(self._most // 2, self._least)
        self._most = min(self._most, most)

    def fail(self, error: NetworkError) -> None:
        """Acts on the end of the connection with a fetch unanswered. Nothing is lost: the fetch is sent again."""
        if not self._closed:
            self._relay.source.failed("Fetch", error.slug)
            if self._relay.tracer.on:
                self._relay.tracer.unfetched(self.node_id, error)
        self.under_way = False
        self._most = self._least  # over a slow link, a full response may take longer than the request's timeout
        if self._reserved:
            reserved, self._reserved = self._reserved, 0
            self._relay.pool.cancel(reserved)
        self._unanswered()

    # -- the connection ----------------------------------------------------------------------------------------------

    async def _open(self) -> Connection:
        return await self._relay.source.dial(self.node_id, read_ahead=SIZE_ONLY, allocate=self._allocate)

    def _greet(self, connection: Connection) -> None:
        self._version = connection.version_of(FETCH_KEY, FETCH_VERSIONS, "Fetch")
        connection.on_close = self._lost

    def _unreachable(self, error: NetworkError) -> None:
        relay = self._relay
        relay.log.warning("source_unreachable", cluster=relay.source.name, broker=self.node_id, detail=str(error))
        self._fetcher.unreachable(error)

    @property
    def _needed(self) -> bool:
        """True if there is anything to fetch over the connection now."""
        return True

    def _lost(self, error: NetworkError) -> None:
        if self._closed or not self._needed:
            return
        relay = self._relay
        relay.log.warning("source_connection_lost", cluster=relay.source.name, broker=self.node_id, detail=str(error))
        self._fetcher.lost(error)
        self._pump_later(self._backoff.next_s())


def fetchable(partition: Partition) -> bool:
    """Returns True if an active partition can be fetched now: nothing has to be found out or acknowledged first."""
    queue, cursor = partition.queue, partition.cursor
    return (
        queue.frames < FRAMES_PER_PARTITION
        and cursor.ending is None
        and not cursor.looking
        and (not queue.parked or _unparked(partition))
    )


def _unparked(partition: Partition) -> bool:
    """Returns True, and ends the parking, if everything that was parked is acknowledged and the lane is not stalled."""
    queue = partition.queue
    if not queue.is_drained or (queue.lane is not None and queue.lane.stalled):
        return False
    queue.unpark()
    return True


def asked_for(partition: Partition, max_bytes: int, *, by_id: bool) -> FetchPartition:
    """Returns the partition's entry in a Fetch request.

    Args:
        partition: the partition. It is requested from ``Cursor.due`` on.
        max_bytes: most bytes to request.
        by_id: True to name the topic by its id, if it has one.
    """
    cursor, topic_id = partition.cursor, partition.claim.source_id
    return FetchPartition(
        topic_id if by_id and topic_id else partition.topic,
        partition.index,
        max(cursor.due, cursor.floor),
        max_bytes,
        cursor.leader_epoch,
        cursor.last_epoch,
    )


def share_of(partition: Partition, share: int, most: int) -> int:
    """Returns the bytes to request for the partition.

    Args:
        partition: the partition.
        share: its share of the request. It gets more if several of its batches would not fit into that.
        most: upper bound.
    """
    return worth_asking(partition, min(max(share, BATCHES_PER_SHARE * partition.cursor.batch_size), most))
