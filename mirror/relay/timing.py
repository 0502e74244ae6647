"""Measures how long Produce requests take, how large they are, and how old records are when they are sent and when the
destination has acknowledged them.

Of requests that are sent together, only the last one is sampled, and only the header of one of its batches: that costs
a few microseconds. Timestamps of records are set by their producers (or by the source's broker), so an age is only as
right as their clocks.
"""

import time
from collections import deque
from collections.abc import Sequence

from mirror.net.health.histogram import RequestDurations
from mirror.relay.hot.gather import SentRequest
from mirror.relay.partition.clock import since_boot
from mirror.relay.partition.tally import size_of
from mirror.relay.stats import Stats
from mirror.wire.produce import max_timestamp_of

_UNKNOWN = -1


class SentTimes:
    """The send times of a lane's requests in flight, oldest first."""

    __slots__ = ("_durations", "_sent", "_stats")

    def __init__(self, durations: RequestDurations, stats: Stats) -> None:
        self._durations = durations
        self._stats = stats
        self._sent: deque[tuple[float, int]] = deque()
        """For each request: when it was sent (``since_boot``), and the timestamp of its newest sampled record in ms;
        -1: not sampled."""

    def sent(self, requests: Sequence[SentRequest]) -> None:
        """Notes that the requests are sent now, and samples the last one. Only for that one is it certain that a
        partition's newest batch in flight is the one in the request."""
        if not requests:
            return
        now = since_boot()
        self._sent.extend([(now, _UNKNOWN)] * (len(requests) - 1))
        taken, size, _ = requests[-1]
        batch = taken[0].in_flight[-1]
        stats = self._stats
        stats.batch_bytes.note(size_of(batch))
        stats.request_bytes.note(size)
        stats.request_batches.note(len(taken))
        newest = max_timestamp_of(batch[0])
        if newest >= 0:
            stats.record_age.note(_since(newest))
        self._sent.append((now, newest))

    def answered(self) -> float:
        """Records the duration of the oldest request, whose response has arrived. Returns when it was sent
        (``since_boot``)."""
        sent_at, newest = self._sent.popleft()
        self._durations.note("Produce", since_boot() - sent_at)
        if newest >= 0:
            self._stats.replication_latency.note(_since(newest))
        return sent_at

    def failed(self) -> None:
        """Forgets the oldest request, which will not be answered."""
        self._sent.popleft()


def _since(timestamp_ms: int) -> float:
    """Returns the seconds since ``timestamp_ms``; 0 if it is in the future."""
    return max(0.0, time.time() - timestamp_ms / 1000)
