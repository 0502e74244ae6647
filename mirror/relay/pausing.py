"""Pauses partitions for an operator: what was fetched is still copied, then they halt as ``paused`` until they are
resumed.

A pause is written down like any other halt. So it outlives restarts, and counts for whoever takes the partition over.
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
"""Longest wait for partitions to come to rest, in seconds. Partitions that have not by then do so later."""
LOOK_EVERY_S = 0.02
_STOPPING = "the mirror is being stopped: pause it once it runs again"
_ELSEWHERE = "let go meanwhile: another worker has it; try again"
_NOT_YET = "not yet: the destination has not answered for all that was sent; it pauses once it has"
_UNWRITTEN = "it has stopped, but that could not be written down yet: a restart may resume it"
_WITHDRAWN = "resumed meanwhile"
_FINAL = frozenset({_STOPPING, _ELSEWHERE, _WITHDRAWN})
_HALTED = "it has halted already"


class Pausing:
    """Pauses the partitions of a relay. Also keeps the tasks that write down that a partition has halted, for any
    reason."""

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._wanted: dict[Partition, None] = {}
        """Partitions that are to be paused, and still have something in flight. A dict, used as an ordered set."""
        self._wishes: dict[Partition, object] = {}
        """Partitions that an operator wants paused, until they are resumed or let go. The value identifies that
        wish."""
        self._writing: dict[Partition, asyncio.Task[None]] = {}
        """The task that writes down that a partition has halted."""
        self._resumed: set[Partition] = set()
        """Partitions that are being resumed. A pause of one of them waits until that is done."""
        self._unwritten: set[Partition] = set()
        """Partitions being resumed of whose halt it is not certain that it is written down."""

    async def pause_all(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Pauses partitions, and waits for at most ``WATCH_S`` until that is done and written down.

        A partition that has halted for a reason that an operator must deal with stays as it is. A partition whose halt
        would end by itself is paused.

        Returns:
            Partition -> why it is not paused, or not certainly; empty if it is.
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
        """Does what can be done now. Returns None once the partition is paused and that is written down; otherwise why
        it is not, or not yet."""
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
        """Pauses a partition that is being located, unless an earlier halt of it is written down: then locating it
        finds that halt, too."""
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
        """Halts the partition once nothing of it is in flight. If another halt already waits for that, it comes
        first."""
        self._wanted[partition] = None
        if partition.phase is Phase.ACTIVE and partition.cursor.ending is None:
            self._relay.halt_when_drained(partition, _paused())

    def _replace(self, partition: Partition) -> None:
        """Pauses a partition that has halted for a reason that ends by itself. Otherwise it would go on then."""
        halted = _paused()
        partition.still_halted(halted)
        self._relay.tell_halted(partition, halted)
        self.write_down(partition, halted)

    # -- events --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Pauses the wanted partitions again, after batches may have been dropped that are to be fetched again. The
        halt that was waiting may have been dropped with them."""
        for partition in [*self._wanted]:
            self._want(partition)

    def takes(self, partition: Partition) -> bool:
        """Pauses a partition that is about to be located again, if it is to be paused. Returns False if it is not."""
        if partition not in self._wanted:
            return False
        self._relay.halt(partition, _paused())
        return True

    def halted(self, partition: Partition) -> None:
        """Notes that a partition has halted. If it was to be paused and might go on by itself, it is paused instead."""
        if partition not in self._wanted:
            return
        self._wanted.pop(partition, None)
        if partition.halted is not None and not is_durable(partition.halted.reason):
            self._replace(partition)

    def released(self, partition: Partition) -> None:
        """Notes that the partition is not ours any more."""
        self._wanted.pop(partition, None)
        self._wishes.pop(partition, None)
        self._writing.pop(partition, None)

    def write_down(self, partition: Partition, halted: Halted) -> None:
        """Begins to write down that the partition has halted, and after that what was due."""
        may_tell = self._relay.locator.owners.may_tell
        writing = self._writing[partition] = self._relay.spawn(self._relay.pins.halted(partition, halted, may_tell))
        self._relay.spawn(self._note_due(partition, halted, writing))

    async def _note_due(self, partition: Partition, halted: Halted, writing: "asyncio.Task[None]") -> None:
        # The halt goes first, whether the source can be asked or not. A resume stops only the writing of the halt: what
        # the source has deleted by then was due.
        await asyncio.wait([writing])
        await self._relay.pins.due.write_down(partition, halted, self._relay.locator.owners.may_tell)

    # -- resuming ------------------------------------------------------------------------------------------------------

    def give_up(self, partition: Partition) -> bool:
        """Ends the pause of a partition that is not paused yet, because an operator resumes it: it goes on. Returns
        False if the partition was not to be paused, or has halted already."""
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
        """Notes that the partition is being resumed. From now on, nothing about its halt is written. A write that has
        begun is cancelled: it might wait at the internal topic behind the resume's write, and would undo it."""
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
        """Notes that these halts are being removed from the internal topic. If that fails or is cancelled, it may have
        been done all the same."""
        self._unwritten.update(each for each in partitions if each in self._resumed)

    def took_away(self, partitions: Iterable[Partition]) -> None:
        """Notes that it is now known which of these halts were removed. The others are not written again: they are
        other workers' halts."""
        self._unwritten.difference_update(partitions)

    def end_to_resume(self, partition: Partition) -> None:
        """Notes that the resume has ended. If the partition is still halted, and that may not be written down, it is
        written."""
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
