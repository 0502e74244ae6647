"""Books the acknowledgement of one request's batches on their partitions.

In two forms, like the inner loop (``relay.hot.plain``): compiled in ``_acks.c``, and here in Python.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from mirror.relay.hot.native import compiled_if
from mirror.relay.partition import Batch, Partition
from mirror.wire.produce import Expected, PlainAnswer, as_expected, base_offsets


class Acknowledged(NamedTuple):
    """The work that is left after the batches were booked."""

    unexpected: list[tuple[Partition, int]]
    """Partitions whose batch was appended (or found) at another base offset than expected, and that base offset.
    Nothing was booked for them."""
    confirmed: list[tuple[Partition, int, Batch]]
    """Partitions with a window of 1, with the base offset and the batch, which was booked."""
    freed: bool
    """True if a frame was released, or a partition has nothing under way any more: there may be something to fetch."""


Acknowledge = Callable[[list[Partition], PlainAnswer, list[Partition]], Acknowledged | None]
AcknowledgeExpected = Callable[[list[Partition], memoryview, Expected, list[Partition]], Acknowledged | None]


def bases_of(taken: Sequence[Partition], answer: PlainAnswer) -> list[int] | None:
    """Returns the base offset of each partition's batch. None if the answer does not have exactly the partitions of the
    request, each once.

    The request's partitions are looked up in the answer, not the other way round: an answer that leaves out a
    partition, or has one twice or another one, must not be booked on batches of other requests.
    """
    topics = base_offsets(answer)
    bases = {topic: dict(rows) for topic, rows in topics}
    if len(bases) != len(topics) or sum(len(rows) for _, rows in topics) != len(taken):
        return None
    try:
        return [bases[partition.topic_head][partition.index] for partition in taken]
    except KeyError:
        return None


def book(taken: Sequence[Partition], bases: Sequence[int], ready: list[Partition]) -> Acknowledged:
    """Books the oldest batch under way of each partition as acknowledged, if its base offset is the expected one.

    Args:
        taken: the request's partitions.
        bases: the base offset that the broker gave to the batch of each.
        ready: gets the partitions that may send again and have something to send.
    """
    unexpected: list[tuple[Partition, int]] = []
    confirmed: list[tuple[Partition, int, Batch]] = []
    freed = False
    for partition, base_offset in zip(taken, bases, strict=True):
        if base_offset != partition.acknowledged:
            unexpected.append((partition, base_offset))
            continue
        batch = partition.in_flight.popleft()
        freed = freed or not partition.in_flight
        partition.acknowledged = base_offset + batch[2]
        frame = batch[3]
        if frame is not None:
            partition.frames -= 1
            frame.release()
            freed = True
        if partition.window == 1:
            confirmed.append((partition, base_offset, batch))
        if partition.outbox and not partition.queued:
            partition.queued = True
            ready.append(partition)
    return Acknowledged(unexpected, confirmed, freed)


def acknowledge(taken: list[Partition], answer: PlainAnswer, ready: list[Partition]) -> Acknowledged | None:
    """Calls ``bases_of``, then ``book``. Returns None, and books nothing, if the answer is not one to this request."""
    bases = bases_of(taken, answer)
    return None if bases is None else book(taken, bases, ready)


def acknowledge_expected(
    taken: list[Partition], frame: memoryview, likely: Expected, ready: list[Partition]
) -> Acknowledged | None:
    """Does the work of ``acknowledge`` straight from the frame, if that is the expected answer. Returns None, and books
    nothing, if it is not, or has other partitions."""
    answer = as_expected(frame, likely)
    return None if answer is None else acknowledge(taken, answer, ready)


def expected_acknowledger(*, compiled: bool | None = None) -> AcknowledgeExpected:
    """Returns ``acknowledge_expected`` in the form that is asked for, as ``acknowledger``."""
    module = compiled_if(compiled)
    return acknowledge_expected if module is None else cast(AcknowledgeExpected, module.acknowledge_expected)


def acknowledger(*, compiled: bool | None = None) -> Acknowledge:
    """Returns ``acknowledge`` in the form that is asked for. None: the compiled one, if it is there and wanted.

    Raises:
        RuntimeError: the compiled form was asked for, and is not there.
    """
    module = compiled_if(compiled)
    return acknowledge if module is None else cast(Acknowledge, module.acknowledge)
