"""Writes dead letters: records that are too large for the destination topic are appended to another topic there."""

from mirror.net.cluster import Cluster
from mirror.net.errors import Refused
from mirror.net.logs.log import PartitionLog
from mirror.net.metadata import no_leader, not_described
from mirror.reasons import HaltReason
from mirror.relay.halts import PartitionHalted, halt, halted_by_lack
from mirror.wire.errors import Reaction, outcome_of


class DeadLetters:
    """The dead letter topic of a flow."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._is_known = False
        """True if the last letter was written with the current metadata."""

    async def write(self, index: int, batch: bytes) -> str:
        """Appends a batch, acknowledged by all replicas in sync. If a response is lost, the letter may be written
        twice.

        Args:
            index: the source partition's index. All letters of a partition go to the same partition, so that they stay
                in order.
            batch: the letter.

        Returns:
            Where the letter stands, for messages.

        Raises:
            PartitionHalted: the topic does not exist, or does not take the letter.
            NetworkError: it is not certain that the letter was written; try again.
        """
        log = await self._log(index)
        try:
            self._is_known = False
            offset = await log.produce(batch)
        except Refused as error:
            if error.lacks is not None:
                raise PartitionHalted(halted_by_lack(str(error), error.lacks)) from error
            if outcome_of(error.code) is Reaction.HALT:
                raise halt(
                    HaltReason.DEAD_LETTER, f"{error}: a dead letter of {len(batch)} bytes for {self._topic}"
                ) from error
            raise
        self._is_known = True
        return f"{self._topic}-{log.index} at offset {offset}"

    async def _log(self, index: int) -> PartitionLog:
        """Returns the log at its current leader.

        Raises:
            PartitionHalted: the topic does not exist, or may not be described.
            NetworkError: the partition has no leader, or the cluster does not answer.
        """
        cluster, name = self._cluster, self._topic
        if not self._is_known or name not in cluster.topics:
            await cluster.refresh([name])
        topic = cluster.topics.get(name)
        if topic is None and name in cluster.denied:
            error = not_described(cluster.name, name)
            assert error.lacks is not None
            raise PartitionHalted(halted_by_lack(str(error), error.lacks))
        if topic is None or not topic.leaders:
            raise halt(HaltReason.DEAD_LETTER, f"cluster {cluster.name} has no topic {name}")
        partition = sorted(topic.leaders)[index % len(topic.leaders)]
        leader = cluster.leader(name, partition)
        if leader is None:
            raise no_leader(cluster.name, name, partition, topic)
        return PartitionLog(cluster, topic, partition, leader)
