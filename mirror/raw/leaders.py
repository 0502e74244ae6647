"""Finds the leaders of partitions, and waits for them until the caller's deadline."""

import asyncio

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused
from mirror.net.logs import leader_requests
from mirror.net.metadata import Leader, no_leader, not_described
from mirror.net.rights import DENIED
from mirror.raw.errors import BrokerError, Unavailable, UnknownTopic, heals, of_network
from mirror.wire.errors import ErrorCode, error_name

UNKNOWN_FOR_S = 5.0
"""A topic that is unknown for this long does not exist. (Brokers learn of a new topic later than the controller.)"""


def backoff_of(cluster: Cluster) -> Backoff:
    """Returns a new ``Backoff`` with the cluster's settings."""
    options = cluster.options
    return Backoff(least_ms=options.backoff_ms, most_ms=min(1_000, options.backoff_max_ms))


class Leaders:
    """The leaders of one cluster's partitions. To be used in the event loop's thread."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._unknown_since: dict[tuple[str, int], float] = {}
        """Partition that is not in the metadata -> since when (the event loop's time)."""

    async def find(self, topic: str, index: int, *, until: float, anew: bool = False) -> Leader:
        """Returns a partition's leader.

        Args:
            topic: the topic's name.
            index: the partition's number.
            until: when to give up, by the event loop's clock.
            anew: True to refresh the metadata first, because the known leader may be wrong.

        Raises:
            UnknownTopic: there is no such topic or partition.
            NotAuthorized: the client may not describe the topic.
            NotAuthenticated: the brokers do not accept this client.
            Unavailable: the partition has no leader, or no broker answers.
        """
        now = asyncio.get_running_loop().time
        backoff = backoff_of(self._cluster)
        while True:
            leader = None if anew else self._cluster.leader(topic, index)
            if leader is not None:
                self._unknown_since.pop((topic, index), None)
                return leader
            anew = False
            try:
                problem = self.lack(topic, index, await self._cluster.refresh([topic]))
            except NetworkError as error:
                if not heals(error):
                    raise of_network(error) from error
                problem = of_network(error)
            if problem is None:
                continue
            if not isinstance(problem, Unavailable) or now() >= until:
                raise problem
            await asyncio.sleep(backoff.next_s())

    async def list_offset(self, topic: str, index: int, timestamp: int, *, until: float, committed: bool) -> int:
        """Returns a partition's offset for ``timestamp``; -1 if no record has this timestamp or a later one.

        Args:
            topic: the topic's name.
            index: the partition's number.
            timestamp: ms since 1970, or EARLIEST, LATEST.
            until: when to give up, by the event loop's clock.
            committed: True if LATEST means the last stable offset.

        Raises:
            BrokerError: as ``find``, and if the leader does not answer.
        """
        now = asyncio.get_running_loop().time
        backoff = backoff_of(self._cluster)
        anew = False
        while True:
            leader = await self.find(topic, index, until=until, anew=anew)
            try:
                return await leader_requests.list_offset(
                    self._cluster, topic, index, leader, timestamp, committed=committed
                )
            except NetworkError as error:
                denied = isinstance(error, Refused) and error.code in DENIED
                if not heals(error) or denied or now() >= until:
                    raise of_network(error) from error
            anew = True
            await asyncio.sleep(backoff.next_s())

    def lack(self, topic: str, index: int, failed: dict[str, int]) -> BrokerError | None:
        """Returns the error for a partition that has no leader by the newest metadata; None if it has one. For
        ``UNKNOWN_FOR_S``, an unknown topic is only ``Unavailable``.

        Args:
            topic: the topic's name.
            index: the partition's number.
            failed: what ``Cluster.refresh`` returned.
        """
        problem = self._lack(topic, index, failed)
        if not isinstance(problem, UnknownTopic):
            self._unknown_since.pop((topic, index), None)
            return problem
        now = asyncio.get_running_loop().time()
        since = self._unknown_since.setdefault((topic, index), now)
        return problem if now - since >= UNKNOWN_FOR_S else Unavailable(str(problem), problem.code)

    def _lack(self, topic: str, index: int, failed: dict[str, int]) -> BrokerError | None:
        cluster = self._cluster
        if cluster.leader(topic, index) is not None:
            return None
        known, code = cluster.topics.get(topic), failed.get(topic, 0)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic in cluster.denied:
            return of_network(not_described(cluster.name, topic))
        if known is not None and index not in known.leaders:
            return UnknownTopic(no_partition(topic, index, len(known.leaders)), unknown)
        if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            return UnknownTopic(f"{topic!r} is no name of a topic; check its spelling", code)
        if known is None and code in (0, unknown):
            told = f"{cluster.name} has no topic {topic}"
            return UnknownTopic(f"{told}; create it, or check its name and bootstrap.servers", unknown)
        if code:
            return Unavailable(f"{cluster.name}: Metadata of {topic}: {error_name(code)}", code)
        return of_network(no_leader(cluster.name, topic, index, known))


def no_partition(topic: str, index: int, count: int) -> str:
    """Returns the message for a partition that a topic of ``count`` partitions does not have."""
    return (
        f"{topic} has {count} partitions, counted from 0, and no partition {index}; name one of them, or add partitions"
    )
