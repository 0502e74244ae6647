"""Notices foreign records in a log that stands still, without waiting for the next batch, which may be days away.

While batches are sent, each response shows where the destination's log ends. A partition with nothing to send gets no
responses, so its end is asked for at intervals: with one ListOffsets to each broker for up to 500 partitions. An
unexpected end is checked like any other (``relay.locate.readback``). If it is confirmed, the partition comes into
doubt.

With mapped offsets, others may write to the log. There, only an end before the last copy is unexpected.
"""

from mirror.net.logs import leader_requests
from mirror.net.logs.leader_requests import LATEST, TRUE_END
from mirror.net.metadata import Leader
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.watch.asking import Asking

LOOK_EVERY_S = 30.0
"""A look costs about 40 µs of CPU per partition: with 5,000 that stand still, less than a hundredth of a core."""


class Idle(Asking):
    """Watches the idle partitions of a process."""

    def __init__(self, relay: Orchestrator) -> None:
        super().__init__(relay.destination)
        self._relay = relay

    def _every_s(self) -> float:
        return LOOK_EVERY_S

    def _due(self) -> list[Partition]:
        return [each for each in self._relay.partitions.values() if _is_idle(each)]

    def _topic(self, partition: Partition) -> str:
        return partition.destination

    async def _ask(self, partition: Partition, leader: Leader) -> None:
        relay, due, position = self._relay, partition.queue.acknowledged, partition.positions
        end = await leader_requests.list_offset(
            relay.destination, partition.destination, partition.index, leader, LATEST, replica_id=TRUE_END
        )
        same = _is_idle(partition) and (partition.queue.acknowledged, partition.positions) == (due, position)
        copied = partition.queue.copied
        if same and (end != due if copied is None else end < copied.destination):
            relay.reconfirm(partition)


def _is_idle(partition: Partition) -> bool:
    """Returns True if nothing of the partition is in flight or waits to be sent."""
    queue = partition.queue
    return (
        partition.phase is Phase.ACTIVE
        and not queue.in_flight
        and not queue.outbox
        and not queue.filling
        and not queue.reconfirming
        and queue.acknowledged >= 0
    )
