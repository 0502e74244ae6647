"""Detects loops: a flow the other way copies what this one has written, and this one would copy it again.

With ``offsets: mapped`` nothing in the log shows that, since every mirror appends behind whatever is there. But each
flow writes down at its destination what it copies before it copies anything (``relay.durable.pins``, checkpoints), and
the destination of the opposite flow is our source. So its internal topic is read there: whenever topics are looked for,
and for a partition that was never copied before once more *behind* its own first entry. Of two mirrors that begin at
the same moment, at least one sees the other's entry.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from kafka.protocol.metadata import MetadataRequest

from mirror.net.errors import Damaged, NetworkError, Unreachable, Unreadable
from mirror.offsetmap.pins import AcceptedLoop, Flow
from mirror.offsetmap.records import Ledger, Side
from mirror.offsetmap.topic import PREFIX, UNREADABLE, Memory, Shared, State, passes
from mirror.reasons import GAPS, HaltReason
from mirror.relay.durable.flows import digest_of
from mirror.relay.halts import Halted, halt
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase

LOOK_EVERY_S = 60.0
"""Internal topics of the source are read this often if there are flows the other way; otherwise only with topics."""
WATCH_S = 300.0
"""After an operator has accepted a flow the other way, it is looked for more often for so long."""
WATCH_EVERY_S = 1.0
"""Pause between two of these looks."""


class _Opposite(NamedTuple):
    """A flow that copies a partition's destination topic back into its source topic."""

    flow: str
    topic: str
    """Its internal topic."""
    digest: str
    """Digest of what it has written down about the partition. It changes whenever the flow has copied more."""


