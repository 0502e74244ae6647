"""Counts what was replicated of one partition, for metrics, without counting single batches while all goes well.

Records follow from positions: the destination's log end now, minus its end when the partition was first located, minus
the offsets that were filled in between. Batches and bytes are counted when record sets are put into the outbox, minus
those that are not acknowledged yet. Only a doubt, which is rare, looks at single batches.
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
    """The first position of a partition after it was adopted. Its counts begin there."""

    offset: int
    holes_from: int
    """From here up to ``offset``, the destination has only markers."""
    at_s: float
    """When it was located, by the machine's monotonic clock, which all processes of a machine share."""


class Tally:
    """The counts for one partition. ``put_batches`` and ``put_bytes`` grow once per record set
    (``relay.hot.forward``)."""

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
        """(end offset, size) of batches whose responses were not believed. The next position shows which of them were
        copied."""

    def put(self, batches: int, size: int) -> None:
        """Counts batches, of ``size`` bytes in all, that were put into the outbox."""
        self.put_batches += batches
        self.put_bytes += size

    def located(self, offset: int, filled: int, holes_from: int) -> int:
        """Takes a new position.

        Args:
            offset: the position: the destination's log end.
            filled: number of offsets that this process has filled so far.
            holes_from: from here up to ``offset``, the destination has only markers.

        Returns:
            The number of offsets that were filled without a response since the position was last known.
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
        """Takes back all batches that are not acknowledged, because the position is not known any more.

        Args:
            acknowledged: the position until now.
            in_flight: batches in flight.
            outbox: batches and holes that wait to be sent.
        """
        self._position = end = acknowledged
        for batch in in_flight:
            end += batch[2]
            if batch[0]:
                self._take_back(size_of(batch))
                self._doubtful.append((end, size_of(batch)))
        self.returned(outbox)

    def returned(self, outbox: Iterable[Any]) -> None:
        """Takes back batches that leave the outbox unsent, because they will be fetched again."""
        for batch in outbox:
            if batch[0]:
                self._take_back(size_of(batch))

    def _take_back(self, size: int) -> None:
        self.put_batches -= 1
        self.put_bytes -= size

    def counts(self, acknowledged: int, filled: int, waiting: Iterable[Outbox]) -> Counts:
        """Returns the counts of what is at the destination.

        Args:
            acknowledged: the position; negative while in doubt.
            filled: number of offsets that this process has filled so far.
            waiting: the queues of batches that are not acknowledged.
        """
        if self._first is None:
            return Counts()
        position = acknowledged if acknowledged >= 0 else self._position
        batches, size = self.put_batches, self.put_bytes
        for waits in [queue.sizes() for queue in waiting] if acknowledged >= 0 else ():
            batches -= waits[0]
            size -= waits[1]
        return Counts(max(0, position - self._first - (filled - self._filled_before)), batches, size)


def size_of(batch: Any) -> int:
    """Returns the size of a batch (``partition.queue.Batch``) in bytes, as stored."""
    return HEADER_SIZE + len(batch[1])
