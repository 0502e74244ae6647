"""An operator pauses partitions: what was fetched is copied, then they halt as ``paused``, until they are resumed.

That is written down like any other halt, so it outlives restarts and holds for whoever takes the partition over.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mirror.reasons import PAUSED, HaltReason
from mirror.relay.assignment import Key
from mirror.relay.halts import Halted
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase

if TYPE_CHECKING:
    from mirror.relay.relay import Relay

WATCH_S = 10.0
"""Longest wait for partitions to come to rest, in seconds. Those that have not by then do so later."""
LOOK_EVERY_S = 0.02


class Pausing:
    """Pauses the partitions of a relay."""

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._wanted: set[Partition] = set()
        """Partitions that are to be paused, and still have answers due."""

    async def pause_all(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Pauses partitions, and waits for ``WATCH_S`` at most until that is done and written down.

        Returns:
            Partition -> the reason why it is not paused, or not for sure, or an empty string.
        """
        relay = self._relay
        told: dict[Key, str] = {}
        begun: dict[Key, Partition] = {}
        for key in keys:
            partition = relay.partitions.get(key)
            if partition is None:
                told[key] = "not copied here"
            elif partition.halted is not None and partition.halted.reason != PAUSED:
                told[key] = f"it has halted already, {partition.halted.reason}"
            else:
                told[key], begun[key] = "", partition
                self._pause(partition)
        loop = asyncio.get_running_loop()
        until = loop.time() + WATCH_S
        while begun and loop.time() < until:
            for key, partition in [*begun.items()]:
                if relay.partitions.get(key) is not partition:
                    told[key] = "let go meanwhile: another worker has it; try again"
                elif not self._is_kept(partition):
                    continue
                del begun[key]
            await asyncio.sleep(LOOK_EVERY_S)
        for key, partition in begun.items():
            if partition.halted is None:
                told[key] = "not yet: the destination has not answered for all that was sent; it pauses once it has"
            else:
                told[key] = "it has stopped, but that could not be written down yet: a restart may resume it"
        return told

    def takes(self, partition: Partition) -> bool:
        """Pauses a partition that is about to be located again, if it is to be. Returns False if it is not."""
        if partition not in self._wanted:
            return False
        self._halt(partition)
        return True

    def _pause(self, partition: Partition) -> None:
        match partition.phase:
            case Phase.ACTIVE:
                self._wanted.add(partition)
                self._relay.halt_when_drained(partition, _paused())
            case Phase.DOUBT:
                self._wanted.add(partition)  # halts when no answer is due any more
            case Phase.LOCATING:
                self._relay.tasks.cancel(partition)
                self._halt(partition)
            case _:
                pass

    def _halt(self, partition: Partition) -> None:
        self._relay.halt(partition, _paused())

    def halted(self, partition: Partition) -> None:
        """The partition has halted, or is not ours any more: nothing is waited for."""
        self._wanted.discard(partition)

    def _is_kept(self, partition: Partition) -> bool:
        """Returns True if it has halted, and the internal topic has that."""
        if partition.halted is None:
            return False
        return partition.halted.reason != PAUSED or self._relay.pins.state.ledger.halt(partition.subject) is not None


def _paused() -> Halted:
    return Halted.of(HaltReason.PAUSED, "paused by an operator")
