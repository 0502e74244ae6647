"""Builds Produce requests from partitions with something to send. Each request has one batch of each, in rotation.

It has two forms, like the inner loop (``relay.hot.plain``): compiled in ``_gather.c``, and in Python here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from mirror.net.stream import Piece
from mirror.relay.hot.native import compiled_if
from mirror.relay.partition.queue import Queue
from mirror.wire.header import FRAME_HEAD, LAST_CORRELATION_ID, SIZE
from mirror.wire.produce import Framing, topics_size
from mirror.wire.versions import PRODUCE_KEY

JOIN_BELOW = 4096
"""Mean bytes per batch below which it is cheaper to copy a request into one piece than to pass the kernel two pieces
per batch."""


class SentRequest(NamedTuple):
    """What is kept of a request until its response."""

    taken: list[Queue]
    """The partitions with a batch in the request, in order."""
    size: int
    """Bytes of the batches, with their heads."""
    topic: bytes | None
    """The topic's name or id as requests carry it, if there is only one topic; otherwise None."""


class Gathered(NamedTuple):
    """The result of ``gather``."""

    pieces: list[Piece]
    """The bytes of all requests, one after the other."""
    requests: list[SentRequest]
    """The requests. Their correlation ids count up from the given one."""
    ready: list[Queue]
    """Partitions for the next request. Either they were not reached and keep their turn, or they may send one more
    batch."""
    holes: list[Queue]
    """Partitions with a hole next and nothing in flight."""


Gather = Callable[[list[Queue], int, int, Framing, int, int], Gathered]


def gather(
    ready: list[Queue], most: int, max_size: int, framing: Framing, correlation_id: int, join_below: int
) -> Gathered:
    """Moves the first batch of each partition's outbox to its batches in flight, and builds a request of them. Does the
    same for the next requests, with the partitions that have more.

    Args:
        ready: partitions that may have something to send and may send it: they have fewer batches in flight than their
            window.
        most: largest number of requests.
        max_size: most bytes of the batches of a request. Only a single batch may be larger.
        framing: the connection's framing of Produce requests.
        correlation_id: that of the first request. The others count up from it.
        join_below: mean bytes per batch below which a request is copied into one piece.
    """
    pieces: list[Piece] = []
    requests: list[SentRequest] = []
    holes: list[Queue] = []
    while ready and len(requests) < most:
        request, by_topic, ready = _collect(ready, max_size, holes)
        if request.taken:
            framed = _frame(by_topic, framing, (correlation_id + len(requests)) & LAST_CORRELATION_ID)
            pieces += [b"".join(framed)] if request.size < join_below * len(request.taken) else framed
            requests.append(request)
    return Gathered(pieces, requests, ready, holes)


def _collect(
    ready: list[Queue], max_size: int, holes: list[Queue]
) -> tuple[SentRequest, dict[bytes, list[Any]], list[Queue]]:
    """Returns one request, its batches by topic, and the partitions for the next request."""
    by_topic: dict[bytes, list[Any]] = {}
    taken: list[Queue] = []
    again: list[Queue] = []
    size = looked_at = 0
    for queue in ready:
        outbox = queue.outbox
        if not outbox:
            looked_at += 1
            queue.queued = False
            continue
        batch: Any = outbox[0]
        head, payload = batch[0], batch[1]
        if not head:
            # A hole waits until everything before it is acknowledged. Each acknowledgement offers the partition again.
            looked_at += 1
            queue.queued = False
            if not queue.in_flight:
                holes.append(queue)
            continue
        grown = size + len(head) + len(payload)
        if grown > max_size and taken:
            break
        looked_at += 1
        size = grown
        outbox.popleft()
        in_flight = queue.in_flight
        in_flight.append(batch)
        by_topic.setdefault(queue.topic_head, []).append(batch)
        taken.append(queue)
        if outbox and len(in_flight) < queue.window:
            again.append(queue)
        else:
            queue.queued = False
    topic = next(iter(by_topic)) if len(by_topic) == 1 else None
    return SentRequest(taken, size, topic), by_topic, ready[looked_at:] + again


def _frame(by_topic: dict[bytes, list[Any]], framing: Framing, correlation_id: int) -> list[Piece]:
    """Returns the pieces of a request: for each batch, the bytes in front of its records, then the records; finally,
    the bytes that end the request."""
    version, start, between, after_topic, _ = framing
    pieces: list[Piece] = []
    lead = start + topics_size(version, len(by_topic))
    for topic, batches in by_topic.items():
        lead += topic + topics_size(version, len(batches))
        for batch in batches:
            pieces += (lead + batch[0], batch[1])
            lead = between
        lead += after_topic
    pieces.append(lead + after_topic)
    size = FRAME_HEAD.size - SIZE.size + sum(map(len, pieces))
    pieces[0] = FRAME_HEAD.pack(size, PRODUCE_KEY, version, correlation_id) + pieces[0]
    return pieces


def gatherer(*, compiled: bool | None = None) -> Gather:
    """Returns ``gather`` in the requested form. ``compiled`` None: the compiled form, if it is there and wanted.

    Raises:
        RuntimeError: the compiled form was requested, and is not there.
    """
    module = compiled_if(compiled)
    return gather if module is None else cast(Gather, module.gather)
