"""Suspends a destination topic's cleanup while the offsets before the source's first record are filled and deleted.

A compacted topic takes no filler (whose records have no keys), and does not allow deleting records. So its
``cleanup.policy`` is set to ``delete`` meanwhile, together with a retention under which nothing is deleted, because
other partitions of the topic may hold old records. Nobody else sets that retention. So a process that finds it knows
that another process has died in between and left the topic suspended, and restores it. The topic's own values are
written to the internal topic first.

Several processes may lead partitions of one topic. The first one that is done restores the policy. Brokers then refuse
the others' requests (``filler.REFUSED_WHILE_COMPACTED``). Those processes suspend the topic again, and restore it when
they are done.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from mirror.net.admin.configs import Resource, alter_configs
from mirror.net.cluster import Cluster
from mirror.net.errors import Refused
from mirror.net.rights import ALTER_CONFIGS, TOPIC, Right
from mirror.offsetmap.entries.pins import Suspended
from mirror.offsetmap.fields import id_text, ids_differ
from mirror.offsetmap.internal.memory import Memory
from mirror.relay.events import EventLog
from mirror.relay.halts import PartitionHalted, halted_by_lack
from mirror.relay.topics.describing import describe_topics
from mirror.relay.topics.pairing import CLEANUP_POLICY
from mirror.relay.topics.syncing import FOR_EVER, RETENTION_MS, TOPIC_CONFIG_SOURCE
from mirror.wire.errors import ErrorCode

RETENTION_BYTES = "retention.bytes"
SUSPENDED = {CLEANUP_POLICY: "delete", RETENTION_MS: FOR_EVER, RETENTION_BYTES: FOR_EVER}
LOOK_EVERY_S = 10.0
"""Least seconds between two looks at the topic by ``finish``, because many of its partitions may start at the same
time."""

Values = dict[str, str | None]
"""Config name -> the topic's own value; None: it has none, and the broker's default applies."""


class Cleanup:
    """The cleanup of one destination topic. All of the topic's partitions in this process share it."""

    def __init__(
        self, source: Cluster, destination: Cluster, topic: str, synced: Collection[str], state: Memory, log: EventLog
    ) -> None:
        self._log = log
        self._source = source
        self._destination = destination
        self._topic = topic
        self._synced = synced
        self._state = state
        self._leading = 0
        self._plain = False
        self._suspended = False
        self._looked_at = float("-inf")
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Keeps the topic from compacting, and from deleting anything by itself. A topic that does not compact stays as
        it is.

        After an error inside the block, the topic is left suspended, because the caller will try again. A caller that
        is cancelled may be the last one, so that is logged.

        Raises:
            PartitionHalted: the mirror may not alter the topic.
            NetworkError: it was not done.
        """
        self._leading += 1
        try:
            await self.suspend_again()
            yield
        except BaseException as error:
            self._leading -= 1
            if isinstance(error, asyncio.CancelledError) and self._suspended and not self._leading:
                self._tell_left()
            raise
        self._leading -= 1
        await self._restore()

    async def suspend_again(self) -> bool:
        """Suspends the topic if it compacts. Returns True if it is suspended now.

        Raises:
            PartitionHalted: the mirror may not alter the topic.
            NetworkError: it was not done.
        """
        async with self._lock:
            policy, own = await self._look(self._destination)
            self._suspended = own == SUSPENDED
            if self._suspended or "compact" not in policy:
                return self._suspended
            await self._state.save([Suspended(topic=self._topic, topic_id=self._topic_id, values=own)])
            await self._alter(dict(SUSPENDED))
            self._suspended = True
            return True

    def _tell_left(self) -> None:
        """Logs that the topic is left suspended, although nobody in this process leads a partition of it any more."""
        found = self._state.ledger.suspended(self._topic)
        values = found.values if found is not None and not ids_differ(found.topic_id, self._topic_id) else {}
        before = ", ".join(f"{name} {'not set' if value is None else value}" for name, value in values.items())
        self._log.info(
            "cleanup_left_suspended",
            topic=self._topic,
            detail=f"the offsets before the source's first record were being filled, so {self._topic} does not compact",
            remedy="none, if the topic is copied on: whoever does restores it. Otherwise, set these configs of it back"
            + (f"; before: {before}" if before else f": {', '.join(SUSPENDED)}"),
        )

    async def finish(self) -> None:
        """Restores a topic that was left suspended, unless a partition in this process is being led. It is cheap: it
        looks at the topic every ``LOOK_EVERY_S`` at most, and never again at a topic that neither compacts nor is
        suspended."""
        if self._plain or self._leading or time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        await self._restore()

    async def _restore(self) -> None:
        async with self._lock:
            self._looked_at = time.monotonic()
            policy, own = await self._look(self._destination)
            if own == SUSPENDED and not self._leading:
                await self._alter(await self._before())
                self._suspended = False
            elif "compact" not in policy:
                self._plain = own != SUSPENDED

    async def _before(self) -> Values:
        """Returns the topic's own values from before it was suspended."""
        await self._state.load()
        found = self._state.ledger.suspended(self._topic)
        same = found is not None and not ids_differ(found.topic_id, self._topic_id)
        if found is not None and same and found.values.keys() == SUSPENDED.keys():
            return dict(found.values)
        return await self._intended()

    @property
    def _topic_id(self) -> str | None:
        known = self._destination.topics.get(self._topic)
        return id_text(known.topic_id) if known is not None else None

    async def _intended(self) -> Values:
        """Returns the most likely values, for the case that none are written down (an earlier version of the mirror
        wrote nothing, or the internal topic is lost). The topic compacts, with the source's policy if that compacts,
        and has the source's values for the configs that are kept in step."""
        policy, own = await self._look(self._source)
        # A source topic that is itself the destination of a mirror may be suspended, too.
        values: Values = {
            name: own[name] if name in self._synced and own[name] != FOR_EVER else None for name in SUSPENDED
        }
        return values | {CLEANUP_POLICY: policy if "compact" in policy else "compact"}

    async def _look(self, cluster: Cluster) -> tuple[str, Values]:
        """Returns the policy in force at this cluster ("" if the mirror may not describe it), and the topic's own
        values."""
        entries = (await describe_topics(cluster, [self._topic])).get(self._topic, {})
        own = {
            name: entries[name].value
            if name in entries and entries[name].config_source == TOPIC_CONFIG_SOURCE
            else None
            for name in SUSPENDED
        }
        policy = entries[CLEANUP_POLICY].value if CLEANUP_POLICY in entries else None
        return policy or "", own

    async def _alter(self, values: Values) -> None:
        """Sets the topic's configs.

        Raises:
            PartitionHalted: the mirror may not alter the topic.
            NetworkError: it was not done.
        """
        try:
            await alter_configs(self._destination, Resource.TOPIC, self._topic, values)
        except Refused as error:
            if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            lacks = Right(ALTER_CONFIGS, TOPIC, self._topic, self._destination.name)
            detail = (
                f"{self._topic} at {self._destination.name} is compacted and takes no filler, and the mirror may "
                f"not suspend that; its principal lacks {lacks}"
            )
            raise PartitionHalted(halted_by_lack(detail, lacks)) from error


class Cleanups:
    """The cleanups of all topics of a flow's destination."""

    def __init__(
        self, source: Cluster, destination: Cluster, synced: Collection[str], state: Memory, log: EventLog
    ) -> None:
        """
        Args:
            source: the source cluster.
            destination: the destination cluster.
            synced: configs that a destination topic gets from the source's (``sync.topic.configs``).
            state: the flow's internal topic.
            log: gets an event if a topic is left suspended.
        """
        self._log = log
        self._source = source
        self._destination = destination
        self._synced = synced
        self._state = state
        self._topics: dict[str, Cleanup] = {}

    def of(self, topic: str) -> Cleanup:
        """Returns the cleanup of a topic."""
        cleanup = self._topics.get(topic)
        if cleanup is None:
            cleanup = self._topics[topic] = Cleanup(
                self._source, self._destination, topic, self._synced, self._state, self._log
            )
        return cleanup
