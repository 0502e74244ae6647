"""A topic that is deleted and made anew while it is copied: seen by its id.

Requests that name a topic (Fetch before Kafka 3.1, Produce before 4.1) go on with whichever has the name, and where
nothing is due nothing is sent at all. So the ids of both clusters' topics are asked for now and then: one Metadata
request to each cluster. A partition one of whose topics is another by now is in doubt; the look at its position says
what becomes of it.
"""

import asyncio
from contextlib import suppress

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.offsetmap.fields import id_shown
from mirror.relay.owner import Owner
from mirror.relay.partition import Partition
from mirror.relay.phases import Phase

LOOK_EVERY_S = 30.0
"""A look costs at most 20 µs of CPU a partition and side: with 5,000, less than a hundredth of a core."""
CAUSE = "recreated"


class Ids:
    """Of the topics of all partitions of a process."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def keep(self) -> None:
        """Looks regularly, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            owner = self._owner
            # All of them: whoever seeks a position goes by when a cluster was asked last (``Cluster.refreshed_at``).
            partitions = list(owner.partitions.values())
            for cluster, names in (
                (owner.source, {each.topic for each in partitions}),
                (owner.destination, {each.destination for each in partitions}),
            ):
                # A cluster that is away is told elsewhere; the next look tries again.
                with suppress(NetworkError):
                    await cluster.refresh(sorted(names))
            self.compare()

    def compare(self) -> None:
        """What is known of both clusters' topics with what the active partitions were located in."""
        for partition in list(self._owner.partitions.values()):
            if partition.phase is not Phase.ACTIVE:
                continue
            found = made_anew(partition, self._owner.source, self._owner.destination)
            if found:
                self._owner.doubt_now(partition, CAUSE, "; ".join(found))


def made_anew(partition: Partition, source: Cluster, destination: Cluster) -> list[str]:
    """Those of the partition's topics that are others than they were, as far as is known: each with both ids."""
    found = (
        another(source, partition.topic, partition.source_id),
        another(destination, partition.destination, partition.destination_id),
    )
    return [each for each in found if each]


def another(cluster: Cluster, name: str, known: bytes | None) -> str:
    """What is to be said where the topic has another id than ``known``; else empty, also where either is not known."""
    topic = cluster.topics.get(name)
    if known is None or topic is None or topic.topic_id in (None, known):
        return ""
    return f"cluster {cluster.name}, topic {name}: id {id_shown(topic.topic_id)}, before {id_shown(known)}"
