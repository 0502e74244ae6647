"""Decides when the internal topic at the destination is written: which flow and partitions it is about, halts, skipped
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
"""Interval at which exact mode writes down what was copied last. The group commits it more often, but its commits
vanish with a deleted topic."""
LOOK_EVERY_S = 10.0
"""Pause between two checks that the topic still has what was written."""
FIRST_NOTE_S = 1.0
"""Shorter interval of notes for a partition of which no note was ever written: retention at the destination may delete
old records at once, and then nothing else shows what they were a copy of."""


class DurableState:
    """Writes the durable state of one flow. ``state``: the internal topic; ``pins``: the state of single partitions, in
    either mode."""

    def __init__(self, relay: Orchestrator, state: Memory | None = None) -> None:
        """``state``: used instead of the internal topic at the destination."""
        self._relay = relay
        self._writing = asyncio.Lock()
        self._soon = asyncio.Event()
        self._unwritten = ""
        """The last write error that was logged; empty once a write succeeds."""
        self._skipped: list[tuple[Subject, int, int]] = []
        """Source ranges (partition, first offset, end offset) that were passed over and are not written yet."""
        self.strays = Strays(relay, self._save)
        settings = relay.settings
        self.state: Memory = state if state is not None else InternalTopic(relay.destination, settings.flow, lean=True)
        self.pins = Pins(
            self.state, source=relay.source, destination=relay.destination, settings=settings, log=relay.log
        )
        self._rewriting = Rewriting(relay, self.state, self.pins, self._writing)

    async def open(self) -> None:
        """Finds or creates the topic, recalls what earlier processes have skipped, and writes down which flow the topic
        belongs to.

        Raises:
            NetworkError: the destination does not answer, or refuses.
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
                    # Not wait_for: before Python 3.12 it loses a cancellation that comes together with the event.
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
        """Has everything written now (``offsets: mapped``). For a partition that has halted: its topics may be
        recreated before the next checkpoint is due."""
        self._soon.set()

    async def watch(self) -> None:
        """Checks regularly whether the topic has lost something, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if await self._rewriting.look():
                await self.write_down()
                # A flow in the opposite direction that has begun meanwhile has seen no entry of this flow.
                self._relay.look_now()

    async def write_down(self, *, closing: bool = False) -> None:
        """Writes down the current positions of the partitions, and removes notes of what was due that no longer count.
        If a write fails, it is logged, and the next call writes all of it again; a start finds the positions in the
        logs.

        Args:
            closing: True if nothing more will be sent. For partitions with nothing in flight, that is written down,
                too.
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
        """Logs the error, once until there is another one or a write succeeds."""
        if str(error) != self._unwritten:
            self._unwritten = str(error)
            self._relay.log.warning("state_not_written", topic=self.state.topic, detail=str(error))

    async def _write_down(self, *, closing: bool) -> None:
        """Writes down checkpoints and maps. Partitions in which others' batches may stand between ours are looked at
        first, while the rest is written."""
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
        """Writes down the accounts of these partitions. A failure is logged."""
        try:
            # Ranges go first: once a checkpoint has passed a range, nothing would show that the range is still to be
            # written.
            await self._write_skipped()
            await save(self.state, accounts)
            self._unwritten = ""
        except NetworkError as error:
            self._tell_unwritten(error)
            for partition in partitions:
                if partition.queue.copied is not None and partition.queue.copied.open_map.overflows:
                    # It waits: ``MappedLocator`` locates it only once its map is written. So memory is bounded.
                    self._relay.doubt_now(partition, "state_not_written", str(error))

    def skip(self, subject: Subject, start: int, end: int) -> None:
        """Has it written down that source offsets ``start`` up to ``end`` (exclusive) are passed over, by decision
        (``offsets: mapped``). That is done now, and before any checkpoint behind them."""
        self._skipped.append((subject, start, end))
        self.write_soon()

    async def _write_skipped(self) -> None:
        """Writes down all ranges that were passed over by now. Ranges that fail are written the next time.

        Raises:
            NetworkError: it is not certain that they were written.
        """
        for one in list(self._skipped):
            subject, start, end = one
            await self.pins.skips.write(subject, [(start, end, ON_GAP)])
            with suppress(ValueError):  # another call has written it meanwhile
                self._skipped.remove(one)
