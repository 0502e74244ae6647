"""Fetches from one source broker: requests that rotate through its partitions, received into pooled frames.

KIP-74: partitions are asked for in rotation, and one that gave data goes to the end. The answer is bounded by
``fetch.max.bytes``, but its first batch comes whole whatever its size, so there is always progress. One request is
under way at a time, and only with room reserved for its answer: memory is bounded before bytes arrive, not after.
"""

import time

from mirror.net.backoff import Backoff
from mirror.net.buffers import OVERHEAD, Frame
from mirror.net.connection import SIZE_ONLY, Connection
from mirror.net.errors import NetworkError
from mirror.net.rights import READ, TOPIC, Right
from mirror.reasons import HaltReason
from mirror.records.admit import Halt
from mirror.records.header import NO_LEADER_EPOCH
from mirror.records.scan import Tail, measure
from mirror.relay.halts import Halted, halted_by_batch, halted_by_error
from mirror.relay.holes.gaps import epoch_damaged
from mirror.relay.holes.parking import worth_asking
from mirror.relay.hot.forward import forward
from mirror.relay.hot.link import Link
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.settings import RelaySettings
from mirror.wire.errors import UNREADABLE, Outcome, error_name, error_slug, outcome_of
from mirror.wire.fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Fetched,
    FetchPartition,
    FetchResponse,
    TopicKey,
    fetch_request,
    read_fetch_response,
)
from mirror.wire.header import SIZE, request_header
from mirror.wire.versions import FETCH_FLEXIBLE, FETCH_KEY, FETCH_TOPIC_IDS, FETCH_VERSIONS

FRAMES_PER_PARTITION = 2
"""A partition is fetched while fewer frames than this wait for its acknowledgements: one goes out while the next comes
in. More would let a slow destination broker keep the frames that the others need."""
LEAST_FETCH = 512 * 1024
"""Bytes that are requested from a broker with little data. Its fetch may wait there for long, with room reserved for
the answer, and there may be many such brokers."""
LEAST_SHARE = 64 * 1024
"""Least bytes requested per partition, however many there are: a slice that ends in a partial batch is waste."""
BATCHES_PER_SHARE = 16
LEAST_EMPTIES = 4
"""Consecutive empty answers below the source's end after which its log is looked at; then after twice as many, and so
on."""
UNREADABLE_DOUBTS = 8
"""Consecutive doubts until UNKNOWN_SERVER_ERROR counts as damage."""
HURRY_MS = 10
"""``max_wait_ms`` while a partition is left out of the request: it must not wait for the others' data."""
FRESH_FOR_SETTLES = 2
"""Old batches are sent without another look at the log end for this many times ``settle.ms`` after the last look."""


