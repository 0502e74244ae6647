"""Partitions that end once nothing of them is in flight: those that halt behind what was fetched, and released ones."""

from collections.abc import Callable

from mirror.relay.halts import Halted
from mirror.relay.partition.partition import Partition


class Ending:
    """Ends partitions once their last responses have arrived.

    Attributes:
        let_go: partitions that were released since the last snapshot, which takes them from here.
    """

    def __init__(self, halt: Callable[[Partition, Halted], None]) -> None:
        self._halt = halt
        self._halting: dict[Partition, None] = {}
        """In the order in which they came; so is ``_released``."""
        self._released: dict[Partition, None] = {}
        self.let_go: list[Partition] = []

    def halt_when_drained(self, partition: Partition, halted: Halted) -> None:
        """Halts the partition once everything that was fetched before is acknowledged."""
        if partition.queue.is_drained:
            self._halt(partition, halted)
        else:
            partition.cursor.end_with(halted)
            self._halting[partition] = None

    def halts_no_more(self, partition: Partition) -> None:
        """Cancels ``halt_when_drained``: what was fetched was dropped, or the partition has halted, or an operator lets
        it go on."""
        self._halting.pop(partition, None)

    def release(self, partition: Partition) -> None:
        """Forgets a stopped partition. It leaves its lane once its last response has arrived."""
        self._halting.pop(partition, None)
        self.let_go.append(partition)
        self._released[partition] = None
        self._leave()

    def check(self) -> None:
        """Ends the partitions that can end by now. Call it after responses."""
        for partition in list(self._halting):
            if partition.cursor.ending is not None and partition.queue.is_drained:
                self._halt(partition, partition.cursor.ending)
        if self._released:
            self._leave()

    def _leave(self) -> None:
        for partition in [each for each in self._released if not each.queue.in_flight]:
            del self._released[partition]
            partition.queue.leave()
