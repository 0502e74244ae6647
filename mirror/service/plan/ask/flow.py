"""Asks both clusters everything about one flow. The partitions come one by one, so that memory stays bounded."""

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
"""Seconds without an answer after which a request is given up, and its broker with it."""
RESTS_ON_NOTES = frozenset({HaltReason.UNPROVEN.slug, HaltReason.CHECKPOINT_LOST.slug})
"""Halts by which nothing was written down that shows a copy."""
MEASURED_SHARE = 4
"""Of the bytes that are read, one in this many is to measure; the others are to look at batches."""
AT_ONCE = 64
"""Partitions that are looked at side by side: their requests share frames (``net.batching``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked, and how.

    Attributes:
        name: the flow's.
        source, destination: how to reach the clusters.
        settings: the flow's.
        group_id: its group at the source.
        users: the names by which it authenticates itself at the source and the destination; empty: not known.
        only: narrows the topics.
        sample_bytes: how much is read of the source, to look at batches and to measure.
        sync: what is kept in step beside records.
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
    """The internal topic. ``refused``: why it cannot be used; ``unknown``: why that is not known."""

    exists: bool = False
    refused: str = ""
    unknown: str = ""


class FlowAsked:
    """A flow whose clusters are being asked. An async context manager, which opens both.

    Attributes:
        facts: what was found of the flow; complete once ``partitions`` has ended.
        topics: the topics of both sides.
    """

    facts: FlowFacts
    topics: Topics

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._stack = AsyncExitStack()
        self._committed: dict[Key, Committed] = {}

    async def __aenter__(self) -> Self:
        """Raises NetworkError if one of the clusters cannot be reached."""
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
        """Asks for everything but the partitions' logs.

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
        """Returns the transactional ids of partitions without a checkpoint (``offsets: mapped``): if such an id has had
        an owner, the destination may have copies."""
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
        """Reads the internal topic, or has the controller check whether it could be created."""
        state, destination, settings = self._state, self.destination, self._asking.settings
        try:
            if await state.open(create=False):
                return Internal(exists=True)
        except StateUnusable as error:
            return Internal(exists=True, refused=str(error))
        except NetworkError as error:
            if isinstance(error, Refused) and error.lacks:
                return Internal(refused=str(error))  # whether it is there or not, the mirror cannot use it
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
        """Returns what could not be read of what was written down, in words; empty: nothing."""
        if self.facts.internal_unknown or self.facts.internal_refused:
            return f"{self.facts.internal_topic} cannot be read"
        return "not every broker of the source says what the group has committed" if self.source.down else ""

    async def partitions(self) -> AsyncIterator[tuple[TopicFacts, PartitionFacts]]:
        """Yields the partitions, one of each topic first, as they are found; then measures."""
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
    """Takes back a verdict by which nothing that was written down shows a copy, if not all of that could be read.
    ``unread``: what could not, in words; empty: nothing."""
    if unread and facts.halted is not None and facts.halted.reason in RESTS_ON_NOTES:
        facts.unknown = f"{unread}, which may show that this is a copy ({facts.halted.detail})"
        facts.halted = None


def _patient(options: ClusterOptions) -> ClusterOptions:
    """Returns the options with shorter patience: a broker that hangs is said to hang, and not waited for."""
    connection = options.connection
    return replace(
        options,
        connection=replace(
            connection,
            request_timeout_s=min(PATIENCE_S, connection.request_timeout_s),
            setup_timeout_s=min(PATIENCE_S, connection.setup_timeout_s),
        ),
    )
