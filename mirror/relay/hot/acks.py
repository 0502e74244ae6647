"""Books the acknowledgements in one Produce response on its partitions.

It has two forms, like the inner loop (``relay.hot.plain``): compiled in ``_acks.c``, and in Python here.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from mirror.relay.hot.native import compiled_if
from mirror.relay.partition.queue import Batch, Queue
from mirror.wire.produce import Expected, PlainAnswer, as_expected, base_offsets


class Acknowledged(NamedTuple):
    """The work that is left once the batches were booked."""

    unexpected: list[tuple[Queue, int]]
    """Partitions whose batch was appended (or found) at another base offset than expected, with that base offset.
    Nothing was booked for them."""
    confirmed: list[tuple[Queue, int, Batch]]
    """Partitions with a window of 1, with the base offset and the batch, which was booked."""
    freed: bool
    """True if a frame was released, or a partition has nothing in flight any more, so that there may be something to
    fetch."""


Acknowledge = Callable[[list[Queue], PlainAnswer, list[Queue]], Acknowledged | None]
AcknowledgeExpected = Callable[[list[Queue], memoryview, Expected, list[Queue]], Acknowledged | None]


def bases_of(taken: Sequence[Queue], answer: PlainAnswer) -> list[int] | None:
    """Returns the base offset of each partition's batch; None if the response does not have exactly the request's
    partitions, each once.

    The request's partitions are looked up in the response, not the other way round. A response that lacks a partition,
    or has one twice or a foreign one, must not be booked on batches of other requests.
    """
    topics = base_offsets(answer)
    bases = {topic: dict(rows) for topic, rows in topics}
    if len(bases) != len(topics) or sum(len(rows) for _, rows in topics) != len(taken):
        return None
    try:
        return [bases[queue.topic_head][queue.index] for queue in taken]
    except KeyError:
        return None


def book(taken: Sequence[Queue], bases: Sequence[int], ready: list[Queue]) -> Acknowledged:
    """Books the oldest batch in flight of each partition as acknowledged, if its base offset is the expected one.

    Args:
        taken: the request's partitions.
        bases: the base offset that the broker gave to the batch of each.
        ready: gets the partitions that may send again and have something to send.
    """
    unexpected: list[tuple[Queue, int]] = []
    confirmed: list[tuple[Queue, int, Batch]] = []
    freed = False
    for queue, base_offset in zip(taken, bases, strict=True):
        if base_offset != queue.acknowledged:
            unexpected.append((queue, base_offset))
            continue
        batch = queue.in_flight.popleft()
        freed = freed or not queue.in_flight
        queue.acknowledged = base_offset + batch[2]
        frame = batch[3]
        if frame is not None:
            queue.frames -= 1
            frame.release()
            freed = True
        if queue.window == 1:
            confirmed.append((queue, base_offset, batch))
        if queue.outbox and not queue.queued:
            queue.queued = True
            ready.append(queue)
    return Acknowledged(unexpected, confirmed, freed)


def acknowledge(taken: list[Queue], answer: PlainAnswer, ready: list[Queue]) -> Acknowledged | None:
    """Calls ``bases_of``, then ``book``. Returns None, and books nothing, if the response does not match the
    request."""
    bases = bases_of(taken, answer)
    return None if bases is None else book(taken, bases, ready)


def acknowledge_expected(
    taken: list[Queue], frame: memoryview, likely: Expected, ready: list[Queue]
) -> Acknowledged | None:
    """Does the work of ``acknowledge`` directly from the frame, if that holds the expected response.

    Args:
        taken: the request's partitions.
        frame: the response.
        likely: the response that is expected.
        ready: see ``book``.

    Returns:
        None, with nothing booked, if it is another response, or has other partitions.
    """
    answer = as_expected(frame, likely)
    return None if answer is None else acknowledge(taken, answer, ready)


def expected_acknowledger(*, compiled: bool | None = None) -> AcknowledgeExpected:
    """Returns ``acknowledge_expected`` in the requested form; see ``acknowledger``."""
    module = compiled_if(compiled)
    return acknowledge_expected if module is None else cast(AcknowledgeExpected, module.acknowledge_expected)


def acknowledger(*, compiled: bool | None = None) -> Acknowledge:
    """Returns ``acknowledge`` in the requested form. ``compiled`` None: the compiled form, if it is there and wanted.

    Raises:
        RuntimeError: the compiled form was requested, and is not there.
    """
    module = compiled_if(compiled)
    return acknowledge if module is None else cast(Acknowledge, module.acknowledge)
