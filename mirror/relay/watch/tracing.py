"""Notes what is done with one partition, step by step, while somebody follows it (``mirror trace``).

A trace is on for a short time only, and whoever follows it renews that time: so it ends by itself. While none is on,
the data path checks ``Tracer.on`` once for each Fetch response and once whenever Produce requests are built, but never
for a batch. The steps name offsets, sizes, errors and brokers. Keys and values of records are not looked at.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mirror.net.buffers import Frame
from mirror.net.errors import NetworkError
from mirror.net.stream import Waiter
from mirror.relay.events import EventLog
from mirror.wire.errors import error_name
from mirror.wire.fetch import Fetched, FetchResponse
from mirror.wire.header import LAST_CORRELATION_ID
from mirror.wire.primitives import MalformedFrame
from mirror.wire.produce import ProduceResponse, read_produce_response, topic_head

if TYPE_CHECKING:
    from mirror.relay.assignment import Key
    from mirror.relay.hot.gather import SentRequest
    from mirror.relay.partition.partition import Partition
    from mirror.relay.partition.queue import Queue

TELL_EVERY_S = 0.2
"""Seconds between two times that steps are handed on."""
MOST_KEPT = 2_000
"""Number of steps that are kept until they are handed on. Further steps are only counted."""

Step = dict[str, Any]
"""``at_ms`` (since 1970), ``step`` (its name), and the fields of that step; see docs/OPERATING.md."""


class Told(NamedTuple):
    """Steps of one partition, in order. ``missed``: how many more there was no room for."""

    steps: list[Step]
    missed: int


class Trace:
    """The steps of one partition."""

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        """The time until which it is on (monotonic clock)."""
        self._steps: list[Step] = []
        self._missed = 0
        self._waits = ""
        self._committed = -1

    def note(self, step: str, /, **fields: object) -> None:
        """Notes a step. ``fields``: values that JSON can hold; they cannot replace ``at_ms`` and ``step``."""
        if len(self._steps) < MOST_KEPT:
            told: Step = {"at_ms": int(time.time() * 1000), "step": step}
            self._steps.append(told | fields | told)
        else:
            self._missed += 1

    def waits(self, reason: str) -> None:
        """Notes why the partition is not copied for now, unless that was noted last."""
        if reason != self._waits:
            self._waits = reason
            self.note("waits", reason=reason)

    def committed(self, offset: int) -> None:
        """Notes the group's committed offset, unless that was noted last."""
        if offset != self._committed:
            self._committed = offset
            self.note("committed", offset=offset)

    def take(self) -> Told:
        """Returns what was noted since the last call."""
        told = Told(self._steps, self._missed)
        self._steps, self._missed = [], 0
        return told


class Fetching(NamedTuple):
    """A partition's part of a Fetch response, before anything is done with it."""

    trace: Trace
    partition: "Partition"
    fetched: Fetched
    node_id: int
    error: int
    due: int
    batches: int

    def done(self) -> None:
        """Notes what was done with it. Must be called after that."""
        _, _, error, end, stable, start_offset, aborted, diverging, _, preferred, start, stop = self.fetched
        cursor, queue = self.partition.cursor, self.partition.queue
        code = error or self.error
        more: dict[str, object] = {"error": error_name(code)} if code else {}
        more |= {"diverging_epoch": diverging[0], "diverging_end": diverging[1]} if diverging is not None else {}
        self.trace.note(
            "fetched",
            broker=self.node_id,
            offset=self.due,
            next=cursor.due,
            batches=queue.tally.put_batches - self.batches,
            bytes=stop - start,
            waiting=len(queue.outbox),
            in_flight=len(queue.in_flight),
            log_start=start_offset,
            last_stable=stable,
            high_watermark=end,
            aborted_transactions=len(aborted),
            preferred_replica=preferred,
            **more,
        )


class Sender(Protocol):
    """The part of a lane that takes responses."""

    node_id: int

    def receive(self, response: memoryview | Frame) -> None: ...
    def fail(self, error: NetworkError) -> None: ...