class Fetcher(Link):
    """One connection to a broker, and the partitions that the broker leads."""

    def __init__(self, relay: Orchestrator, node_id: int) -> None:
        super().__init__(node_id)
        self._relay = relay
        self._rotation: list[Partition] = []
        self._asked: dict[tuple[TopicKey, int], tuple[Partition, int]] | None = None
        self._reserved = 0
        self._waits = False
        self._version = self._asked_version = 0
        settings = relay.settings
        self._least = min(max(LEAST_FETCH, 2 * settings.fetch_min_bytes), settings.fetch_max_bytes)
        self._most = self._least
        self._backoff = Backoff(least_ms=settings.backoff_ms, most_ms=settings.backoff_max_ms)

    def attach(self, partition: Partition) -> None:
        """Begins to fetch the partition."""
        if partition not in self._rotation:
            self._rotation.append(partition)

    def detach(self, partition: Partition) -> None:
        """Stops fetching the partition. An answer under way is dropped by its generation."""
        if partition in self._rotation:
            self._rotation.remove(partition)

    # -- asking ------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Sends the next fetch, if none is under way and there is room for its answer."""
        if self._asked is not None or self._closed or not self._rotation:
            return
        connection = self._connection
        if connection is None or connection.closed:
            self._dial()
            return
        if self._waits:
            return
        pause_s = connection.throttled_s
        if pause_s:
            self._pump_later(pause_s)
            return
        active = [partition for partition in self._rotation if partition.phase is Phase.ACTIVE]
        wanted = [
            partition
            for partition in active
            if partition.queue.frames < FRAMES_PER_PARTITION
            and partition.cursor.ending is None
            and not partition.cursor.looking
            and (not partition.queue.parked or _unparked(partition))
        ]
        if not wanted:
            return
        settings, pool = self._relay.settings, self._relay.pool
        if pool.copied:
            # Smaller answers, so that two of them have room beside the copies.
            self._most = max(min(self._most, (pool.budget - pool.copied) // 2 - OVERHEAD), self._least)
        size = self._most + OVERHEAD
        if not pool.reserve(size):
            self._waits = True
            pool.when_room(size, self._has_room)
            self._relay.no_room()
            return
        self._reserved = size
        asked = self._enough(wanted, max(self._most // len(wanted), LEAST_SHARE))
        hurry = len(asked) < len(active)
        self._ask(connection, asked, HURRY_MS if hurry else settings.fetch_max_wait_ms)

    def _has_room(self) -> None:
        """Called once when there may be room for an answer."""
        self._waits = False
        self.pump()

    def _enough(self, wanted: list[Partition], share: int) -> list[tuple[Partition, int]]:
        """Returns as many partitions from the front of the rotation as should fill the answer, and the bytes to request
        for each.

        The others would come back empty, and an empty slice costs as much to ask for and to read as a full one. They
        keep their turn. Partitions with an unknown backlog are included, so that no partition waits longer because of
        this.
        """
        most, room = self._relay.settings.max_partition_fetch_bytes, self._most
        asked: list[tuple[Partition, int]] = []
        for partition in wanted:
            if room <= 0:
                break
            max_bytes = worth_asking(partition, min(max(share, BATCHES_PER_SHARE * partition.cursor.batch_size), most))
            asked.append((partition, max_bytes))
            room -= min(
                max_bytes, int(partition.cursor.record_size * (partition.cursor.high_watermark - partition.cursor.due))
            )
        return asked

    def _ask(self, connection: Connection, wanted: list[tuple[Partition, int]], max_wait_ms: int) -> None:
        settings = self._relay.settings
        by_id = self._version >= FETCH_TOPIC_IDS and all([partition.claim.source_id for partition, _ in wanted])
        version = self._version if by_id else min(self._version, FETCH_TOPIC_IDS - 1)
        asked: dict[tuple[TopicKey, int], tuple[Partition, int]] = {}
        partitions: list[FetchPartition] = []
        for partition, max_bytes in wanted:
            key: TopicKey = partition.claim.source_id if by_id and partition.claim.source_id else partition.topic
            asked[key, partition.index] = (partition, partition.cursor.generation)
            partitions.append(
                FetchPartition(
                    key,
                    partition.index,
                    max(partition.cursor.due, partition.cursor.floor),
                    max_bytes,
                    partition.cursor.leader_epoch,
                    partition.cursor.last_epoch,
                )
            )
        body = fetch_request(
            version,
            partitions,
            max_wait_ms=max_wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=self._most,
            isolation_level=READ_COMMITTED if settings.committed else READ_UNCOMMITTED,
        )
        correlation_id = connection.next_correlation_id()
        head = request_header(
            api_key=FETCH_KEY,
            version=version,
            correlation_id=correlation_id,
            client_id=connection.options.client_id,
            flexible=version >= FETCH_FLEXIBLE,
        )
        self._asked = asked
        self._asked_version = version
        self._relay.stats.fetch_requests += 1
        connection.expect(correlation_id, self, max_wait_ms / 1000 + connection.options.request_timeout_s)
        connection.write([SIZE.pack(len(head) + len(body)) + head + body])

    def _allocate(self, size: int) -> Frame:
        """Called by the connection when the size of an answer is known."""
        reserved, self._reserved = self._reserved, 0
        if size > self._relay.pool.frame_size:
            self._relay.stats.oversize_frames += 1
        return self._relay.pool.take(size, reserved=reserved)

    # -- answers -----------------------------------------------------------------------------------------------------

    def receive(self, response: memoryview | Frame) -> None:
        """Takes a fetch response: forwards its batches, then asks for more, then has the batches sent."""
        assert isinstance(response, Frame)
        asked, self._asked = self._asked or {}, None
        try:
            fetch = read_fetch_response(self._asked_version, response.body)
            self._backoff.reset()
            self._forward(response, fetch, asked)
        finally:
            self._adapt(len(response.body))
            response.release()
        # Ask first: the broker works on the next answer while this one is sent on.
        self.pump()
        self._relay.pump_sinks()

    def _adapt(self, size: int) -> None:
        """Doubles the bytes to request from the broker after an answer that is at least half full, and halves them
        after one that is less than a quarter full."""
        if 2 * size >= self._most:
            self._most = min(2 * self._most, self._relay.settings.fetch_max_bytes)
        elif 4 * size < self._most:
            self._most = max(self._most // 2, self._least)

    def _forward(
        self, frame: Frame, fetch: FetchResponse, asked: dict[tuple[TopicKey, int], tuple[Partition, int]]
    ) -> None:
        relay = self._relay
        relay.stats.fetched_bytes += len(frame.body)
        if fetch.throttle_ms and self._connection is not None:
            self._connection.throttle(fetch.throttle_ms)
            relay.stats.throttled(relay.source.name, fetch.throttle_ms)
        if fetch.error and not fetch.partitions:
            self._refuse_all(fetch.error, asked)
        committed, now = relay.settings.committed, time.monotonic()
        forgotten_ms = relay.forgets_before_ms()
        gave: list[Partition] = []
        first_at = next((fetched.start for fetched in fetch.partitions if fetched.end > fetched.start), -1)
        for fetched in fetch.partitions:
            # Unpacked at once: access to a single named field costs more than all of this.
            topic, index, error, high_watermark, last_stable, _, _, diverging, _, _, start, end = fetched
            partition, generation = asked.get((topic, index), (None, 0))
            if partition is None or partition.phase is not Phase.ACTIVE or partition.cursor.generation != generation:
                continue
            cursor = partition.cursor
            if partition.queue.parked:
                continue
            if error or fetch.error:
                self._refused(partition, fetched, fetch)
                continue
            readable = last_stable if committed else high_watermark
            cursor.heard(readable, now, high_watermark - readable)
            if diverging is not None:
                epoch, end_offset = diverging
                detail = (
                    f"offset {cursor.due} is due, the source's log of epoch {epoch} ends at {end_offset}: only the "
                    f"destination has what the source had from there on"
                )
                relay.diverged(partition, Halted.of(HaltReason.SOURCE_TRUNCATED, detail))
            elif end > start:
                due = cursor.due
                self._forward_partition(frame, fetched, partition, first=start == first_at, forgotten_ms=forgotten_ms)
                if cursor.due != due:
                    # Otherwise the slice had no whole batch. The partition keeps its turn, until it is the first one in
                    # a request: then its batch comes whole.
                    gave.append(partition)
            elif 2 * len(frame.body) < self._most:
                self._gave_nothing(partition, alone=first_at < 0)
        if gave:
            moved = set(map(id, gave))
            self._rotation = [partition for partition in self._rotation if id(partition) not in moved] + [
                partition for partition in gave if partition.phase is Phase.ACTIVE
            ]

    def _forward_partition(
        self, frame: Frame, fetched: Fetched, partition: Partition, *, first: bool, forgotten_ms: float
    ) -> None:
        cursor = partition.cursor
        queue = partition.queue
        due, epoch = cursor.due, cursor.last_epoch
        _, _, _, _, _, _, aborted, _, _, _, start, end = fetched
        found = forward(
            frame, start, end, partition, self._relay.inner_loop, aborted, cursor.high_watermark,
        )  # fmt: skip
        cursor.answered()
        now_due = cursor.due
        if now_due != due:
            if cursor.last_epoch != epoch:
                self._check_epoch(partition, epoch)
            if queue.old or queue.freshness.bound_ms < forgotten_ms:
                self._widen(partition, forgotten_ms)
                if partition.phase is not Phase.ACTIVE:
                    return
        if found is None and first and measure(frame.body, start, end) is Tail.PARTIAL:
            # The first batch of an answer comes whole (KIP-74). One that does not has an impossible length.
            found = Halt(reason=HaltReason.CORRUPT, detail=f"{end - start} bytes at offset {due} hold no whole batch")
        if now_due > due:
            cursor.gave((end - start) / (now_due - due))
        if queue.copied is not None:
            self._relay.jump(partition)
        if queue.outbox:
            assert queue.lane is not None, partition.name
            idle = not queue.in_flight and not queue.queued
            if idle and queue.old and _stale(partition, self._relay.settings):
                self._relay.reconfirm(partition)
            else:
                queue.offer()
        if isinstance(found, Halt):
            self._relay.halt_when_drained(partition, halted_by_batch(found))
        elif found is not None:
            self._relay.look(partition)

    def _widen(self, partition: Partition, forgotten_ms: float) -> None:
        """Adapts the window to what came. With old batches it is as wide as is safe, or nothing is sent before the
        position is settled."""
        queue = partition.queue
        queue.widen(self._relay.settings.max_in_flight, forgotten_ms)
        if queue.must_settle:
            self._relay.settle(partition)
        elif queue.window == 1 and queue.in_flight:
            queue.withhold()

    def _gave_nothing(self, partition: Partition, *, alone: bool) -> None:
        """Takes note of an empty answer for a partition, which was not for lack of room. ``alone``: True if no other
        partition of the answer had data either."""
        # It has no data for now, whatever its end says, and must not take room in the request from others.
        cursor = partition.cursor
        cursor.gave(0.0)
        if alone and cursor.due < cursor.high_watermark:
            # A single empty answer may come from a broker that is slow to update its end. A damaged batch is never
            # found.
            empties = cursor.empty()
            if empties >= LEAST_EMPTIES and not empties & (empties - 1):
                self._relay.look(partition)

    def _check_epoch(self, partition: Partition, before: int) -> None:
        """Checks that the leader epoch of batches neither falls nor is above the leader's: no checksum covers it. An
        impossible epoch is not sent back to the broker, which would call the log truncated."""
        cursor = partition.cursor
        epoch, most = cursor.last_epoch, cursor.leader_epoch
        if (epoch < before and epoch != NO_LEADER_EPOCH) or 0 <= most < epoch:
            cursor.distrust_epoch()
            epoch_damaged(self._relay.log, partition, f"{epoch}, behind {before}, of {most}")

    def _refused(self, partition: Partition, fetched: Fetched, fetch: FetchResponse) -> None:
        """Takes an error code for one partition: it halts, or comes into doubt."""
        relay = self._relay
        code = fetched.error or fetch.error
        if fetched.leader is not None:
            relay.source.hint(partition.topic, partition.index, fetched.leader, fetch.nodes)
        relay.source.failed("Fetch", error_slug(code))
        outcome = outcome_of(code)
        where = f"{relay.source.name}, fetch at {partition.cursor.due}"
        if code in UNREADABLE and (outcome is Outcome.HALT or partition.claim.doubts >= UNREADABLE_DOUBTS):
            relay.halt(partition, Halted.of(HaltReason.CORRUPT, f"{where}: {error_name(code)}"))
        elif outcome is Outcome.HALT:
            needs = Right(READ, TOPIC, partition.topic, relay.source.name)
            relay.halt(partition, halted_by_error(code, where, None, needs=needs))
        else:
            self._doubt(partition, error_slug(code), f"{relay.source.name} broker {self.node_id}: {error_name(code)}")

    def _refuse_all(self, code: int, asked: dict[tuple[TopicKey, int], tuple[Partition, int]]) -> None:
        """Takes an error code for the whole request, in an answer without partitions."""
        self._relay.source.failed("Fetch", error_slug(code))
        for partition, generation in asked.values():
            if partition.cursor.generation == generation and partition.phase is Phase.ACTIVE:
                detail = f"{self._relay.source.name} broker {self.node_id}: {error_name(code)}"
                self._doubt(partition, error_slug(code), detail)

    def _doubt(self, partition: Partition, cause: str, detail: str) -> None:
        self._relay.doubt(partition, cause, detail)
        if partition.emptied():
            self._relay.emptied(partition)

    def fail(self, error: NetworkError) -> None:
        """The connection ended with the fetch unanswered. Nothing is lost: the fetch is sent again."""
        if not self._closed:
            self._relay.source.failed("Fetch", error.slug)
        self._asked = None
        self._most = self._least  # over a slow link a full answer may take longer than the request may
        if self._reserved:
            reserved, self._reserved = self._reserved, 0
            self._relay.pool.cancel(reserved)

    # -- the connection ----------------------------------------------------------------------------------------------

    async def _open(self) -> Connection:
        return await self._relay.source.dial(self.node_id, read_ahead=SIZE_ONLY, allocate=self._allocate)

    def _greet(self, connection: Connection) -> None:
        self._version = connection.version_of(FETCH_KEY, FETCH_VERSIONS, "Fetch")
        connection.on_close = self._lost

    def _unreachable(self, error: NetworkError) -> None:
        relay = self._relay
        relay.log.warning("source_unreachable", cluster=relay.source.name, broker=self.node_id, detail=str(error))
        # Other brokers may lead its partitions by now: each is located again, with its own backoff.
        for partition in list(self._rotation):
            if partition.phase is Phase.ACTIVE:
                self._doubt(partition, error.slug, str(error))

    def _lost(self, error: NetworkError) -> None:
        if self._closed:
            return
        relay = self._relay
        relay.log.warning("source_connection_lost", cluster=relay.source.name, broker=self.node_id, detail=str(error))
        for partition in list(self._rotation):
            # Without topic ids, the topic may have been recreated meanwhile, and the new one would answer to the name
            # from here on. Nothing else shows that.
            if partition.claim.source_id is None and partition.phase is Phase.ACTIVE:
                self._doubt(partition, error.slug, str(error))
        self._pump_later(self._backoff.next_s())


def _unparked(partition: Partition) -> bool:
    """Returns True, and ends the parking, if everything that was parked is acknowledged and the lane is not stalled."""
    queue = partition.queue
    if queue.outbox or queue.in_flight or (queue.lane is not None and queue.lane.stalled):
        return False
    queue.unpark()
    return True


def _stale(partition: Partition, settings: RelaySettings) -> bool:
    """Returns True if the last look at its log end was so long ago that this process may have been stopped, and another
    may have copied the batches in the outbox: a broker that has forgotten the producer would append them twice."""
    return time.monotonic() - partition.queue.confirmed_at > FRESH_FOR_SETTLES * settings.settle_ms / 1000
