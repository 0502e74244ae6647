"""Transactional ids used now and then, so that the coordinator does not forget who owns a partition.

A coordinator forgets an id that nobody used for ``transactional.id.expiration.ms``; leaders forget a fence after
``producer.id.expiration.ms``. Both are outlived by far, and a worker that has lost a partition and does not know yet
hears of it here, before the fence that keeps its batches out is forgotten.
"""

import asyncio
import time
from typing import Protocol

from mirror.net.cluster import Cluster
from mirror.net.coordinator import Ownership
from mirror.net.errors import NetworkError, Unsupported
from mirror.relay.assignment import Key
from mirror.relay.fill import NOT_OWNER, NotOwner
from mirror.relay.memory import ProducerMemory, transactional_memory_ms
from mirror.relay.partition import Partition
from mirror.relay.phases import Phase
from mirror.relay.position import Locator
from mirror.relay.resync import Log

SHARE = 4
"""An id is used so many times within its life."""
LOOKS = 8
"""Ids that are due are looked for so many times within such a share."""


class RenewalOwner(Protocol):
    """Whose partitions they are: the relay."""

    destination: Cluster
    log: Log
    locator: Locator
    memory: ProducerMemory
    partitions: dict[Key, Partition]

    def doubt_now(self, partition: Partition, cause: str, detail: str) -> None:
        """The position is not certain any more, and with nothing under way it is sought at once."""


class Renewal:
    """Of all partitions of a process, one after the other."""

    def __init__(self, owner: RenewalOwner) -> None:
        self._owner = owner
        self._used: dict[Partition, tuple[Ownership, float]] = {}
        """When each partition's ownership was first seen as it is."""

    async def keep(self) -> None:
        """Renews what is due, until cancelled."""
        expires_ms = await transactional_memory_ms(self._owner.destination)
        while True:
            every_s = min(expires_ms, 2 * self._owner.memory.ms) / SHARE / 1000
            await asyncio.sleep(every_s / LOOKS)
            for partition in self._due(every_s):
                try:
                    await self.renew(partition)
                except Unsupported:
                    return  # before Kafka 2.5 only a takeover uses an id
                except NetworkError as error:
                    self._owner.log.info("not_renewed", partition=partition.name, detail=str(error))

    def _due(self, every_s: float) -> list[Partition]:
        now, before, self._used = time.monotonic(), self._used, {}
        for partition in self._owner.partitions.values():
            ownership = partition.ownership
            if ownership is not None:
                known = before.get(partition)
                self._used[partition] = known if known is not None and known[0] == ownership else (ownership, now)
        return [partition for partition, (_, since) in self._used.items() if now - since >= every_s]

    async def renew(self, partition: Partition) -> None:
        """Uses the partition's id, unless it is just being used. Whoever is not its owner any more leaves it.

        Raises:
            NetworkError: not done now.
        """
        if partition.phase is not Phase.ACTIVE or partition.filling:
            return
        generation = partition.generation
        try:
            await self._owner.locator.renew(partition)
        except NotOwner as error:
            if partition.generation == generation:
                partition.released = True
                self._owner.doubt_now(partition, NOT_OWNER, str(error))
