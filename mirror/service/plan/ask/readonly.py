"""Read-only clusters, and a read-only internal topic.

``mirror plan`` judges by the relay's own code, which can also write. So every connection refuses requests that would
change anything. This includes FindCoordinator, which lets brokers create ``__consumer_offsets`` and
``__transaction_state``. Entries that the relay would write into the internal topic are dropped.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DescribeClientQuotasRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListGroupsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from mirror.net.cluster import Cluster
from mirror.net.connection import Connection
from mirror.net.errors import NetworkError, RequestTimedOut, Unreachable
from mirror.offsetmap.entries.entry import Entry
from mirror.offsetmap.entries.pins import FlowEntry
from mirror.offsetmap.internal.memory import May
from mirror.offsetmap.internal.topic import InternalTopic
from mirror.relay.leading.cleanup import Cleanup
from mirror.wire.versions import FETCH_KEY

_ASKS = frozenset(
    {
        FETCH_KEY,
        *(
            request.API_KEY
            for request in (
                ApiVersionsRequest,
                SaslHandshakeRequest,
                SaslAuthenticateRequest,
                ListOffsetsRequest,
                OffsetFetchRequest,
                OffsetForLeaderEpochRequest,
                DescribeClientQuotasRequest,
                DescribeClusterRequest,
                DescribeConfigsRequest,
                DescribeGroupsRequest,
                DescribeLogDirsRequest,
                DescribeProducersRequest,
                DescribeTransactionsRequest,
                ListGroupsRequest,
            )
        ),
    }
)
_ASKS_IF_TRIED_OUT = frozenset({CreateTopicsRequest.API_KEY, CreatePartitionsRequest.API_KEY})


def only_asks(api_key: int, request: Any) -> bool:
    """Returns True if the request changes nothing at a broker. Requests to create topics or partitions must have
    ``validate_only``, with which the controller only checks them. Metadata requests must not create topics.

    Args:
        api_key: the API key.
        request: the request; None: one that its caller has encoded.
    """
    if api_key in _ASKS_IF_TRIED_OUT:
        return request is not None and bool(request.validate_only)
    if api_key == MetadataRequest.API_KEY:  # an encoded one is of ``wire.metadata``, which creates no topics
        return request is None or not request.allow_auto_topic_creation
    return api_key in _ASKS


class ReadOnlyCluster(Cluster):
    """A cluster to which no request is sent that changes anything. A broker that could not be connected to, or has not
    answered in time, is not asked again: otherwise thousands of partitions would wait for it, one after the other."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.down: dict[int, str] = {}
        """Node id -> why the broker is not asked any more."""

    async def dial(self, node_id: int, **how: Any) -> Connection:
        """Opens a connection like ``Cluster.dial``, and raises the same. Raises Unreachable if the broker is down."""
        if node_id in self.down:
            raise Unreachable(self.down[node_id])
        try:
            connection = await super().dial(node_id, **how)
        except NetworkError as error:
            self.down[node_id] = str(error)
            raise
        connection.on_close = partial(self._ended, node_id)
        return connection

    def _ended(self, node_id: int, error: NetworkError) -> None:
        if isinstance(error, RequestTimedOut):
            self.down[node_id] = str(error)

    async def _connect(self, host: str, port: int, *, name: str, **how: Any) -> Connection:
        connection = await super()._connect(host, port, name=name, **how)
        connection.permits = only_asks
        return connection


class ReadOnlyState(InternalTopic):
    """An internal topic that is read once, when it is opened, and never written."""

    _opened = False

    async def open(self, *, create: bool = True, replication_factor: int = -1) -> bool:
        """Reads the topic, and never creates it. Returns False if there is none. Raises: as ``InternalTopic.open``."""
        try:
            return await super().open(create=False)
        finally:
            self._opened = True

    async def load(self) -> None:
        """Reads the topic while it is being opened. Later calls do nothing."""
        if not self._opened:
            await super().load()

    async def put(self, entry: Entry) -> None:
        """Writes nothing."""

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """Writes nothing."""

    async def claim(self, flow: FlowEntry) -> None:
        """Writes nothing."""


class WouldLead(Exception):
    """The relay would now fill the offsets before the source's first record, or delete filler."""


class Untouched(Cleanup):
    """A stand-in for the cleanup of a destination topic, which changes nothing. The relay suspends the cleanup before
    it fills or deletes filler, so that call shows that it would."""

    def __init__(self) -> None:
        """Needs no topic."""

    def suspended(self) -> Any:
        """Raises WouldLead: the caller is about to change the log."""
        raise WouldLead

    async def suspend_again(self) -> bool:
        """Changes nothing."""
        return False

    async def finish(self) -> None:
        """Changes nothing."""


class Silence:
    """A log that drops the relay's lines: the plan has its own words."""

    def info(self, event: str, **fields: object) -> None:
        """Drops the line."""

    def warning(self, event: str, **fields: object) -> None:
        """Drops the line."""