class Sending(NamedTuple):
    """A partition's batch in a Produce request."""

    trace: Trace
    queue: "Queue"
    correlation_id: int
    offset: int
    sent_s: float

    def answered(self, node_id: int, version: int, response: ProduceResponse | None, position: int) -> None:
        """Notes the response to the batch.

        Args:
            node_id: the broker.
            version: the version of the request.
            response: the response; None: it could not be read.
            position: the partition's position before the lane took the response.
        """
        mine = self.queue.topic_head, self.queue.index
        answers = response.partitions if response is not None else ()
        found = [each for each in answers if (topic_head(version, each.topic), each.partition) == mine]
        more: dict[str, object] = {}
        if response is None or not found:
            more["error"] = "not an answer to the request"
        elif found[0].error:
            more |= {"error": error_name(found[0].error), "message": found[0].message or ""}
        else:
            more["base_offset"] = found[0].base_offset
        if response is not None and response.throttle_ms:
            more["throttle_ms"] = response.throttle_ms
        after = self.queue.position
        self.trace.note(
            "produced",
            broker=node_id,
            request=self.correlation_id,
            offset=self.offset,
            acknowledged=after,
            believed=after > position,
            ms=round((time.monotonic() - self.sent_s) * 1000, 1),
            **more,
        )


class TracedAnswers:
    """Takes the responses of a lane in its place, notes what they say about the followed partitions, and hands them
    on."""

    def __init__(self, lane: Sender, version: int, sent: Iterable[Sequence[Sending]]) -> None:
        """``sent``: for each of the requests, in order, the batches that are followed."""
        self._lane = lane
        self._version = version
        self._sent = deque(sent)

    def receive(self, response: memoryview | Frame) -> None:
        """See ``Waiter``."""
        sent = self._sent.popleft()
        read = self._read(response) if sent else None
        before = [each.queue.position for each in sent]
        try:
            self._lane.receive(response)
        finally:
            for each, position in zip(sent, before, strict=True):
                each.answered(self._lane.node_id, self._version, read, position)

    def _read(self, response: memoryview | Frame) -> ProduceResponse | None:
        assert isinstance(response, memoryview)
        try:
            return read_produce_response(self._version, response)
        except MalformedFrame:
            return None

    def fail(self, error: NetworkError) -> None:
        """See ``Waiter``."""
        for each in self._sent.popleft():
            each.trace.note(
                "unanswered", broker=self._lane.node_id, request=each.correlation_id, offset=each.offset,
                error=str(error),
            )  # fmt: skip
        self._lane.fail(error)


