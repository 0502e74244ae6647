"""How long Produce requests take, how large they are, and how old records are when they are sent and when the
destination has them.

Of requests that are sent together the last one is looked at, and one batch of it, by its header: nothing is opened, and
that costs a few microseconds. Records' times are their producers' (or the source broker's): a clock that is wrong there
is wrong here.
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
    """The times of a lane's requests under way, the oldest first."""

    __slots__ = ("_durations", "_sent", "_stats")

    def __init__(self, durations: RequestDurations, stats: Stats) -> None:
        self._durations = durations
        self._stats = stats
        self._sent: deque[tuple[float, int]] = deque()
        """Of each: when it was sent (``since_boot``), and its newest record's time in ms; -1: not looked at."""

    def sent(self, requests: Sequence[SentRequest]) -> None:
        """Notes that these are sent now. The records of the last one are looked at: only of that one it is certain that
        its batch is its partition's newest under way."""
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
        """Counts the oldest one, which is answered now. Returns when it was sent (``since_boot``)."""
        sent_at, newest = self._sent.popleft()
        self._durations.note("Produce", since_boot() - sent_at)
        if newest >= 0:
            self._stats.replication_latency.note(_since(newest))
        return sent_at

    def failed(self) -> None:
        """Forgets the oldest one, which will not be answered."""
        self._sent.popleft()


def _since(timestamp_ms: int) -> float:
    """Returns the seconds since then; 0 if that is in the future."""
    return max(0.0, time.time() - timestamp_ms / 1000)