class Loops:
    """Looks for loops in all partitions of a process. ``state``: the internal topic of this flow."""

    def __init__(self, relay: Orchestrator, state: Memory) -> None:
        self._relay = relay
        self._state = state
        self._looks = Shared(self._look_up)
        self._looked = False
        self._there: dict[str, State] = {}
        """Internal topics of the source."""
        self._begun: set[Side] = set()
        """Partitions that were never copied before, until it is certain that none of them comes back."""
        self._told: set[str] = set()
        self._watched_until = 0.0

    # -- when to look --------------------------------------------------------------------------------------------------

    async def renew(self) -> None:
        """Looks once, and halts running partitions that come back. If the look fails, the earlier findings stand."""
        try:
            await self._looks.run()
        except NetworkError as error:
            self._relay.log.warning("loops_not_looked_for", detail=str(error))
            return
        for partition in list(self._relay.partitions.values()):
            if partition.phase in (Phase.ACTIVE, Phase.DOUBT) and (found := self._opposite(partition)) is not None:
                self._relay.halt(partition, self._halted(partition, found))

    async def keep(self) -> None:
        """Looks regularly if there is a flow the other way, until cancelled."""
        loop = asyncio.get_running_loop()
        looked = loop.time()
        while True:
            await asyncio.sleep(min(LOOK_EVERY_S, WATCH_EVERY_S))
            if loop.time() - looked < LOOK_EVERY_S and loop.time() >= self._watched_until:
                continue
            looked = loop.time()
            if any(self._flow(each.ledger) is not None for each in self._there.values()):
                await self.renew()

    async def before(self, partition: Partition) -> None:
        """Checks the partition before its position is sought.

        Raises:
            PartitionHalted: it comes back.
            NetworkError: cannot be determined now.
        """
        if not self._looked:
            await self._looks.run()
        ledger, side = self._state.ledger, partition.side
        if ledger.pin(side) is None and ledger.checkpoint(side) is None:
            self._begun.add(side)
        self._check(partition)

    async def behind(self, partition: Partition) -> None:
        """Checks the partition behind its first entry, and before its first batch; raises as ``before`` does."""
        if partition.side in self._begun:
            await self._looks.run()
        self._check(partition)
        self._begun.discard(partition.side)

    async def resumed(self, partitions: Iterable[Partition], *, accept: bool) -> None:
        """Looks again at partitions that are resumed. ``accept``: an operator says that the flows the other way have
        ended, though nothing shows it. Then what they wrote until now no longer counts. One that still copies feeds
        this flow, and this one feeds it, so it is looked for often from here on.

        Raises:
            NetworkError: it is not certain that it was written.
        """
        halted = [each for each in partitions if each.halted and each.halted.reason == HaltReason.LOOP.slug]
        if not halted:
            return
        await self._looks.run()
        if not accept:
            return
        self._watched_until = asyncio.get_running_loop().time() + WATCH_S
        found = [(each.side, opposite) for each in halted for opposite in self._opposites(each)]
        await self._state.save(
            [AcceptedLoop(side=side, by=opposite.topic, digest=opposite.digest) for side, opposite in found]
        )

    # -- what was found ------------------------------------------------------------------------------------------------

    def _check(self, partition: Partition) -> None:
        found = self._opposite(partition)
        if found is not None:
            raise halt(HaltReason.LOOP, self._detail(partition, found))

    def _halted(self, partition: Partition, found: _Opposite) -> Halted:
        return Halted.of(HaltReason.LOOP, self._detail(partition, found))

    def _detail(self, partition: Partition, found: _Opposite) -> str:
        here, there = self._relay.source, self._relay.destination
        return (
            f'flow "{found.flow}" ({found.topic} at {here.name}) copies {partition.destination}-{partition.index} of '
            f"{there.name} into {partition.topic}-{partition.index} of {here.name}"
        )

    def _opposite(self, partition: Partition) -> _Opposite | None:
        """Returns the first opposite flow of which nothing is accepted, or that has written more since."""
        ledger = self._state.ledger
        for found in self._opposites(partition):
            accepted = ledger.accepted_loop(partition.side, found.topic)
            if accepted is None or accepted.digest != found.digest:
                return found
        return None

    def _opposites(self, partition: Partition) -> list[_Opposite]:
        """Returns all flows that copy the partition's destination into its source, and have not halted."""
        back = Side(partition.destination, partition.index, partition.topic)
        return [
            _Opposite(flow.flow, name, digest)
            for name, state in sorted(self._there.items())
            if (flow := self._flow(state.ledger)) is not None
            and (digest := self._trace(state.ledger, back))
            and not self._stands(state.ledger, back, partition)
        ]

    def _flow(self, ledger: Ledger) -> Flow | None:
        """Returns the flow of an internal topic of the source that comes from our destination."""
        here, there = self._relay.source.cluster_id, self._relay.destination.cluster_id
        for flow in ledger.flows:
            if flow.source_cluster == there and flow.destination_cluster in ("", here):
                return flow
        return None

    def _trace(self, ledger: Ledger, side: Side) -> str:
        """Returns the digest of what is written down of a partition; empty: nothing was copied of it."""
        pin, checkpoint = ledger.pin(side), ledger.checkpoint(side)
        if pin is not None and pin.source_cluster not in ("", self._relay.destination.cluster_id):
            pin = None
        if pin is None and checkpoint is None:
            return ""
        return digest_of([pin, checkpoint, *(ledger.notes(side) if pin is not None else ())])

    def _stands(self, ledger: Ledger, side: Side, partition: Partition) -> bool:
        """Returns True if the opposite flow's partition has halted, for good, with the current topics."""
        halted = ledger.halt(side)
        if halted is None or halted.reason in GAPS:
            return False
        return (halted.destination_id, halted.source_id) == self._relay.pins.ids(partition)

    # -- the source's internal topics ----------------------------------------------------------------------------------

    async def _look_up(self) -> None:
        relay = self._relay
        if relay.source.cluster_id and relay.destination.cluster_id:
            answer = await relay.source.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
            found = {topic.name: topic.error_code for topic in answer.topics if topic.name.startswith(PREFIX)}
            for name in self._there.keys() - found.keys():
                del self._there[name]
            for name, code in found.items():
                if code:
                    raise Unreachable(f"cluster {relay.source.name}: {name} has no leader at present")
                await self._read(name)
        self._looked = True

    async def _read(self, name: str) -> None:
        """Reads on in one of them. If no flow from our destination writes to it, only its flows are kept: such a flow
        would write its name before anything that it copies."""
        state = self._there.get(name) or State(self._relay.source, "", topic=name, lean=True)
        try:
            if name in self._there:
                await state.load()
            elif not await state.open(create=False):
                return
        except UNREADABLE as error:
            if passes(error):
                raise
            self._there.pop(name, None)
            if name not in self._told:
                self._told.add(name)
                self._relay.log.warning(
                    "loops_not_seen",
                    detail=f"{name} at {self._relay.source.name} cannot be read: {error}",
                    remedy=f"{_remedy(error, name)}; a topic that is mirrored both ways is else copied to and fro "
                    "without end",
                )
            return
        self._there[name] = state
        if self._flow(state.ledger) is None:
            kept = Ledger(lean=True)
            for flow in state.ledger.flows:
                kept.put(flow)
            state.ledger = kept


def _remedy(error: NetworkError, name: str) -> str:
    if isinstance(error, Damaged | Unreadable):
        return f"see that broker's disk; if the flow of {name} is not used any more, delete that topic"
    return "grant the mirror's principal Read and Describe on mirror-internal.* at the source, too"
