"""``max.bytes.per.second``: how much is fetched, of a flow and of each topic.

A limit is a bucket of bytes that fills at its rate. A fetch may take more than is in it, because the size of its answer
is not known before; what is owed has to be paid back before the next fetch. Of several workers, each has the share of
the limit that its partitions are of the flow's (or the topic's).
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable

from mirror.relay.partition.partition import Partition

FULL_S = 1.0
"""A bucket holds what comes within this time: a flow that was idle may fetch that much at once."""
URGENT_S = 1.0
"""Fresh data is fetched while less than this is owed. So a backlog, which waits until nothing is owed, gives way."""
LEAST_BYTES = 1


class Limit:
    """One bucket. Times are in seconds."""

    def __init__(self, rate: float) -> None:
        """``rate``: bytes per second."""
        self._rate = rate
        self._level = rate * FULL_S
        self._at_s = time.monotonic()

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self._rate

    def change(self, rate: float) -> None:
        """From now on the bucket fills at this rate."""
        self._fill()
        self._rate = rate
        self._level = min(self._level, rate * FULL_S)

    def take(self, size: int) -> None:
        """Counts ``size`` bytes that came."""
        self._fill()
        self._level -= size

    def owed_s(self, grace_s: float = 0.0) -> float:
        """Returns how long to wait until no more is owed than what comes within ``grace_s``; 0: no time."""
        self._fill()
        return max(0.0, -self._level / self._rate - grace_s)

    def _fill(self) -> None:
        now = time.monotonic()
        self._level = min(self._level + (now - self._at_s) * self._rate, self._rate * FULL_S)
        self._at_s = now


class Limits:
    """Those of a flow in one worker. Without any, nothing is counted."""

    def __init__(self, flow: int, topic: Callable[[str], int] | None) -> None:
        """
        Args:
            flow: bytes per second for all of the flow's workers; 0: no limit.
            topic: returns the same for a topic; None: no topic has a limit.
        """
        self._topics: dict[str, Limit | None] = {}
        self.renew(flow, topic)

    def renew(self, flow: int, topic: Callable[[str], int] | None) -> None:
        """Other limits hold from now on, beginning with full buckets: what was owed under a low limit would keep a
        higher one from having an effect. Arguments as for the class; call ``share`` next."""
        self._of_flow, self._of_topic = flow, topic or _unlimited
        self._flow = Limit(flow) if flow else None
        self._topics = {}
        self._any = bool(flow) or topic is not None

    def share(self, own: Iterable[tuple[str, int]], every: Iterable[tuple[str, int]]) -> None:
        """Adapts the limits to the worker's share of the partitions.

        Args:
            own: topic and index of the worker's partitions.
            every: those of all partitions of the flow.
        """
        mine, all_ = Counter(topic for topic, _ in own), Counter(topic for topic, _ in every)
        if self._flow is not None:
            self._flow.change(_part(self._of_flow, mine.total(), all_.total()))
        for topic in mine:
            limit = self.of(topic)
            if limit is not None:
                limit.change(_part(self._of_topic(topic), mine[topic], all_[topic]))

    def of(self, topic: str) -> Limit | None:
        """Returns the topic's limit."""
        if topic not in self._topics:
            rate = self._of_topic(topic)
            self._topics[topic] = Limit(rate) if rate else None
        return self._topics[topic]

    @property
    def any(self) -> bool:
        """True if there may be a limit."""
        return self._any

    def came(self, partition: Partition, size: int) -> None:
        """So many bytes of the partition came."""
        if self._flow is not None:
            self._flow.take(size)
        limit = self.of(partition.topic)
        if limit is not None:
            limit.take(size)

    def wait_s(self, *, urgent: bool) -> float:
        """Returns how long to wait before the next fetch; 0: no time. ``urgent``: it is for fresh data."""
        return 0.0 if self._flow is None else self._flow.owed_s(URGENT_S if urgent else 0.0)

    def split(self, partitions: Iterable[Partition]) -> tuple[list[Partition], float]:
        """Returns the partitions whose topics need not wait, and how long the others have to wait at least; infinite:
        there are no others."""
        owed = {topic: limit.owed_s() for topic, limit in self._topics.items() if limit is not None}
        may: list[Partition] = []
        least_s = math.inf
        for partition in partitions:
            if wait_s := owed.get(partition.topic):
                least_s = min(least_s, wait_s)
            else:
                may.append(partition)
        return may, least_s

    def most_bytes(self, most: int) -> int:
        """Returns the bytes to request, up to ``most``: what comes within half a second, so that a low limit is not
        used up in one go."""
        return most if self._flow is None else max(LEAST_BYTES, min(most, int(self._flow.rate / 2)))

    def most_of(self, partition: Partition, most: int) -> int:
        """As ``most_bytes``, for the partition's topic."""
        limit = self.of(partition.topic)
        return most if limit is None else max(LEAST_BYTES, min(most, int(limit.rate / 2)))


def _unlimited(topic: str) -> int:
    return 0


def _part(rate: int, mine: int, all_: int) -> float:
    """Returns the part of the rate for ``mine`` of ``all_`` partitions. At least one byte per second."""
    return max(float(LEAST_BYTES), rate * mine / max(mine, all_))
