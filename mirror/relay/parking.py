"""A partition that waits behind a hole gives its frames back.

Filling a hole takes a few round trips, and a transactional partition has a hole every few records. What waits behind
one would keep frames of the pool from being reused all that time, with batches of other partitions' answers next to it:
few such partitions would stop all the others. So a little of what waits is copied out, and the rest is fetched again;
as long as the holes lie close together, no more is asked for than that little.
"""

from collections import deque

from mirror.records.header import HEADER_SIZE, NO_LEADER_EPOCH, BatchHeader
from mirror.records.identity import Identity
from mirror.relay.partition import Ahead, Batch, Hole, Partition

MOST_BYTES = 128 * 1024
"""Copied out per partition: a hundred small transactions, and a thousand partitions in no more than the frames take."""


def worth_asking(partition: Partition, most_bytes: int) -> int:
    """How many of so many bytes to ask for."""
    return min(most_bytes, MOST_BYTES) if partition.crowded else most_bytes


def park(partition: Partition, most_bytes: int = MOST_BYTES) -> None:
    """Copies what is in the outbox out of its frames, up to ``most_bytes``; what is beyond is fetched again.

    Nothing is under way, and the first in the outbox is a hole. The partition is not fetched while it has ``parked``
    bytes, and has them until its outbox is empty.
    """
    assert not partition.in_flight, partition.name
    waiting, kept, size = partition.outbox, deque[Batch | Hole](), 0
    due = partition.acknowledged
    while waiting:
        item = waiting[0]
        if isinstance(item, Hole):
            kept.append(item._replace(frame=None))
        else:
            head, payload, records, _ = item
            size += len(payload)
            if size > most_bytes:
                break
            kept.append(Batch(head, memoryview(bytes(payload)), records, None))
        due += item[2]
        partition.let_go(waiting.popleft())
    if waiting:
        partition.crowded = True
        partition.tally.returned(waiting)
        partition.identity = _identity_of(waiting[0])
        partition.due = due
        partition.last_epoch = NO_LEADER_EPOCH
        if isinstance(waiting[0], Hole):
            # If it is a gap, it was proven.
            partition.ahead = Ahead(due, due + waiting[0].records, proven=True)
        partition.ending = None  # found again when the batch in question is fetched again
        partition.generation += 1
        partition.freshness.returned(partition.acknowledged, due)
        while waiting:
            partition.let_go(waiting.popleft())
    waiting.extend(kept)
    partition.parked = max(size, 1)


def _identity_of(item: Batch | Hole) -> Identity:
    """The identity that a batch carries, or would carry in the hole's place."""
    if isinstance(item, Hole):
        return item.before
    header = BatchHeader.read(item[0][-HEADER_SIZE:])
    return Identity(header.producer_id, header.producer_epoch, header.base_sequence)
