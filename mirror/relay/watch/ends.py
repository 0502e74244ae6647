"""Asks for the source's ends of partitions that are not fetched now: those that are being located, are halted, or wait
for a slow destination.

Otherwise, a partition that stands still would seem to have no lag, whatever its backlog: in metrics and status, and to
everything that asks a cursor whether it is behind.
"""

import time

from mirror.net.logs import leader_requests
from mirror.net.logs.leader_requests import LATEST
from mirror.net.metadata import Leader
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.topics.recreated import another
from mirror.relay.watch.asking import Asking

UNKNOWN_END = -1
LOOK_EVERY_S = 3.0
"""Seconds without news of a partition's end, after which it is asked for. While a partition is fetched, each response
has its end."""


class SourceEnds(Asking):
    """Keeps the source's ends of all partitions of a process up to date."""

    def __init__(self, relay: Orchestrator) -> None:
        super().__init__(relay.source)
        self._relay = relay

    def _every_s(self) -> float:
        return LOOK_EVERY_S

    def _due(self) -> list[Partition]:
        unheard_from = time.monotonic() - LOOK_EVERY_S
        return [each for each in self._relay.partitions.values() if each.cursor.heard_at < unheard_from]

    def _topic(self, partition: Partition) -> str:
        return partition.topic

    async def _ask(self, partition: Partition, leader: Leader) -> None:
        relay, asked_at = self._relay, time.monotonic()
        end = await leader_requests.list_offset(
            relay.source, partition.topic, partition.index, leader, LATEST, committed=relay.settings.committed
        )
        if another(relay.source, partition.topic, partition.claim.source_id):
            end = UNKNOWN_END  # this is the end of another topic of that name
        if partition.cursor.heard_at < asked_at:
            partition.cursor.heard(end, asked_at)
