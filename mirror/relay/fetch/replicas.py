"""Fetches from a nearer follower where the source's leader names one (KIP-392).

Positions are always located at the leader. A follower is only fetched from, and only while all is well: after any
doubt, the leader is fetched from again. A leader that is told a rack gives no data of a partition for which it prefers
a follower. So after a doubt, it is told no rack for a while. Followers serve what is below their high watermark, which
is a moment behind the leader's.
"""

import math
import time
from collections.abc import Callable, Iterable

from mirror.net.cluster import Cluster
from mirror.relay.events import EventLog
from mirror.relay.partition.cursor import NO_REPLICA
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase

ASK_AGAIN_S = 300.0
"""A follower is left after this time, so that the leader can name another one: Kafka's default for consumers
(``metadata.max.age.ms``). After a doubt, the leader is fetched from for the same time."""


class Replicas:
    """Decides which partitions are fetched from followers."""

    def __init__(
        self,
        source: Cluster,
        rack: str,
        log: EventLog,
        *,
        detach: Callable[[Partition], None],
        attach: Callable[[Partition], None],
    ) -> None:
        """
        Args:
            source: the source cluster.
            rack: the rack of this process; empty: no follower is asked for.
            log: gets an event for each change.
            detach: stops fetching a partition from the broker of its cursor.
            attach: begins to fetch a partition from the broker of its cursor.
        """
        self._source = source
        self._rack = rack
        self._only_leader_until: dict[int, float] = {}
        self._log = log
        self._detach, self._attach = detach, attach

    def rack_for(self, node_id: int) -> str:
        """Returns the rack to name in requests to this broker; empty: the broker is to serve the data itself."""
        return "" if time.monotonic() < self._only_leader_until.get(node_id, -math.inf) else self._rack

    def prefer(self, partition: Partition, node_id: int) -> None:
        """Fetches from this follower from now on, since the partition's leader says that it is nearer. If the follower
        is not known, the leader is told no rack for a while."""
        cursor = partition.cursor
        if not self.rack_for(cursor.leader):
            return
        if node_id not in self._source.nodes:
            self._stay_at(cursor.leader)
            return
        self._detach(partition)
        cursor.follow(node_id, time.monotonic() + ASK_AGAIN_S)
        self._attach(partition)
        self._log.info("replica_followed", topic=partition.topic, partition=partition.index, broker=node_id)

    def doubted(self, partition: Partition) -> None:
        """Goes back to the leader, since the partition came into doubt. It must be detached already."""
        cursor = partition.cursor
        if cursor.replica != NO_REPLICA:
            left = cursor.replica
            cursor.leave()
            self._stay_at(cursor.leader)
            self._log.info("replica_left", topic=partition.topic, partition=partition.index, broker=left, cause="doubt")

    def _stay_at(self, leader: int) -> None:
        self._only_leader_until[leader] = time.monotonic() + ASK_AGAIN_S

    def renew(self, partitions: Iterable[Partition]) -> None:
        """Goes back to the leaders for partitions that were fetched from a follower for ``ASK_AGAIN_S``, so that the
        leaders can name a follower again."""
        now = time.monotonic()
        for partition in partitions:
            cursor = partition.cursor
            if cursor.replica != NO_REPLICA and now >= cursor.followed_until and partition.phase is Phase.ACTIVE:
                self._detach(partition)
                cursor.leave()
                self._attach(partition)
