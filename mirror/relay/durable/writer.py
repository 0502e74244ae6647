"""Writes to the internal topic at the destination at the right times: what flow and partitions are, halts, skipped
ranges; in mapped mode also positions and maps."""

import asyncio
from collections.abc import Collection
from contextlib import suppress

from mirror.net.errors import NetworkError
from mirror.offsetmap.entries.keys import Subject
from mirror.offsetmap.internal.memory import Memory
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.relay.durable.notes import is_first
from mirror.relay.durable.pins import Pins
from mirror.relay.durable.repair import Rewriting
from mirror.relay.durable.skips import ON_GAP
from mirror.relay.mapped.copied import Unwritten, save
from mirror.relay.mapped.strays import Strays
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase

NOTE_EVERY_S = 60.0
"""In exact mode, what was copied last is written down this often. The group's commits have it more often, and vanish
with a deleted topic."""
LOOK_EVERY_S = 10.0
"""Pause between two checks that the topic still has what was written down."""
FIRST_NOTE_S = 1.0
"""Shorter interval of notes for a partition of which nothing was ever written down: retention at the destination may
take old records at once, and then nothing else shows what they were a copy of."""


class DurableState:
    """Writes for one flow. ``state``: the topic; ``pins``: the part about single partitions, in either mode."""

    def __init__(self, relay: Orchestrator, state: Memory | None = None) -> None:
        """``state``: used instead of the topic at the destination."""
        self._relay = relay
        self._writing = asyncio.Lock()
        self._soon = asyncio.Event()
        self._unwritten = ""
        """What was logged of the last write that failed."""
        self._skipped: list[tuple[Subject, int, int]] = []
        """Ranges that were passed over and are yet to be written down."""
        self.strays = Strays(relay, self._save)
        settings = relay.settings
        self.state: Memory = state if state is not None else InternalTopic(relay.destination, settings.flow, lean=True)
        self.pins = Pins(
            self.state, source=relay.source, destination=relay.destination, settings=settings, log=relay.log
        )
        self._rewriting = Rewriting(relay, self.state, self.pins, self._writing)

    async def open(self) -> None:
        """Finds or creates the topic, recalls what was skipped by earlier processes, and writes down who the flow is.

        Raises:
            NetworkError: the destination does not answer, or does not let us.
        """
        await self.state.open(replication_factor=self._relay.settings.state_replication_factor)
        self.pins.was_empty = not self.state.ledger.flows
        self._recall(self.state)
        await self.pins.introduce()

    def _recall(self, state: Memory) -> None:
        for each in state.ledger.skipped():
            self._relay.stats.recall(
                each.subject.topic, each.subject.partition, each.start, each.end, each.cause, each.at_ms
            )
        for passed in state.ledger.passed():
            self._relay.stats.pass_over(passed)

    async def keep(self) -> None:
        """Writes regularly, until cancelled."""
        settings = self._relay.settings
        if settings.mapped:
            try:
                while True:
                    # Not wait_for: before Python 3.12 it forgets that it was cancelled if the event comes just then.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(settings.checkpoint_interval_ms / 1000):
                            await self._soon.wait()
                    self._soon.clear()
                    await self.write_down()
            finally:
                self.strays.close()
        while True:
            for _ in range(round(NOTE_EVERY_S / FIRST_NOTE_S)):
                await asyncio.sleep(FIRST_NOTE_S)
                async with self._writing:
                    await self._note(first=True)
            await self.write_down()

    def write_soon(self) -> None:
        """Has everything written down now, when a partition has halted (``offsets: mapped``): its topics may be
        recreated before the next checkpoint is due."""
        self._soon.set()

    async def watch(self) -> None:
        """Checks regularly whether the topic has lost something, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if await self._rewriting.look():
                await self.write_down()
                # A flow the other way that has begun meanwhile has seen nothing of this one.
                self._relay.look_now()

    async def write_down(self, *, closing: bool = False) -> None:
        """Writes down where the partitions are now. If it fails, the next call writes it all, and a start finds it
        again.

        ``closing``: nothing more will be sent. For partitions with nothing under way, that is written down, too.
        """
        async with self._writing:
            if self._relay.settings.mapped:
                await self._write_down(closing=closing)
            else:
                await self._note()
        with suppress(NetworkError, TimeoutError):
            await self.pins.due.settle(self._relay.partitions.values(), self._relay.locator.owners.owns)

    async def _note(self, *, first: bool = False) -> None:
        partitions = self._relay.partitions.values()
        try:
            await self.pins.notes.write(filter(is_first, partitions) if first else partitions)
        except NetworkError as error:
            self._tell_unwritten(error)
        else:
            self._unwritten = ""

    def _tell_unwritten(self, error: NetworkError) -> None:
        """Logs the error, once until it is another one or over."""
        if str(error) != self._unwritten:
            self._unwritten = str(error)
            self._relay.log.warning("state_not_written", topic=self.state.topic, detail=str(error))

    async def _write_down(self, *, closing: bool) -> None:
        """Writes down checkpoints and maps. Partitions in which somebody else's batches may stand between ours are
        looked at first, while the others are written."""
        accounts = {
            each: each.queue.copied for each in self._relay.partitions.values() if each.queue.copied is not None
        }
        if closing:
            await self.strays.ended()
        still = [each for each in accounts if each.phase is Phase.ACTIVE and each.queue.is_drained]
        closed = {accounts[each] for each in still} if closing else set()
        astray = [each for each, copied in accounts.items() if self.strays.concerns(copied)]
        self.strays.look(astray, closed=closed)
        sure = {each: copied for each, copied in accounts.items() if each not in astray}
        written = [
            Unwritten.of(each, closed=each in closed) for each in sure.values() if each.changed or each in closed
        ]
        await self._save(sure, written)
        if closing:
            await self.strays.ended()

    async def _save(self, partitions: Collection[Partition], accounts: list[Unwritten]) -> None:
        """Writes down accounts of these partitions."""
        try:
            # Ranges go first: behind a checkpoint that passes over one, nothing would show that it is yet to be noted.
            await self._write_skipped()
            await save(self.state, accounts)
            self._unwritten = ""
        except NetworkError as error:
            self._tell_unwritten(error)
            for partition in partitions:
                if partition.queue.copied is not None and partition.queue.copied.open_map.overflows:
                    # It waits, and ``MappedLocator`` looks for it only when the map is written: memory is bounded.
                    self._relay.doubt_now(partition, "state_not_written", str(error))

    def skip(self, subject: Subject, start: int, end: int) -> None:
        """Has it written down that source offsets ``start`` up to ``end`` are passed over, by decision (``offsets:
        mapped``). That happens now, and before any checkpoint behind them."""
        self._skipped.append((subject, start, end))
        self.write_soon()

    async def _write_skipped(self) -> None:
        """Writes down all ranges that were passed over by now. Those that fail are left for the next time.

        Raises:
            NetworkError: it is not certain that they were written.
        """
        for one in list(self._skipped):
            subject, start, end = one
            await self.pins.skips.write(subject, [(start, end, ON_GAP)])
            with suppress(ValueError):  # another turn has written it meanwhile
                self._skipped.remove(one)
