"""``max.bytes.per.second``: limits on how much is fetched, for a flow and for each topic.

A limit is a bucket of bytes that fills at its rate. A fetch may take more than the bucket has, because the size of a
response is not known beforehand. The debt has to be paid back before the next fetch. Each worker has the share of the
limit that its partitions are of all the flow's (or topic's) partitions.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable

from mirror.relay.partition.partition import Partition

FULL_S = 1.0
"""A full bucket holds what comes in within this time, so a flow that was idle can fetch that much at once."""
URGENT_S = 1.0
"""Fresh data are fetched while the debt is less than what comes in within this time. A backlog waits until there is no
debt, so it gives way to fresh data."""
LEAST_BYTES = 1


class Limit:
    """One bucket."""

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
        """Sets the rate at which the bucket fills."""
        self._fill()
        self._rate = rate
        self._level = min(self._level, rate * FULL_S)

    def take(self, size: int) -> None:
        """Takes ``size`` bytes, which have arrived, out of the bucket."""
        self._fill()
        self._level -= size

    def owed_s(self, grace_s: float = 0.0) -> float:
        """Returns the seconds to wait until the debt is no more than what comes in within ``grace_s`` seconds; 0:
        none."""
        self._fill()
        return max(0.0, -self._level / self._rate - grace_s)

    def _fill(self) -> None:
        now = time.monotonic()
        self._level = min(self._level + (now - self._at_s) * self._rate, self._rate * FULL_S)
        self._at_s = now


class Limits:
    """The limits of a flow in one worker. Without any limit, nothing is counted."""

    def __init__(self, flow: int, topic: Callable[[str], int] | None) -> None:
        """
        Args:
            flow: bytes per second for all of the flow's workers; 0: no limit.
            topic: returns the same for a topic; None: no topic has a limit.
        """
        self._topics: dict[str, Limit | None] = {}
        self.renew(flow, topic)

    def renew(self, flow: int, topic: Callable[[str], int] | None) -> None:
        """Replaces all limits. Arguments as for the class. Call ``share`` next.

        The new buckets are full: a debt from a low limit would keep a higher one from taking effect.
        """
        self._of_flow, self._of_topic = flow, topic or _unlimited
        self._flow = Limit(flow) if flow else None
        self._topics = {}
        self._any = bool(flow) or topic is not None

    def share(self, own: Iterable[tuple[str, int]], every: Iterable[tuple[str, int]]) -> None:
        """Adapts the limits to the worker's share of the partitions.

        Args:
            own: topic and index of the worker's partitions.
            every: topic and index of all partitions of the flow.
        """
        mine, all_ = Counter(topic for topic, _ in own), Counter(topic for topic, _ in every)
        if self._flow is not None:
            self._flow.change(_part(self._of_flow, mine.total(), all_.total()))
        for topic in mine:
            limit = self.of(topic)
            if limit is not None:
                limit.change(_part(self._of_topic(topic), mine[topic], all_[topic]))

    def of(self, topic: str) -> Limit | None:
        """Returns the topic's limit; None: it has none."""
        if topic not in self._topics:
            rate = self._of_topic(topic)
            self._topics[topic] = Limit(rate) if rate else None
        return self._topics[topic]

    @property
    def any(self) -> bool:
        """True if there may be a limit."""
        return self._any

    def came(self, partition: Partition, size: int) -> None:
        """Counts ``size`` bytes of the partition that have arrived."""
        if self._flow is not None:
            self._flow.take(size)
        limit = self.of(partition.topic)
        if limit is not None:
            limit.take(size)

    def wait_s(self, *, urgent: bool) -> float:
        """Returns the seconds to wait before the next fetch; 0: none. ``urgent``: True if it is for fresh data."""
        return 0.0 if self._flow is None else self._flow.owed_s(URGENT_S if urgent else 0.0)

    def split(self, partitions: Iterable[Partition]) -> tuple[list[Partition], float]:
        """Splits the partitions by whether their topic's limit allows fetching them now.

        Returns:
            The partitions that can be fetched, and the least time in seconds that any other has to wait; infinite:
            there is no other.
        """
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
        """Returns the bytes to request, at most ``most``: what comes in within half a second, so that a low limit is
        not used up at once."""
        return most if self._flow is None else max(LEAST_BYTES, min(most, int(self._flow.rate / 2)))

    def most_of(self, partition: Partition, most: int) -> int:
        """As ``most_bytes``, by the limit of the partition's topic."""
        limit = self.of(partition.topic)
        return most if limit is None else max(LEAST_BYTES, min(most, int(limit.rate / 2)))


def _unlimited(topic: str) -> int:
    return 0


def _part(rate: int, mine: int, all_: int) -> float:
    """Returns the part of the rate for ``mine`` of ``all_`` partitions, at least one byte per second."""
    return max(float(LEAST_BYTES), rate * mine / max(mine, all_))
