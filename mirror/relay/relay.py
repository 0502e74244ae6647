"""The life of a flow in one process: partitions are located, fetched, forwarded, put into doubt, located again, halted.

The relay owns all tasks, so that none outlives ``close``. (Links dial in tasks of their own, which they cancel.) Only
the relay changes a partition's phase; fetchers and lanes report to it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from mirror.net.buffers import OVERHEAD, FramePool
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError
from mirror.offsetmap.internal.memory import Memory
from mirror.reasons import PAUSED, HaltReason
from mirror.records.admit import Cause
from mirror.relay.assignment import Assignment, Committable, Key, committable, inherited
from mirror.relay.durable.loops import Loops
from mirror.relay.durable.skips import DELETED, ON_GAP, UNPROVEN
from mirror.relay.durable.writer import DurableState
from mirror.relay.events import EventLog
from mirror.relay.fetch.limits import Limits
from mirror.relay.fetch.replicas import Replicas
from mirror.relay.halts import Halted, of_mapped
from mirror.relay.holes.filling import HoleFilling
from mirror.relay.holes.gaps import Gaps
from mirror.relay.hot.deep import Rewriter
from mirror.relay.hot.plain import InnerLoop
from mirror.relay.life.brokers import Brokers
from mirror.relay.life.ending import Ending
from mirror.relay.life.tasks import Tasks
from mirror.relay.locate.position import Locator
from mirror.relay.locate.readback import ReadBack
from mirror.relay.locate.seeking import Seeking
from mirror.relay.mapped.locate import MappedLocator
from mirror.relay.outcome import Doubt
from mirror.relay.partition.claim import Committed
from mirror.relay.partition.location import Location
from mirror.relay.partition.partition import Partition
from mirror.relay.partition.phases import Phase
from mirror.relay.partition.queue import Batch
from mirror.relay.pausing import Pausing
from mirror.relay.resuming import Resuming
from mirror.relay.settings import RelaySettings
from mirror.relay.sink import Lane
from mirror.relay.stats import Stats
from mirror.relay.topics.paired import PairedTopics
from mirror.relay.topics.pairing import Pair
from mirror.relay.topics.recreated import RecreatedTopics
from mirror.relay.topics.refresh import TopicRefresh
from mirror.relay.topics.verdicts import Verdicts
from mirror.relay.watch.ends import SourceEnds
from mirror.relay.watch.expiry import ProducerExpiry
from mirror.relay.watch.idle import Idle
from mirror.relay.watch.renewal import Renewal
from mirror.relay.watch.rights import Rights
from mirror.relay.watch.stalls import Stalls
from mirror.relay.watch.tracing import TracedLog, Tracer

SHARE_EVERY_S = 1.0
LEAST_TO_WRITE_S = 1.0
"""Least seconds that a clean stop allows for writing to the internal topic. Anything that is not written by then is
found out by the next start."""


class SameCluster(Exception):
    """Raised if source and destination are the same cluster: the flow would copy each topic into itself."""


class NothingToMirror(Exception):
    """Raised if no topic of the source matches the flow."""


class Relay:
    """Runs one flow in this process: ``start`` it, watch ``partitions`` and ``stats``, ``drain`` it, ``close`` it.

    It copies every partition of the flow; with ``assigned``, only those that ``assignment`` is given.
    """

    def __init__(
        self,
        source: Cluster,
        destination: Cluster,
        settings: RelaySettings,
        log: EventLog,
        *,
        assigned: bool = False,
        state: Memory | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """
        Args:
            source: the source cluster.
            destination: the destination cluster.
            settings: the flow's settings.
            log: gets the flow's events.
            assigned: True to copy only partitions that ``assignment`` is given.
            state: used in place of the internal topic at the destination.
            tracer: records the steps of partitions that somebody follows; None: nobody follows any.
        """
        self.source = source
        self.destination = destination
        self.settings = settings
        self.tracer = tracer or Tracer()
        self.log: EventLog = TracedLog(log, self.tracer)
        self.stats = Stats()
        self.partitions: dict[Key, Partition] = {}
        self.assignment = Assignment(self) if assigned else None
        self.pool = FramePool(
            budget=max(settings.buffer_memory, settings.fetch_max_bytes + OVERHEAD),
            frame_size=max(settings.fetch_max_bytes, settings.most_fetch_bytes) + OVERHEAD,
            most_budget=settings.most_buffer_memory,
        )
        self.limits = Limits(settings.max_bytes_per_second, settings.topic_rate)
        self.tasks = Tasks()
        self.brokers = Brokers(self)
        self.ending = Ending(self.halt)
        self.rewriter = Rewriter()
        self.durable = DurableState(self, state)
        self.pins = self.durable.pins
        self.topics = PairedTopics(source, destination, settings, self.durable.state, self.log)
        self.loops = Loops(self, self.durable.state)
        self.locator = self._make_locator()
        self._holes = HoleFilling(self)
        self._readback = ReadBack(self)
        self._gaps = Gaps(self)
        self.verdicts = Verdicts(self)
        self.rights = Rights(self)
        self._stalls = Stalls(self)
        self._seeking = Seeking(self)
        self._renewal = Renewal(self)
        self._recreated = RecreatedTopics(self)
        self.refresh = TopicRefresh(self)
        self._resuming = Resuming(self, partial(self._look_for, takeover=True))
        self.pausing = Pausing(self)
        self.expiry = ProducerExpiry(destination, self.log)
        self.replicas = Replicas(
            source, settings.client_rack, self.log, detach=self.brokers.stop_fetching, attach=self.brokers.fetch
        )
        self._draining = False
        self._nothing_pending = asyncio.Event()
        self._closed = False

    def _make_locator(self) -> Locator:
        source, destination, settings, log = self.source, self.destination, self.settings, self.log
        if not settings.mapped:
            return Locator(
                forgets_before_ms=self.forgets_before_ms,
                source=source,
                destination=destination,
                settings=settings,
                pins=self.pins,
                log=log,
            )
        return MappedLocator(
            state=self.durable.state,
            write_soon=self.durable.write_soon,
            forgets_before_ms=self.forgets_before_ms,
            source=source,
            destination=destination,
            settings=settings,
            pins=self.pins,
            log=log,
        )

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Pairs the topics and begins to copy. Partitions are located in the background.

        Raises:
            SameCluster: source and destination are the same cluster.
            NothingToMirror: no topic matches.
            NetworkError: a cluster cannot be reached, or the brokers have no version of a request in common.
        """
        self.tasks.open()
        if self.source.cluster_id and self.source.cluster_id == self.destination.cluster_id:
            raise SameCluster(
                f"{self.source.name} and {self.destination.name} are the same cluster ({self.source.cluster_id}), and "
                "topics keep their names: each would be copied into itself; check bootstrap.servers of both"
            )
        await self.brokers.choose_produce_version(self.destination)
        await self.expiry.ask()
        await self.durable.open()
        found = await self.find_topics()
        if not found:
            raise NothingToMirror(
                f"no topic of cluster {self.source.name} matches {', '.join(self.settings.wanted) or 'the flow'}; "
                "check topics and exclude (names are matched whole), and that the mirror may Describe them"
            )
        self.spawn(self.refresh.keep())
        self.spawn(self.durable.keep())
        self.spawn(self.durable.watch())
        self.spawn(self.expiry.keep())
        self.spawn(self._renewal.keep())
        self.spawn(SourceEnds(self).keep())
        self.spawn(self.loops.keep())
        self.spawn(Idle(self).keep())
        self.spawn(self._recreated.keep())
        self.spawn(self._share_limits())

    async def _share_limits(self) -> None:
        """Adapts the limits, once a second, to this worker's share of the partitions."""
        while True:
            if self.limits.any:
                self.limits.share(self.partitions, self.keys)
            await asyncio.sleep(SHARE_EVERY_S)

    def limit(self, flow: int, topic: Callable[[str], int] | None) -> None:
        """Goes on under other limits.

        Args:
            flow: bytes per second for all workers of the flow; 0: no limit.
            topic: returns the same for a topic; None: no topic has a limit.
        """
        self.limits.renew(flow, topic)
        self.limits.share(self.partitions, self.keys)
        self.brokers.pump_fetchers()

    async def find_topics(self) -> int:
        """Pairs the topics as they are now. Takes up new topics, and halted partitions whose reason is gone.

        Returns:
            The number of topics.

        Raises:
            NetworkError: a cluster does not answer.
        """
        await self.topics.look()
        self.brokers.check_topic_ids(self.destination)
        await self.refresh.tell_unknown()
        await self.loops.renew()
        if self.assignment is not None:
            self.assignment.adopt()
        else:
            for key in self.keys:
                if key not in self.partitions:
                    self.adopt(key)
        self._recreated.compare()
        await self.rights.renew(self.halted)
        for partition in self.halted:
            self._note_due(partition)
            self._resuming.heal(partition)
        self.verdicts.renew(self.pairs)
        leaves = self.assignment.leaves if self.assignment is not None else lambda _: False
        self.replicas.renew(each for each in self.partitions.values() if not leaves(each))
        return len(self.pairs)

    def _note_due(self, partition: Partition) -> None:
        """Writes down what is due of a halted partition, unless there is such a note for its present source topic.
        There is none if another topic has taken the name since, or if the halt is older than such notes."""
        if partition.halted is not None and self.pins.due.note(partition) is None:
            self.spawn(self.pins.due.write_down(partition, partition.halted, self.locator.owners.may_tell))

    @property
    def keys(self) -> list[Key]:
        """All partitions of the flow, including those that other workers copy."""
        return self.topics.keys

    @property
    def pairs(self) -> dict[str, Pair]:
        """See ``Orchestrator``."""
        return self.topics.pairs

    def adopt(self, key: Key, *, committed: Committed | None = None) -> bool:
        """Begins to copy a partition that was not ours before.

        Args:
            key: topic and index of the partition.
            committed: what the group committed for it at the source; None: nothing.

        Returns:
            False while draining, or if the source has no such partition, as far as is known.
        """
        pair = self.pairs.get(key[0])
        if pair is None or key[1] not in pair.source.leaders or self._draining:
            return False
        partition = Partition(*key, pair.destination)
        partition.judge_by(pair.terms)
        partition.inherit(committed, inherited(committed, pair.source.topic_id))
        self.partitions[key] = partition
        if self.tracer.on:
            self.tracer.adopted(partition)
        halted = pair.halt_of(key[1])
        if halted is not None:
            self.halt(partition, halted)
        else:
            self._look_for(partition, takeover=True)
        return True

    def release(self, partition: Partition) -> None:
        """Stops a partition that is not ours any more, at once. Responses that are still due find it through its
        lane."""
        self.stop_fetching(partition)
        self.tasks.cancel(partition)
        partition.stop()
        self.tracer.released(partition)
        del self.partitions[partition.topic, partition.index]
        self.ending.release(partition)
        self.pausing.released(partition)

    def stop_fetching(self, partition: Partition) -> None:
        """Stops fetching the partition. The response to an outstanding fetch is dropped."""
        partition.cursor.disown()
        self.brokers.stop_fetching(partition)

    async def resume(self, key: Key, **accept: bool) -> str:
        """Resumes a halted partition at an operator's request. Its current topics count from then on.

        Args:
            key: topic and index of the partition.
            accept: what is accepted, this once; see ``Partition.resume``.

        Returns:
            The reason why it was not resumed, or an empty string.

        Raises:
            NetworkError: a cluster does not answer.
        """
        return (await self.resume_all([key], **accept))[key]

    async def resume_all(self, keys: Iterable[Key], **accept: bool) -> dict[Key, str]:
        """Resumes several partitions as ``resume`` does, with one look for topics.

        Returns:
            Partition -> the reason why it was not resumed, or an empty string.
        """
        return await self._resuming.resume_all(keys, **accept)

    async def pause_all(self, keys: Iterable[Key]) -> dict[Key, str]:
        """Pauses partitions at an operator's request; ``resume_all`` has them go on.

        Returns:
            Partition -> the reason why it is not paused, or not for certain, or an empty string.
        """
        return await self.pausing.pause_all(keys)

    def look_soon(self) -> None:
        """See ``Orchestrator``."""
        self.refresh.soon()

    def look_now(self) -> None:
        """See ``Orchestrator``."""
        self.refresh.now()

    @property
    def draining(self) -> bool:
        """True once the relay is stopping."""
        return self._draining

    @property
    def has_unknown(self) -> bool:
        """True if partitions are assigned that the source does not have, as far as is known here."""
        return self.assignment is not None and bool(self.assignment.unknown)

    async def drain(self) -> bool:
        """Stops fetching, waits until all fetched batches are acknowledged, and writes positions to the internal topic.

        Both together take at most ``drain_timeout_ms``, but writing has at least ``LEAST_TO_WRITE_S``.

        Returns:
            True if all were acknowledged. If not, nothing is lost: the next start goes on at the destination's log end.
        """
        self._draining = True
        self.brokers.close_fetchers()
        self._check_drained()
        until = time.monotonic() + self.settings.drain_timeout_ms / 1000
        with suppress(TimeoutError):
            await asyncio.wait_for(self._nothing_pending.wait(), self.settings.drain_timeout_ms / 1000)
        with suppress(TimeoutError):
            left_s = max(until - time.monotonic(), LEAST_TO_WRITE_S)
            await asyncio.wait_for(self.durable.write_down(closing=True), left_s)
        return not self.pending

    def _check_drained(self) -> None:
        if self.assignment is not None:
            self.assignment.check()
        if self._draining and not self.pending:
            self._nothing_pending.set()

    @property
    def pending(self) -> int:
        """Number of batches and holes of active partitions that wait or are in flight."""
        return sum(
            len(partition.queue.outbox) + len(partition.queue.in_flight)
            for partition in self.partitions.values()
            if partition.phase is Phase.ACTIVE
        )

    async def close(self) -> None:
        """Closes all data connections and cancels all tasks, at once."""
        self._closed = self._draining = True
        tasks = self.tasks.cancel_all()
        self.brokers.close()
        self._stalls.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        for partition in self.partitions.values():
            if partition.phase is not Phase.STOPPED:
                partition.stop()
            self.tracer.released(partition)

    # -- reports of its parts ------------------------------------------------------------------------------------------

    def doubt(self, partition: Partition, cause: str, detail: str) -> None:
        """See ``Orchestrator``."""
        partition.doubt()
        partition.wait(f"{cause}: {detail}; answers that are due are waited for")
        self.ending.halts_no_more(partition)
        self.stats.resynced(cause)
        if not self._closed:
            self.log.info("resync", topic=partition.topic, partition=partition.index, cause=cause, detail=detail)
        self.brokers.stop_fetching(partition)
        self.replicas.doubted(partition)
        self._check_drained()

    def emptied(self, partition: Partition) -> None:
        """See ``Orchestrator``. If the partition is to be paused, it is paused instead. While draining, it is not
        located again."""
        partition.move("emptied")
        partition.queue.leave()
        if not self._draining and not self.pausing.takes(partition):
            self._look_for(partition, takeover=partition.claim.taken_over)

    def halt(self, partition: Partition, halted: Halted) -> None:
        """Halts the partition; the others go on.

        A verdict that depends on topics' configs, or on what a single broker says (``recreated``), is confirmed first:
        the partition comes into doubt instead. While draining, this confirmation is left to the next start.
        """
        recreated = halted.reason == HaltReason.RECREATED.slug
        if partition.phase is Phase.ACTIVE and (recreated or self.verdicts.suspect(partition, halted)):
            self.doubt_now(partition, halted.reason, halted.detail)
            return
        if partition.phase is Phase.LOCATING:
            # The task that locates it would go on to fence, fill and pin it, beside the task that locates it once it is
            # resumed.
            self.tasks.cancel(partition)
        if self.settings.mapped and not halted.at_ms:
            into = partition.destination
            sharing = [name for name, pair in self.pairs.items() if pair.destination == into]
            halted = of_mapped(halted, {*sharing} - {partition.topic})
        partition.stop_with(halted)
        if not halted.at_ms:
            # Otherwise the halt was counted and written down when it was found.
            self.pausing.write_down(partition, halted)
            if halted.reason != PAUSED:
                self.stats.halted(halted.reason)
            self.durable.write_soon()
        else:
            self._note_due(partition)
        self.ending.halts_no_more(partition)
        self.tell_halted(partition, halted)
        self.brokers.stop_fetching(partition)
        if self.assignment is not None:
            self.assignment.check()
        self.pausing.halted(partition)

    def tell_halted(self, partition: Partition, halted: Halted) -> None:
        """Logs a halt or a pause."""
        since = {"since_ms": halted.at_ms} if halted.at_ms else {}
        if halted.reason == PAUSED:
            self.log.info("paused", topic=partition.topic, partition=partition.index, **since)
        else:
            self.log.warning(
                "halted",
                topic=partition.topic,
                partition=partition.index,
                reason=halted.reason,
                detail=halted.detail,
                remedy=halted.remedy,
                **since,
            )

    def act(self, partition: Partition, outcome: Halted | Doubt) -> None:
        """See ``Orchestrator``. That a topic was recreated is what a single broker says. So it counts only for an
        active partition: if the partition is being located, all brokers are asked anyway."""
        if isinstance(outcome, Halted):
            if outcome.reason != HaltReason.RECREATED.slug or partition.phase is Phase.ACTIVE:
                self.halt(partition, outcome)
            return
        partition.claim.leave(taken_over=outcome.taken_over, unsettled=outcome.unsettled)
        self.doubt_now(partition, outcome.cause, outcome.detail)

    def halt_when_drained(self, partition: Partition, halted: Halted) -> None:
        """See ``Orchestrator``."""
        self.ending.halt_when_drained(partition, halted)

    def no_room(self) -> None:
        """See ``Orchestrator``."""
        self._stalls.watch()

    @property
    def lanes(self) -> list[Lane]:
        """The lanes to all destination brokers."""
        return self.brokers.lanes

    @property
    def inner_loop(self) -> InnerLoop:
        """The loop over plain batches, for the Produce version in use."""
        return self.brokers.inner_loop

    def rewrites(self, partition: Partition) -> None:
        """See ``Orchestrator``."""
        self.spawn(self._look_at_configs(partition))

    async def _look_at_configs(self, partition: Partition) -> None:
        with suppress(NetworkError):
            await self.verdicts.look(partition)

    def confirmed(self, partition: Partition, base_offset: int, batch: Batch) -> None:
        """See ``Orchestrator``."""
        self._readback.read_back(partition, base_offset, batch)

    def reconfirm(self, partition: Partition) -> None:
        """See ``Orchestrator``."""
        self._readback.reconfirm(partition)

    def look(self, partition: Partition) -> None:
        """See ``Orchestrator``."""
        self._gaps.look(partition)

    def diverged(self, partition: Partition, truncated: Halted) -> None:
        """See ``Orchestrator``."""
        self._gaps.diverged(partition, truncated)

    def fill(self, partition: Partition) -> None:
        """See ``Orchestrator``."""
        self._holes.fill(partition)

    def _given_up(self, partition: Partition, start: int, end: int, cause: str) -> None:
        """Lists offsets that are not copied in ``stats``. They were logged when they were written down
        (``relay.durable``)."""
        if start < end:
            self.stats.skip(partition.topic, partition.index, start, end, cause)

    # -- offsets: mapped -----------------------------------------------------------------------------------------------

    def jump(self, partition: Partition) -> None:
        """See ``Orchestrator``."""
        while (jump := partition.queue.pass_jump()) is not None:
            if partition.trace is not None:
                partition.trace.note("passed", offset=jump.start, next=jump.end, cause=jump.cause.value)
            if jump.cause is Cause.ACCEPTED:
                self._given_up(partition, jump.start, jump.end, ON_GAP)
                self.durable.skip(partition.subject, jump.start, jump.end)

    def doubt_now(self, partition: Partition, cause: str, detail: str) -> None:
        """See ``Orchestrator``."""
        if partition.phase is Phase.ACTIVE:
            self.doubt(partition, cause, detail)
            if partition.emptied():
                self.emptied(partition)

    def settle(self, partition: Partition) -> None:
        """See ``Orchestrator``."""
        partition.claim.unsettle()
        detail = "a batch is due with which the destination may forget the producer, and what was sent before may still"
        self.doubt_now(partition, "unsettled", f"{detail} arrive: it would not be known for a repeat")

    def forgets_before_ms(self) -> float:
        """See ``Orchestrator``."""
        return self.expiry.forgets_before_ms()

    def drained(self) -> None:
        """See ``Orchestrator``. Called after responses, too."""
        self.ending.check()
        self.pausing.check()
        self._check_drained()
        self.brokers.pump_fetchers()

    def pump_sinks(self) -> None:
        """See ``Orchestrator``."""
        self.brokers.pump_sinks()

    # -- positions -----------------------------------------------------------------------------------------------------

    def _look_for(self, partition: Partition, *, takeover: bool) -> None:
        self.work(partition, self._seeking.seek(partition, takeover=takeover))

    def work(self, partition: Partition, work: Coroutine[Any, Any, None]) -> None:
        """See ``Orchestrator``."""
        self.tasks.work(partition, work)

    def place(self, partition: Partition, location: Location) -> None:
        """See ``Orchestrator``. Does nothing while draining, or if the partition is not being located any more."""
        if self._draining or partition.phase is not Phase.LOCATING:
            return
        if partition.claim.trusted is not None:
            self._given_up(partition, *partition.claim.trusted, UNPROVEN)
        for start, end in partition.claim.overtaken:
            self._given_up(partition, start, end, DELETED)
        partition.start(location, topic_head=self.brokers.topic_head(partition))
        if location.accepted is not None:
            self._given_up(partition, *location.accepted, ON_GAP)
        if not location.proven:
            self.stats.unproven += 1
        self.log.info(
            "located", topic=partition.topic, partition=partition.index, offset=location.offset, end=location.source_end
        )
        self.brokers.attach(partition, location.destination_leader.node_id)
        if partition.queue.offer():
            self.pump_sinks()
        self.jump(partition)
        self.brokers.fetch(partition)

    # -- watching ------------------------------------------------------------------------------------------------------

    @property
    def states(self) -> dict[str, int]:
        """Phase -> number of partitions in it."""
        return dict(Counter(partition.phase.value for partition in self.partitions.values()))

    @property
    def lag_records(self) -> int | None:
        """Number of source offsets that the destination is not known to have; None if the lag of any partition is not
        known."""
        lags = [partition.lag for partition in self.partitions.values()]
        return sum(lag for lag in lags if lag is not None) if None not in lags else None

    def committable(self) -> dict[Key, Committable]:
        """Returns the offset to commit for each partition whose position is known."""
        found = ((key, committable(partition)) for key, partition in self.partitions.items())
        return {key: position for key, position in found if position is not None}

    @property
    def halted(self) -> list[Partition]:
        """The halted partitions."""
        return [partition for partition in self.partitions.values() if partition.halted is not None]

    # -- tasks -------------------------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Runs a task that ends with the relay. An exception that it does not handle is a bug, and ends the service."""
        return self.tasks.spawn(work)
