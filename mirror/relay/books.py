"""What the internal topic at the destination is told, and when: what flow and partitions are, halts, skipped ranges; in
mapped mode positions and maps."""

import asyncio
from typing import Protocol

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.state import Memory, State
from mirror.records.state import Side
from mirror.relay.assignment import Key
from mirror.relay.mapped import write_down
from mirror.relay.partition import Partition, Phase
from mirror.relay.pins import Pins
from mirror.relay.resync import Log
from mirror.relay.settings import RelaySettings
from mirror.relay.stats import Stats

NOTE_EVERY_S = 60.0
"""In exact mode, what was copied last is written down this often; the group's commits have it more often, and vanish
with a deleted topic."""


class BooksOwner(Protocol):
    """Whose partitions are written of: the relay."""

    source: Cluster
    destination: Cluster
    settings: RelaySettings
    stats: Stats
    log: Log
    partitions: dict[Key, Partition]

    def doubt_now(self, partition: Partition, cause: str, detail: str) -> None:
        """The position is not certain any more, and with nothing under way it is sought at once."""


class Books:
    """Of one flow. ``state``: the topic; ``pins``: what of it is about single partitions, whatever the mode."""

    def __init__(self, owner: BooksOwner, state: Memory | None = None) -> None:
        """``state``: instead of the topic at the destination."""
        self._owner = owner
        self._writing = asyncio.Lock()
        settings = owner.settings
        self.state: Memory = state if state is not None else State(owner.destination, settings.flow, lean=True)
        self.pins = Pins(self.state, source=owner.source, destination=owner.destination, settings=settings)

    async def open(self) -> None:
        """Finds or makes the topic, recalls what was skipped in earlier lives, and says who the flow is.

        Raises:
            NetworkError: the destination does not answer, or does not let us.
        """
        await self.state.open(replication_factor=self._owner.settings.state_replication_factor)
        self._recall(self.state)
        await self.pins.introduce()

    def _recall(self, state: Memory) -> None:
        for each in state.ledger.skipped():
            self._owner.stats.recall(each.side.topic, each.side.partition, each.start, each.end, each.cause, each.at_ms)

    async def keep(self) -> None:
        """Writes regularly, until cancelled."""
        settings = self._owner.settings
        interval_s = settings.checkpoint_interval_ms / 1000 if settings.mapped else NOTE_EVERY_S
        while True:
            await asyncio.sleep(interval_s)
            await self.write_down()

    async def write_down(self, *, closing: bool = False) -> None:
        """Where the partitions are now. Should it fail, the next time has it all, and a start finds it again.

        ``closing``: nothing more will be sent, of partitions with nothing under way.
        """
        async with self._writing:
            if self._owner.settings.mapped:
                await self._write_down(self.state, closing=closing)
            else:
                await self._note()

    async def _note(self) -> None:
        try:
            await self.pins.note(self._owner.partitions.values())
        except NetworkError as error:
            self._owner.log.warning("state_not_written", topic=self.state.topic, detail=str(error))

    async def _write_down(self, state: Memory, *, closing: bool) -> None:
        partitions = [each for each in self._owner.partitions.values() if each.copied is not None]
        still = [each for each in partitions if each.phase is Phase.ACTIVE and not (each.in_flight or each.outbox)]
        closed = [each.copied for each in still if each.copied is not None] if closing else []
        try:
            await write_down(state, [each.copied for each in partitions if each.copied is not None], closed=closed)
        except NetworkError as error:
            self._owner.log.warning("state_not_written", topic=state.topic, detail=str(error))
            for partition in partitions:
                if partition.copied is not None and partition.copied.journal.overflows:
                    # It waits, located anew once the map can be written: memory is bounded.
                    self._owner.doubt_now(partition, "state_not_written", str(error))

    async def skipped(self, side: Side, start: int, end: int) -> None:
        """Offsets ``start`` up to ``end`` of the source will not be copied, by decision."""
        try:
            await self.state.skip(side, start, end, "on.gap")
        except NetworkError as error:
            detail = f"offsets {start} to {end - 1}: {error}"
            self._owner.log.warning("skipped_not_recorded", topic=side.topic, partition=side.partition, detail=detail)
