"""Sends a raw producer's batches: those of a partition one after the other.

It runs in the producer's event loop. A partition has one batch in flight at a time, and the batch keeps its producer
id, epoch and sequence through all tries. So if a try without an answer was appended, the broker recognises the next one
as a repeat, also after a restart (docs/BROKERS.md#a-restarted-broker-recognises-the-last-batch). If the outcome of a
batch is unknown in the end, its producer id is not used again: the partition's next batch gets another.

Batches of several partitions of a broker share requests.
"""

import asyncio
import time
from collections import deque
from functools import partial

from kafka.protocol.producer import InitProducerIdRequest

from mirror.net.backoff import Backoff
from mirror.net.batching import Batcher
from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused
from mirror.net.logs import leader_requests
from mirror.net.metadata import Leader
from mirror.net.rights import CLUSTER, IDEMPOTENT_WRITE, TOPIC, WRITE, Right
from mirror.raw.batches import stamped
from mirror.raw.errors import (
    FINAL,
    NotDelivered,
    NotSent,
    OutcomeUnknown,
    RawError,
    RefusedByBroker,
    SendFailed,
    Unavailable,
    heals,
    of_network,
)
from mirror.raw.leaders import Leaders, backoff_of
from mirror.raw.model import RecordMetadata, TopicPartition
from mirror.raw.produce.requests import Item, Stamped, exchange
from mirror.records.identity import Identity
from mirror.wire.errors import ErrorCode, Reaction, error_name, outcome_of
from mirror.wire.produce import Produced

OVER = "delivery.timeout.ms is over"
INIT_PRODUCER_ID_VERSION = 4
"""The highest version that is used: later ones are about transactions (KIP-890, KIP-939)."""
OLD_MS = 3_600_000
"""Brokers forget a producer when its records are older than producer.id.expiration.ms (a day). Before a batch older
than this is sent again, it is checked that the leader remembers its producer."""

