"""The transaction coordinators of a cluster: ownership of transactional ids, and empty transactions.

The mirror uses transactional ids for ownership: the last caller of ``init_producer_id`` owns the id, and every process
can find out who that is (``describe``, KIP-664). Requests use versions from before KIP-890's second part, so that the
epoch of an id changes only when it is taken over or renewed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from kafka.protocol.admin import DescribeTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from mirror.net.backoff import Backoff
from mirror.net.batching import Batcher
from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost, NetworkError, Refused, Unsupported
from mirror.net.options import Use
from mirror.net.rights import DESCRIBE, TRANSACTIONAL_ID, WRITE, Right
from mirror.net.rights import GROUP as RIGHT_TO_GROUP
from mirror.wire.errors import ErrorCode
from mirror.wire.fetch import Node

GROUP, TRANSACTION = 0, 1
"""FindCoordinator's key types."""
MANY_KEYS_SINCE = 4
"""The first version of FindCoordinator for many keys at once (KIP-699)."""
MOST_IDS = 500
"""Transactional ids in one request."""
TRANSACTION_TIMEOUT_MS = 60_000
"""After this time, the coordinator itself aborts a transaction that a dead process left open. It is below the brokers'
default of transaction.max.timeout.ms (15 min)."""
RETRY_FOR_S = 60.0
"""How long requests are repeated: about as long as a coordinator takes to load its log, or to write the markers of a
transaction."""
RENEWS_SINCE = 3
"""The first version of InitProducerId with the owner's producer id and epoch (KIP-360)."""
_BEFORE_KIP_890 = {"AddPartitionsToTxnRequest": 3, "EndTxnRequest": 4, "InitProducerIdRequest": 4}

