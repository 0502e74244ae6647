"""Has a partition that waits behind a hole give its frames back.

Filling a hole takes a few round trips, and a transactional partition has a hole every few records. All that time, the
batches that wait behind a hole would keep frames of the pool from being reused, together with other partitions' batches
in the same frames. A few such partitions would stop all others. So a small part of what waits is copied out of the
frames, and the rest is fetched again. As long as holes lie close together, no more than that part is requested. Copies
count in ``buffer.memory``.
"""

from collections.abc import Sequence
from typing import cast

from mirror.net.buffers import FramePool
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity
from mirror.relay.partition.cursor import Ahead
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch, Hole, SentPayload

MOST_BYTES = 128 * 1024
"""Most bytes that are copied out per partition: about a hundred small transactions. It is less if many partitions have
copies."""
LEAST_ASKED = 16 * 1024
"""Least bytes to request, even if less can be copied: batches before the next hole need no copy."""


def worth_asking(partition: Partition, most_bytes: int) -> int:
    """Returns the bytes to request for the partition, at most ``most_bytes``."""
    return min(most_bytes, partition.cursor.crowded) if partition.cursor.crowded else most_bytes


def park(partition: Partition, pool: FramePool) -> None:
    """Copies batches of the outbox out of their frames, as far as ``pool`` has room. The rest is fetched again.

    The partition must have nothing in flight, and a hole first in its outbox. It is parked then: not fetched until all
    that was left in its outbox is acknowledged.
    """
    queue = partition.queue
    assert not queue.in_flight, partition.name
    most_bytes = min(MOST_BYTES, pool.copy_room)
    waiting, kept, size = queue.outbox, list[Batch | Hole](), 0
    due = queue.acknowledged
    while waiting:
        item = waiting[0]
        if not isinstance(item, Hole):
            size += len(item[1])
            if size > most_bytes:
                size -= len(item[1])
                break
        kept.append(item)
        due += item[2]
        waiting.popleft()
    copies = _copied(kept, size, pool)
    for item in kept:
        queue.let_go(item)
    if waiting:
        partition.cursor.crowd(max(most_bytes, LEAST_ASKED))
        _fetch_again(partition, due)
    waiting.extend(copies)
    queue.park(size)


def set_aside(partition: Partition) -> None:
    """Lets go of all frames of a partition, because the destination broker does not take what waits. Of batches that
    were sent, only the sizes are kept; waiting batches are fetched again, once those are acknowledged. The lane has
    copied the bytes that the kernel has not taken yet."""
    queue = partition.queue
    sent = queue.in_flight
    due = queue.acknowledged
    for position in range(len(sent)):
        head, payload, records, frame = sent[position]
        sent[position] = Batch(head, cast(memoryview, SentPayload(len(payload))), records, None)
        queue.let_go(Batch(head, payload, records, frame))
        due = _behind(partition, due) + records
    if partition.phase is not Phase.ACTIVE or queue.parked or partition.cursor.looking or queue.reconfirming:
        return
    if queue.outbox:
        if queue.copied is not None:
            queue.copied.forget_from(due)
        _fetch_again(partition, due)
    queue.park()


def _behind(partition: Partition, offset: int) -> int:
    """Returns the offset of the next batch. It is behind ``offset`` if offsets there are passed over (``offsets:
    mapped``)."""
    for jump in partition.queue.copied.jumps if partition.queue.copied is not None else ():
        if jump.start == offset:
            offset = jump.end
    return offset


def _fetch_again(partition: Partition, due: int) -> None:
    """Drops the rest of the outbox, which begins at ``due``, as if it had never been fetched."""
    queue = partition.queue
    waiting = queue.outbox
    queue.tally.returned(waiting)
    # If this hole is a gap, it was proven before it was put.
    ahead = Ahead(due, due + waiting[0].records, proven=True) if isinstance(waiting[0], Hole) else None
    partition.cursor.rewind(due, _identity_of(waiting[0]), ahead)
    queue.freshness.returned(queue.acknowledged, due)
    while waiting:
        queue.let_go(waiting.popleft())


def _copied(items: Sequence[Batch | Hole], size: int, pool: FramePool) -> list[Batch | Hole]:
    """Returns copies of the items, with their records (``size`` bytes in all) in a new frame. The last item gets that
    frame."""
    if not size:
        return [_without_frame(item) for item in items]
    frame = pool.copy([item[1] for item in items if not isinstance(item, Hole)])
    copies, at = list[Batch | Hole](), 0
    for item in items:
        if isinstance(item, Hole):
            copies.append(_without_frame(item))
        else:
            head, payload, records, _ = item
            copies.append(Batch(head, frame.body[at : at + len(payload)], records, None))
            at += len(payload)
    copies[-1] = copies[-1]._replace(frame=frame)
    return copies


def _without_frame(item: Batch | Hole) -> Batch | Hole:
    # The hot path builds plain tuples, without field names.
    return item._replace(frame=None) if isinstance(item, Hole) else Batch(item[0], item[1], item[2], None)


def _identity_of(item: Batch | Hole) -> Identity:
    """Returns the identity that the batch carries; for a hole, the one that a batch in its place would carry."""
    if isinstance(item, Hole):
        return item.before
    header = BatchHeader.read(item[0][-HEADER_SIZE:])
    return Identity(header.producer_id, header.producer_epoch, header.base_sequence)