_UNDONE = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors that come after the batch was appended, or in the middle of it."""
OTHER_PRODUCER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""Errors that mean: the leader's state of the producer differs from ours. It has lost or forgotten something."""
_REFUSED = frozenset({ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
_SMALLER = "or send the smaller batches that sendable(value, max_bytes=...) makes"
REMEDIES: dict[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: f"raise max.message.bytes of the topic, {_SMALLER}",
    ErrorCode.RECORD_LIST_TOO_LARGE: f"raise segment.bytes of the topic, {_SMALLER}",
    ErrorCode.INVALID_TIMESTAMP: "change message.timestamp.before.max.ms or .after.max.ms of the topic",
    ErrorCode.INVALID_RECORD: "a compacted topic takes no record without a key",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker does not know this codec: upgrade it",
    ErrorCode.POLICY_VIOLATION: "the cluster's policy does not allow it",
}


def is_final(code: int) -> bool:
    """Returns True if a broker that answers a Produce with this code will not take the batch later, either."""
    return outcome_of(code) is Reaction.HALT or code in _REFUSED


class _Lane:
    """One partition: the batches that wait, and the identity of the next one."""

    __slots__ = ("at", "identity", "task", "waiting")

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.waiting: deque[Item] = deque()
        self.identity: Identity | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The partition's name in messages."""
        return f"{self.at.topic}-{self.at.partition}"

    def fail(self, error: Exception) -> None:
        """Gives up the first batch with the error, and all batches behind it as not sent: otherwise there would be a
        gap in the order. If the first may be in the log, its producer id is not used again."""
        failed, behind = self.waiting.popleft(), list(self.waiting)
        self.waiting.clear()
        failed.given_up = True
        if failed.unsure:
            self.identity = None
        failed.fail(error)
        for item in behind:
            told = f"{self.name}: not sent, since a batch before it failed ({error}); send() it again"
            item.fail(NotSent(told, topic=self.at.topic, partition=self.at.partition))


class Sending:
    """See the module's docstring. All methods are called in the event loop's thread.

    Args:
        cluster: the cluster to which batches are sent.
        leaders: finds the partitions' leaders.
        max_request_size: most bytes of batches in a request, unless one alone is larger.
    """

    def __init__(self, cluster: Cluster, leaders: Leaders, *, max_request_size: int) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._max_request_size = max_request_size
        self._lanes: dict[TopicPartition, _Lane] = {}

    def put(self, at: TopicPartition, item: Item) -> None:
        """Queues a batch behind those of its partition that were put before, and begins to send."""
        lane = self._lanes.setdefault(at, _Lane(at))
        lane.waiting.append(item)
        if lane.task is None:
            lane.task = asyncio.get_running_loop().create_task(self._drain(lane))

    async def close(self) -> None:
        """Ends all requests, and fails all batches that are not acknowledged."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lane in self._lanes.values():
            if lane.waiting:
                lane.fail(_given_up(lane, lane.waiting[0], "the producer was closed", NotSent))

    async def _drain(self, lane: _Lane) -> None:
        try:
            while lane.waiting:
                try:
                    landed = await self._deliver(lane, lane.waiting[0])
                except Exception as error:  # also a bug: otherwise it would stay unnoticed
                    lane.fail(error)
                else:
                    lane.waiting.popleft().land(landed)
        finally:
            lane.task = None

    # -- one batch ---------------------------------------------------------------------------------------------------

    async def _deliver(self, lane: _Lane, item: Item) -> RecordMetadata:
        """Sends the batch until it is acknowledged or given up. Returns its offsets. Raises SendFailed."""
        backoff = backoff_of(self._cluster)
        anew = False
        while True:
            problem: object
            before = item.unsure
            try:
                identity = lane.identity = lane.identity or await self._new_identity(item.until)
                leader = await self._leaders.find(*lane.at, until=item.until, anew=anew)
                if item.unsure:
                    await self._check_remembered(lane, item, leader, identity)
                async with asyncio.timeout_at(item.until):
                    produced = await self._produce(lane, item, leader, identity)
                item.unsure = before
            except SendFailed:
                raise
            except RawError as error:
                raise _given_up(lane, item, error, NotDelivered) from error
            except FINAL as error:
                raise _given_up(lane, item, of_network(error), NotDelivered) from error
            except NetworkError as error:
                problem, anew = error, True
            except TimeoutError:
                raise _given_up(lane, item, f"{OVER}, and no answer has come", NotDelivered) from None
            else:
                if not produced.error:
                    lane.identity = identity.after(item.header.last_offset_delta + 1)
                    base = produced.base_offset
                    return RecordMetadata(*lane.at, base + item.header.last_offset_delta, base)
                problem, anew = error_name(produced.error), self._goes_on(lane, item, produced)
            pause_s = backoff.next_s()
            if asyncio.get_running_loop().time() + pause_s >= item.until:
                raise _given_up(lane, item, f"{OVER}; at last: {problem}", NotDelivered)
            await asyncio.sleep(pause_s)

    def _goes_on(self, lane: _Lane, item: Item, produced: Produced) -> bool:
        """Decides what to do after an answer with an error. Returns True if the leader has to be found again before the
        next try.

        Raises:
            SendFailed: the batch must not be sent again, or would be refused again.
        """
        code = produced.error
        outcome = outcome_of(code)
        # A leader that steps down while it waits for its followers has appended the batch, and only then names a base
        # offset (docs/BROKERS.md#an-error-can-follow-the-append). The next leader may have it.
        if code in _UNDONE or (outcome is Reaction.FIND_LEADER and produced.base_offset >= 0):
            item.unsure = True
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER or (code in OTHER_PRODUCER and item.unsure):
            told = f"the broker does not say any more whether it has the batch ({error_name(code)})"
            item.unsure = True
            raise _given_up(lane, item, told, NotDelivered)
        elif code in OTHER_PRODUCER:
            lane.identity = None
        elif is_final(code):
            told = f"{error_name(code)}{f', {produced.message}' if produced.message else ''}"
            needs = Right(WRITE, TOPIC, lane.at.topic, self._cluster.name)
            lacks = Refused(self._cluster.name, code, needs=needs).lacks
            remedy = f"grant the principal {lacks}" if lacks else REMEDIES.get(code, "")
            if item.unsure:
                raise _given_up(lane, item, told, NotDelivered)
            message = f"{lane.name} at {self._cluster.name}: {told}" + (f"; {remedy}" if remedy else "")
            raise RefusedByBroker(message, code, topic=lane.at.topic, partition=lane.at.partition)
        return outcome is Reaction.FIND_LEADER

    async def _check_remembered(self, lane: _Lane, item: Item, leader: Leader, identity: Identity) -> None:
        """Raises OutcomeUnknown if the batch must not be sent again: it may be in the log, and its records are so old
        that the leader has forgotten its producer and would not recognise it.

        (A leader before Kafka 2.8 cannot be asked; the batch is then sent again.)
        """
        if time.time() * 1000 - item.header.max_timestamp < OLD_MS:
            return
        known = await leader_requests.describe_producers(self._cluster, *lane.at, leader)
        if known is not None and all(each.producer_id != identity.producer_id for each in known):
            told = "its leader has forgotten this producer, as its records are old (producer.id.expiration.ms)"
            raise _given_up(lane, item, told, NotDelivered)

    async def _produce(self, lane: _Lane, item: Item, leader: Leader, identity: Identity) -> Produced:
        """Returns the leader's answer to one try. Raises NetworkError."""
        batcher: Batcher[Stamped, Produced] = self._cluster.batcher(
            ("raw Produce", leader.node_id),
            lambda: Batcher(
                partial(exchange, self._cluster, leader.node_id),
                most=self._max_request_size,
                weigh=lambda batch: len(batch.value),
            ),
        )
        return await batcher.ask(Stamped(lane.at, stamped(item.header, item.value, identity), item))

    async def _new_identity(self, until: float) -> Identity:
        """Returns an identity with a new producer id, which the brokers allocate.

        Raises:
            BrokerError: the brokers refuse it, or do not answer until ``until``.
        """
        request = partial(InitProducerIdRequest, transactional_id=None, transaction_timeout_ms=60_000)
        backoff: Backoff = backoff_of(self._cluster)
        while True:
            try:
                answer = await self._cluster.call(request(), version=INIT_PRODUCER_ID_VERSION)
                if not answer.error_code:
                    return Identity(answer.producer_id, answer.producer_epoch, 0)
                # Since Kafka 2.8, the right Write on any topic is enough.
                needs = Right(IDEMPOTENT_WRITE, CLUSTER, "", self._cluster.name)
                raise Refused(f"{self._cluster.name}: InitProducerId", answer.error_code, needs=needs)
            except NetworkError as error:
                lacks = isinstance(error, Refused) and error.lacks is not None
                if lacks or not heals(error):
                    raise of_network(error) from error
                pause_s = backoff.next_s()
                if asyncio.get_running_loop().time() + pause_s >= until:
                    raise Unavailable(str(error)) from error
            await asyncio.sleep(pause_s)


def _given_up(lane: _Lane, item: Item, why: object, otherwise: type[SendFailed]) -> SendFailed:
    """Returns the error for a batch that is given up: ``OutcomeUnknown`` if it may be in the log, else ``otherwise``.
    It must come to ``lane.fail`` before another task runs: until then, the batch may still be sent."""
    topic, partition = lane.at
    if not item.unsure:
        return otherwise(f"{lane.name}: not sent: {why}; send() it again", topic=topic, partition=partition)
    told = f"{why}; look for it at the end of the partition before it is sent again"
    message = f"{lane.name}: it was sent, and may be in the log: {told}"
    return OutcomeUnknown(message, topic=topic, partition=partition)
