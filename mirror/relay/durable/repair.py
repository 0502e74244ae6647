"""What the internal topic has lost while the mirror runs, written again as far as this process knows it.

The topic may be deleted, made anew, cut (DeleteRecords), or lose its end in an unclean election. Nothing else would
tell: what comes next is written there, and whoever reads it later takes what is left for all that there was.
"""

import asyncio

from mirror.net.errors import NetworkError
from mirror.offsetmap.pins import Halt
from mirror.offsetmap.records import Ledger
from mirror.offsetmap.runs import MapError
from mirror.offsetmap.topic import Memory, StateUnusable
from mirror.reasons import HaltReason
from mirror.relay.durable.pins import Pins
from mirror.relay.halts import Halted
from mirror.relay.mapped.copied import Copied
from mirror.relay.owner import Owner
from mirror.relay.partition import Partition
from mirror.relay.phases import Phase


class Rewriting:
    """Of one flow in one process. Each process writes of its own partitions only: of the others', their owners know
    more."""

    def __init__(self, owner: Owner, state: Memory, pins: Pins, writing: asyncio.Lock) -> None:
        """``writing``: held while checkpoints and maps are written down."""
        self._writing = writing
        self._owner = owner
        self._state = state
        self._pins = pins
        self._unchecked: dict[Partition, Copied] = {}
        """Whose maps may lack a part."""
        self._told = ""

    async def look(self) -> bool:
        """One look at the topic. What it has lost is told and written again, checkpoints and maps by what is written
        down next; partitions whose map is not whole any more halt.

        Returns:
            Whether checkpoints and maps are to be written down now.
        """
        lost, unusable = False, None
        try:
            try:
                await self._state.look(replication_factor=self._owner.settings.state_replication_factor)
            except StateUnusable as error:
                unusable = error
            if self._state.lost is not None:
                lost = True
                async with self._writing:
                    await self._rewrite(self._state.lost)
            await self._pins.introduce()
            if unusable is None:
                self._told = ""
        except NetworkError as error:
            self._tell(error)
        if unusable is not None:
            self._tell(unusable)
        self._check_maps()
        return lost

    def _tell(self, error: NetworkError) -> None:
        """Once, until something else is wrong."""
        if str(error) != self._told:
            self._told = str(error)
            event = "state_unusable" if isinstance(error, StateUnusable) else "state_not_read"
            self._owner.log.warning(event, topic=self._state.topic, detail=self._told)

    async def _rewrite(self, lost: Ledger) -> None:
        partitions, ledger = {each.side: each for each in self._owner.partitions.values()}, self._state.ledger
        missing = [
            entry
            for entry in lost.about(partitions)
            # Resumed since, it is not forgotten by a topic that does not have it.
            if not ledger.has(entry.key()) and not (isinstance(entry, Halt) and partitions[entry.side].halted is None)
        ]
        unknown = [flow for flow in lost.flows if not ledger.has(flow.key())]
        mapped = {each: each.copied for each in partitions.values() if each.copied is not None}
        for copied in mapped.values():
            copied.again()
        self._unchecked.update(mapped)
        await self._state.save(missing)
        self._state.lost = None
        if missing or unknown:
            self._owner.log.warning(
                "state_lost",
                topic=self._state.topic,
                detail=f"{self._state.topic} was deleted, made anew or cut, and has lost what was written down there; "
                "what is known of the partitions here is written again",
                remedy="find out who did that, and let nobody but the mirror write to mirror-internal.* or delete from "
                "it: what no running worker knows is lost",
            )

    def _check_maps(self) -> None:
        """Sealed chunks are not in memory: what the topic has lost of them is lost."""
        for partition, copied in list(self._unchecked.items()):
            if partition.phase is Phase.LOCATING and partition.copied is copied:
                continue
            del self._unchecked[partition]
            # Taken over anew since, it was looked at then.
            if partition.copied is copied and partition.phase in (Phase.ACTIVE, Phase.DOUBT):
                missing = _missing(self._state.ledger, copied)
                if missing:
                    detail = f"{self._state.topic} lacks a part of the offset map of {partition.name}: {missing}"
                    self._owner.halt(partition, Halted.of(HaltReason.MAP_LOST, detail))


def _missing(ledger: Ledger, copied: Copied) -> str:
    """What the map lacks, with all of it written that is in memory; empty: nothing."""
    side = copied.journal.side
    view = ledger.of(side)
    for chunk in copied.journal.unwritten():
        view.put(chunk)
    ours = copied.checkpoint(0)
    view.put(ours)
    if view.checkpoint(side) != ours:
        return ""  # somebody else's by now
    try:
        view.linked(side)
    except MapError as error:
        return str(error)
    return ""
