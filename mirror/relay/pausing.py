"""An operator pauses partitions: what was fetched is copied, then they halt as ``paused``, until they are resumed.

That is written down like any other halt, so it outlives restarts and holds for whoever takes the partition over.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mirror.net.errors import NetworkError
from mirror.offsetmap.fields import same_ids
from mirror.reasons import PAUSED, HaltReason, is_durable
from mirror.relay.assignment import Key
from mirror.relay.halts import Halted, PartitionHalted
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase

if TYPE_CHECKING:
    from mirror.relay.relay import Relay

WATCH_S = 10.0
"""Longest wait for partitions to come to rest, in seconds. Those that have not by then do so later."""
LOOK_EVERY_S = 0.02
_STOPPING = "the mirror is being stopped: pause it once it runs again"
_ELSEWHERE = "let go meanwhile: another worker has it; try again"
_NOT_YET = "not yet: the destination has not answered for all that was sent; it pauses once it has"
_UNWRITTEN = "it has stopped, but that could not be written down yet: a restart may resume it"
_WITHDRAWN = "resumed meanwhile"
_FINAL = frozenset({_STOPPING, _ELSEWHERE, _WITHDRAWN})
_HALTED = "it has halted already"


class Pausing:
    """Pauses the partitions of a relay, and keeps what writes down that one has halted, for whatever reason."""

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._wanted: dict[Partition, None] = {}
        """Partitions that are to be paused, and have something under way."""
        self._wishes: dict[Partition, object] = {}
        """Partitions that somebody wants paused, until they are resumed or let go."""
        self._writing: dict[Partition, asyncio.Task[None]] = {}
        """What writes down that a partition has halted."""
        self._resumed: set[Partition] = set()
        """Partitions that are being resumed: whoever pauses them now comes after that."""
        self._unwritten: set[Partition] = set()
        """Those of them of whose halt it is not certain that it is written down."""

    async def pause_all(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Pauses partitions, and waits for ``WATCH_S`` at most until that is done and written down.

        A partition that has halted for a reason that an operator has to deal with stays as it is. One whose halt would
        end by itself is paused.

        Returns:
            Partition -> the reason why it is not paused, or not for sure, or an empty string.
        """
        relay = self._relay
        begun = {key: partition for key in keys if (partition := relay.partitions.get(key)) is not None}
        wishes = {partition: self._wishes.setdefault(partition, object()) for partition in begun.values()}
        told = {key: "" if key in begun else "not copied here" for key in keys}
        loop = asyncio.get_running_loop()
        until = loop.time() + WATCH_S
        while begun:
            for key, partition in [*begun.items()]:
                why_not = await self._step(key, partition, wishes[partition])
                told[key] = why_not or ""
                if why_not is None:
                    del begun[key]
                elif why_not in _FINAL or why_not.startswith(_HALTED):
                    del begun[key]
                    if self._wishes.get(partition) is wishes[partition]:
                        del self._wishes[partition]
            if loop.time() >= until:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        return told

    async def _step(self, key: Key, partition: Partition, wish: object) -> str | None:
        """Does what can be done now. Returns None once it is paused and that is written down; else why not, or why not
        yet."""
        relay = self._relay
        if relay.draining:
            return _STOPPING
        if relay.partitions.get(key) is not partition:
            return _ELSEWHERE
        if self._wishes.get(partition) is not wish:
            return _WITHDRAWN
        if partition in self._resumed:
            return _NOT_YET
        halted = partition.halted
        if halted is not None and halted.reason == PAUSED:
            return None if self._is_kept(partition) else _UNWRITTEN
        if halted is not None and is_durable(halted.reason):
            return f"{_HALTED}, {halted.reason}"
        if halted is not None:
            self._replace(partition)
        elif partition.phase is Phase.LOCATING:
            return await self._stop_locating(partition)
        else:
            self._want(partition)
        return _NOT_YET

    async def _stop_locating(self, partition: Partition) -> str:
        """Pauses a partition that is being located, unless it is written down that it has halted before: what locates
        it finds that, too."""
        try:
            await self._relay.pins.recall(partition)
        except PartitionHalted:
            return _NOT_YET
        except NetworkError as error:
            return f"it cannot be told whether it has halted before; try again: {error}"
        if partition.phase is Phase.LOCATING and partition not in self._resumed:
            self._relay.halt(partition, _paused())
        return _NOT_YET

    def _want(self, partition: Partition) -> None:
        """Halts the partition when nothing of it is under way. A halt that waits for the same comes first."""
        self._wanted[partition] = None
        if partition.phase is Phase.ACTIVE and partition.cursor.ending is None:
            self._relay.halt_when_drained(partition, _paused())

    def _replace(self, partition: Partition) -> None:
        """Pauses a partition that has halted for a reason that ends by itself: it would go on then."""
        halted = _paused()
        partition.still_halted(halted)
        self._relay.tell_halted(partition, halted)
        self.write_down(partition, halted)

    # -- events --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Something may have been dropped that is to be fetched again, and with it that the partition is to end."""
        for partition in [*self._wanted]:
            self._want(partition)

    def takes(self, partition: Partition) -> bool:
        """Pauses a partition that is about to be located again, if it is to be. Returns False if it is not."""
        if partition not in self._wanted:
            return False
        self._relay.halt(partition, _paused())
        return True

    def halted(self, partition: Partition) -> None:
        """The partition has halted. If it may go on by itself, it is paused instead."""
        if partition not in self._wanted:
            return
        self._wanted.pop(partition, None)
        if partition.halted is not None and not is_durable(partition.halted.reason):
            self._replace(partition)

    def released(self, partition: Partition) -> None:
        """The partition is not ours any more."""
        self._wanted.pop(partition, None)
        self._wishes.pop(partition, None)
        self._writing.pop(partition, None)

    def write_down(self, partition: Partition, halted: Halted) -> None:
        """Begins to write down that the partition has halted, and then what was due."""
        may_tell = self._relay.locator.owners.may_tell
        writing = self._writing[partition] = self._relay.spawn(self._relay.pins.halted(partition, halted, may_tell))
        self._relay.spawn(self._note_due(partition, halted, writing))

    async def _note_due(self, partition: Partition, halted: Halted, writing: "asyncio.Task[None]") -> None:
        # The halt goes first, whether the source can be asked or not. A resume stops only that: what the source has
        # deleted by then was due.
        await asyncio.wait([writing])
        await self._relay.pins.due.write_down(partition, halted, self._relay.locator.owners.may_tell)

    # -- resuming ------------------------------------------------------------------------------------------------------

    def give_up(self, partition: Partition) -> bool:
        """An operator resumes a partition that is not paused yet: it goes on. Returns False if it was not to be."""
        if partition not in self._wishes or partition.halted is not None:
            return False
        del self._wishes[partition]
        self._wanted.pop(partition, None)
        if partition.cursor.ending is not None and partition.cursor.ending.reason == PAUSED:
            partition.cursor.go_on()
            self._relay.ending.halts_no_more(partition)
            self._relay.brokers.pump_fetchers()
        return True

    async def begin_to_resume(self, partition: Partition) -> None:
        """The partition is being resumed: nothing is written down of its halt any more. It could be next in line at the
        internal topic, behind the resume's note."""
        self._resumed.add(partition)
        self._wishes.pop(partition, None)
        writing = self._writing.pop(partition, None)
        if writing is not None and not writing.done():
            self._unwritten.add(partition)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    def resumes(self, partition: Partition) -> bool:
        """Returns True if the partition is being resumed."""
        return partition in self._resumed

    def begin_to_take_away(self, partitions: Iterable[Partition]) -> None:
        """From now on these halts are being taken away. Should that fail, or be cancelled, it may have been done."""
        self._unwritten.update(each for each in partitions if each in self._resumed)

    def took_away(self, partitions: Iterable[Partition]) -> None:
        """It is known which of these halts were taken away. The others are not written again: another worker's are."""
        self._unwritten.difference_update(partitions)

    def end_to_resume(self, partition: Partition) -> None:
        """It is resumed, or not, for whatever reason: then it stays halted, and that is written down if it is not."""
        unwritten = partition in self._unwritten
        self._resumed.discard(partition)
        self._unwritten.discard(partition)
        halted, key = partition.halted, (partition.topic, partition.index)
        ours = self._relay.partitions.get(key) is partition and not self._relay.draining
        if halted is None or not ours:
            return
        if unwritten or (halted.reason == PAUSED and not self._is_kept(partition)):
            self.write_down(partition, halted)

    def _is_kept(self, partition: Partition) -> bool:
        """Returns True if the internal topic has this pause."""
        pins = self._relay.pins
        kept = pins.state.ledger.halt(partition.subject)
        if kept is None or kept.reason != PAUSED:
            return False
        return same_ids((kept.source_id, kept.destination_id), pins.known_ids(partition))


def _paused() -> Halted:
    return Halted.of(HaltReason.PAUSED, "paused by an operator")
