"""What the internal topic at the destination is told: skipped ranges, and in mapped mode positions and maps."""

import asyncio
from typing import Protocol

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.net.state import State
from mirror.records.state import Side
from mirror.relay.assignment import Key
from mirror.relay.mapped import write_down
from mirror.relay.partition import Partition, Phase
from mirror.relay.resync import Log
from mirror.relay.settings import RelaySettings
from mirror.relay.stats import Stats


class BooksOwner(Protocol):
    """Whose partitions are written of: the relay."""

    destination: Cluster
    settings: RelaySettings
    stats: Stats
    log: Log
    partitions: dict[Key, Partition]

    def doubt_now(self, partition: Partition, cause: str, detail: str) -> None:
        """The position is not certain any more, and with nothing under way it is sought at once."""


class Books:
    """Of one flow. ``state``: None with ``offsets: exact``, which needs the topic for nothing but skipped ranges."""

    def __init__(self, owner: BooksOwner) -> None:
        self._owner = owner
        self._writing = asyncio.Lock()
        settings = owner.settings
        self.state = State(owner.destination, settings.flow, lean=True) if settings.mapped else None

    async def open(self) -> None:
        """Finds or makes the topic, where it is needed from the start; and recalls what was skipped in earlier lives.

        Raises:
            NetworkError: the destination does not answer, or does not let us.
        """
        settings = self._owner.settings
        if self.state is not None:
            await self.state.open(replication_factor=settings.state_replication_factor)
            self._recall(self.state)
            return
        state = State(self._owner.destination, settings.flow, lean=True)
        try:
            if await state.open(create=False):
                self._recall(state)
        except NetworkError as error:
            # It is only shown: copying does not depend on it.
            self._owner.log.warning("skipped_not_read", topic=state.topic, detail=str(error))

    def _recall(self, state: State) -> None:
        for each in state.ledger.skipped():
            self._owner.stats.recall(each.side.topic, each.side.partition, each.start, each.end, each.cause, each.at_ms)

    async def keep(self) -> None:
        """Writes regularly, until cancelled."""
        while self.state is not None:
            await asyncio.sleep(self._owner.settings.checkpoint_interval_ms / 1000)
            await self.write_down()

    async def write_down(self, *, closing: bool = False) -> None:
        """Positions and maps as they are now. Should it fail, the next time has it all, and a start finds it again.

        ``closing``: nothing more will be sent, of partitions with nothing under way.
        """
        if self.state is None:
            return
        async with self._writing:
            await self._write_down(self.state, closing=closing)

    async def _write_down(self, state: State, *, closing: bool) -> None:
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
        settings = self._owner.settings
        state = self.state or State(self._owner.destination, settings.flow, lean=True)
        try:
            if state is not self.state:
                await state.open(replication_factor=settings.state_replication_factor)
            await state.skip(side, start, end, "on.gap")
        except NetworkError as error:
            detail = f"offsets {start} to {end - 1}: {error}"
            self._owner.log.warning("skipped_not_recorded", topic=side.topic, partition=side.partition, detail=detail)
