"""Writes again what the internal topic has lost while the mirror runs, as far as this process knows it.

The topic may be deleted, recreated, cut (DeleteRecords), or lose its end in an unclean election. Nothing else would
show that: later records are written there all the same, and a later reader takes what is left for the whole.
"""

import asyncio

from mirror.net.errors import NetworkError, NotSent
from mirror.offsetmap.entries.pins import KeptHalt
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import Memory, StateUnusable
from mirror.offsetmap.runs import MapError
from mirror.reasons import HaltReason
from mirror.relay.durable.pins import Pins
from mirror.relay.halts import Halted
from mirror.relay.mapped.copied import CopiedRuns
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase


class Rewriting:
    """Repairs the internal topic of one flow, in one process. Each process writes only about its own partitions: the
    owners of the other partitions know more about those."""

    def __init__(self, relay: Orchestrator, state: Memory, pins: Pins, writing: asyncio.Lock) -> None:
        """``writing``: held while checkpoints and maps are written down."""
        self._writing = writing
        self._relay = relay
        self._state = state
        self._pins = pins
        self._unchecked: dict[Partition, CopiedRuns] = {}
        """Partitions whose maps may lack a part, with the account that the map belongs to."""
        self._told = ""

    async def look(self) -> bool:
        """Looks at the topic once. If it has lost something, logs that and writes it again; checkpoints and maps follow
        with the caller's next write. Halts partitions whose maps are no longer complete.

        Returns:
            True if checkpoints and maps are to be written now.
        """
        lost, unusable = False, None
        try:
            try:
                await self._state.look(replication_factor=self._relay.settings.state_replication_factor)
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
        """Logs the error, once until there is another one."""
        if str(error) != self._told:
            self._told = str(error)
            event = "state_unusable" if isinstance(error, StateUnusable) else "state_not_read"
            self._relay.log.warning(event, topic=self._state.topic, detail=self._told)

    async def _rewrite(self, lost: Ledger) -> None:
        partitions, ledger = {each.subject: each for each in self._relay.partitions.values()}, self._state.ledger
        missing = [
            entry
            for entry in lost.about(partitions)
            # If the partition was resumed since, its halt was no longer in the topic, so the resume did not remove it
            # from ``lost``.
            if not ledger.has(entry.key())
            and not (isinstance(entry, KeptHalt) and partitions[entry.subject].halted is None)
        ]
        # A resume takes a while, and may fail. The other entries do not wait for it: a later look sees to these halts.
        later = [
            entry
            for entry in missing
            if isinstance(entry, KeptHalt) and self._relay.pausing.resumes(partitions[entry.subject])
        ]
        missing = [entry for entry in missing if entry not in later]
        unknown = [flow for flow in lost.flows if not ledger.has(flow.key())]
        mapped = {each: each.queue.copied for each in partitions.values() if each.queue.copied is not None}
        for copied in mapped.values():
            copied.again()
        self._unchecked.update(mapped)
        halted = [partitions[entry.subject] for entry in missing if isinstance(entry, KeptHalt)]
        try:
            await self._state.save(missing, may=(lambda: all(map(self._stands, halted))) if halted else None)
        except NotSent:
            return  # a halt has ended meanwhile: the next look writes the others
        if not later:
            self._state.lost = None
        if missing or unknown:
            self._relay.log.warning(
                "state_lost",
                topic=self._state.topic,
                detail=f"{self._state.topic} was deleted, recreated or cut, and has lost what was written down there; "
                "what is known of the partitions here is written again",
                remedy="find out who did that, and let nobody but the mirror write to mirror-internal.* or delete from "
                "it: what no running worker knows is lost",
            )

    def _stands(self, partition: Partition) -> bool:
        """Returns True if the partition is still ours and halted, and is not being resumed."""
        ours = self._relay.partitions.get((partition.topic, partition.index)) is partition
        return ours and partition.halted is not None and not self._relay.pausing.resumes(partition)

    def _check_maps(self) -> None:
        """Halts partitions whose maps lack sealed chunks. These chunks are not in memory, so they cannot be written
        again."""
        for partition, copied in list(self._unchecked.items()):
            if partition.phase is Phase.LOCATING and partition.queue.copied is copied:
                continue
            del self._unchecked[partition]
            # If the partition was taken over again since, its map was checked then.
            if partition.queue.copied is copied and partition.phase in (Phase.ACTIVE, Phase.DOUBT):
                missing = _missing(self._state.ledger, copied)
                if missing:
                    detail = f"{self._state.topic} lacks a part of the offset map of {partition.name}: {missing}"
                    self._relay.halt(partition, Halted.of(HaltReason.MAP_LOST, detail))


def _missing(ledger: Ledger, copied: CopiedRuns) -> str:
    """Returns what the map would still lack once everything in memory is written; empty if nothing."""
    subject = copied.open_map.subject
    view = ledger.of(subject)
    for chunk in copied.open_map.unwritten():
        view.put(chunk)
    ours = copied.checkpoint(0)
    view.put(ours)
    if view.checkpoint(subject) != ours:
        return ""  # somebody else has written a later one
    try:
        view.linked(subject)
    except MapError as error:
        return str(error)
    return ""
