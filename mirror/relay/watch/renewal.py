"""Uses transactional ids at intervals, so that the coordinator does not forget the owners of partitions.

A coordinator forgets an id that nobody has used for ``transactional.id.expiration.ms``; leaders forget a fence after
``producer.id.expiration.ms``. Ids are used long before either time is over. A worker that has lost a partition and does
not know it yet learns it here, before the fence that keeps its batches out is forgotten.
"""

import asyncio
import time

from mirror.net.coordinator import Ownership
from mirror.net.errors import NetworkError, Unsupported
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.outcome import Doubt, NotOurs
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.watch.expiry import transactional_memory_ms

SHARE = 4
"""Each id is used this many times in the time in which it would expire."""
LOOKS = 8
"""Number of looks for ids that are due, in the interval between two uses of an id."""


class Renewal:
    """Renews the ids of all partitions of a process, one after the other."""

    def __init__(self, relay: Orchestrator) -> None:
        self._relay = relay
        self._used: dict[Partition, tuple[Ownership, float]] = {}
        """The ownership of each partition, and when this ownership was first seen (monotonic)."""
        self._told = False
        """True once it was logged that a coordinator cannot renew ids."""

    async def keep(self) -> None:
        """Renews what is due, until cancelled."""
        expires_ms = await transactional_memory_ms(self._relay.destination)
        while True:
            every_s = min(expires_ms, 2 * self._relay.expiry.ms) / SHARE / 1000
            await asyncio.sleep(every_s / LOOKS)
            for partition in self._due(every_s):
                try:
                    await self.renew(partition)
                except Unsupported as error:
                    # Before Kafka 2.5, only a takeover uses an id. During an upgrade, other coordinators may be newer.
                    if not self._told:
                        self._told = True
                        self._relay.log.info("not_renewed", partition=partition.name, detail=str(error))
                except NetworkError as error:
                    self._relay.log.info("not_renewed", partition=partition.name, detail=str(error))

    def _due(self, every_s: float) -> list[Partition]:
        now, before, self._used = time.monotonic(), self._used, {}
        for partition in self._relay.partitions.values():
            ownership = partition.claim.ownership
            if ownership is not None:
                known = before.get(partition)
                self._used[partition] = known if known is not None and known[0] == ownership else (ownership, now)
        return [partition for partition, (_, since) in self._used.items() if now - since >= every_s]

    async def renew(self, partition: Partition) -> None:
        """Uses the partition's id, unless the partition is not active or a hole is being filled. If another worker owns
        the id by now, the partition comes into doubt and is left to that worker.

        Raises:
            NetworkError: the id was not used.
        """
        if partition.phase is not Phase.ACTIVE or partition.queue.filling:
            return
        ours = partition.claim.ownership
        try:
            await self._relay.locator.owners.renew(partition)
        except NotOurs as error:
            if partition.claim.ownership == ours:
                self._relay.act(partition, Doubt.of(error))
