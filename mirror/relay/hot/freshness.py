"""Whether the destination still knows who sent a partition's last batch: then several batches may be under way.

A broker drops its entry of a producer id once the last batch that it appended for it is older, by the times of its
records, than ``producer.id.expiration.ms`` (Kafka's ProducerStateManager), and has none of an id that has written
nothing yet. Without an entry it takes any first sequence: with batches k and k + 1 under way and k refused, for
whatever reason, k + 1 lands in k's place. So more than one is sent only while the entry is there, whichever of those
under way is the last to be appended: the newest acknowledged one is of this very id and fresh, and so is all behind it.
"""

from collections import deque

UNKNOWN_MS = -1 << 63
"""Older than any: nothing was acknowledged under this producer id since the position was found."""


_Put = tuple[int, int, int]
"""A record set's batches: the offset behind the last of them, the times of the oldest and of the last."""


class Freshness:
    """Of one partition. Newest timestamps of batches, in ms since 1970, up to and behind the last acknowledged one.

    Kept per record set, so that acknowledgements cost nothing: what is told is a lower bound.
    """

    __slots__ = ("_last_ms", "_sets", "bound_ms")

    def __init__(self) -> None:
        self._last_ms = UNKNOWN_MS
        self._sets: deque[_Put] = deque()
        self.bound_ms = UNKNOWN_MS
        """Not above ``least_ms``, and known without a look at the record sets."""

    def put(self, acknowledged: int, next_offset: int, oldest_ms: int, last_ms: int) -> None:
        """A record set's batches are on their way: the offset behind the last, the times of the oldest and of the
        last. ``acknowledged``: all below this offset is at the destination."""
        sets = self._sets
        while sets and sets[0][0] <= acknowledged:  # as _pass, without the call: this is the path of every record set
            _, _, self._last_ms = sets.popleft()
        sets.append((next_offset, oldest_ms, last_ms))
        if oldest_ms < self.bound_ms:
            self.bound_ms = oldest_ms

    def least_ms(self, acknowledged: int) -> int:
        """The oldest time that the destination's entry of the producer id has now, or may have while what is on its way
        arrives."""
        self._pass(acknowledged)
        least_ms = self._last_ms
        for _, oldest_ms, _ in self._sets:
            if oldest_ms < least_ms:
                least_ms = oldest_ms
        self.bound_ms = least_ms
        return least_ms

    def waits_older(self, than_ms: float) -> bool:
        """Whether something on its way is older. What was acknowledged last is then of no use to know."""
        return any([oldest_ms < than_ms for _, oldest_ms, _ in self._sets])

    def appended(self, acknowledged: int, last_ms: int) -> None:
        """The batch that ends at ``acknowledged`` is the last that was appended, and of the time ``last_ms``."""
        self._pass(acknowledged)
        self._last_ms = last_ms
        self.bound_ms = min(self.bound_ms, last_ms)

    def another_id(self, acknowledged: int) -> None:
        """What follows has a producer id of which the destination has no entry."""
        self._pass(acknowledged)
        self._last_ms = self.bound_ms = UNKNOWN_MS

    def returned(self, acknowledged: int, due: int) -> None:
        """What is on its way from ``due`` on is fetched again."""
        self._pass(acknowledged)
        sets, cut_ms = self._sets, None
        while sets and sets[-1][0] > due:
            _, cut_ms, _ = sets.pop()
        if cut_ms is not None:
            before_ms = sets[-1][2] if sets else self._last_ms
            # Perhaps nothing is left of it: then the last one is the one before.
            sets.append((due, cut_ms, min(cut_ms, before_ms)))

    def clear(self) -> None:
        """Another position: nothing is on its way, and nothing was acknowledged from here."""
        self._last_ms = self.bound_ms = UNKNOWN_MS
        self._sets.clear()

    def _pass(self, acknowledged: int) -> None:
        sets = self._sets
        while sets and sets[0][0] <= acknowledged:
            _, _, self._last_ms = sets.popleft()
