"""Asks the leaders of a cluster about their partitions at intervals, off the data path; see ``ends`` and ``idle``."""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.metadata import Leader
from mirror.relay.partition.partition import Partition


class Asking(ABC):
    """Asks brokers in parallel, so that a broker that hangs does not delay the others. Each broker is asked again only
    once it has answered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._stale: set[str] = set()
        """Topics whose known leaders may be out of date."""

    async def keep(self) -> None:
        """Looks regularly, until cancelled."""
        try:
            while True:
                await asyncio.sleep(self._every_s())
                await self._look()
        finally:
            for task in self._asking.values():
                task.cancel()

    @abstractmethod
    def _every_s(self) -> float:
        """Returns the seconds between two looks."""

    @abstractmethod
    def _due(self) -> Iterable[Partition]:
        """Returns the partitions to ask about now."""

    @abstractmethod
    def _topic(self, partition: Partition) -> str:
        """Returns the name of the partition's topic at this cluster."""

    @abstractmethod
    async def _ask(self, partition: Partition, leader: Leader) -> None:
        """Asks the leader about one partition.

        Raises:
            NetworkError: no answer; another broker may lead the partition by now.
        """

    async def _look(self) -> None:
        for node_id in [node_id for node_id, task in self._asking.items() if task.done()]:
            self._asking.pop(node_id).result()
        due = [(each, self._topic(each)) for each in self._due()]
        unknown = {topic for each, topic in due if self._cluster.leader(topic, each.index) is None}
        if unknown or self._stale:
            await self._refresh(unknown | self._stale)
        by_node: defaultdict[int, list[tuple[Partition, Leader]]] = defaultdict(list)
        for partition, topic in due:
            leader = self._cluster.leader(topic, partition.index)
            if leader is not None and leader.node_id not in self._asking:
                by_node[leader.node_id].append((partition, leader))
        for node_id, some in by_node.items():
            self._asking[node_id] = asyncio.get_running_loop().create_task(self._ask_all(some))

    async def _refresh(self, topics: set[str]) -> None:
        """Refreshes the leaders. A cluster that cannot be reached is reported elsewhere; the next look tries again."""
        with suppress(NetworkError):
            await self._cluster.refresh(sorted(topics))
            self._stale.clear()

    async def _ask_all(self, some: Iterable[tuple[Partition, Leader]]) -> None:
        await asyncio.gather(*(self._ask_one(partition, leader) for partition, leader in some))

    async def _ask_one(self, partition: Partition, leader: Leader) -> None:
        try:
            await self._ask(partition, leader)
        except NetworkError:
            self._stale.add(self._topic(partition))
