"""Sends to one destination broker: Produce requests with one batch of each of many partitions, on several connections.

A partition always uses the same connection (``Lane``), so its batches arrive in order. A broker takes one batch per
partition in a request. If a request names a partition twice, the broker loses the first batch, so none does. A lane has
at most ``max_in_flight`` requests in flight, so a partition has at most that many batches in flight.

A response counts only if its base offset is the expected one. Anything else is doubt, which the relay deals with.
"""

import itertools
import time
from collections import deque
from collections.abc import Sequence

from mirror.net.buffers import Frame, FramePool
from mirror.net.connection import MOST_POSTPONED_S, Connection
from mirror.net.errors import ConnectionLost, NetworkError
from mirror.net.stream import Piece
from mirror.relay.holes.parking import set_aside
from mirror.relay.hot.acks import acknowledger, book, expected_acknowledger
from mirror.relay.hot.freshness import counted_ms
from mirror.relay.hot.gather import JOIN_BELOW, SentRequest, gatherer
from mirror.relay.hot.link import Link
from mirror.relay.hot.refusals import why_halt
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.claim import LateArrival
from mirror.relay.partition.clock import since_boot
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch, Queue
from mirror.relay.timing import SentTimes
from mirror.wire.errors import ErrorCode, error_name, error_slug
from mirror.wire.primitives import MalformedFrame
from mirror.wire.produce import (
    Produced,
    ProduceResponse,
    expected,
    framing,
    least_answer,
    max_timestamp_of,
    plain_answer,
    read_produce_response,
    topic_head,
)
from mirror.wire.versions import PRODUCE_KEY

ANSWER_MARGIN_S = 5.0
"""The broker answers a Produce request within the request's timeout. The connection is given up this much later."""
ANSWERS_AT_ONCE = 4
"""While the pipeline is full, the lane waits for this many responses before it sends more: one wake-up for all of them.
Meanwhile, the broker still has the last request to work on."""
SURVEYS = 4
"""Number of surveys of the waiting partitions within ``RelaySettings.fresh_s``, the time for which a look at a log's
end counts."""
HELD_S = 1.0
"""Longest time in seconds for which a lane holds other partitions back while the log ends of some are looked at. It is
bounded because the broker that has to name the owner may hang. It doubles with each look in vain."""
MOST_HELD_S = 32.0
"""Upper bound of that time in seconds, after doubling."""
NOT_OF_THE_REQUEST = "the answer has not the partitions of the request"


