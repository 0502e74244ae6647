"""One connection to a source broker with at most one Fetch request under way.

A request is sent only after room for its answer was reserved: memory is bounded before bytes arrive, not after.
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
"""A partition is fetched while fewer frames than this wait for its acknowledgements: one goes out while the next comes
in. More would let a slow destination broker keep the frames that the others need."""
BATCHES_PER_SHARE = 16
UNFETCHED_S = 5.0
"""A pause in which nothing was fetched for this long puts partitions without topic ids into doubt."""
HURRY_MS = 10
"""``max_wait_ms`` while a partition is left out of the request: it must not wait for the others' data."""

PartitionKey = tuple[TopicKey, int]
"""Topic (as the request names it) and partition."""


class Asked(NamedTuple):
    """A partition in a request under way, and the generation of the position that was asked for."""

    partition: Partition
    generation: int


class FetchLink(Link):
    """See the module's docstring."""

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
        """Of the last answer: time from the request until it began, and from there until it was whole."""
        self._backoff = Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms)
        self.under_way = False
        """True from sending a request until its answer, or the end of the connection."""

    @abstractmethod
    def _answered(self, frame: Frame, fetch: FetchResponse) -> None:
        """Takes the answer to the request that was under way."""

    @abstractmethod
    def _unanswered(self) -> None:
        """The request that was under way will not be answered."""

    @property
    @abstractmethod
    def _answered_last(self) -> Hearing:
        """When a request for partitions of this kind was answered last."""

    @property
    def _paused(self) -> bool:
        """True if none was answered for a while."""
        return time.monotonic() - self._answered_last.at_s > UNFETCHED_S

    @property
    def reserves(self) -> bool:
        """True while room is reserved for an answer that has not begun."""
        return self._reserved > 0

    # -- asking ------------------------------------------------------------------------------------------------------

    def _ready(self, *, urgent: bool) -> Connection | None:
        """Returns the connection if a request can be sent now. Otherwise ``pump`` is called when it may be.

        Args:
            urgent: it is for fresh data, which the flow's limit holds back last.
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
        """Reserves room for an answer of ``_most`` bytes. If there is none, ``pump`` is called when there is.

        Args:
            spare: bytes that have to be left for others.
            urgent: it does not queue behind others that wait for room.
        """
        pool = self._relay.pool
        self._most = self._relay.limits.most_bytes(self._most)
        if pool.copied:
            # Smaller answers, so that two of them have room beside the copies.
            self._most = max(min(self._most, (pool.budget - pool.copied) // 2 - OVERHEAD), self._least)
        if urgent:
            # A smaller answer now, rather than a full one when the backlog has got rid of what it holds.
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
        """Returns the active ones of the partitions that no limit of their topic holds back, and how long the others
        have to wait at least; infinite: there are none. Then ``pump`` is called again."""
        active = [partition for partition in partitions if partition.phase is Phase.ACTIVE]
        limits = self._relay.limits
        if not limits.any:
            return active, math.inf
        may, wait_s = limits.split(active)
        if not may and wait_s < math.inf:
            self._pump_later(wait_s)
        return may, wait_s

    def _known(self, partitions: list[Partition]) -> list[Partition]:
        """Returns those of the partitions that can be fetched on. After a pause, because of a limit, say, another topic
        may have the name of one that has no id, and its records would be taken for these: such partitions come into
        doubt, and are compared with what was copied before they go on.

        Only after a pause: partitions that wait for their turn, of thousands, would never have it."""
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
        """Called once when there may be room for an answer."""
        self._waits = False
        self.pump()

    def _by_id(self, partitions: Sequence[Partition]) -> bool:
        """Returns True if the request can name all of the partitions by their topics' ids (KIP-516)."""
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

    # -- answers -----------------------------------------------------------------------------------------------------

    def _allocate(self, size: int) -> Frame:
        """Called by the connection when the size of an answer is known."""
        self._began_at = time.monotonic()
        reserved, self._reserved = self._reserved, 0
        if size > reserved:
            self._relay.stats.oversize_frames += 1
        return self._relay.pool.take(size, reserved=reserved)

    def receive(self, response: memoryview | Frame) -> None:
        """Takes a fetch response: forwards its batches, then asks for more, then has the batches sent."""
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
        # Ask first: the broker works on the next answer while this one is sent on.
        self._fetcher.pump()
        self._relay.pump_sinks()

    def _adapt(self, size: int) -> None:
        """Doubles the bytes to request from the broker after an answer that is at least half full, and halves them
        after one that is less than a quarter full."""
        most = self._fetcher.sizes.most_bytes
        if 2 * size >= self._most:
            self._most = 2 * self._most
        elif 4 * size < self._most:
            self._most = max(self._most // 2, self._least)
        self._most = min(self._most, most)

    def fail(self, error: NetworkError) -> None:
        """The connection ended with the fetch unanswered. Nothing is lost: the fetch is sent again."""
        if not self._closed:
            self._relay.source.failed("Fetch", error.slug)
            if self._relay.tracer.on:
                self._relay.tracer.unfetched(self.node_id, error)
        self.under_way = False
        self._most = self._least  # over a slow link a full answer may take longer than the request may
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
    """Returns True if an active partition may be fetched: nothing has to be found out or acknowledged first."""
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
    """Returns the entry of a request: the partition from where it is due, at most ``max_bytes`` of it."""
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
    """Returns the bytes to request of the partition.

    Args:
        partition: the partition.
        share: its share of the request; it gets more if several of its batches would have no room.
        most: no more than this.
    """
    return worth_asking(partition, min(max(share, BATCHES_PER_SHARE * partition.cursor.batch_size), most))
