"""The produce requests that partitions with something to send make: in each one batch of each of them, in their turn.

In two forms, like the inner loop (``relay.hot.plain``): compiled in ``_gather.c``, and here in Python.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from mirror.net.connection import Piece
from mirror.relay.hot.native import compiled_if
from mirror.relay.partition import Partition
from mirror.wire.header import FRAME_HEAD, LAST_CORRELATION_ID, SIZE
from mirror.wire.produce import Framing, topics_size
from mirror.wire.versions import PRODUCE_KEY

JOIN_BELOW = 4096
"""Mean bytes per batch below which copying a request into one piece is cheaper than handing the kernel two for each
batch."""


class Request(NamedTuple):
    """What of a request is remembered until its answer."""

    taken: list[Partition]
    """Those with a batch in it, in their turn."""
    size: int
    """Bytes of the batches, with their heads."""
    topic: bytes | None
    """As requests carry it, if there is but one."""


class Gathered(NamedTuple):
    """What ``gather`` made."""

    pieces: list[Piece]
    """The frames of all requests, one after the other."""
    requests: list[Request]
    """With the correlation ids from the given one on."""
    ready: list[Partition]
    """Those that may be asked for the next request: they keep their turn, or can have one more batch under way."""
    holes: list[Partition]
    """Those that have a hole next, and nothing under way."""


Gather = Callable[[list[Partition], int, int, Framing, int, int], Gathered]


def gather(
    ready: list[Partition], most: int, max_size: int, framing: Framing, correlation_id: int, join_below: int
) -> Gathered:
    """Takes the first batch out of the outbox of each partition, and counts it as under way; the same again for the
    next request, with those that have more.

    Args:
        ready: partitions that may have something to send and may send it: fewer batches under way than their window.
        most: requests.
        max_size: bytes of the batches of a request; reached by a single batch if that is larger.
        framing: of the connection.
        correlation_id: of the first request; the others count on.
        join_below: mean bytes per batch below which a request is copied into one piece.
    """
    pieces: list[Piece] = []
    requests: list[Request] = []
    holes: list[Partition] = []
    while ready and len(requests) < most:
        request, by_topic, ready = _collect(ready, max_size, holes)
        if request.taken:
            framed = _frame(by_topic, framing, (correlation_id + len(requests)) & LAST_CORRELATION_ID)
            pieces += [b"".join(framed)] if request.size < join_below * len(request.taken) else framed
            requests.append(request)
    return Gathered(pieces, requests, ready, holes)


def _collect(
    ready: list[Partition], max_size: int, holes: list[Partition]
) -> tuple[Request, dict[bytes, list[Any]], list[Partition]]:
    """The batches of one request: by topic; and who may be asked for the next."""
    by_topic: dict[bytes, list[Any]] = {}
    taken: list[Partition] = []
    again: list[Partition] = []
    size = looked_at = 0
    for partition in ready:
        outbox = partition.outbox
        if not outbox:
            looked_at += 1
            partition.queued = False
            continue
        batch: Any = outbox[0]
        head, payload = batch[0], batch[1]
        if not head:
            # A hole waits until all before it is acknowledged; each acknowledgement offers the partition again.
            looked_at += 1
            partition.queued = False
            if not partition.in_flight:
                holes.append(partition)
            continue
        grown = size + len(head) + len(payload)
        if grown > max_size and taken:
            break
        looked_at += 1
        size = grown
        outbox.popleft()
        in_flight = partition.in_flight
        in_flight.append(batch)
        by_topic.setdefault(partition.topic_head, []).append(batch)
        taken.append(partition)
        if outbox and len(in_flight) < partition.window:
            again.append(partition)
        else:
            partition.queued = False
    topic = next(iter(by_topic)) if len(by_topic) == 1 else None
    return Request(taken, size, topic), by_topic, ready[looked_at:] + again


def _frame(by_topic: dict[bytes, list[Any]], framing: Framing, correlation_id: int) -> list[Piece]:
    """A request: for each batch what stands in front of its records, and these; last, what ends it."""
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
    """``gather`` in the form that is asked for; None: the compiled one, if it is there and wanted.

    Raises:
        RuntimeError: the compiled form was asked for, and is not there.
    """
    module = compiled_if(compiled)
    return gather if module is None else cast(Gather, module.gather)
