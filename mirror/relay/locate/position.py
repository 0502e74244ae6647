"""Finds the two logs of a partition in their clusters, and locates the partition from them
(``relay.locate.resync``)."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused, Unreachable
from mirror.net.logs.log import PartitionLog, SourceLog
from mirror.net.metadata import Leader, Topic, no_leader, not_described
from mirror.reasons import HaltReason
from mirror.records.filler import filler_id
from mirror.records.identity import producer_id
from mirror.relay.durable.flows import Flows
from mirror.relay.durable.notes import was_copied
from mirror.relay.durable.pins import Pins
from mirror.relay.durable.starts import GroupOffsets, Starts, check_kept
from mirror.relay.events import EventLog
from mirror.relay.halts import PartitionHalted, halt, halted_by_lack
from mirror.relay.holes.gaps import gap_behind
from mirror.relay.holes.markers import ByMarkers, ByTransactions, MarkerRun, MarkerWriter, Pace
from mirror.relay.leading.cleanup import Cleanups
from mirror.relay.leading.filler import Lead, lead, trim
from mirror.relay.locate.owners import Owners
from mirror.relay.locate.resync import Resync, ResyncResult, barrier, standing_still
from mirror.relay.locate.rules import Rest, ResyncRules
from mirror.relay.outcome import END_MOVED, Moved, NotOurs
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.queue import Hole
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.recreated import ToldIds, another, made_anew

MISSING_LOOKS = 8
"""Consecutive looks, with growing pauses, before a topic that a cluster does not know counts as gone, and before
brokers that do not say which id a topic has are ignored. A broker that has just started (before KRaft) knows no topic
for a moment. With the default backoff, the pauses take about 13 s."""
ASKING_S = 0.1
"""Brokers take longer than this to answer only if one of them does not answer: then the seat is given back."""

LOOKS_PER_OWNER = 64
"""Number of coordinator epochs reserved for each owner of a partition: each look at the log's producers takes the next
one. An owner that uses more shares them with the next owner. So do owners once the coordinator counts from 0 again."""


class Locator:
    """Locates partitions. Holds no state of single partitions."""

    def __init__(
        self,
        *,
        source: Cluster,
        destination: Cluster,
        settings: RelaySettings,
        pins: Pins,
        log: EventLog,
        forgets_before_ms: Callable[[], float] = lambda: 0.0,
        group_offsets: GroupOffsets | None = None,
    ) -> None:
        """``forgets_before_ms``: see ``relay.orchestrator.Orchestrator``; ``group_offsets``: see ``Starts``."""
        self.forgets_before_ms = forgets_before_ms
        self._source = source
        self._destination = destination
        self._settings = settings
        self._pins = pins
        self.flows = Flows(
            destination,
            flow=settings.flow,
            source_cluster=source.cluster_id,
            state=pins.state,
            mapped=settings.mapped,
        )
        self.log = log
        self.starts = Starts(pins.state, source=source, settings=settings, log=log, group_offsets=group_offsets)
        self._opening = asyncio.Lock()
        self._pace = Pace(settings.max_fill_per_second)
        self._cleanups = Cleanups(source, destination, settings.synced_configs, pins.state, log)
        self.owners = Owners(destination, flow=settings.flow, log=log)
        self._told_ids = ToldIds()

    async def locate(self, partition: Partition, *, takeover: bool, rest: Rest = asyncio.sleep) -> Location:
        """Returns where the partition goes on.

        Args:
            partition: the partition.
            takeover: True if the partition was not ours a moment ago, so that a predecessor may still send.
            rest: waits while the log's end has to stand still.

        Raises:
            PartitionHalted: it cannot go on, and another look will not help.
            NotOurs: another worker has taken it over.
            NetworkError: cannot be determined now; try again after a refresh of the metadata.
        """
        try:
            return await self._locate(partition, takeover=takeover, rest=rest)
        except PartitionHalted as stop:
            if stop.halted.reason == HaltReason.RECREATED.slug:
                raise await self._with_what_is_there(stop, partition) from stop
            named = await self.flows.named(stop, partition)
            if named.halted.reason == HaltReason.FOREIGN_WRITER.slug and partition.claim.pin is None:
                named = PartitionHalted(replace(named.halted, remedy=HaltReason.FOREIGN_BEFORE.told))
            raise named from stop

    async def _with_what_is_there(self, stop: PartitionHalted, partition: Partition) -> PartitionHalted:
        """Returns the halt with the offsets that a new destination topic already holds added to its detail. Nothing of
        ours is in flight any more, so these do not change."""
        topic = self._destination.topics.get(partition.destination)
        if topic is None or not another(self._destination, topic.name, partition.claim.destination_id):
            return stop
        try:
            leader = self._leader(self._destination, topic, partition.index)
            there = PartitionLog(self._destination, topic, partition.index, leader)
            start, end = await asyncio.gather(there.start(), there.true_end())
        except NetworkError:
            return stop
        holds = (
            f"it holds offsets {start} to {end - 1}" if start < end else "it is empty" if not end else "it was emptied"
        )
        return halt(HaltReason.RECREATED, f"{stop.halted.detail}; {holds}")

    async def _locate(self, partition: Partition, *, takeover: bool, rest: Rest) -> Location:
        await self._adopt_anew(partition, rest, takeover=takeover)
        here, there = self.logs(partition)
        level = await self._pins.check_settings(partition, there)
        if takeover:
            # Before either log is read: from here on, a predecessor that asks for the owner learns to let go.
            await self.owners.take_over(partition)
        await self._begin(partition, here, there, rest, takeover=takeover)
        # As long as nothing is copied, the log holds at most filler: a kill -9 of the brokers brings back what was
        # trimmed.
        led = here.begins or partition.claim.begun.until >= 0
        if takeover or (led and not partition.counts.batches):
            if not takeover and not await self.owners.owns(partition):
                raise NotOurs(partition.name)
            if await self._lead(partition, here, there, rest) and not partition.counts.batches:
                partition.begin_again()
        found = await self._resync(partition, here, there, rest, takeover=takeover)
        found = await self._go_over_gap(partition, here, found)
        await self._pin(partition, end=found.offset, fill_to=found.fill_to, given_up=found.accepted)
        if level:
            self.tell_level(partition, level, found.offset)
        await self._pins.passed.forget(partition, found.log_start)
        if found.log_start < found.source_start:
            found = found._replace(log_start=await self._trim(partition, there, found))
        return Location(
            offset=found.offset,
            identity=found.identity,
            last_epoch=found.last_epoch,
            destination_leader=there.leader,
            source_leader=here.leader,
            source_end=found.source_end,
            log_start=found.log_start,
            proven=found.proven,
            coordinator_epoch=found.coordinator_epoch,
            source_start=found.source_start,
            floor=here.floor,
            holes_from=found.holes_from,
            fill_to=found.fill_to,
            inside=found.inside,
            accepted=found.accepted,
            ended_at=found.ended_at,
            settled_at=0.0 if found.settled else time.monotonic() + self._settings.settle_ms / 1000,
        )

    async def _begin(
        self, partition: Partition, here: SourceLog, there: PartitionLog, rest: Rest, *, takeover: bool
    ) -> None:
        """Decides where the copy begins, if nothing of it was ever copied. Otherwise checks that an earlier decision
        still holds."""
        settle_s = self._settings.settle_ms / 1000
        may_be_new = takeover and self.starts.wanted and self._pins.unused(partition) and not await there.true_end()
        # What a predecessor has sent may still arrive: it may have followed another decision.
        if may_be_new and not await standing_still(there, settle_s, self.log, rest):
            await self.starts.decide(partition, here)
        if here.begins and not await self._is_late(partition, here, there) and not was_copied(partition):
            await check_kept(partition, here, self.starts.known(partition), settle_s)

    async def _is_late(self, partition: Partition, here: SourceLog, there: PartitionLog) -> bool:
        """Returns True if the copy has begun before the decided offset. Then that decision no longer counts."""
        late = await self.starts.is_late(partition, there, self._filler(partition))
        here.begins = self.starts.begins(partition)
        return late

    async def _adopt_anew(self, partition: Partition, rest: Rest, *, takeover: bool) -> None:
        """Adopts topics that were recreated before anything of the partition was copied. There is nothing to protect,
        so its pin is written again. Does nothing in any other case: ``logs`` halts partitions of other recreated
        topics."""
        before = partition.claim.source_id, partition.claim.destination_id
        others = made_anew(partition, self._source, self._destination)
        topic = self._destination.topics.get(partition.destination)
        if not others or topic is None or partition.topic not in self._source.topics:
            return
        if not self._pins.unused(partition):
            return
        ids = self._pins.ids(partition)
        await _at_rest(self.check_ids(partition), rest)
        leader = self._leader(self._destination, topic, partition.index)
        there = PartitionLog(self._destination, topic, partition.index, leader)
        start, end = await asyncio.gather(there.start(), there.true_end())
        if start or end or not await self.owners.owns(partition):
            return
        if takeover:
            await self.owners.take_over(partition)
        # Batches for the previous topic that a predecessor has sent may still arrive.
        if await standing_still(there, self._settings.settle_ms / 1000, self.log, rest):
            return
        origin = self._source.topics.get(partition.topic)
        if origin is None or self._pins.ids(partition) != ids:
            raise Unreachable(f"{partition.name}: a topic is gone, or was recreated once more, in the meantime")
        partition.claim.identify(origin.topic_id, topic.topic_id)
        try:
            await self._pins.pin(partition)
        except NetworkError:
            partition.claim.identify(*before)
            raise
        detail = f"{'; '.join(others)}; nothing of it was copied, so the copy begins again"
        self.log.warning("begun_anew", topic=partition.topic, partition=partition.index, detail=detail)

    async def _resync(
        self, partition: Partition, here: SourceLog, there: PartitionLog, rest: Rest, *, takeover: bool
    ) -> ResyncResult:
        """Returns the position. Deleted source records count as overtaken (``retention_overtook``) only if something
        was copied. As long as the destination holds nothing but filler, the copy begins where the source begins now."""
        while True:
            rules = replace(
                self.rules(partition),
                rest=rest,
                vouch=partial(self._pins.vouch, partition, here),
                kept=partial(self._pins.check_kept, partition, here, takeover=takeover, owns=self.owners.owns),
                passed=partial(self._pins.passed.offsets, partition),
            )
            try:
                found = await Resync(here, there, rules, self.log).run(settle=takeover or partition.claim.unsettled)
                self._check_begins(partition, here)
                return found
            except PartitionHalted as stop:
                self._check_begins(partition, here)
                overtaken = stop.halted.reason == HaltReason.RETENTION_OVERTOOK.slug
                if overtaken and here.begins and await self._is_late(partition, here, there):
                    continue
                if not overtaken or partition.counts.batches or not await self._lead(partition, here, there, rest):
                    raise
                partition.begin_again()

    def _check_begins(self, partition: Partition, here: SourceLog) -> None:
        """Raises Unreachable if another worker has decided where the copy begins since this look began."""
        if self.starts.begins(partition) != here.begins:
            raise Unreachable(f"{partition.name}: where its copy begins was decided meanwhile; looking again")

    async def _go_over_gap(self, partition: Partition, here: SourceLog, found: ResyncResult) -> ResyncResult:
        """Returns the position, with the gap without a cause that begins there to be filled, if an operator has
        accepted it: now, or earlier up to the offset that the pin names."""
        gaps_to = partition.claim.pin.gaps_to if partition.claim.pin is not None else 0
        terms = partition.terms
        decided = max(found.source_start, found.fill_to) > found.offset or found.accepted is not None
        if decided or terms.compacted or terms.strict or not (partition.claim.accept_gap or found.offset < gaps_to):
            return found
        gap = await gap_behind(here, found.offset, partition.name, self._settings)
        if gap is None or gap[0] != found.offset or not (partition.claim.accept_gap or gap[1] <= gaps_to):
            return found
        return found._replace(fill_to=gap[1], accepted=gap if gap[1] > gaps_to else None)

    def tell_level(self, partition: Partition, before: str, offset: int) -> None:
        """Logs that the copy goes on under another isolation level by an operator's decision, which is written down."""
        detail = (
            f"from offset {offset} on it is copied under isolation.level: {self._settings.isolation_level}, by an "
            f"operator's word; all before was copied under {before}, and stays as it is"
        )
        self.log.warning("settings_accepted", topic=partition.topic, partition=partition.index, detail=detail)

    async def cut(self, partition: Partition, offset: int) -> None:
        """Moves the destination's log start into its first batch, if the source begins inside of that batch. Does
        nothing otherwise. ``offset``: everything before it is copied.

        Raises:
            PartitionHalted: the mirror may not delete records there.
            NetworkError: it was not done; the next resync tries again.
        """
        if partition.queue.copied is not None or not partition.cursor.source_start < partition.cursor.floor < offset:
            return
        if partition.claim.pin is not None and partition.claim.pin.adopted > partition.cursor.source_start:
            return  # what stands there is older than the flow, and may exist nowhere else
        _, there = self.logs(partition)
        if await there.start() == partition.cursor.source_start:
            try:
                await there.delete_before(partition.cursor.floor)
            except Refused as error:
                if error.lacks is None:
                    raise
                raise PartitionHalted(halted_by_lack(str(error), error.lacks)) from error
            self.log.info(
                "leading_offsets_trimmed", detail=f"{there.name}: to {partition.cursor.floor}, inside its first batch"
            )

    async def check_unmoved(self, partition: Partition) -> None:
        """Checks that the destination's log still ends where the partition's next batch belongs.

        Raises:
            NotOurs: another worker has taken the partition over.
            Moved: the log ends elsewhere.
            PartitionHalted, NetworkError: as ``locate``.
        """
        _, there = self.logs(partition)
        if not await self.owners.owns(partition):
            raise NotOurs(partition.name)
        end = await barrier(there, self.log)
        if end != partition.queue.acknowledged:
            raise Moved(END_MOVED, f"{there.name} ends at {end}, not {partition.queue.acknowledged}")

    async def _lead(self, partition: Partition, here: PartitionLog, there: PartitionLog, rest: Rest) -> bool:
        """Fills the offsets before the source's first record, if the partition is new at the destination. Returns True
        if that has moved the destination's end."""
        return await lead(
            here,
            there,
            self.leading(partition),
            partition.claim.begun,
            settled=lambda: standing_still(there, self._settings.settle_ms / 1000, self.log, rest),
            owns=lambda: self._may_write(partition),
            cleanup=self._cleanups.of(partition.topic),
            log=self.log,
        )

    async def _may_write(self, partition: Partition) -> bool:
        """Returns True if the partition is still ours. Before that, writes its pin, and the records that were due at a
        halt and that the source has deleted since."""
        await self._pin(partition)
        await self._pins.due.overtaken(partition, partition.claim.begun.until)
        return await self.owners.owns(partition)

    async def _pin(self, partition: Partition, **what: Any) -> None:
        """Writes the partition's pin before anything is written into the log. For a first pin, checks before and after
        that no other flow copies the partition. ``what``: see ``Pins.pin``."""
        begins = self._pins.unused(partition)
        if begins and partition.claim.pin is None:
            await self.flows.check_new(partition)
        await self._pins.pin(partition, **what)
        if begins:
            await self.flows.check_new(partition, begun=True)

    async def _trim(self, partition: Partition, there: PartitionLog, found: ResyncResult) -> int:
        """Trims leading filler that a kill -9 of the destination's brokers has brought back. Returns the new log
        start."""
        return await trim(
            there,
            self.leading(partition),
            found.log_start,
            found.offset,
            source_start=found.source_start,
            cleanup=self._cleanups.of(partition.topic),
            log=self.log,
        )

    def leading(self, partition: Partition) -> Lead:
        """Returns the facts about the partition that filling its leading offsets needs."""
        settings, pin = self._settings, partition.claim.pin
        return Lead(
            name=partition.name,
            owner=self.rules(partition).owner,
            filler=self._filler(partition),
            most=settings.max_leading_filler,
            most_bytes=partition.terms.max_batch_size,
            copied=was_copied(partition),
            held=pin is not None and bool(pin.destination_id and pin.copied is not None and pin.copied.digest),
        )

    def _filler(self, partition: Partition) -> int:
        return filler_id(
            flow=self._settings.flow,
            cluster_id=self._source.cluster_id,
            topic=partition.topic,
            partition=partition.index,
        )

    def filling(self, partition: Partition) -> MarkerRun:
        """Returns the ``MarkerRun`` for the hole at the head of the partition's outbox."""
        hole = partition.queue.outbox[0]
        assert isinstance(hole, Hole), partition.name
        _, there = self.logs(partition)
        return MarkerRun(
            there,
            partition.queue.acknowledged,
            hole.records,
            writer=self._writer(partition, there, hole),
            owns=lambda: self.owners.owns(partition),
            pace=self._pace,
            log=self.log,
            patience_s=self._settings.request_timeout_ms / 1000,
        )

    def _writer(self, partition: Partition, there: PartitionLog, hole: Hole) -> MarkerWriter:
        if not self._settings.fill_by_transaction:
            return ByMarkers(there, hole.before, partition.claim.coordinator_epoch)
        owner = partition.claim.ownership
        name = self.owners.name_of(partition)
        if owner is None:
            raise halt(HaltReason.FILL_NOT_PERMITTED, f"transactional id {name} could not be taken over")
        coordinator = self.owners.coordinator
        return ByTransactions(lambda: coordinator.abort_empty(name, owner, partition.topic, partition.index))

    def rules(self, partition: Partition) -> ResyncRules:
        """Returns the facts about the flow and the partition that a resync needs."""
        settings = self._settings
        return ResyncRules(
            name=partition.name,
            owner=producer_id(
                flow=settings.flow,
                cluster_id=self._source.cluster_id,
                topic=partition.topic,
                partition=partition.index,
            ),
            settle_s=settings.settle_ms / 1000,
            committed=settings.committed,
            window=settings.max_in_flight,
            terms=partition.terms,
            accept_gap=settings.accept_gaps or partition.claim.accept_gap,
            accept_loss=partition.claim.accept_gap,
            gaps_to=partition.claim.pin.gaps_to if partition.claim.pin is not None else 0,
            aborted_to=self._pins.aborted_to(partition),
            adopted=partition.claim.pin.adopted if partition.claim.pin is not None else 0,
            adopted_epoch=partition.claim.pin.adopted_epoch if partition.claim.pin is not None else -1,
            next_epoch=partition.claim.forgotten,
            unread=partition.claim.unread,
            starting=self.starts.known(partition),
            forgets_before_ms=self.forgets_before_ms(),
            coordinator_epoch=partition.claim.next_coordinator_epoch(LOOKS_PER_OWNER),
            strict=settings.strict,
            filler=self._filler(partition),
            led_to=partition.claim.begun.until,
            pinned=partition.claim.pin is not None
            and partition.claim.source_id is not None
            and not partition.claim.pin.replaced,
            opening=self._opening,
        )

    def logs(self, partition: Partition) -> tuple[SourceLog, PartitionLog]:
        """Returns the source's and the destination's log, each with its leader as last heard.

        Raises:
            PartitionHalted: a topic is not the one that it was at first, or is gone.
            NetworkError: a topic or its leader is not known now.
        """
        there = self._topic(self._destination, partition, partition.destination, partition.claim.destination_id)
        here = self._topic(self._source, partition, partition.topic, partition.claim.source_id)
        partition.claim.identify(here.topic_id, there.topic_id)
        partition.claim.found()
        return (
            SourceLog(
                self._source,
                here,
                partition.index,
                self._leader(self._source, here, partition.index),
                converts=partition.terms.converts,
                begins=self.starts.begins(partition),
            ),
            PartitionLog(
                self._destination, there, partition.index, self._leader(self._destination, there, partition.index)
            ),
        )

    async def check_ids(self, partition: Partition) -> None:
        """Checks that the brokers of each cluster agree on the id of the partition's topic. The brokers that answer may
        be behind, so the first looks (``MISSING_LOOKS``) wait for all.

        Raises:
            NetworkError: they do not agree, or not all of them answer.
        """
        silent = [
            await self._told_ids.check(self._source, partition.topic),
            await self._told_ids.check(self._destination, partition.destination),
        ]
        if 0 < partition.claim.hear(all_told=not any(silent)) < MISSING_LOOKS:
            raise Unreachable("; ".join(filter(None, [*silent, "those that did may not have heard of the newest one"])))

    def _topic(self, cluster: Cluster, partition: Partition, name: str, pinned: bytes | None) -> Topic:
        topic = cluster.topics.get(name)
        if topic is None and name in cluster.denied:
            raise not_described(cluster.name, name)
        if topic is None:
            missing = f"cluster {cluster.name} has no topic {name}"
            if partition.claim.miss() < MISSING_LOOKS:
                raise Unreachable(missing)
            raise halt(HaltReason.TOPIC_MISSING, missing)
        recreated = another(cluster, name, pinned)
        if recreated:
            raise halt(HaltReason.RECREATED, recreated)
        return topic

    def _leader(self, cluster: Cluster, topic: Topic, index: int) -> Leader:
        leader = cluster.leader(topic.name, index)
        if leader is None:
            raise no_leader(cluster.name, topic.name, index, topic)
        return leader


async def _at_rest(work: Coroutine[Any, Any, None], rest: Rest) -> None:
    """Runs ``work``, which only waits for brokers. Calls ``rest`` while it takes long."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=ASKING_S)
        while not task.done():
            await rest(ASKING_S)
        task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
