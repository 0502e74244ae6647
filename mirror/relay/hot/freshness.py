"""Tells whether the destination still knows the producer of a partition's last batch. Only then may several be in
flight.

A broker drops its entry of a producer id once the last batch that it appended for the id is older, by the timestamps of
its records, than ``producer.id.expiration.ms`` (Kafka's ProducerStateManager). It has no entry of an id that has not
written yet. Without an entry, it takes any first sequence: if batches k and k + 1 are in flight and k is refused, for
any reason, k + 1 lands in k's place. So more than one batch is sent only if the entry will be there whichever batch in
flight is the last to be appended: the last acknowledged batch has this very id and is fresh, and so are all batches
behind it.

If the destination's broker puts its own times into batches (``destination.timestamps: append``), these count instead of
the records'. The mirror goes by the older of the two (``counted_ms``), because the topic's config may change back.
"""

import time
from collections import deque

UNKNOWN_MS = -1 << 63
"""Older than any time: no batch was acknowledged under this producer id since the position was found."""


def now_ms() -> int:
    """Returns this host's clock, in ms since 1970."""
    return time.time_ns() // 1_000_000


def counted_ms(timestamp_ms: int, *, append_times: bool) -> int:
    """Returns a time that is not later than the one that the destination takes for the batch.

    Args:
        timestamp_ms: the batch's own timestamp.
        append_times: True if the broker may replace it by the time of the append, which is still to come. Then the
            present time counts if it is earlier.
    """
    return min(timestamp_ms, now_ms()) if append_times else timestamp_ms


_Put = tuple[int, int, int]
"""The batches of a record set: the offset behind the last batch, the timestamps of the oldest and of the last batch."""


class Freshness:
    """Max timestamps of one partition's batches, in ms since 1970: of the last acknowledged batch and those behind it.

    They are kept per record set, so that acknowledgements cost nothing. All results are lower bounds.
    """

    __slots__ = ("_last_ms", "_sets", "bound_ms")

    def __init__(self) -> None:
        self._last_ms = UNKNOWN_MS
        self._sets: deque[_Put] = deque()
        self.bound_ms = UNKNOWN_MS
        """A lower bound of ``least_ms`` that is known without looking at the record sets."""

    def put(self, acknowledged: int, next_offset: int, oldest_ms: int, last_ms: int) -> None:
        """Adds a record set whose batches were put into the outbox.

        Args:
            acknowledged: everything below this offset is at the destination.
            next_offset: the offset behind the last batch.
            oldest_ms: timestamp of the oldest batch.
            last_ms: timestamp of the last batch.
        """
        sets = self._sets
        while sets and sets[0][0] <= acknowledged:  # as _pass, but without a call: this runs for every record set
            _, _, self._last_ms = sets.popleft()
        sets.append((next_offset, oldest_ms, last_ms))
        if oldest_ms < self.bound_ms:
            self.bound_ms = oldest_ms

    def least_ms(self, acknowledged: int) -> int:
        """Returns the oldest timestamp that the destination's entry of the producer id has now, or may get from batches
        that are not acknowledged yet."""
        self._pass(acknowledged)
        least_ms = self._last_ms
        for _, oldest_ms, _ in self._sets:
            if oldest_ms < least_ms:
                least_ms = oldest_ms
        self.bound_ms = least_ms
        return least_ms

    def waits_older(self, than_ms: float) -> bool:
        """Returns True if a batch that is not acknowledged may be older than this. The last acknowledged batch does not
        matter then."""
        return any([oldest_ms < than_ms for _, oldest_ms, _ in self._sets])

    def appended(self, acknowledged: int, last_ms: int) -> None:
        """Notes that the batch that ends at ``acknowledged``, with timestamp ``last_ms``, was the last to be
        appended."""
        self._pass(acknowledged)
        self._last_ms = last_ms
        self.bound_ms = min(self.bound_ms, last_ms)

    def another_id(self, acknowledged: int) -> None:
        """Notes that the destination has no entry of the producer id of the batches that follow."""
        self._pass(acknowledged)
        self._last_ms = self.bound_ms = UNKNOWN_MS

    def returned(self, acknowledged: int, due: int) -> None:
        """Removes the batches from ``due`` on, which will be fetched again."""
        self._pass(acknowledged)
        sets, cut_ms = self._sets, None
        while sets and sets[-1][0] > due:
            _, cut_ms, _ = sets.pop()
        if cut_ms is not None:
            before_ms = sets[-1][2] if sets else self._last_ms
            # Perhaps no batch of this record set is left. Then the last batch is that of the set before.
            sets.append((due, cut_ms, min(cut_ms, before_ms)))

    def clear(self) -> None:
        """Begins at another position: nothing waits, and nothing was acknowledged there yet."""
        self._last_ms = self.bound_ms = UNKNOWN_MS
        self._sets.clear()

    def _pass(self, acknowledged: int) -> None:
        sets = self._sets
        while sets and sets[0][0] <= acknowledged:
            _, _, self._last_ms = sets.popleft()
