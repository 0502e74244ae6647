"""How much of a broker's backlog is fetched at the same time.

Near a broker, one Fetch at a time is enough: the broker works on the next response while this one is forwarded. Over a
long link, nothing arrives for a round trip after each request. Then more of the backlog has to be requested at a time.
One way is several Fetch requests for disjoint partitions, each over its own connection (a broker works on one request
per connection, and its socket buffer limits what a connection carries per round trip). The other way is larger
responses. Only these help a single partition, because the offset to fetch next is known only from the response before.

Both grow while the measured time without data is longer than the time in which data arrive, and go back when there is
no backlog any more. Memory grows with them, up to ``most_buffer_memory``.
"""

from collections import deque

from mirror.net.buffers import OVERHEAD, FramePool
from mirror.relay.settings import RelaySettings

LONG_S = 0.010
"""A link is long if no response begins sooner than this: more than a round trip between data centres of one region."""
LEAST_FETCH = 512 * 1024
"""Bytes to request from a broker with little data. Its fetch may wait there for long with room reserved for the
response, and there may be many such brokers."""
MOST_DEPTH = 4
"""Most outstanding Fetch requests for backlog to one broker."""
FAR, FAST = 8, 4
"""If a link was idle for ``FAR`` times as long as data arrived, responses grow by the factor ``FAST`` at once;
otherwise by two."""
SAMPLES = 8
"""Full responses that are measured before something grows. The shortest wait counts, so that a broker that is busy for
a moment does not seem far away. With three samples, a nearby broker that had just started did: the worker used 10 to 20
MB more for nothing."""


class Sizes:
    """The sizes for one source broker, in bytes except for ``depth``."""

    def __init__(self, settings: RelaySettings, pool: FramePool) -> None:
        self._settings = settings
        self._pool = pool
        self._stretch = 1
        self._waits: deque[float] = deque(maxlen=SAMPLES)
        self._transfers: deque[float] = deque(maxlen=SAMPLES)
        self.depth = 1
        """Number of requests for backlog that may be outstanding."""

    @property
    def most_bytes(self) -> int:
        """Most bytes to request at a time."""
        settings = self._settings
        return min(settings.fetch_max_bytes * self._stretch, max(settings.fetch_max_bytes, settings.most_fetch_bytes))

    @property
    def most_partition_bytes(self) -> int:
        """Most bytes to request for one partition."""
        settings = self._settings
        least = settings.max_partition_fetch_bytes
        return min(least * self._stretch, max(least, settings.most_partition_fetch_bytes))

    def answered(self, wait_s: float, transfer_s: float, *, others: bool) -> None:
        """Takes the times of a response that had about as much as was requested. Grows if the link was idle for most of
        the time.

        Args:
            wait_s: time from the request until the response began.
            transfer_s: time from there until it was complete.
            others: True if more than one partition is behind, so that several requests can share them.
        """
        self._waits.append(wait_s)
        self._transfers.append(transfer_s)
        if len(self._waits) < SAMPLES:
            return
        wait_s, transfer_s = min(self._waits), min(self._transfers)
        if wait_s >= LONG_S and self.depth * transfer_s < wait_s:
            self._grow(FAST if wait_s >= FAR * self.depth * transfer_s else 2, others=others)

    def _grow(self, times: int, *, others: bool) -> None:
        before, stretch = (self.most_bytes, self.most_partition_bytes), self._stretch
        if others and self.depth < MOST_DEPTH:
            self.depth += 1
        else:
            self._stretch *= times
            most = max(self._settings.buffer_memory, self._settings.most_buffer_memory)
            while self._stretch > stretch and self._needed > most:
                self._stretch //= 2  # larger responses are slower if they have to wait for each other's memory
            if (self.most_bytes, self.most_partition_bytes) == before:
                self._stretch = stretch  # both are as large as they may be
                return
        self._waits.clear()
        self._transfers.clear()
        self._pool.lend(self, max(0, self._needed - self._settings.buffer_memory))

    @property
    def _needed(self) -> int:
        """Bytes for the outstanding requests, for a response that is being forwarded, and for what is left to fresh
        data."""
        return (self.depth + 1) * (self.most_bytes + OVERHEAD) + LEAST_FETCH + OVERHEAD

    def reset(self) -> None:
        """Goes back to the least sizes, because there is no backlog any more. The next backlog is measured again; the
        extra memory is given back."""
        if self.depth == 1 and self._stretch == 1:
            return
        self.depth = self._stretch = 1
        self._waits.clear()
        self._transfers.clear()
        self._pool.lend(self, 0)