class Tracer:
    """The traces of a flow in this process. All calls are made in the event loop's thread."""

    def __init__(self, tell: "Callable[[Key, Told], None] | None" = None) -> None:
        """``tell``: is given what was noted of a partition, several times a second."""
        self.on = False
        """True while at least one partition is followed."""
        self._tell = tell
        self._traces: dict[Key, Trace] = {}
        self._partitions: dict[Key, Partition] = {}
        self._timer: asyncio.TimerHandle | None = None

    def follow(self, key: "Key", for_s: float, partition: "Partition | None") -> None:
        """Follows a partition for a time from now, whether this process has it already or gets it later.

        Args:
            key: topic and index.
            for_s: the time in seconds; 0 ends it. A call while it is on renews the time.
            partition: the partition, if this process has it.
        """
        until_s = time.monotonic() + for_s
        trace = self._traces.get(key)
        if trace is not None:
            trace.until_s = until_s
        elif for_s > 0:
            trace = self._traces[key] = Trace(until_s)
            self.on = True
            if partition is not None:
                self.adopted(partition)
        if self._timer is None and self._traces:
            self._timer = asyncio.get_running_loop().call_later(TELL_EVERY_S, self._tick)

    def adopted(self, partition: "Partition") -> None:
        """Notes that this process has the partition from now on. It is followed if somebody wants that."""
        key = partition.topic, partition.index
        if (trace := self._traces.get(key)) is None:
            return
        self._partitions[key] = partition
        partition.follow(trace)
        trace.note(
            "here",
            phase=partition.phase.value,
            position=partition.shown_position,
            due=partition.cursor.due,
            source_end=partition.cursor.high_watermark,
            waiting=len(partition.queue.outbox),
            in_flight=len(partition.queue.in_flight),
        )
        if partition.waiting is not None:
            trace.waits(partition.waiting.reason)

    def released(self, partition: "Partition") -> None:
        """Notes that this process no longer has the partition. It may come back while it is followed."""
        if self._partitions.get(key := (partition.topic, partition.index)) is partition:
            del self._partitions[key]
            partition.follow(None)

    def _tick(self) -> None:
        now = time.monotonic()
        for key, trace in list(self._traces.items()):
            told = trace.take()
            if self._tell is not None and (told.steps or told.missed):
                self._tell(key, told)
            if now >= trace.until_s:
                self._end(key)
        self._timer = None
        if self._traces:
            self._timer = asyncio.get_running_loop().call_later(TELL_EVERY_S, self._tick)

    def _end(self, key: "Key") -> None:
        trace, partition = self._traces.pop(key), self._partitions.pop(key, None)
        if partition is not None and partition.trace is trace:
            partition.follow(None)
        self.on = bool(self._traces)

    # -- what is noted -------------------------------------------------------------------------------------------------

    def fetched(self, node_id: int, fetch: FetchResponse) -> list[Fetching]:
        """Returns what a Fetch response has for the partitions that are followed. Call ``Fetching.done`` of each once
        it was taken."""
        found: list[Fetching] = []
        for partition in self._partitions.values():
            names = {(name, partition.index) for name in (partition.topic, partition.claim.source_id) if name}
            for fetched in fetch.partitions:
                if fetched[:2] in names and partition.trace is not None:
                    due, put = partition.cursor.due, partition.queue.tally.put_batches
                    found.append(Fetching(partition.trace, partition, fetched, node_id, fetch.error, due, put))
        return found

    def unfetched(self, node_id: int, error: NetworkError) -> None:
        """Notes that a Fetch request to this broker was not answered."""
        for partition in self._partitions.values():
            if partition.trace is not None and partition.cursor.broker == node_id:
                partition.trace.note("not_fetched", broker=node_id, offset=partition.cursor.due, error=str(error))

    def sent(self, lane: Sender, version: int, first: int, requests: "Sequence[SentRequest]") -> Waiter:
        """Notes the Produce requests that are about to be sent.

        Args:
            lane: sends them, and takes the responses.
            version: the version of the requests.
            first: correlation id of the first request.
            requests: all requests, each with the queues of which it has taken a batch.

        Returns:
            What takes the responses instead of the lane, and hands them on.
        """
        followed = {partition.queue: partition for partition in self._partitions.values()}
        left = {queue: sum(queue in taken for taken, _, _ in requests) for queue in followed}
        found: list[list[Sending]] = []
        for number, (taken, _, _) in enumerate(requests):  # the compiled code makes plain tuples
            mine: list[Sending] = []
            for queue in taken:
                partition = followed.get(queue)
                if partition is None or partition.trace is None:
                    continue
                at = len(queue.in_flight) - left[queue]
                left[queue] -= 1
                mine.append(self._sent(lane, partition.trace, queue, (first + number) & LAST_CORRELATION_ID, at))
            found.append(mine)
        return TracedAnswers(lane, version, found)

    @staticmethod
    def _sent(lane: Sender, trace: Trace, queue: "Queue", correlation_id: int, at: int) -> Sending:
        """Notes one batch. ``at``: its place among those in flight."""
        jumps = {} if queue.copied is None else {jump.start: jump.end for jump in queue.copied.jumps}
        offset = queue.acknowledged
        offset = jumps.get(offset, offset)
        for before in range(at):
            offset += queue.in_flight[before][2]
            offset = jumps.get(offset, offset)
        head, payload, records, _ = queue.in_flight[at]
        trace.note(
            "produce",
            broker=lane.node_id,
            request=correlation_id,
            offset=offset,
            records=records,
            bytes=len(head) + len(payload),
            in_flight=at + 1,
            window=queue.window,
        )
        return Sending(trace, queue, correlation_id, offset, time.monotonic())

    def committed(self, offsets: "Mapping[Key, int]") -> None:
        """Notes the offsets that the group has committed by now."""
        for key, partition in self._partitions.items():
            if key in offsets and partition.trace is not None:
                partition.trace.committed(offsets[key])

    def event(self, event: str, fields: Mapping[str, object]) -> None:
        """Notes a line of the log, if it is about a partition that is followed."""
        topic, index = fields.get("topic"), fields.get("partition")
        if isinstance(topic, str) and isinstance(index, int) and (trace := self._traces.get((topic, index))):
            told = {name: value for name, value in fields.items() if name not in ("topic", "partition")}
            trace.note("event", event=event, **told)


class TracedLog:
    """A flow's log. Lines about a followed partition are noted among its steps as well."""

    def __init__(self, log: EventLog, tracer: Tracer) -> None:
        self._log = log
        self._tracer = tracer

    def info(self, event: str, **fields: object) -> None:
        """See ``EventLog``."""
        self._log.info(event, **fields)
        if self._tracer.on:
            self._tracer.event(event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """See ``EventLog``."""
        self._log.warning(event, **fields)
        if self._tracer.on:
            self._tracer.event(event, fields)