class Lane(Link):
    """One connection, and the partitions pinned to it. It is dialled when there is something to send. The lane is the
    waiter for all of its requests, whose responses come in order."""

    def __init__(self, relay: Orchestrator, node_id: int, *, version: int) -> None:
        super().__init__(node_id)
        self._relay = relay
        self._version = version
        self._ready: list[Queue] = []
        self._under_way: deque[SentRequest] = deque()
        self._times = SentTimes(relay.destination.durations, relay.stats)
        self._sent_at = 0.0
        """When the request was sent whose response is being processed (``since_boot``)."""
        self._freed = False
        self.stalled = False
        self._unsent: Frame | None = None
        self._partitions: dict[Queue, None] = {}
        """In the order in which they were attached."""
        settings = relay.settings
        self._max_in_flight = settings.max_in_flight
        self._max_size = settings.max_request_size
        self._timeout_ms = settings.request_timeout_ms
        self._least_answer = least_answer(version, 1)
        self._gather = gatherer()
        self._book_all = acknowledger()
        self._book_expected = expected_acknowledger()
        self._survey_at = self._held_until = self._least_until = 0.0
        """When the waiting partitions are surveyed next; until when other partitions are held back; and until when they
        would be held back without the time added for looks in vain (``since_boot``)."""
        self._may_wait = False
        """True if the log end of a waiting partition may have to be looked at, as of the last survey."""
        self._looked_at: dict[Queue, None] = {}
        """Partitions whose log end is being looked at again. They are sent first afterwards."""
        self._seen: dict[Queue, None] = {}
        """Partitions whose look has ended, and that wait to be sent. Looks at other partitions do not hold them
        back."""
        self._in_vain: dict[Queue, int] = {}
        """Partition -> looks in a row that were in vain: for lack of room, or because of a throttle, the batch could
        not be sent before the look had become too old."""
        self._failed = 0
        """Number of requests that have failed so far with the connection that is being lost."""
        self._answer_timeout_s = settings.request_timeout_ms / 1000 + ANSWER_MARGIN_S

    # -- the partitions ----------------------------------------------------------------------------------------------

    def attach(self, queue: Queue) -> None:
        """Pins the partition to this lane."""
        self._partitions[queue] = None
        queue.pin_to(self)
        if self.stalled:
            # If doubts have dropped the lane's batches before they were sent, no response will come to end the stall.
            self._recover()
        if self.stalled:
            queue.park()

    def detach(self, queue: Queue) -> None:
        """Unpins the partition. It must have nothing in flight."""
        assert not queue.in_flight, queue.partition.name
        self._partitions.pop(queue, None)
        for those in (self._looked_at, self._seen, self._in_vain):
            those.pop(queue, None)
        queue.pin_to(None)
        self.withhold(queue)

    def withhold(self, queue: Queue) -> None:
        """Sends nothing more of the partition until it is offered again, or its next batch is acknowledged."""
        if queue.queued:
            self._ready.remove(queue)
            queue.stand_back()

    def offer(self, queue: Queue) -> None:
        """Lines the partition up for ``pump``. Does nothing while its log end is being looked at, because that look
        would find the end moved; nor if the partition is lined up already, or its window is full."""
        first = queue in self._looked_at
        self._may_wait = self._may_wait or queue.old or queue.unsure
        if queue.line_up():
            if first:
                del self._looked_at[queue]
                self._seen[queue] = None
                self._ready.insert(0, queue)
            else:
                self._ready.append(queue)

    @property
    def attached(self) -> list[Queue]:
        """The partitions pinned to the lane."""
        return list(self._partitions)

    # -- stalled -----------------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """True if its partitions keep frames from being reused."""
        return any(queue.frames for queue in self._partitions)

    @property
    def full(self) -> bool:
        """True if the largest allowed number of requests is in flight."""
        return len(self._under_way) >= self._max_in_flight

    @property
    def received(self) -> tuple[int, int]:
        """The connection's identity and the number of bytes received. It changes with every response."""
        connection = self._connection
        return (id(connection), connection.bytes_received) if connection is not None else (0, 0)

    def stall(self, pool: FramePool) -> None:
        """Makes its partitions let go of their frames. They are not fetched again until every request in flight is
        answered.

        Args:
            pool: takes a copy of the bytes that the kernel has not taken yet.
        """
        self.stalled = True
        if self._connection is not None:
            before = self._unsent

            def copy(pieces: Sequence[Piece]) -> memoryview:
                self._unsent = pool.copy(pieces)
                return self._unsent.body

            self._connection.take_over_unsent(copy)
            if before is not None and before is not self._unsent:
                before.release()
        for queue in self._partitions:
            set_aside(queue.partition)

    def _recover(self) -> None:
        """Ends the stall if nothing is in flight any more, and the lane neither dials nor is throttled. Its partitions
        can be fetched again then."""
        connection = self._connection
        dials = self._dialling is not None
        throttled = connection is not None and not connection.closed and connection.throttled_s > 0
        if self._under_way or dials or throttled:
            return
        self.stalled = False
        self._let_go_of_unsent()
        self._relay.drained()

    def _let_go_of_unsent(self) -> None:
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            unsent.release()

    def close(self) -> None:
        """See ``Link``."""
        super().close()
        self._let_go_of_unsent()

    # -- sending -----------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Sends as many requests as there are batches for and as may be in flight, in one system call."""
        if self._closed:
            return
        if self.stalled:
            self._recover()
        connection = self._connection
        if connection is None or connection.closed:
            if self._ready:
                self._dial()
            return
        if self._ready:
            throttled_s = connection.throttled_s
            held_s = 0.0 if throttled_s else self._look_again()
            if throttled_s or held_s:
                self._pump_later(throttled_s or held_s)
            if not throttled_s:
                self._send(connection, held=bool(held_s))
        self._pace(connection)

    def _send(self, connection: Connection, *, held: bool) -> None:
        """Builds and sends requests, as many as may be in flight.

        Args:
            connection: an open connection.
            held: True to send only partitions that were just looked at, and to keep the others waiting.
        """
        others: list[Queue] = []
        if held:
            others = [queue for queue in self._ready if queue not in self._seen]
            self._ready = [queue for queue in self._ready if queue in self._seen]
        stale = self._stale() if self._looked_at else {}
        if stale:
            self._ready = [queue for queue in self._ready if queue not in stale]
        pieces: list[Piece] = []
        while self._ready and (most := self._max_in_flight - len(self._under_way)) > 0:
            pieces += self._build(connection, most)
        if stale or others:
            self._ready = [*stale, *self._ready, *others]
        if pieces:
            connection.write(pieces)
        for queue in [queue for queue in self._seen if not queue.queued]:  # its batch was sent
            del self._seen[queue]
            self._in_vain.pop(queue, None)

    def _look_again(self) -> float:
        """Has the log ends looked at again of partitions that the next requests would take, and that have waited too
        long here or since the connection was lost.

        Returns:
            Seconds for which the other partitions are held back. Otherwise they would take all the places in flight,
            and the looks would be too old again once there is room.
        """
        now, fresh_s = since_boot(), self._relay.settings.fresh_s
        if now >= self._survey_at:
            self._survey_at = now + fresh_s / SURVEYS
            self._may_wait = any([queue.old or queue.unsure for queue in self._ready])
        if self._looked_at:  # some of the looks may have ended in doubt, or in a halt
            self._looked_at = {queue: None for queue in self._looked_at if queue.reconfirming}
            if not any(queue in self._in_vain for queue in (*self._looked_at, *self._seen)):
                self._held_until = min(self._held_until, self._least_until)  # those with looks in vain are sent or gone
        due: list[Queue] = []
        room = self._room
        for queue in self._ready if self._may_wait and room else ():
            size = self._next_size(queue)
            if size and (queue.old or queue.unsure) and queue.must_confirm(fresh_s):
                due.append(queue)
            room -= size
            if room <= 0:
                break
        self._look(due, now)
        return max(0.0, self._held_until - now) if self._looked_at else 0.0

    def _stale(self) -> dict[Queue, None]:
        """Returns partitions that would be sent now in the places of partitions being looked at, although they need a
        look as well. They keep their turn, and are not sent before their own look."""
        stale: dict[Queue, None] = {}
        room, fresh_s = self._room, self._relay.settings.fresh_s
        for queue in self._ready:
            if room <= 0:
                break
            size = self._next_size(queue)
            if size and (queue.old or queue.unsure) and queue.must_confirm(fresh_s):
                stale[queue] = None
            else:
                room -= size
        return stale

    @property
    def _room(self) -> int:
        """Bytes of batches that may be sent now."""
        return (self._max_in_flight - len(self._under_way)) * self._max_size

    def _next_size(self, queue: Queue) -> int:
        """Returns how much of ``_room`` the partition's next batch takes; 0 if it has no batch, or a hole is next,
        which has its own look when it is filled. A batch that is larger than a request goes alone."""
        head, payload = queue.outbox[0][:2] if queue.outbox else (b"", b"")
        return min(len(head) + len(payload), self._max_size) if head else 0

    def _look(self, due: list[Queue], now: float) -> None:
        """Has the log ends of these partitions looked at. A partition that was looked at, and could not be sent before
        that look became too old, gets more time: others took all the places because they were held back for less time
        than the look took.

        Args:
            due: the partitions.
            now: the time (``since_boot``).
        """
        for queue in due:
            if queue in self._seen:
                del self._seen[queue]
                self._in_vain[queue] = self._in_vain.get(queue, 0) + 1
        if due and not self._looked_at:
            self._least_until = now + HELD_S
        in_vain = max([self._in_vain.get(queue, 0) for queue in due], default=0)
        if in_vain or (due and not self._looked_at):
            until = now + min(HELD_S * 2**in_vain, MOST_HELD_S)
            self._held_until = max(self._held_until, until) if self._looked_at else until
        for queue in due:
            self.withhold(queue)
            self._looked_at[queue] = None
            self._relay.reconfirm(queue.partition)

    def _build(self, connection: Connection, most: int) -> list[Piece]:
        """Builds up to ``most`` requests and registers them with the connection. Each has one batch of every partition
        that has one, in rotation, up to ``max.request.size``, or a single batch that is larger.

        Returns:
            The bytes to write.
        """
        first = connection.next_correlation_id(most)
        around = framing(self._version, connection.options.client_id, self._timeout_ms)
        pieces, requests, self._ready, holes = self._gather(
            self._ready, most, self._max_size, around, first, JOIN_BELOW
        )
        for queue in holes:
            self._relay.fill(queue.partition)
        self._under_way.extend(requests)
        self._times.sent(requests)
        tracer = self._relay.tracer
        waiter = tracer.sent(self, self._version, first, requests) if tracer.on else self
        connection.expect(first, waiter, self._answer_timeout_s, count=len(requests))
        self._relay.stats.produce_requests += len(requests)
        return pieces

    # -- responses ---------------------------------------------------------------------------------------------------

    def receive(self, response: memoryview | Frame) -> None:
        """Processes the response to the oldest request."""
        assert isinstance(response, memoryview)
        taken, _, topic = self._under_way.popleft()
        self._sent_at = self._times.answered()
        likely = None if topic is None else expected(self._version, topic, len(taken))
        try:
            done = None if likely is None else self._book_expected(taken, response, likely, self._ready)
            if done is None:
                answer = plain_answer(self._version, response)
                if answer is None:
                    self._answered_with_errors(taken, read_produce_response(self._version, response))
                    return
                done = self._book_all(taken, answer, self._ready)
                if done is None:
                    raise MalformedFrame(NOT_OF_THE_REQUEST)
            if done[0] or done[1] or done[2]:
                self._after(*done)
        except MalformedFrame as error:
            # Nothing in this response is believed. Closing the connection fails its other requests in the same way.
            failure = ConnectionLost(f"destination broker {self.node_id}: malformed produce response, {error}")
            if self._connection is not None:
                self._connection.close(failure)
            self._unanswered(taken, failure)
            return

    def _acknowledge_one(self, queue: Queue, base_offset: int) -> None:
        """Books the acknowledgement of one partition from a response that is not plain."""
        self._after(*book([queue], [base_offset], self._ready))

    def _after(
        self, unexpected: list[tuple[Queue, int]], confirmed: list[tuple[Queue, int, Batch]], freed: bool
    ) -> None:
        """Does what is left after acknowledgements were booked; see ``Acknowledged`` for the arguments."""
        self._freed = self._freed or freed
        for queue, base_offset in unexpected:
            self._unexpected(queue, base_offset)
        for queue, base_offset, batch in confirmed:
            self._confirm(queue, base_offset, batch)

    def _confirm(self, queue: Queue, base_offset: int, batch: Batch) -> None:
        """Takes note of an acknowledgement with a window of 1: with one batch in flight, it is known which batch was
        appended last. The relay reads back the first batch after a resync."""
        queue.partition.claim.believe()
        queue.confirm(self._sent_at)
        if not queue.waits_old:
            # The hot path builds plain tuples, without field names.
            counted = counted_ms(max_timestamp_of(batch[0]), append_times=queue.partition.terms.takes_append_times)
            queue.freshness.appended(queue.acknowledged, counted)
            queue.widen(self._max_in_flight, self._relay.forgets_before_ms())
        # The response may have taken longer than a look counts, and the last survey has not seen the batches behind it.
        self._may_wait = self._may_wait or queue.old
        first = queue.first_answered()
        if len(queue.in_flight) >= queue.window:
            # The first batch is to be read back; or more were sent before the window became 1. Then each response would
            # release another batch, and the number in flight would never fall.
            self.withhold(queue)
        if first:
            self._relay.confirmed(queue.partition, base_offset, batch)

    def _unexpected(self, queue: Queue, base_offset: int) -> None:
        """Puts the partition into doubt: its batch was appended (or found) at another offset than expected. If the
        partition is not active, the batch is from before a doubt or a halt, and is dropped."""
        self._freed = True
        if queue.partition.phase is Phase.ACTIVE:
            detail = f"the destination answered with base offset {base_offset}, expected {queue.acknowledged}"
            self._relay.doubt(queue.partition, "base_offset", detail)
        self._let_go(queue)

    def _let_go(self, queue: Queue) -> None:
        """Drops the oldest batch in flight without believing its response. If the partition is in doubt and that was
        the last one, it can be located."""
        queue.pop_unbelieved()
        if queue.partition.emptied():
            self._relay.emptied(queue.partition)

    def _answered_with_errors(self, taken: list[Queue], response: ProduceResponse) -> None:
        """Processes a response that is not plain: with errors, a throttle time, append times or new leaders.

        Raises:
            MalformedFrame: the response does not have exactly the request's partitions.
        """
        self._freed = True
        version = self._version
        answers = {(topic_head(version, answer.topic), answer.partition): answer for answer in response.partitions}
        asked = {(queue.topic_head, queue.index) for queue in taken}
        if answers.keys() != asked or len(response.partitions) != len(asked):
            raise MalformedFrame(NOT_OF_THE_REQUEST)
        if response.throttle_ms and self._connection is not None:
            self._connection.throttle(response.throttle_ms)
            self._relay.stats.throttled(self._relay.destination.name, response.throttle_ms)
        for queue in taken:
            answer = answers[queue.topic_head, queue.index]
            if answer.error:
                self._refused(queue, answer, response)
            else:
                if answer.log_append_time >= 0 and not queue.partition.terms.append_times_there:
                    self._relay.rewrites(queue.partition)
                    if self._is_unread_repeat(queue, answer.base_offset):
                        self._doubt_repeat(queue, answer.base_offset)
                        continue
                self._acknowledge_one(queue, answer.base_offset)

    @staticmethod
    def _is_unread_repeat(queue: Queue, base_offset: int) -> bool:
        """Returns True if the broker took the batch for a repeat, and nothing else will read it back. It is called for
        responses with an append time. Where append times are taken (``destination.timestamps``), every response may
        have one, so they show nothing."""
        partition, copied = queue.partition, queue.copied
        as_due = base_offset == queue.acknowledged if copied is None else base_offset >= copied.destination
        active = partition.phase is Phase.ACTIVE
        return active and as_due and not queue.checking and not partition.terms.takes_append_times

    def _doubt_repeat(self, queue: Queue, base_offset: int) -> None:
        """Puts the partition into doubt because the broker took its batch for a repeat. Another worker was quicker, or
        a request from before a lost connection arrived after all. That copy may have records that the source has lost
        since: the broker has compared only the sequences."""
        queue.partition.claim.leave_unread(base_offset)
        detail = f"the destination took the batch at offset {base_offset} for a repeat: it was sent before"
        self._relay.doubt(queue.partition, "repeated", detail)
        self._let_go(queue)

    def _refused(self, queue: Queue, answer: Produced, response: ProduceResponse) -> None:
        """Acts on a partition's error code: the partition halts if locating it again cannot help, else it comes into
        doubt."""
        relay, partition = self._relay, queue.partition
        if answer.leader is not None:
            relay.destination.hint(partition.destination, queue.index, answer.leader, response.nodes)
        relay.destination.failed("Produce", error_slug(answer.error))
        if partition.phase is Phase.ACTIVE:
            halted = why_halt(queue, answer, relay.destination.name)
            if halted is not None:
                relay.halt(partition, halted)
            else:
                if answer.error == ErrorCode.UNKNOWN_PRODUCER_ID:
                    partition.claim.forget_producer()
                detail = f"{relay.destination.name} broker {self.node_id}: {error_name(answer.error)}"
                relay.doubt(partition, error_slug(answer.error), detail)
        self._let_go(queue)

    def fail(self, error: NetworkError) -> None:
        """Acts on the oldest request, which will not be answered."""
        taken, _, _ = self._under_way.popleft()
        self._times.failed()
        if not self._closed:
            self._relay.destination.failed("Produce", error.slug)
        self._may_arrive(taken)
        self._failed += 1
        self._unanswered(taken, error)

    def _may_arrive(self, taken: list[Queue]) -> None:
        """Notes for old batches how long the broker may still take to read the request, whose connection was lost: it
        would not recognise them as repeats. A broker reads one request after the other, each may take its timeout, and
        it reads none while it throttles us."""
        throttled_s = self._connection.throttled_s if self._connection is not None else 0.0
        most_s = self._failed * self._timeout_ms / 1000 + min(throttled_s, MOST_POSTPONED_S)
        for queue in taken if most_s else ():
            if queue.waits_old and queue.partition.phase is not Phase.STOPPED:
                queue.partition.claim.leave_late(LateArrival(time.monotonic() + most_s, self.node_id))

    def _unanswered(self, taken: list[Queue], error: NetworkError) -> None:
        """Puts the partitions into doubt, since the outcome for the oldest batch of each is unknown."""
        for queue in taken:
            if queue.partition.phase is Phase.ACTIVE:
                self._relay.doubt(queue.partition, error.slug, str(error))
            self._let_go(queue)

    # -- the connection ----------------------------------------------------------------------------------------------

    async def _open(self) -> Connection:
        return await self._relay.destination.dial(self.node_id)

    def _greet(self, connection: Connection) -> None:
        connection.version_of(PRODUCE_KEY, (self._version, self._version), "Produce")
        connection.after_receive = self._after_receive
        connection.on_close = self._lost

    def _unreachable(self, error: NetworkError) -> None:
        for queue in self.attached:
            if queue.queued and queue.partition.phase is Phase.ACTIVE:
                self._relay.doubt(queue.partition, error.slug, str(error))
                self._let_go(queue)

    def _lost(self, _: NetworkError) -> None:
        """Goes on after the connection was lost. Partitions with batches in flight are in doubt by now; others may have
        batches to send, for which a new connection is dialled."""
        self._failed = 0
        for queue in self._partitions:
            queue.lose_connection()
        self._survey_at = 0.0
        if self._closed:
            return
        self.pump()
        self._relay.drained()

    def _after_receive(self) -> None:
        self.pump()
        if self._freed:
            self._freed = False
            self._relay.drained()

    def _pace(self, connection: Connection) -> None:
        """Asks to be woken only after several responses while the pipeline is full. Processing them together is
        cheaper, and the broker still has another request to work on."""
        size = 0
        if len(self._under_way) >= self._max_in_flight > ANSWERS_AT_ONCE:
            for taken, _, _ in itertools.islice(self._under_way, ANSWERS_AT_ONCE):
                size += self._least_answer * len(taken)
        connection.wake_at(size)


class Sink:
    """The lanes to one destination broker."""

    def __init__(self, relay: Orchestrator, node_id: int, *, version: int, kind: type[Lane] = Lane) -> None:
        count = relay.settings.connections_per_broker
        self._lanes = [kind(relay, node_id, version=version) for _ in range(count)]

    def attach(self, queue: Queue) -> None:
        """Pins the partition to the lane with the fewest partitions."""
        lane = min(self._lanes, key=lambda lane: len(lane.attached))
        lane.attach(queue)

    @property
    def lanes(self) -> list[Lane]:
        """The lanes, one per connection."""
        return self._lanes

    def pump(self) -> None:
        """Sends on every lane."""
        for lane in self._lanes:
            lane.pump()

    def close(self) -> None:
        """Closes the lanes."""
        for lane in self._lanes:
            lane.close()
