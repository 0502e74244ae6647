"""What of one partition was replicated, for metrics: nothing is counted batch by batch while all goes well.

Records follow from positions: the destination's log end now, less where it was when the partition was first located,
less what was filled in between. Batches and bytes are counted as record sets are put on their way, less what of them
still is; only a doubt, which is rare, looks at single batches.
"""

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from mirror.records.header import HEADER_SIZE
from mirror.relay.hot.native import Outbox


class Counts(NamedTuple):
    """Since the partition was adopted. Bytes are those of whole batches, as stored."""

    records: int = 0
    batches: int = 0
    bytes: int = 0

    def plus(self, other: "Counts") -> "Counts":
        """Both together."""
        return Counts(self.records + other.records, self.batches + other.batches, self.bytes + other.bytes)


class Origin(NamedTuple):
    """Where a partition was first located after it was adopted, which is where its counts begin."""

    offset: int
    holes_from: int
    """Nothing but markers stands from here up to ``offset``."""
    at_s: float
    """By the machine's monotonic clock, which all of its processes share."""


class Tally:
    """Of one partition. ``put_batches`` and ``put_bytes`` grow once per record set (``relay.hot.forward``)."""

    __slots__ = ("_doubtful", "_filled_before", "_first", "_position", "origin", "put_batches", "put_bytes")

    def __init__(self) -> None:
        self.put_batches = 0
        self.put_bytes = 0
        self.origin: Origin | None = None
        """None: it was not located yet."""
        self._first: int | None = None
        self._position = 0
        self._filled_before = 0
        self._doubtful: list[tuple[int, int]] = []
        """End offset and size of batches whose answers were not believed: the next position says which are there."""

    def located(self, offset: int, filled: int, holes_from: int) -> int:
        """The destination's log ends at ``offset``, with nothing but markers from ``holes_from`` on; ``filled`` offsets
        of it were filled from here so far.

        Returns:
            Offsets that were filled without an answer, since the position was last known.
        """
        unseen = 0
        if self._first is None:
            self._first, self._filled_before = offset, filled
            self.origin = Origin(offset, holes_from, time.monotonic())
        else:
            # The destination lost what it had acknowledged: it is copied again, and counted again.
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
        """The position is not known any more: neither what is under way nor what waits counts as replicated."""
        self._position = end = acknowledged
        for batch in in_flight:
            end += batch[2]
            if batch[0]:
                self._take_back(_size(batch))
                self._doubtful.append((end, _size(batch)))
        self.returned(outbox)

    def returned(self, outbox: Iterable[Any]) -> None:
        """These were put on their way, and are not any more: they will be fetched again."""
        for batch in outbox:
            if batch[0]:
                self._take_back(_size(batch))

    def _take_back(self, size: int) -> None:
        self.put_batches -= 1
        self.put_bytes -= size

    def counts(self, acknowledged: int, filled: int, waiting: Iterable[Outbox]) -> Counts:
        """What is at the destination. ``waiting``: the queues of batches that are not acknowledged yet."""
        if self._first is None:
            return Counts()
        position = acknowledged if acknowledged >= 0 else self._position
        batches, size = self.put_batches, self.put_bytes
        for waits in [queue.sizes() for queue in waiting] if acknowledged >= 0 else ():
            batches -= waits[0]
            size -= waits[1]
        return Counts(max(0, position - self._first - (filled - self._filled_before)), batches, size)


def _size(batch: Any) -> int:
    return HEADER_SIZE + len(batch[1])
