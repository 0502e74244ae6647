"""The source's ends of partitions that are not being fetched: located, halted, or waiting for a slow destination.

Only watching needs them: without, a partition that stands still would seem to lag by nothing, whatever waits for it.
"""

import asyncio
import time
from collections import defaultdict
from typing import Protocol

from mirror.net import questions
from mirror.net.cluster import Cluster, Leader
from mirror.net.errors import NetworkError
from mirror.net.questions import LATEST
from mirror.relay.assignment import Key
from mirror.relay.partition import Partition
from mirror.relay.settings import RelaySettings

UNKNOWN_END = -1
LOOK_EVERY_S = 3.0
"""A partition whose end was not heard of for so long is asked about. One that is fetched is heard of with each
answer."""


class EndsOwner(Protocol):
    """Whose partitions they are: the relay."""

    source: Cluster
    settings: RelaySettings
    partitions: dict[Key, Partition]


class Ends:
    """Of all partitions of a process. Brokers are asked side by side, so that a frozen one keeps nobody waiting."""

    def __init__(self, owner: EndsOwner) -> None:
        self._owner = owner
        self._asking: dict[int, asyncio.Task[bool]] = {}
        self._refreshed = True

    async def keep(self) -> None:
        """Looks regularly, until cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                await self._look()
        finally:
            for task in self._asking.values():
                task.cancel()

    async def _look(self) -> None:
        """Asks each broker that is not being asked already."""
        source = self._owner.source
        unheard_from = time.monotonic() - LOOK_EVERY_S
        unheard = [each for each in self._owner.partitions.values() if each.heard_at < unheard_from]
        if not unheard:
            return
        for node_id in [node_id for node_id, task in self._asking.items() if task.done()]:
            self._refreshed &= self._asking.pop(node_id).result()
        leaders = [(each, source.leader(each.topic, each.index)) for each in unheard]
        if not self._refreshed or any(leader is None for _, leader in leaders):
            self._refreshed = await self._refresh({each.topic for each in unheard})
            leaders = [(each, source.leader(each.topic, each.index)) for each in unheard]
        by_node: defaultdict[int, list[tuple[Partition, Leader]]] = defaultdict(list)
        for partition, leader in leaders:
            if leader is not None and leader.node_id not in self._asking:
                by_node[leader.node_id].append((partition, leader))
        for node_id, some in by_node.items():
            self._asking[node_id] = asyncio.get_running_loop().create_task(self._ask(some))

    async def _refresh(self, topics: set[str]) -> bool:
        try:
            await self._owner.source.refresh(sorted(topics))
        except NetworkError:
            # The cluster is away, which is told elsewhere; the next look tries again.
            return False
        return True

    async def _ask(self, some: list[tuple[Partition, Leader]]) -> bool:
        """Whether all were answered; if not, leaders may be others by now."""
        return all(await asyncio.gather(*(self._ask_one(partition, leader) for partition, leader in some)))

    async def _ask_one(self, partition: Partition, leader: Leader) -> bool:
        owner = self._owner
        asked_at = time.monotonic()
        try:
            end = await questions.list_offset(
                owner.source, partition.topic, partition.index, leader, LATEST, committed=owner.settings.committed
            )
        except NetworkError:
            return False
        topic = owner.source.topics.get(partition.topic)
        if topic is not None and partition.source_id not in (None, topic.topic_id):
            end = UNKNOWN_END  # of another topic under the same name
        if partition.heard_at < asked_at:
            partition.heard(end, asked_at)
        return True
