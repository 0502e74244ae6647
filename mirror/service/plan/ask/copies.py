"""Looks at both logs of a partition and at its entries in the internal topic, with the relay's own code. The steps are
those of docs/DESIGN.md#32-locating without the takeover. Nothing is written, and nothing is waited for.

The destination's log is taken to end where it ended at the first look, since a mirror of the same flow may run
meanwhile.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import cast

from mirror.net.coordinator import Ownership
from mirror.net.errors import Damaged, NetworkError, Refused, StoredInOldFormat, Unreachable, Unreadable, Unsupported
from mirror.net.logs.log import PartitionLog, SourceLog
from mirror.net.metadata import Leader, Topic, no_leader
from mirror.reasons import HaltReason
from mirror.relay.assignment import Key
from mirror.relay.durable.flows import has_map
from mirror.relay.durable.loops import Loops
from mirror.relay.durable.pins import Pins
from mirror.relay.halts import Halted, PartitionHalted, halt, halted_by_damage, of_mapped, overtaken
from mirror.relay.leading.filler import lead
from mirror.relay.locate.owners import transactional_id
from mirror.relay.locate.position import Locator
from mirror.relay.locate.resync import Resync
from mirror.relay.mapped.beginning import Beginning, ReadBounds
from mirror.relay.mapped.fence import look_before
from mirror.relay.mapped.lastcopy import Sides, check_end
from mirror.relay.orchestrator import Orchestrator
from mirror.relay.partition.claim import Committed
from mirror.relay.partition.partition import Partition
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.pairing import Pair
from mirror.relay.topics.recreated import made_anew
from mirror.relay.watch.expiry import ProducerExpiry
from mirror.service.plan.ask.clusters import group_rights
from mirror.service.plan.ask.group import committed
from mirror.service.plan.ask.readonly import ReadOnlyCluster, ReadOnlyState, Silence, Untouched, WouldLead
from mirror.service.plan.model import PartitionFacts, TopicFacts
from mirror.wire.errors import ErrorCode

NOT_TAKEN_OVER = Ownership(-1, 0)
"""Stands for the first owner of a partition. With it, only the leader's memory of producers is searched for traces of
copies, not the whole log."""


class StillLog(PartitionLog):
    """A destination log that always ends where it ended at the first look."""

    def __init__(self, log: PartitionLog, end: int) -> None:
        super().__init__(log.cluster, log.topic, log.index, log.leader)
        self._end = end

    async def true_end(self) -> int:
        """Returns the end at the first look."""
        return self._end

    async def visible_end(self) -> int:
        """Returns the end at the first look."""
        return self._end


class CopyChecks:
    """Looks at the partitions of a flow."""

    def __init__(
        self,
        source: ReadOnlyCluster,
        destination: ReadOnlyCluster,
        settings: RelaySettings,
        state: ReadOnlyState,
        expiry: ProducerExpiry,
        owners: Mapping[str, int],
    ) -> None:
        """
        Args:
            source, destination: the clusters.
            settings: settings of the flow.
            state: the flow's internal topic.
            expiry: knows when the destination forgets producers.
            owners: transactional id -> producer id of its last owner, for partitions without a checkpoint.
        """
        self._owners = owners
        self._source = source
        self._destination = destination
        self._settings = settings
        self._state = state
        log = Silence()
        self._log = log
        self._pins = Pins(state, source=source, destination=destination, settings=settings, log=log)
        self._locator = Locator(
            source=source,
            destination=destination,
            settings=settings,
            pins=self._pins,
            log=log,
            forgets_before_ms=expiry.forgets_before_ms,
            group_offsets=self._group_offsets,
        )
        self._locator.starts.begin_now()
        # Loops needs only these parts of the relay. There are no running partitions that it would have to halt.
        relay = SimpleNamespace(
            source=source, destination=destination, settings=settings, log=log, pins=self._pins, partitions={}
        )
        self._loops = Loops(cast(Orchestrator, relay), state)

    async def look(
        self, topic: TopicFacts, index: int, committed: Committed | None
    ) -> tuple[PartitionFacts, SourceLog | None]:
        """Looks at one partition.

        Args:
            topic: its topic.
            index: its number.
            committed: what the flow's group has committed for it at the source; None: nothing.

        Returns:
            The facts, without a sample; and the source's log, or None if its leader cannot be asked.
        """
        facts = PartitionFacts(index=index)
        partition = Partition(topic.name, index, topic.pair.destination)
        partition.judge_by(topic.pair.terms)
        partition.inherit(committed, -1)
        here: SourceLog | None = None
        try:
            here = self._source_log(topic.pair, index)
            facts.end = await here.visible_end()
            facts.start = facts.due = await here.start()
            if topic.exists and index < topic.partitions_there:
                await self._both(facts, partition, here)
            else:
                await self._new(partition, topic)
                await self._begin(facts, partition, here, anew=True)
                facts.leading = 0 if self._settings.mapped else facts.start
        except PartitionHalted as stop:
            facts.halted = of_mapped(stop.halted, ()) if self._settings.mapped else stop.halted
            facts.kept = bool(stop.halted.at_ms)
        except (Damaged, Unreadable) as error:
            facts.halted = halted_by_damage(error, self._source.name)
        except StoredInOldFormat as error:
            facts.halted = Halted.of(HaltReason.OLD_FORMAT, str(error))
        except Unsupported as error:
            facts.halted = Halted.of(HaltReason.NO_COMMON_VERSION, str(error))
        except NetworkError as error:
            facts.unknown = str(error)
        return facts, here

    async def _group_offsets(self, group_id: str) -> dict[Key, int]:
        """Returns the offsets that the group has committed at the source, without looking for its coordinator.

        Raises:
            NetworkError: no offsets were returned, and the group may have some all the same: it may not be described,
                or a broker is down.
        """
        found = await committed(self._source, group_id)
        if not found:
            name = self._source.name
            if (await group_rights(self._source, group_id))[1]:
                raise Refused(f"{name}: OffsetFetch of group {group_id}", ErrorCode.GROUP_AUTHORIZATION_FAILED)
            for why in self._source.down.values():
                raise Unreachable(f"{name}: not known what group {group_id} has committed: {why}")
        return {key: each.offset for key, each in found.items()}

    def _source_log(self, pair: Pair, index: int) -> SourceLog:
        leader = _leader(self._source, pair.source, index)
        return SourceLog(self._source, pair.source, index, leader, converts=pair.terms.converts)

    async def _begin(self, facts: PartitionFacts, partition: Partition, here: SourceLog, *, anew: bool) -> None:
        """Finds where the copy begins, if that is not the source's first offset, and changes ``facts`` and ``here``.
        ``anew``: True if nothing was copied yet, so that the settings decide; otherwise only what is written down
        counts."""
        starts = self._locator.starts
        found = starts.known(partition) or (await starts.find(partition, here) if anew else None)
        if found is not None:
            before, here.begins = facts.start, found.offset
            facts.start = facts.due = await here.start()
            facts.left_out = max(0, facts.start - before)

    async def _new(self, partition: Partition, topic: TopicFacts) -> None:
        """Looks at a partition that the destination does not have yet. Raises PartitionHalted if it was copied before:
        its destination topic is gone."""
        await self._loops.before(partition)
        pin = self._state.ledger.pin(partition.subject)
        partition.claim.keep_pin(pin)
        copied = bool(self._state.ledger.notes(partition.subject)) or has_map(self._state.ledger, partition.subject)
        if pin is not None and (copied or not self._pins.unused(partition)):
            raise halt(
                HaltReason.RECREATED_MAPPED if self._settings.mapped else HaltReason.RECREATED,
                f"{partition.name} was copied into {topic.pair.destination}, which {self._destination.name} does not "
                "have any more",
            )

    async def _both(self, facts: PartitionFacts, partition: Partition, here: SourceLog) -> None:
        await self._pins.recall(partition)
        await self._loops.before(partition)
        topic = self._destination.topics[partition.destination]
        log = PartitionLog(
            self._destination, topic, partition.index, _leader(self._destination, topic, partition.index)
        )
        facts.there_start, facts.there_end = await asyncio.gather(log.start(), log.visible_end())
        there = StillLog(log, facts.there_end)
        uncopied = not facts.there_end and self._pins.unused(partition)
        if self._settings.mapped:
            # The group's note of a batch is a trace of copies (``relay.mapped.beginning``).
            noted = partition.claim.committed is not None and bool(partition.claim.committed.digest)
            uncopied = not noted and not has_map(self._state.ledger, partition.subject)
        await self._begin(facts, partition, here, anew=uncopied)
        if self._settings.mapped:
            await self._mapped(facts, partition, here, there)
            return
        if made_anew(partition, self._source, self._destination) and self._pins.unused(partition):
            facts.begun_anew = not facts.there_end
        if facts.begun_anew:
            partition.claim.identify(None, None)
        self._locator.logs(partition)  # halts if a topic was recreated
        await self._pins.check_settings(partition, there)
        if self._pins.unused(partition) and partition.claim.pin is None:
            await self._locator.flows.check_new(partition)
        try:
            await self._exact(facts, partition, here, there)
        except PartitionHalted as stop:
            raise await self._locator.flows.named(stop, partition) from stop

    async def _exact(self, facts: PartitionFacts, partition: Partition, here: SourceLog, there: PartitionLog) -> None:
        if await self._leads(facts, partition, here, there):
            return
        rules = replace(self._locator.rules(partition), rest=_no_rest, vouch=partial(self._pins.vouch, partition, here))
        found = await Resync(here, there, rules, self._log).run(settle=False)
        facts.due = max(found.offset, found.fill_to)

    async def _leads(self, facts: PartitionFacts, partition: Partition, here: SourceLog, there: PartitionLog) -> bool:
        """Returns True if the mirror would first fill the offsets before the source's first record."""
        try:
            await lead(
                here,
                there,
                self._locator.leading(partition),
                partition.claim.begun,
                settled=there.true_end,
                owns=_owned,
                cleanup=Untouched(),
                log=self._log,
            )
        except WouldLead:
            facts.leading = max(0, facts.start - facts.there_end)
            return facts.leading > 0
        return False

    async def _mapped(self, facts: PartitionFacts, partition: Partition, here: SourceLog, there: PartitionLog) -> None:
        partition.claim.identify(here.topic.topic_id, there.topic.topic_id)
        await self._pins.check_settings(partition, there)
        if not has_map(self._state.ledger, partition.subject):
            await self._locator.flows.check_new(partition)
        rules, ledger = self._locator.rules(partition), self._state.ledger
        checkpoint = ledger.checkpoint(partition.subject)
        own = {rules.owner, *ledger.own(partition.subject)}
        owner = self._owners.get(transactional_id(self._settings.flow, partition))
        if owner is not None:
            own.add(owner)
        beginning = Beginning(
            partition,
            here,
            there,
            rules,
            self._state,
            self._log,
            accounts=ledger.of(partition.subject),
            own=own,
            bounds=ReadBounds(facts.start, facts.there_start, facts.there_end),
        )
        start = await beginning.find(await look_before(there, self._log), NOT_TAKEN_OVER)
        sides = Sides(
            partition.name, here, there, facts.start, facts.there_start, partition.terms.compacted, rules.opening
        )
        await check_end(sides, start.source, rules.settle_s)
        if checkpoint is not None and checkpoint.closed and facts.start > start.source and not start.anew:
            raise overtaken(partition.name, start.source, facts.start, here.floor)
        facts.due = max(start.source, facts.start)


async def _no_rest(_: float) -> None:
    """Does not wait: a ``StillLog`` always stands still."""


async def _owned() -> bool:
    return True


def _leader(cluster: ReadOnlyCluster, topic: Topic, index: int) -> Leader:
    leader = cluster.leader(topic.name, index)
    if leader is None:
        raise no_leader(cluster.name, topic.name, index, topic)
    if leader.node_id in cluster.down:
        raise NetworkError(cluster.down[leader.node_id])
    return leader
