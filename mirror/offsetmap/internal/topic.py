"""The mirror's memory across restarts: a compacted internal topic at the destination.

It is written with acks=all, a batch at a time, and read in full when it is opened. It holds what the destination's log
alone does not tell: checkpoints and offset maps of ``offsets: mapped``; in any mode, the identity of the flow and of
its partitions, why a partition halted, and the ranges that were skipped.

A batch may be appended twice (if its answer was lost) or late. That does no harm to checkpoints and maps, because only
their writer uses their keys. Other records only repeat what the topic has, or are written only by a partition's owner.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from kafka.protocol.admin import CreateTopicsRequest

from mirror.net.admin.configs import Resource, describe_configs
from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, NotSent, Refused, Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.net.metadata import Leader, Topic, no_leader, not_described
from mirror.net.rights import CREATE, DESCRIBE_CONFIGS, TOPIC, Right
from mirror.offsetmap.entries.entry import Entry, StateError
from mirror.offsetmap.entries.pins import FlowEntry
from mirror.offsetmap.fields import id_text, ids_differ, is_topic
from mirror.offsetmap.internal.batches import KeyValue, batches_of, records_of
from mirror.offsetmap.internal.ledger import Ledger
from mirror.offsetmap.internal.memory import RESTORE, May, StateUnusable, state_topic
from mirror.records.header import BatchHeader
from mirror.wire.errors import ErrorCode, Reaction, outcome_of

REPLICAS = 3
"""Default replication factor of the internal topic; fewer if there are fewer brokers."""
READ_BYTES = 1 << 20
TRIES = 6
"""How often a request is tried before its error is raised."""
LOOKS = 200
"""How often a new topic's leader, or a log's replication, is checked before that is given up; ``PAUSE_S`` apart."""
LOST = 1 << 63
"""A value above every offset."""
PAUSE_S = 0.05
_CREATE_TIMEOUT_MS = 30_000
_POLICY = "cleanup.policy"
_COMPACT = "compact"
_ABSENT = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}
"""The error codes of Metadata for a topic that does not exist."""
SEGMENT_BYTES = 16 << 20
"""``segment.bytes`` of the internal topic. Superseded records are not cleaned before their segment is rolled, and every
start reads them."""

_T = TypeVar("_T")


class Shared:
    """Does work once for all callers that wait for it. Each caller gets the result of a run that began after its
    call."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._turn = asyncio.Lock()
        self._asked = self._done = 0
        self._failed: NetworkError | None = None

    async def run(self) -> None:
        """Runs the work once, for this caller and all others that wait.

        Raises:
            NetworkError: the error of the work; each of these callers gets it.
        """
        self._asked += 1
        wanted = self._asked
        async with self._turn:
            if self._done < wanted:
                covers = self._asked
                self._failed = None
                try:
                    await self._work()
                except NetworkError as error:
                    self._failed = error
                self._done = covers
            if self._failed is not None:
                raise self._failed


