"""Clusters and an internal topic that can only be asked.

``mirror plan`` judges by the relay's own code, which can also write. So every connection refuses a request that would
change anything, or that would have a broker create a topic of its own (FindCoordinator creates those of groups and
transactions), and what the relay would write down is dropped.
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
    """Returns True if the request changes nothing at a broker. Requests to create topics or partitions must only have
    the controller check them (``validate_only``), and metadata requests must not create topics."""
    if api_key in _ASKS_IF_TRIED_OUT:
        return request is not None and bool(request.validate_only)
    if api_key == MetadataRequest.API_KEY:  # without a request: ``wire.metadata``, which creates none
        return request is None or not request.allow_auto_topic_creation
    return api_key in _ASKS


class ReadOnlyCluster(Cluster):
    """A cluster that is only asked. A broker that could not be connected to, or did not answer in time, is not asked
    again: thousands of partitions would otherwise wait for it one after the other."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.down: dict[int, str] = {}
        """Broker -> why it is not asked any more."""

    async def dial(self, node_id: int, **how: Any) -> Connection:
        """Opens a connection as ``Cluster.dial`` does, unless the broker is down; raises the same."""
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
        """Reads the topic; False if there is none. Never creates it. Raises as ``InternalTopic.open`` does."""
        try:
            return await super().open(create=False)
        finally:
            self._opened = True

    async def load(self) -> None:
        """Reads the topic while it is opened; later, what was read then still counts."""
        if not self._opened:
            await super().load()

    async def put(self, entry: Entry) -> None:
        """Writes nothing."""

    async def save(self, entries: Iterable[Entry], *, forget: Iterable[bytes] = (), may: May | None = None) -> None:
        """Writes nothing."""

    async def claim(self, flow: FlowEntry) -> None:
        """Writes nothing."""


class WouldLead(Exception):
    """The offsets before the source's first record would be filled, or filler be deleted, now."""


class Untouched(Cleanup):
    """A destination topic's cleanup that stays as it is. Whatever would change the log suspends it first."""

    def __init__(self) -> None:
        """Of no topic in particular."""

    def suspended(self) -> Any:
        """Raises WouldLead: whoever asks is about to write."""
        raise WouldLead

    async def suspend_again(self) -> bool:
        """Changes nothing."""
        return False

    async def finish(self) -> None:
        """Changes nothing."""


class Silence:
    """A log of the relay that nobody reads: the plan has its own words."""

    def info(self, event: str, **fields: object) -> None:
        """Drops the line."""

    def warning(self, event: str, **fields: object) -> None:
        """Drops the line."""
