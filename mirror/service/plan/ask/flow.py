"""Asks both clusters everything about one flow. Partitions are returned one by one, so that memory stays bounded."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from mirror.net.errors import NetworkError, Refused
from mirror.net.metadata import Leader, Topic
from mirror.net.options import ClusterOptions
from mirror.offsetmap.internal.memory import StateUnusable
from mirror.offsetmap.internal.topic import REPLICAS
from mirror.reasons import HaltReason
from mirror.relay.assignment import Key
from mirror.relay.locate.owners import transactional_id
from mirror.relay.partition.claim import Committed
from mirror.relay.partition.partition import Partition
from mirror.relay.settings import RelaySettings
from mirror.relay.topics.creating import try_out
from mirror.relay.watch.expiry import ProducerExpiry
from mirror.service.plan.ask.carried import groups_asked
from mirror.service.plan.ask.clusters import cluster_facts, group_rights, ids_forbidden, owners, topic_rights
from mirror.service.plan.ask.copies import CopyChecks
from mirror.service.plan.ask.deadletters import dead_letters
from mirror.service.plan.ask.group import committed
from mirror.service.plan.ask.readonly import ReadOnlyCluster, ReadOnlyState, Silence
from mirror.service.plan.ask.samples import Budget, Judging, sampled
from mirror.service.plan.ask.speed import Stretch, measured
from mirror.service.plan.ask.topics import Topics, topics_of
from mirror.service.plan.model import FlowFacts, PartitionFacts, TopicFacts
from mirror.service.sync.settings import SyncSettings
from mirror.wire.errors import error_name

PATIENCE_S = 10.0
"""Timeout of a request in seconds. A broker that does not answer in time is not asked again."""
RESTS_ON_NOTES = frozenset({HaltReason.UNPROVEN.slug, HaltReason.CHECKPOINT_LOST.slug})
"""Reasons of halts that mean: nothing that is written down shows that the destination is a copy."""
MEASURED_SHARE = 4
"""One in this many of the bytes that are read is for measuring the speed; the others are for looking at batches."""
AT_ONCE = 64
"""Number of partitions that are looked at in parallel. Their requests are batched (``net.batching``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What to ask about a flow.

    Attributes:
        name: name of the flow.
        source, destination: how to connect to the clusters.
        settings: settings of the flow.
        group_id: the flow's group at the source.
        users: names with which the mirror authenticates at the source and at the destination; empty: not known.
        only: returns True for topics to ask about, of those that the flow mirrors.
        sample_bytes: bytes to read of the source, approximately, for samples and for measuring the speed.
        sync: settings for what is kept in step beside records.
    """

    name: str
    source: ClusterOptions
    destination: ClusterOptions
    settings: RelaySettings
    group_id: str
    users: tuple[str, str] = ("", "")
    only: Callable[[str], bool] = lambda _: True
    sample_bytes: int = 32 << 20
    sync: SyncSettings = field(default_factory=SyncSettings)


class Internal(NamedTuple):
    """The facts about the internal topic. ``refused``: why it cannot be used or created; ``unknown``: why that is not
    known; empty: it can be used or created."""

    exists: bool = False
    refused: str = ""
    unknown: str = ""


class FlowAsked:
    """Asks the clusters of one flow. An async context manager that connects to both.

    Attributes:
        facts: facts about the flow; set by ``look``, complete once ``partitions`` has ended.
        topics: topics of both sides; set by ``look``.
    """

    facts: FlowFacts
    topics: Topics

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._stack = AsyncExitStack()
        self._committed: dict[Key, Committed] = {}

    async def __aenter__(self) -> Self:
        """Connects to both clusters. Raises NetworkError if one of them cannot be reached."""
        asking = self._asking
        source_name, _, destination_name = asking.name.partition("->")
        async with self._stack as stack:
            self.source = await stack.enter_async_context(
                await ReadOnlyCluster.open(source_name, _patient(asking.source))
            )
            self.destination = await stack.enter_async_context(
                await ReadOnlyCluster.open(destination_name, _patient(asking.destination))
            )
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def look(self) -> None:
        """Asks for everything except the partitions' logs.

        Raises:
            NetworkError: a cluster does not answer.
        """
        asking, source, destination = self._asking, self.source, self.destination
        settings = asking.settings
        self._expiry = ProducerExpiry(destination, Silence())
        await self._expiry.ask()
        there = await cluster_facts(destination, [], asking.users[1])
        self.topics = await topics_of(source, destination, settings, there.defaults, only=asking.only)
        here = await cluster_facts(source, [each.name for each in self.topics.found], asking.users[0])
        self._state = ReadOnlyState(destination, settings.flow, lean=True)
        internal = await self._internal()
        rights, _ = await topic_rights(destination, [self._state.topic] if internal.exists else [])
        group, forbidden = await group_rights(source, asking.group_id)
        groups = await groups_asked(source, destination, asking.sync)
        self._committed = await committed(source, asking.group_id)
        self._owners = await owners(destination, self._without_checkpoint())
        example = Partition(self.topics.found[0].name if self.topics.found else "topic", 0)
        self.facts = FlowFacts(
            name=asking.name,
            settings=settings,
            source=here,
            destination=there,
            now_ms=round(time.time() * 1000),
            unmatched=tuple(
                entry for entry, matches in settings.wanted.items() if not any(map(matches, source.topics))
            ),
            topics_n=len(self.topics.found),
            without_ids=any(each.pair.source.topic_id is None for each in self.topics.found),
            internal_topic=self._state.topic,
            internal_exists=internal.exists,
            internal_refused=internal.refused,
            internal_unknown=internal.unknown,
            internal_rights=rights.get(self._state.topic),
            dead_letters=await dead_letters(destination, settings),
            group_id=asking.group_id,
            group_rights=group,
            group_forbidden=forbidden,
            sync=asking.sync,
            groups=groups.groups,
            groups_more=groups.more,
            groups_unknown=groups.unknown,
            ids_forbidden=await ids_forbidden(destination, transactional_id(settings.flow, example)),
            forgets_before_ms=self._expiry.forgets_before_ms(),
        )

    def _without_checkpoint(self) -> list[str]:
        """Returns the transactional ids of partitions without a checkpoint; empty with ``offsets: exact``. If such an
        id has had an owner, the destination may have copies."""
        settings = self._asking.settings
        everything = (
            Partition(topic.name, index, topic.pair.destination)
            for topic in self.topics.found
            if settings.mapped and topic.exists
            for index in topic.pair.source.leaders
        )
        return [
            transactional_id(settings.flow, partition)
            for partition in everything
            if self._state.ledger.checkpoint(partition.subject) is None
        ]

    async def _internal(self) -> Internal:
        """Reads the internal topic. If it does not exist, asks the controller whether it could be created."""
        state, destination, settings = self._state, self.destination, self._asking.settings
        try:
            if await state.open(create=False):
                return Internal(exists=True)
        except StateUnusable as error:
            return Internal(exists=True, refused=str(error))
        except NetworkError as error:
            if isinstance(error, Refused) and error.lacks:
                return Internal(refused=str(error))  # whether it exists or not, the mirror cannot use it
            return Internal(exists=state.topic in destination.topics, unknown=str(error))
        try:
            wanted = {state.topic: Topic(name=state.topic, topic_id=None, internal=False, leaders={0: Leader(-1, -1)})}
            factor = settings.state_replication_factor
            replicas = replace(
                settings, replication_factor=factor if factor > 0 else min(REPLICAS, len(destination.nodes))
            )
            answers = await try_out(destination, wanted, {state.topic: {"cleanup.policy": "compact"}}, replicas)
        except NetworkError as error:
            return Internal(unknown=str(error))
        if state.topic not in answers:
            return Internal()
        code, message = answers[state.topic]
        return Internal(refused=f"cannot create it: {error_name(code)}" + (f", {message}" if message else ""))

    def _unread(self) -> str:
        """Returns which notes of a copy could not be read (in the internal topic, or committed by the group), in words.
        Empty: all were read."""
        if self.facts.internal_unknown or self.facts.internal_refused:
            return f"{self.facts.internal_topic} cannot be read"
        return "not every broker of the source says what the group has committed" if self.source.down else ""

    async def partitions(self) -> AsyncIterator[tuple[TopicFacts, PartitionFacts]]:
        """Yields each partition with its topic, the first partition of every topic first. Then measures the speed of
        the source, and completes ``facts``."""
        keys = sorted(
            ((topic, index) for topic in self.topics.found for index in topic.pair.source.leaders),
            key=lambda key: (key[1], key[0].name),
        )
        copies = CopyChecks(
            self.source, self.destination, self._asking.settings, self._state, self._expiry, self._owners
        )
        measuring = self._asking.sample_bytes // MEASURED_SHARE
        budget = Budget.of(self._asking.sample_bytes - measuring, len(keys))
        stretches: dict[int, Stretch] = {}
        sampled_n = unsampled_n = 0

        async def look(topic: TopicFacts, index: int) -> tuple[TopicFacts, PartitionFacts]:
            nonlocal sampled_n, unsampled_n
            facts, here = await copies.look(topic, index, self._committed.get((topic.name, index)))
            only_if_known(facts, self._unread())
            facts.in_sync, facts.replicas = self.topics.replicas(topic, index)
            if here is None or facts.unknown or facts.start >= facts.end:
                return topic, facts
            if budget.left <= 0:
                unsampled_n += 1
                return topic, facts
            by = Judging(
                terms=topic.pair.terms,
                committed=self._asking.settings.committed,
                forgets_before_ms=self.facts.forgets_before_ms,
            )
            try:
                facts.sample = await sampled(here, facts.due, facts.end, budget, by)
            except NetworkError as error:
                facts.unknown = str(error)
                return topic, facts
            sampled_n += 1
            if not facts.sample.halts:
                stretch = Stretch(here, max(facts.start, min(facts.due, facts.end - 1), here.floor), facts.end)
                known = stretches.get(here.leader.node_id)
                if known is None or stretch.end - stretch.start > known.end - known.start:
                    stretches[here.leader.node_id] = stretch
            return topic, facts

        for at in range(0, len(keys), AT_ONCE):
            for found in await asyncio.gather(*(look(*key) for key in keys[at : at + AT_ONCE])):
                yield found
        rate = await measured(stretches.values(), measuring)
        self.facts = replace(
            self.facts,
            rate=rate,
            sampled_bytes=budget.read,
            sampled_n=sampled_n,
            unsampled_n=unsampled_n,
            source=replace(self.facts.source, down=dict(self.source.down)),
            destination=replace(self.facts.destination, down=dict(self.destination.down)),
        )


def only_if_known(facts: PartitionFacts, unread: str) -> None:
    """Turns a verdict into "not known" if it means that nothing written down shows a copy (``RESTS_ON_NOTES``), and
    some of that could not be read. ``unread``: what could not be read, in words; empty: everything was read."""
    if unread and facts.halted is not None and facts.halted.reason in RESTS_ON_NOTES:
        facts.unknown = f"{unread}, which may show that this is a copy ({facts.halted.detail})"
        facts.halted = None


def _patient(options: ClusterOptions) -> ClusterOptions:
    """Returns the options with timeouts of ``PATIENCE_S`` at most: a broker that hangs is reported instead of waited
    for."""
    connection = options.connection
    return replace(
        options,
        connection=replace(
            connection,
            request_timeout_s=min(PATIENCE_S, connection.request_timeout_s),
            setup_timeout_s=min(PATIENCE_S, connection.setup_timeout_s),
        ),
    )
