"""One produce request's batches: one of each partition that has something to send, in their turn.

In two forms, like the inner loop (``relay.plain``): compiled in ``_gather.c``, and here in Python.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

from mirror.net.connection import Piece
from mirror.relay.native import compiled_if
from mirror.relay.partition import Partition

JOIN_BELOW = 4096
"""Mean bytes per batch below which copying them into one piece is cheaper than handing the kernel two for each (facts,
hot path)."""


class Group(NamedTuple):
    """The batches of one topic."""

    batches: int
    pieces: list[Piece]
    """Of small ones a single piece; else head and payload of each in turn. What ends a batch stands at the beginning of
    the next one's head, and is missing behind the last."""


class Gathered(NamedTuple):
    """What ``gather`` found."""

    groups: dict[bytes, Group]
    """By topic, as requests carry it."""
    taken: list[Partition]
    """Those with a batch in it, in their turn."""
    again: list[Partition]
    """Those of them that can have one in the next request, too."""
    holes: list[Partition]
    """Those that have a hole next, and nothing under way."""
    looked_at: int
    """So many of the ready partitions; the others keep their turn."""
    size: int
    """Bytes of the batches, with their heads."""


Gather = Callable[[list[Partition], int, bytes, int], Gathered]


def gather(ready: list[Partition], max_size: int, between: bytes, join_below: int) -> Gathered:
    """Takes the first batch out of the outbox of each partition, and counts it as under way.

    Args:
        ready: partitions that may have something to send and may send it: fewer batches under way than their window.
        max_size: bytes; reached by a single batch if that is larger.
        between: what ends a batch.
        join_below: mean bytes per batch below which they are copied into one piece.
    """
    pieces: dict[bytes, list[Piece]] = {}
    taken: list[Partition] = []
    again: list[Partition] = []
    holes: list[Partition] = []
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
        group = pieces.get(partition.topic_head)
        if group is None:
            pieces[partition.topic_head] = [head, payload]
        else:
            # A piece fewer for the kernel to gather.
            group += (between + head, payload)
        taken.append(partition)
        if outbox and len(in_flight) < partition.window:
            again.append(partition)
        else:
            partition.queued = False
    join = size < join_below * len(taken)
    groups = {topic: Group(len(of) // 2, [b"".join(of)] if join else of) for topic, of in pieces.items()}
    return Gathered(groups, taken, again, holes, looked_at, size)


def gatherer(*, compiled: bool | None = None) -> Gather:
    """``gather`` in the form that is asked for; None: the compiled one, if it is there and wanted.

    Raises:
        RuntimeError: the compiled form was asked for, and is not there.
    """
    module = compiled_if(compiled)
    return gather if module is None else cast(Gather, module.gather)
