"""Counts what was replicated of one partition, for metrics, without counting batch by batch while all goes well.

Records follow from positions: the destination's log end now, minus its end when the partition was first located, minus
the offsets filled in between. Batches and bytes are counted when record sets are put into the outbox, minus those that
are not acknowledged yet. Only a doubt, which is rare, looks at single batches.
"""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from mirror.records.header import HEADER_SIZE
from mirror.relay.hot.native import Outbox


class Counts(NamedTuple):
    """Counts since the partition was adopted. Bytes are those of whole batches, as stored."""

    records: int = 0
    batches: int = 0
    bytes: int = 0

    def plus(self, other: "Counts") -> "Counts":
        """Returns the sums."""
        return Counts(self.records + other.records, self.batches + other.batches, self.bytes + other.bytes)


class Origin(NamedTuple):
    """The first position of a partition after it was adopted, at which its counts begin."""

    offset: int
    holes_from: int
    """From here up to ``offset``, the destination has only markers."""
    at_s: float
    """When it was located, by the machine's monotonic clock, which all of its processes share."""


class Tally:
    """Counts for one partition. ``put_batches`` and ``put_bytes`` grow once per record set (``relay.hot.forward``)."""

    __slots__ = ("_doubtful", "_filled_before", "_first", "_position", "origin", "put_batches", "put_bytes")

    def __init__(self) -> None:
        self.put_batches = 0
        self.put_bytes = 0
        self.origin: Origin | None = None
        """None: the partition was not located yet."""
        self._first: int | None = None
        self._position = 0
        self._filled_before = 0
        self._doubtful: list[tuple[int, int]] = []
        """(end offset, size) of batches whose answers were not believed: the next position tells which were copied."""

    def put(self, batches: int, size: int) -> None:
        """So many batches, of ``size`` bytes in all, were put on their way."""
        self.put_batches += batches
        self.put_bytes += size

    def located(self, offset: int, filled: int, holes_from: int) -> int:
        """Takes a new position. The destination's log ends at ``offset``, with only markers from ``holes_from`` on;
        ``filled`` offsets of it were filled from here so far.

        Returns:
            The number of offsets that were filled without an answer since the position was last known.
        """
        unseen = 0
        if self._first is None:
            self._first, self._filled_before = offset, filled
            self.origin = Origin(offset, holes_from, time.monotonic())
        else:
            # If the destination lost offsets that it had acknowledged, they are copied again, and counted again.
            self._first -= max(0, self._position - offset)
            unseen = max(0, offset - max(self._position, holes_from))
        self._position = offset
        for end, size in self._doubtful:
            if end <= offset:
                self.put_batches += 1
                self.put_bytes += size
        self._doubtful.clear()
        return unseen

    def dropped(self, acknowledged: int, in_flight: Iterable[Any], outbox: Iterable[Any]) -> None:
        """The position is not known any more. Batches under way and in the outbox do not count as replicated."""
        self._position = end = acknowledged
        for batch in in_flight:
            end += batch[2]
            if batch[0]:
                self._take_back(size_of(batch))
                self._doubtful.append((end, size_of(batch)))
        self.returned(outbox)

    def returned(self, outbox: Iterable[Any]) -> None:
        """Takes back batches that leave the outbox unsent: they will be fetched again."""
        for batch in outbox:
            if batch[0]:
                self._take_back(size_of(batch))

    def _take_back(self, size: int) -> None:
        self.put_batches -= 1
        self.put_bytes -= size

    def counts(self, acknowledged: int, filled: int, waiting: Iterable[Outbox]) -> Counts:
        """Returns the counts of what is at the destination. ``waiting``: the queues of unacknowledged batches."""
        if self._first is None:
            return Counts()
        position = acknowledged if acknowledged >= 0 else self._position
        batches, size = self.put_batches, self.put_bytes
        for waits in [queue.sizes() for queue in waiting] if acknowledged >= 0 else ():
            batches -= waits[0]
            size -= waits[1]
        return Counts(max(0, position - self._first - (filled - self._filled_before)), batches, size)


def size_of(batch: Any) -> int:
    """Returns the bytes of a batch (``partition.queue.Batch``), as stored."""
    return HEADER_SIZE + len(batch[1])
