"""What the mirror remembers between two lives, in an internal compacted topic at the destination (``records.state``).

Written with acks=all, a batch at a time, and read in full when it is opened. It holds what the destination's log alone
does not say: checkpoints and offset maps of ``offsets: mapped``; in any mode, what flow and partitions are, why a
partition halted, and the ranges that were skipped.

A batch may land twice (its answer was lost) or late. Checkpoints and maps carry keys of their writer alone, so that
does no harm; the others say the same again, or are written by a partition's owner only.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Protocol, TypeVar

from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from mirror.net.backoff import Backoff
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused, Unreachable
from mirror.net.log import PartitionLog
from mirror.records.state import Entry, Ledger, Side, Skipped, StateError
from mirror.wire.errors import ErrorCode, Outcome, outcome_of

PREFIX = "mirror-internal."
"""Topics with such names are never mirrored (``service.config``)."""
REPLICAS = 3
"""Of the internal topic by default; fewer where there are fewer brokers."""
BATCH_BYTES = 256 * 1024
"""Most bytes of keys and values in a batch, unless a single entry has more: well below any ``max.message.bytes``."""
READ_BYTES = 1 << 20
TRIES = 6
LOOKS = 200
PAUSE_S = 0.05
_CREATE_TIMEOUT_MS = 30_000
_TOPIC_RESOURCE = 2
_POLICY = "cleanup.policy"
_COMPACT = "compact"
SEGMENT_BYTES = 16 << 20
"""Of the internal topic: what is superseded is not cleaned before its segment is rolled, and a start reads it all."""

Row = tuple[bytes, bytes | None]
_T = TypeVar("_T")


class StateUnusable(NetworkError):
    """The internal topic is not what it has to be; the message says what to do."""

    slug = "state_unusable"


def state_topic(flow: str) -> str:
    """The internal topic of a flow: ``mirror-internal.dc1_to_dc2`` for ``dc1->dc2``."""
    return PREFIX + flow.replace("->", "_to_")


class Memory(Protocol):
    """What the mirror remembers at the destination, as the relay needs it: ``State``, or a model of it in tests. Every
    coroutine raises ``NetworkError``."""

    topic: str
    ledger: Ledger

    async def open(self, *, create: bool = True, replication_factor: int = -1) -> bool:
        """Finds or creates it, and reads it; False if there is none."""

    async def load(self) -> None:
        """Reads what others have written since."""

    async def put(self, entry: Entry) -> None:
        """Writes one entry, together with those of others."""

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = ()) -> None:
        """Writes entries, and takes keys away."""

    async def skip(self, side: Side, start: int, end: int, cause: str) -> Skipped:
        """Writes down a range that is not copied."""


class Shared:
    """Work that is done once for all who ask for it meanwhile: whoever asks gets a turn that began afterwards."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._turn = asyncio.Lock()
        self._asked = self._done = 0
        self._failed: NetworkError | None = None

    async def run(self) -> None:
        """Once, for this caller and all others who wait.

        Raises:
            NetworkError: what the work raised, for each of them.
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


class State:
    """The flow's internal topic. ``open`` it; then ``ledger`` has what it says, as of the last ``load``.

    ``lean``: see ``Ledger``. Every coroutine raises ``NetworkError`` when the destination does not answer after some
    tries, among them ``StateUnusable`` for a topic that holds something else than our records.
    """

    def __init__(self, cluster: Cluster, flow: str, *, topic: str = "", lean: bool = False) -> None:
        """``topic``: another flow's, to be read only."""
        self.topic = topic or state_topic(flow)
        self._lean = lean
        self.ledger = Ledger(lean=lean)
        self._cluster = cluster
        self._topic_id: bytes | None = None
        self._next = 0
        self._lock = asyncio.Lock()
        self._loads = Shared(self._load_once)
        self._puts = Shared(self._put_all)
        self._waiting: list[Entry] = []

    async def open(self, *, create: bool = True, replication_factor: int = -1) -> bool:
        """Finds the topic, or creates it, and reads it to its end.

        Args:
            create: whether to create it where it lacks.
            replication_factor: of a new topic; -1 for three, or as many as there are brokers.

        Returns:
            False if there is none and none is to be created.

        Raises:
            StateUnusable: it exists and its cleanup.policy is not compact, so that what it says would be deleted.
        """
        await self._cluster.refresh([self.topic])
        if self.topic not in self._cluster.topics:
            if not create:
                return False
            await self._patiently(lambda: self._create(replication_factor))
        await self._check_policy()
        await self.load()
        return True

    async def load(self) -> None:
        """Reads what was written since the last time, by whomever, up to the log's true end. Calls that are made while
        one is under way share the next."""
        await self._loads.run()

    async def _load_once(self) -> None:
        async with self._lock:
            await self._patiently(self._read)

    async def put(self, entry: Entry) -> None:
        """``save`` for one entry: those of calls made while one is under way go together."""
        self._waiting.append(entry)
        await self._puts.run()

    async def _put_all(self) -> None:
        entries, self._waiting = self._waiting, []
        try:
            await self.save(entries)
        except asyncio.CancelledError:
            # Only one of those who asked gave up: the next turn is the others'.
            self._waiting[:0] = entries
            raise

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = ()) -> None:
        """Writes entries, and that the keys of ``forget`` are no more. What is small enough for one batch (a checkpoint
        with its map, always) is there as a whole or not at all."""
        entries = list(entries)
        forget = list(forget)
        rows: list[Row] = [(entry.key(), entry.value()) for entry in entries]
        rows += [(key, None) for key in forget]
        async with self._lock:
            for batch in _batches(rows):
                await self._patiently(lambda batch=batch: self._log().produce(batch))  # type: ignore[misc]
            for entry in entries:
                self.ledger.put(entry)
            for key in forget:
                self.ledger.forget(key)

    async def skip(self, side: Side, start: int, end: int, cause: str) -> Skipped:
        """Writes down that source offsets ``start`` up to before ``end`` are not copied, and why."""
        skipped = Skipped(side=side, start=start, end=end, cause=cause, at_ms=round(time.time() * 1000))
        await self.save([skipped])
        return skipped

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
            raise Refused(what, result.error_code, result.error_message)
        for _ in range(LOOKS):
            await self._cluster.refresh([self.topic])
            if self._cluster.leader(self.topic, 0) is not None:
                return
            await asyncio.sleep(PAUSE_S)

    async def _check_policy(self) -> None:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=self.topic, configuration_keys=[_POLICY]
        )
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
        for result in (await self._cluster.call(request)).results:
            # Without the right to look it is taken to be as it was created.
            for entry in result.configs if not result.error_code else []:
                if entry.name == _POLICY and entry.value != _COMPACT:
                    raise StateUnusable(
                        f"topic {self.topic} at {self._cluster.name} has {_POLICY}={entry.value}, so that what the "
                        f"mirror must remember would be deleted; set it to {_COMPACT}"
                    )

    def _log(self) -> PartitionLog:
        """The partition at its leader of now."""
        topic = self._cluster.topics.get(self.topic)
        leader = self._cluster.leader(self.topic, 0)
        if topic is None or leader is None:
            raise Unreachable(f"cluster {self._cluster.name}: {self.topic}-0 has no leader at present")
        if topic.topic_id != self._topic_id:
            # Another topic of that name: nothing is known any more.
            self._topic_id, self._next, self.ledger = topic.topic_id, 0, Ledger(lean=self._lean)
        return PartitionLog(self._cluster, topic, 0, leader)

    async def _patiently(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Tries a few times, with newer metadata each time."""
        options = self._cluster.options
        backoff = Backoff(least_ms=options.backoff_ms, most_ms=options.backoff_max_ms)
        while True:
            try:
                return await attempt()
            except NetworkError as error:
                final = isinstance(error, StateUnusable) or (
                    isinstance(error, Refused) and outcome_of(error.code) is Outcome.HALT
                )
                if final or backoff.tries == TRIES - 1:
                    raise
            await asyncio.sleep(backoff.next_s())
            with suppress(NetworkError):
                await self._cluster.refresh([self.topic])

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        # A topic that was made anew may have the leader epochs of the old one: only its id tells.
        await self._cluster.refresh([self.topic])
        log = self._log()
        end = await log.true_end()
        for _ in range(LOOKS):
            if await log.visible_end() >= end:
                break
            await asyncio.sleep(PAUSE_S)
        else:
            raise Unreachable(f"{log.name} ends at {end}, and that is not replicated yet")
        offset = max(self._next, await log.start())
        while offset < end:
            segment = await log.read(offset, max_bytes=READ_BYTES)
            if not segment.batches:
                return
            for header, batch in segment.batches:
                offset = header.next_offset
                if not header.is_control and header.record_count:
                    self._apply(bytes(batch), header.base_offset)
                self._next = offset

    def _apply(self, batch: bytes, offset: int) -> None:
        try:
            for record in DefaultRecordBatch(batch):
                self.ledger.apply(record.key or b"", record.value)
        except StateError as error:
            raise StateUnusable(
                f"topic {self.topic} at {self._cluster.name}, batch at offset {offset}: {error}; nobody but a mirror "
                "of this version may write there: restore the topic, or give the flow a new destination topic"
            ) from error


def _batches(rows: Iterable[Row]) -> Iterator[bytes]:
    """The rows as record batches, in order."""
    builder, size, count = _builder(), 0, 0
    for key, value in rows:
        grown = len(key) + len(value or b"")
        if count and size + grown > BATCH_BYTES:
            yield bytes(builder.build())
            builder, size, count = _builder(), 0, 0
        builder.append(count, round(time.time() * 1000), key, value, [])
        size += grown
        count += 1
    if count:
        yield bytes(builder.build())


def _builder() -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