_MOVED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Errors that mean: another broker is the coordinator, or will be. It has to be found again."""
_WAIT = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS})
"""Errors that mean: the same coordinator can answer in a moment."""


class Ownership(NamedTuple):
    """The producer id and epoch of a transactional id's last owner. A later owner has another epoch, or another
    producer id."""

    producer_id: int
    epoch: int


NOBODY = Ownership(-1, -1)
"""The owner of an id that was never used, or that the coordinator has forgotten: its last owner does not own it any
more."""


class _Id(NamedTuple):
    """A transactional id in a shared request."""

    name: str

    @property
    def place(self) -> str:
        """The name: a request has each id once."""
        return self.name


Result = TypeVar("Result")


class Coordinator:
    """The transaction coordinators of one cluster. Finds the coordinator of each transactional id, and caches it until
    it has moved."""

    def __init__(self, cluster: Cluster, *, retry_for_s: float = RETRY_FOR_S) -> None:
        self._cluster = cluster
        self._retry_for_s = retry_for_s
        self._nodes: dict[str, int] = {}

    async def init_producer_id(self, transactional_id: str) -> Ownership:
        """Takes the id over. A transaction that the previous owner left open is aborted first: when this returns, its
        markers are written, and that owner can write no others.

        Raises:
            Refused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53) without Write on the id; or the coordinator is not ready
                in time.
            NetworkError: the coordinator did not answer in time.
        """
        request = partial(
            InitProducerIdRequest, transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        answer = await self._insist(transactional_id, partial(self._ask, transactional_id, request), safe=True)
        return Ownership(answer.producer_id, answer.producer_epoch)

    async def renew(self, transactional_id: str, owner: Ownership) -> Ownership:
        """Uses the id, so that the coordinator does not forget it (transactional.id.expiration.ms, 7 days). This
        increments the epoch (KIP-360). Partition leaders still accept batches that the owner writes under an earlier
        epoch.

        Returns:
            The ownership from now on. If it has another producer id, the coordinator had forgotten the old one. The new
            one does not fence the old one: treat this as a takeover.

        Raises:
            Refused: INVALID_PRODUCER_EPOCH or PRODUCER_FENCED if another process owns the id now; otherwise as
                ``init_producer_id``.
            Unsupported: before Kafka 2.5.
            NetworkError: the coordinator did not answer in time.
        """
        request = partial(
            InitProducerIdRequest,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
        )
        ask = partial(self._ask, transactional_id, request, least=RENEWS_SINCE)
        # Safe to repeat: the coordinator recognises the epoch that it has just replaced.
        answer = await self._insist(transactional_id, ask, safe=True)
        return Ownership(answer.producer_id, answer.producer_epoch)

    async def describe(self, transactional_id: str) -> Ownership | None:
        """Returns the owner of the id. ``NOBODY``: it has none, or was not used for so long that the coordinator has
        forgotten it (transactional.id.expiration.ms, 7 days). None: the broker cannot tell (before Kafka 3.0).

        Raises:
            Refused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53) without Describe on the id; or the coordinator is not
                ready in time.
            NetworkError: the coordinator did not answer in time.
        """

        async def look() -> Ownership | None:
            node_id = await self._find(transactional_id)
            connection = await self._cluster.control(node_id)
            if DescribeTransactionsRequest.API_KEY not in connection.api_versions:
                return None
            batcher: Batcher[_Id, Ownership | None] = self._cluster.batcher(
                ("DescribeTransactions", node_id), lambda: Batcher(partial(self._describe, node_id), most=MOST_IDS)
            )
            return await batcher.ask(_Id(transactional_id))

        return await self._insist(transactional_id, look, safe=True)

    async def abort_empty(self, transactional_id: str, owner: Ownership, topic: str, index: int) -> None:
        """Aborts an empty transaction on a partition: the coordinator writes one ABORT marker there, soon after this
        returns. The marker carries the owner's producer id and epoch.

        The coordinator retries the marker on its own, so there may be one too many if the partition's leader dies
        meanwhile. After any error here, it is not known if the marker was written, and a transaction may be open that
        is aborted later: call ``init_producer_id``, which waits for that, before looking at the log.

        Raises:
            Refused: INVALID_PRODUCER_EPOCH or PRODUCER_FENCED if another process owns the id now; an authorization
                error for the id or the topic; or the coordinator is not ready in time.
            NetworkError: no answer.
        """
        add = partial(
            AddPartitionsToTxnRequest,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=owner.producer_id,
            v3_and_below_producer_epoch=owner.epoch,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[index])],
        )
        end = partial(
            EndTxnRequest,
            transactional_id=transactional_id,
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
            committed=False,
        )
        await self._insist(transactional_id, partial(self._ask, transactional_id, add), safe=False)
        await self._insist(transactional_id, partial(self._ask, transactional_id, end), safe=False)

    # -- one exchange ------------------------------------------------------------------------------------------------

    async def _ask(self, transactional_id: str, make: Callable[[], Any], *, least: int = 0) -> Any:
        """Sends a request about this id to its coordinator, in version ``least`` or later. Returns the answer. Raises
        ``Refused`` if that has an error code."""
        request = make()
        name = type(request).__name__
        node_id = await self._find(transactional_id)
        if least:
            connection = await self._cluster.control(node_id, use=Use.WRITING)
            connection.version_of(request.API_KEY, (least, _BEFORE_KIP_890[name]), name)
        answer = await self._cluster.call(request, node_id=node_id, version=_BEFORE_KIP_890[name], use=Use.WRITING)
        if isinstance(request, AddPartitionsToTxnRequest):
            rows = [row for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition]
            code = next((row.partition_error_code for row in rows if row.partition_error_code), 0)
        else:
            code = answer.error_code
        if code:
            what = f"{self._cluster.name}: {name.removesuffix('Request')} of {transactional_id}"
            of_topic = code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise Refused(what, code, needs=None if of_topic else self._needs(WRITE, transactional_id))
        return answer

    async def _describe(self, node_id: int, asked: list[_Id]) -> list[Ownership | NetworkError | None]:
        request = DescribeTransactionsRequest(transactional_ids=[one.name for one in asked])
        answer = await self._cluster.call(request, node_id=node_id)
        found = {row.transactional_id: row for row in answer.transaction_states}
        return [self._described(one.name, found.get(one.name)) for one in asked]

    def _described(self, transactional_id: str, row: Any) -> Ownership | NetworkError | None:
        what = f"{self._cluster.name}: DescribeTransactions of {transactional_id}"
        if row is None:
            return ConnectionLost(f"{what}: nothing in the answer")
        if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return NOBODY
        if row.error_code:
            return Refused(what, row.error_code, needs=self._needs(DESCRIBE, transactional_id))
        return Ownership(row.producer_id, row.producer_epoch)

    def _needs(self, operation: str, transactional_id: str) -> Right:
        return Right(operation, TRANSACTIONAL_ID, transactional_id, self._cluster.name)

    async def _insist(self, transactional_id: str, ask: Callable[[], Awaitable[Result]], *, safe: bool) -> Result:
        """Repeats ``ask`` while the coordinator moves or is busy, for a limited time.

        ``safe``: True if it may be repeated after a request without an answer, too.
        """
        options = self._cluster.options
        backoff = Backoff(least_ms=options.backoff_ms, most_ms=min(1_000, options.backoff_max_ms))
        loop = asyncio.get_running_loop()
        until = loop.time() + self._retry_for_s
        while True:
            try:
                return await ask()
            except Refused as error:
                if error.code in _MOVED:
                    self._nodes.pop(transactional_id, None)
                elif error.code not in _WAIT:
                    raise
                if loop.time() >= until:
                    raise
            except Unsupported:
                raise
            except NetworkError:
                self._nodes.pop(transactional_id, None)
                if not safe or loop.time() >= until:
                    raise
            await asyncio.sleep(backoff.next_s())

    # -- finding it --------------------------------------------------------------------------------------------------

    async def _find(self, transactional_id: str) -> int:
        """Returns the node id of the id's coordinator, from the cache if it is there.

        Raises:
            Refused: there is no coordinator at present, or the mirror has no right to ask.
            NetworkError: no broker answers.
        """
        node_id = self._nodes.get(transactional_id)
        if node_id is None:
            batcher: Batcher[_Id, Node] = self._cluster.batcher(
                "FindCoordinator", lambda: Batcher(self._find_many, most=MOST_IDS)
            )
            node = await batcher.ask(_Id(transactional_id))
            self._cluster.nodes.setdefault(node.node_id, node)
            node_id = self._nodes[transactional_id] = node.node_id
        return node_id

    async def _find_many(self, asked: list[_Id]) -> list[Node | NetworkError]:
        return await find_coordinators(self._cluster, TRANSACTION, [one.name for one in asked])


async def find_coordinators(cluster: Cluster, key_type: int, keys: Sequence[str]) -> list[Node | NetworkError]:
    """Returns for each key, in their order, its coordinator or the error for which there is none: ``Refused`` by the
    broker, or left out of its answer.

    Args:
        cluster: the cluster. Any broker is asked; one from before Kafka 3.0 is asked once for each key.
        key_type: ``GROUP`` or ``TRANSACTION``.
        keys: group ids or transactional ids.

    Raises:
        Unsupported: the broker has no suitable version of the request.
        NetworkError: no broker answers.
    """
    connection = await cluster.control_of_any()
    version = connection.version_of(
        FindCoordinatorRequest.API_KEY, (1, FindCoordinatorRequest.max_version), "FindCoordinator"
    )
    if version < MANY_KEYS_SINCE:
        requests = [FindCoordinatorRequest(key=key, key_type=key_type) for key in keys]
        rows = await asyncio.gather(*(connection.call(request, version=version) for request in requests))
        found = dict(zip(keys, rows, strict=True))
    else:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        found = {row.key: row for row in (await connection.call(request, version=version)).coordinators}
    kind = TRANSACTIONAL_ID if key_type == TRANSACTION else RIGHT_TO_GROUP
    return [
        _coordinator(
            f"{cluster.name}: FindCoordinator of {key}", found.get(key), Right(DESCRIBE, kind, key, cluster.name)
        )
        for key in keys
    ]


def _coordinator(what: str, row: Any, needs: Right) -> Node | NetworkError:
    if row is None:
        return ConnectionLost(f"{what}: nothing in the answer")
    if row.error_code:
        return Refused(what, row.error_code, row.error_message, needs=needs)
    return Node(row.node_id, row.host, row.port)
