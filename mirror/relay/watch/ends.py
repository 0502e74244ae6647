"""Asks for the source's ends of partitions that are not fetched now: those that are being located, are halted, or wait
for a slow destination.

Without them, a partition that stands still would seem to have no lag, whatever its backlog: in the metrics and the
status, and to what asks a cursor whether it is behind.
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
"""A partition whose end was not learned for this long is asked about. For one that is fetched, each answer has the
end."""


class SourceEnds(Asking):
    """The source's ends of all partitions of a process."""

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
            end = UNKNOWN_END  # it is the end of another topic under the same name
        if partition.cursor.heard_at < asked_at:
            partition.cursor.heard(end, asked_at)
