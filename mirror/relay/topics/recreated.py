"""Notices, by topic ids, that a topic was deleted and created again while it is copied.

Requests with topic names (Fetch before Kafka 3.1, Produce before 4.1) go on with any topic of that name, and if nothing
is due, nothing is sent at all. So the ids of both clusters' topics are asked for regularly, with one Metadata request
to each cluster. A partition with a recreated topic comes into doubt. Locating it decides how it goes on. One broker's
answer is not enough for that: it may not have heard yet of a topic that was recreated earlier.
"""

import asyncio
import time
from contextlib import suppress

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Unreachable
from mirror.offsetmap.fields import id_shown
from mirror.offsetmap.internal.topic import Shared
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.topics.describing import PATIENCE_S

LOOK_EVERY_S = 30.0
"""A look costs at most 20 µs of CPU per partition and side: with 5,000 partitions, less than a hundredth of a core."""
CAUSE = "recreated"
LEARN_EVERY_S = 3600.0
"""Least time between two times that a partition is located again because its topics have got ids."""


class _Told:
    """The ids that the brokers of a cluster give for one topic."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.ids: set[bytes] = set()
        self.silent = 0
        """The number of brokers that have not answered."""
        self.looks = Shared(self._look)
        self._cluster = cluster
        self._name = name

    async def _look(self) -> None:
        self.ids, self.silent = await self._cluster.ids_of(self._name, patience_s=PATIENCE_S)


class ToldIds:
    """Asks all brokers of a cluster for a topic's id: once for all partitions of the topic that need it."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], _Told] = {}

    async def check(self, cluster: Cluster, name: str) -> str:
        """Checks that no broker gives another id for the topic than the known one.

        Returns:
            How many brokers have not answered, in words; empty if all have.

        Raises:
            Unreachable: the brokers do not agree: some are behind, and it is not known which.
            NetworkError: no broker answers.
        """
        told = self._told.setdefault((cluster.name, name), _Told(cluster, name))
        await told.looks.run()
        topic = cluster.topics.get(name)
        known = {topic.topic_id} if topic is not None and topic.topic_id is not None else set()
        ids = sorted(map(id_shown, told.ids | known))
        if known and len(ids) > 1:
            raise Unreachable(
                f"the brokers of cluster {cluster.name} do not agree on topic {name}: they tell its id as "
                f"{' and '.join(ids)}; it was recreated, and some of them have not heard of that yet"
            )
        silent = f"{told.silent} of the brokers of cluster {cluster.name} have not said which id topic {name} has"
        return silent if told.silent else ""


class RecreatedTopics:
    """Watches the topic ids of all partitions of a process."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._learned_at: dict[Partition, float] = {}
        """When a partition was last located again to learn ids (monotonic). Times older than ``LEARN_EVERY_S`` are
        removed."""

    async def keep(self) -> None:
        """Looks regularly, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            relay = self._relay
            partitions = list(relay.partitions.values())
            for cluster, names in (
                (relay.source, {each.topic for each in partitions}),
                (relay.destination, {each.destination for each in partitions}),
            ):
                # A cluster that cannot be reached is reported elsewhere. The next look tries again.
                with suppress(NetworkError):
                    await cluster.refresh(sorted(names))
            self.compare()

    def compare(self) -> None:
        """Compares the known topic ids of both clusters with those with which the active partitions were located.
        Partitions whose topics have other ids come into doubt."""
        now = time.monotonic()
        self._learned_at = {each: at for each, at in self._learned_at.items() if now < at + LEARN_EVERY_S}
        for partition in list(self._relay.partitions.values()):
            if partition.phase is not Phase.ACTIVE:
                continue
            found = made_anew(partition, self._relay.source, self._relay.destination)
            if found:
                self._relay.doubt_now(partition, CAUSE, "; ".join(found))
            else:
                self._learn(partition)

    def _learn(self, partition: Partition) -> None:
        """Has the partition located again once its topics have ids that it does not know, because its clusters were
        upgraded to Kafka 2.8. What the topics hold shows that they are the ones that were copied. From then on, their
        ids show it. This is done at most every ``LEARN_EVERY_S``: while brokers are upgraded one by one, some give ids
        and others do not."""
        relay, claim = self._relay, partition.claim
        here, there = (
            topic.topic_id if (topic := cluster.topics.get(name)) is not None else None
            for cluster, name in ((relay.source, partition.topic), (relay.destination, partition.destination))
        )
        known = (claim.source_id or not here) and (claim.destination_id or not there)
        if known or partition in self._learned_at:
            return
        self._learned_at[partition] = time.monotonic()
        relay.doubt_now(partition, "id_unknown", "its topics have ids now, and had none when it was located")
        claim.identify(claim.source_id or here, claim.destination_id or there)


def made_anew(partition: Partition, source: Cluster, destination: Cluster) -> list[str]:
    """Returns a text with both ids for each of the partition's two topics that is known to have been recreated."""
    found = (
        another(source, partition.topic, partition.claim.source_id),
        another(destination, partition.destination, partition.claim.destination_id),
    )
    return [each for each in found if each]


def another(cluster: Cluster, name: str, known: bytes | None) -> str:
    """Returns a text with both ids if the topic has another id than ``known``. Empty if it has the same id, or if
    either id is not known."""
    topic = cluster.topics.get(name)
    if known is None or topic is None or topic.topic_id in (None, known):
        return ""
    return f"cluster {cluster.name}, topic {name}: id {id_shown(topic.topic_id)}, before {id_shown(known)}"