class _Asked:
    """An entry that waits to be written."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.given_up = False
        """True if its caller no longer waits. Then the entry must not be written any more: another owner may have
        written a newer one since."""


class InternalTopic:
    """The flow's internal topic. ``open`` must be called first; then ``ledger`` has the topic's content as of the last
    ``load``.

    ``lean``, ``only``: see ``Ledger``. Every coroutine raises ``NetworkError`` if the destination does not answer after
    some tries, and its subclass ``StateUnusable`` if the topic has records that no mirror can have written.
    """

    def __init__(
        self,
        cluster: Cluster,
        flow: str,
        *,
        topic: str = "",
        lean: bool = False,
        only: Callable[[Entry], bool] | None = None,
    ) -> None:
        """
        Args:
            cluster: the destination.
            flow: the flow's id.
            topic: the internal topic of another flow, which is only read; empty: this flow's own.
            lean: see ``Ledger``.
            only: see ``Ledger``.
        """
        self.topic = topic or state_topic(flow)
        self._flow = "" if topic else flow
        self._new_ledger = partial(Ledger, lean=lean, only=only)
        self.ledger = self._new_ledger()
        self.lost: Ledger | None = None
        self.lacks: Right | None = None
        self._cluster = cluster
        self._topic_id: bytes | None = None
        self._next = 0
        """Everything before this offset was read, from ``_leader`` or an earlier leader."""
        self._leader = Leader(-1, -1)
        self._start = 0
        """The log's start when it was read."""
        self._written = 0
        """The end of what this process has written and the destination has acknowledged; ``LOST`` if the log has lost
        its end."""
        self._lock = asyncio.Lock()
        self._loads = Shared(self._load_once)
        self._puts = Shared(self._put_all)
        self._waiting: list[_Asked] = []

    async def open(self, *, create: bool = True, replication_factor: int = -1) -> bool:
        """Finds the topic, or creates it, and reads it to its end.

        Args:
            create: create the topic if it is missing.
            replication_factor: that of a new topic; -1 for three, or the number of brokers if there are fewer.

        Returns:
            True; False if the topic does not exist and ``create`` is False.

        Raises:
            Refused: it cannot be told whether the topic exists (without the right to describe it, for example), or it
                cannot be created.
            StateUnusable: the topic's cleanup.policy is not compact, so that its records would be deleted; or it is
                another flow's.
        """
        failed = await self._cluster.refresh([self.topic])
        if self.topic not in self._cluster.topics:
            if not create:
                self._check_absence(failed.get(self.topic, ErrorCode.NONE))
                return False
            await self._patiently(lambda: self._create(replication_factor))
        await self._check_policy()
        await self.load()
        self._check_flow()
        return True

    def _check_absence(self, code: int) -> None:
        """Checks that ``code``, the topic's error code in Metadata, means that the topic does not exist.

        Raises:
            Refused: it may exist.
        """
        if self.topic in self._cluster.denied:
            raise not_described(self._cluster.name, self.topic)
        if code not in _ABSENT:
            raise Refused(f"{self._cluster.name}: Metadata of {self.topic}", code)

    async def claim(self, flow: FlowEntry) -> None:
        """Writes an entry that the topic belongs to this flow, unless the topic has one.

        Raises:
            StateUnusable: another flow, whose internal topic has the same name, has done so before.
        """
        if any(one.key() == flow.key() for one in self.ledger.flows):
            return
        await self.put(flow)
        # If two flows claim the topic at the same moment, each writes its own entry first and then sees the other's.
        await self.load()
        try:
            self._check_flow()
        except StateUnusable:
            await self.save((), forget=[flow.key()])
            raise

    def _check_flow(self) -> None:
        first = min(self.ledger.flows, key=lambda one: (one.at_ms, one.flow), default=None)
        if self._flow and first is not None and first.flow != self._flow:
            raise StateUnusable(
                f"topic {self.topic} at {self._cluster.name} belongs to the flow with flow.id {first.flow}, this one "
                f'is {self._flow}: "->" is written "_to_" in a topic\'s name. Give this flow another flow.id; if it is '
                f"that flow under new names, set flow.id: {first.flow}"
            )

    async def load(self) -> None:
        """Reads what anybody has written since the last time, up to the log's true end. Calls that are made while one
        is running share the next one."""
        await self._loads.run()

    async def look(self, *, replication_factor: int = -1) -> None:
        """Checks that the topic is the one that was read, and has lost nothing. If it is gone, it is created again. If
        it is another one or has lost something, it is read from its start, and ``lost`` has the former ledger.
        Otherwise nothing is read.

        Args:
            replication_factor: see ``open``.

        Raises:
            StateUnusable: see ``open``.
        """
        if not await self._patiently(lambda: self._is_same(replication_factor)):
            await self.load()
        await self._check_policy()

    async def _is_same(self, replication_factor: int) -> bool:
        """Returns True if the topic is the same and has lost nothing. It takes no lock, so that a broker that hangs
        does not delay writes."""
        failed = await self._cluster.refresh([self.topic])
        if failed.get(self.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await self._create(replication_factor)
        topic, leader = self._cluster.topics.get(self.topic), self._cluster.leader(self.topic, 0)
        if topic is None or leader is None:
            raise self._no_leader(topic)
        if self._is_another(topic) or not self._next:
            return False
        log = PartitionLog(self._cluster, topic, 0, leader)
        return await log.start() <= self._start and not await self._is_cut(log, await log.true_end())

    async def _load_once(self) -> None:
        async with self._lock:
            await self._patiently(self._read)

    async def put(self, entry: Entry) -> None:
        """Saves one entry. Entries of calls that are made while a save is running are saved together. If a caller is
        cancelled before its request was sent, its entry is not written."""
        asked = _Asked(entry)
        self._waiting.append(asked)
        try:
            await self._puts.run()
        except asyncio.CancelledError:
            asked.given_up = True
            raise

    async def _put_all(self) -> None:
        asked, self._waiting = self._waiting, []
        try:
            await self.save(one.entry for one in asked if not one.given_up)
        except asyncio.CancelledError:
            # The caller that runs the work was cancelled: the next run writes the entries of those that still wait.
            self._waiting[:0] = asked
            raise

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """Writes entries, and removes the keys in ``forget``. If everything fits into one batch (a checkpoint with its
        map always does), it is written completely or not at all. Entries about topics with names that no cluster can
        have are left out: nothing is copied into these, and every reader would have to handle them.

        Args:
            entries: the entries to write.
            forget: the keys to remove.
            may: is called before each request, since this may have waited for other writes until then. With it, a
                request that fails is not repeated: the caller has to check whether it may still write, and call again.

        Raises:
            NotSent: ``may`` has returned False.
        """
        async with self._lock:
            entries = [entry for entry in entries if _can_be(entry)]
            forget = list(forget)
            rows: list[KeyValue] = [(entry.key(), entry.value()) for entry in entries]
            rows += [(key, None) for key in forget]
            for batch in batches_of(rows):
                produce = partial(self._produce, batch, may)
                base = await (self._patiently(produce) if may is None else self._once(produce))
                # If the log has not grown, it has lost its end: then everything is read again.
                behind = base + BatchHeader.read(batch).record_count
                self._written = behind if base >= self._written else LOST
            for entry in entries:
                self.ledger.put(entry)
            for key in forget:
                self.ledger.forget(key)

    async def _produce(self, batch: bytes, may: May | None) -> int:
        if may is not None and not may():
            raise NotSent(f"{self.topic}: not written, since it has waited for other writes")
        return await self._log().produce(batch)

    # -- the topic -----------------------------------------------------------------------------------------------------

    async def _create(self, replication_factor: int) -> None:
        replicas = replication_factor if replication_factor > 0 else min(REPLICAS, len(self._cluster.nodes))
        one = CreateTopicsRequest.CreatableTopic
        wanted = one(
            name=self.topic,
            num_partitions=1,
            replication_factor=replicas,
            assignments=[],
            configs=[
                one.CreatableTopicConfig(name=_POLICY, value=_COMPACT),
                one.CreatableTopicConfig(name="segment.bytes", value=str(SEGMENT_BYTES)),
            ],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=_CREATE_TIMEOUT_MS, validate_only=False)
        result = (await (await self._cluster.control_of_controller()).call(request)).topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            what = (
                f"cannot create {self.topic} with {replicas} replicas at {self._cluster.name} (grant Create, Read, "
                f"Write and Describe on it; or create it by hand: one partition, {_POLICY}={_COMPACT})"
            )
            needs = Right(CREATE, TOPIC, self.topic, self._cluster.name)
            raise Refused(what, result.error_code, result.error_message, needs=needs)
        for _ in range(LOOKS):
            await self._cluster.refresh([self.topic])
            if self._cluster.leader(self.topic, 0) is not None:
                return
            await asyncio.sleep(PAUSE_S)

    async def _check_policy(self) -> None:
        denied: set[str] = set()
        configs = await describe_configs(self._cluster, Resource.TOPIC, [self.topic], keys=[_POLICY], denied=denied)
        # Without the right to describe it, the policy is taken to be as at creation. ``lacks`` has the right to be
        # logged.
        self.lacks = Right(DESCRIBE_CONFIGS, TOPIC, self.topic, self._cluster.name) if denied else None
        policy = configs.get(self.topic, {}).get(_POLICY)
        if policy is not None and policy.value != _COMPACT:
            raise StateUnusable(
                f"topic {self.topic} at {self._cluster.name} has {_POLICY}={policy.value}, so that what the mirror "
                f"must remember would be deleted; set it to {_COMPACT}"
            )

    def _log(self) -> PartitionLog:
        """Returns the partition's log at its current leader."""
        topic = self._cluster.topics.get(self.topic)
        leader = self._cluster.leader(self.topic, 0)
        if topic is None or leader is None:
            raise self._no_leader(topic)
        if self._is_another(topic):
            # What was read is of the former topic.
            self._keep_lost()
            self.ledger = self._new_ledger()
            self._next = self._written = self._start = 0
        self._topic_id = topic.topic_id or self._topic_id
        return PartitionLog(self._cluster, topic, 0, leader)

    def _is_another(self, topic: Topic) -> bool:
        """Returns True if the topic with this name is not the one that was read."""
        return ids_differ(id_text(self._topic_id), id_text(topic.topic_id))

    def _no_leader(self, topic: Topic | None) -> NetworkError:
        """Returns the error for a topic that does not exist, has no leader, or may not be described."""
        cluster = self._cluster
        if topic is None and self.topic in cluster.denied:
            return not_described(cluster.name, self.topic)
        return no_leader(cluster.name, self.topic, 0, topic)

    def _keep_lost(self) -> None:
        """Keeps the ledger as ``lost``, because the topic may have lost some of it. Only for the flow's own topic."""
        if self._flow and self.lost is None and (self._next or self._written):
            self.lost = self.ledger

    async def _once(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Tries once. After a failure, refreshes the metadata for the caller's next try."""
        try:
            return await attempt()
        except NetworkError:
            with suppress(NetworkError):
                await self._cluster.refresh([self.topic])
            raise

    async def _patiently(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Tries up to ``TRIES`` times, with fresh metadata each time."""
        options = self._cluster.options
        backoff = Backoff(least_ms=options.backoff_ms, most_ms=options.backoff_max_ms)
        while True:
            try:
                return await attempt()
            except NetworkError as error:
                final = isinstance(error, StateUnusable) or (
                    isinstance(error, Refused) and outcome_of(error.code) is Reaction.HALT
                )
                if final or backoff.tries == TRIES - 1:
                    raise
            await asyncio.sleep(backoff.next_s())
            with suppress(NetworkError):
                await self._cluster.refresh([self.topic])

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        # A recreated topic may have the same leader epochs as the old one, so only its id tells the two apart.
        await self._cluster.refresh([self.topic])
        log = self._log()
        end = await log.true_end()
        for _ in range(LOOKS):
            if await log.visible_end() >= end:
                break
            await asyncio.sleep(PAUSE_S)
        else:
            raise Unreachable(f"{log.name} ends at {end}, and that is not replicated yet")
        start = await log.start()
        # A log cleaner does not move the log's start, so a later start means that records were deleted.
        if (self._next or self._written) and (start > self._start or await self._is_cut(log, end)):
            self._keep_lost()
            self._next = 0
        if not self._next or not await self._read_on(log, end):
            self._next, self.ledger = await self._read_all(log, end)
            self._written = 0
        self._leader, self._start = log.leader, start

    async def _is_cut(self, log: PartitionLog, end: int) -> bool:
        """Returns True if the log, which ends at ``end``, has lost some of what this process has read or written, in an
        unclean election: other entries are, or will be, at these offsets. If a new leader cannot tell where the former
        leader's epoch ends, it may have lost something."""
        if end < max(self._next, self._written):
            return True
        if log.leader == self._leader:
            return False
        found = await log.end_of_epoch(self._leader.epoch) if self._leader.epoch >= 0 else None
        return found is None or found.offset < self._next

    async def _read_on(self, log: PartitionLog, end: int) -> bool:
        """Applies what was written since the last time. Returns False if offsets are missing there, because the cleaner
        may have removed the tombstone of a key."""
        while self._next < end:
            found = (await log.read(self._next, max_bytes=READ_BYTES)).batches
            if not found:
                return False
            for header, batch in found:
                if header.base_offset != self._next or not header.is_dense:
                    return False
                self._apply(self.ledger, header, batch)
                self._next = header.next_offset
        return True

    async def _read_all(self, log: PartitionLog, end: int) -> tuple[int, Ledger]:
        """Reads the whole log. Returns the offset up to which it was read, and a new ledger. If that fails, the present
        ledger is unchanged."""
        ledger = self._new_ledger()
        offset = await log.start()
        while offset < end:
            segment = await log.read(offset, max_bytes=READ_BYTES)
            if not segment.batches:
                if segment.high_watermark < end:
                    # As in ``relay.locate.tails.batches``: the rest exists, and cannot be read now.
                    raise Unreachable(f"{log.name} ends at {end}, and is to be read to {segment.high_watermark} only")
                break  # a log cleaner has removed the rest
            for header, batch in segment.batches:
                self._apply(ledger, header, batch)
                offset = header.next_offset
        return offset, ledger

    def _apply(self, ledger: Ledger, header: BatchHeader, batch: memoryview) -> None:
        if header.is_control or not header.record_count:
            return
        try:
            for record in records_of(batch):
                ledger.apply(record.key or b"", record.value)
        except StateError as error:
            raise StateUnusable(
                f"topic {self.topic} at {self._cluster.name}, batch at offset {header.base_offset}: {error}; {RESTORE}"
            ) from error


def _can_be(entry: Entry) -> bool:
    subject = getattr(entry, "subject", None)
    return subject is None or (is_topic(subject.topic) and is_topic(subject.destination))
