"""Finds out when a missing right has been granted, so that the partitions that halted for it go on.

Brokers report what a principal may do (KIP-430: ``authorized_operations``, from Kafka 2.3 on). So a halted partition
need not be tried again to find out: it goes on once the right is reported, and stays halted until then, without log
lines. Rights that brokers do not report are tried at intervals.
"""

import time
from collections.abc import Collection, Iterable

from kafka.protocol.admin import DescribeClusterRequest
from kafka.protocol.metadata import MetadataRequest

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.rights import ALTER, CLUSTER, CLUSTER_ACTION, DENIED, TOPIC, Right, granted
from mirror.reasons import Heals, heals
from mirror.relay.assignment import Key
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition

TRY_EVERY_S = 600.0
"""Seconds between two attempts with a partition whose right brokers do not report, or report and still refuse."""
TOPICS_SINCE = 8
"""The first Metadata version that reports what a client may do with a topic."""


class Rights:
    """Knows which missing rights of a process's halted partitions have been granted."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._there: dict[Right, bool] = {}
        """Right -> whether the mirror has it, as far as brokers have reported that."""
        self._tried: dict[Key, float] = {}
        """When a halted partition was last tried again (monotonic). If it never was: when ``renew`` first looked at
        it."""

    async def renew(self, halted: Iterable[Partition]) -> None:
        """Asks for the rights that these partitions lack. A cluster that does not answer is reported elsewhere."""
        lacking = {
            (each.topic, each.index): each.halted.lacks
            for each in halted
            if each.halted is not None and heals(each.halted.reason) is Heals.RIGHTS
        }
        self._tried = {key: at for key, at in self._tried.items() if key in self._relay.partitions}
        rights = {right for right in lacking.values() if right is not None}
        found: dict[Right, bool] = {}
        silent: set[Right] = set()
        for cluster in (self._relay.source, self._relay.destination):
            of_it = {right for right in rights if right.cluster == cluster.name}
            try:
                found |= await _ask(cluster, of_it)
            except NetworkError:
                # No answer is not the same as an answer without that right: what was reported before still counts.
                silent |= of_it
                found |= {right: self._there[right] for right in of_it & self._there.keys()}
        self._there = found
        for key, right in lacking.items():
            there = found.get(right) if right is not None else None
            if there is False:
                self._tried.pop(key, None)
            elif there is None and right not in silent:
                self._tried.setdefault(key, time.monotonic())

    def is_back(self, partition: Partition) -> bool:
        """Returns True if a halted partition is to be tried again, according to the last ``renew``: once each time its
        right comes back, and every ``TRY_EVERY_S`` while brokers do not report that right or refuse all the same."""
        key, now = (partition.topic, partition.index), time.monotonic()
        lacks = partition.halted.lacks if partition.halted is not None else None
        there = self._there.get(lacks) if lacks is not None else None
        since = self._tried.get(key)
        if there is False or (since is None and not there) or (since is not None and now - since < TRY_EVERY_S):
            return False
        self._tried[key] = now
        return True


async def _ask(cluster: Cluster, rights: set[Right]) -> dict[Right, bool]:
    """Returns right -> whether the mirror has it, for each right that the cluster's brokers report."""
    topics = sorted({right.name for right in rights if right.kind == TOPIC})
    told = await _of_topics(cluster, topics) if topics else {}
    whole = await _of_cluster(cluster) if any(right.kind == CLUSTER for right in rights) else None
    found: dict[Right, bool] = {}
    for right in rights:
        operations = [right.operation]
        if right.kind == CLUSTER and right.operation == ALTER:
            operations.append(CLUSTER_ACTION)  # either of the two lets the mirror write markers
        of_it = whole if right.kind == CLUSTER else told.get(right.name)
        if (there := granted(of_it, operations)) is not None:
            found[right] = there
    return found


async def _of_topics(cluster: Cluster, names: list[str]) -> dict[str, Collection[int] | None]:
    """Returns topic -> what the mirror may do with it, as far as the broker reports that."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    answer = await cluster.call(
        MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    )
    if answer.version < TOPICS_SINCE:
        return {}
    found: dict[str, Collection[int] | None] = {topic.name: topic.authorized_operations for topic in answer.topics}
    return found | {topic.name: () for topic in answer.topics if topic.error_code in DENIED}


async def _of_cluster(cluster: Cluster) -> Collection[int] | None:
    """Returns what the mirror may do with the cluster; None if the broker cannot be asked (before Kafka 2.8)."""
    connection = await cluster.control_of_any()
    if DescribeClusterRequest.API_KEY not in connection.api_versions:
        return None
    answer = await cluster.call(DescribeClusterRequest(include_cluster_authorized_operations=True))
    found: Collection[int] | None = answer.authorized_operations
    return found
