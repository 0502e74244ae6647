"""A scripted Kafka cluster in this process: real sockets, real frames, logs in memory, and faults on demand.

It speaks the requests that the mirror sends (``VERSIONS``), in the versions that it is given, through kafka-python's
schemas. It does what real brokers do (``tests.fakes.log``; ``test_like_a_broker``). ``next`` scripts what happens to
the next request of a kind. A request that it does not expect is an error of the test or of the mirror: the connection
closes, and leaving the context raises.
"""

import asyncio
import ssl
import struct
import uuid
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeProducersRequest,
)
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from kafka.protocol.producer import ProduceRequest, WriteTxnMarkersRequest

from mirror.net.options import ClusterOptions, ConnectionOptions
from mirror.offsetmap.internal.batches import KeyValue
from mirror.sandbox.children.ports import Reservation
from mirror.wire.errors import ErrorCode
from tests.fakes.faults import Fault
from tests.fakes.log import FakeLog
from tests.fakes.sessions import Sessions

KINDS: dict[int, Any] = {
    kind.API_KEY: kind
    for kind in (
        ApiVersionsRequest,
        MetadataRequest,
        ListOffsetsRequest,
        OffsetForLeaderEpochRequest,
        DescribeProducersRequest,
        DescribeConfigsRequest,
        CreateTopicsRequest,
        CreatePartitionsRequest,
        FetchRequest,
        ProduceRequest,
        WriteTxnMarkersRequest,
        DeleteRecordsRequest,
    )
}
VERSIONS: dict[str, tuple[int, int]] = {
    "ApiVersions": (0, 4),
    "Metadata": (0, 13),
    "ListOffsets": (1, 10),
    "OffsetForLeaderEpoch": (2, 4),
    "DescribeProducers": (0, 0),
    "DescribeConfigs": (1, 4),
    "CreateTopics": (2, 7),
    "CreatePartitions": (0, 3),
    "Fetch": (4, 17),
    "Produce": (3, 13),
    "WriteTxnMarkers": (1, 1),
    "DeleteRecords": (0, 2),
}
"""The versions that Kafka 4.3 reports, of those requests that the mirror sends."""


@dataclass(slots=True, kw_only=True)
class FakeTopic:
    """A topic: its partitions' logs, its settings, and its id (None: a cluster from before Kafka 2.8)."""

    name: str
    topic_id: uuid.UUID | None
    logs: dict[int, FakeLog]
    configs: dict[str, str] = field(default_factory=dict)
    internal: bool = False
    error: int = 0
    """The error code that Metadata has for it."""


class Seen(NamedTuple):
    """A request that arrived. ``connection`` numbers the connections of all brokers."""

    node_id: int
    connection: int
    name: str
    version: int
    request: Any


class Unscripted(AssertionError):
    """A request that no fake broker expects."""


class FakeBroker:
    """One of the cluster's brokers: its port and its connections."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self._reserved = Reservation()  # nobody else gets the port while the broker is down
        self.port = self._reserved.port
        self.server: asyncio.Server | None = None
        self.writers: set[asyncio.StreamWriter] = set()
        self.sessions = Sessions()

    @property
    def up(self) -> bool:
        """True if the broker listens."""
        return self.server is not None

    def end(self) -> None:
        """Releases the port: the broker never comes back."""
        self._reserved.release()


class FakeCluster:
    """A scripted cluster; see the module.

    Attributes:
        slices: True if partial first batches are returned, too, as some other brokers do.
        tls: the TLS context of brokers that are started from now on; None: no TLS.
    """

    def __init__(
        self,
        name: str = "fake",
        *,
        brokers: int = 1,
        versions: dict[str, tuple[int, int]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.cluster_id = f"{name}-{uuid.uuid4().hex[:8]}"
        self.versions = VERSIONS | (versions or {})
        self.brokers = {node_id: FakeBroker(node_id) for node_id in range(1, brokers + 1)}
        self.topics: dict[str, FakeTopic] = {}
        self.slices = False
        self.tls = tls
        self.controller_id = min(self.brokers)
        self.unnoticed = False
        """True if the metadata still name a broker that is down, and what it led, as before its session ends."""
        self.remembered: list[KeyValue] = []
        """What mirrors have written to their internal topic here (``tests.fakes.state``)."""
        self.followers: dict[str, int] = {}
        """Rack -> the broker that has a replica of everything. Leaders prefer it for clients in that rack, and give
        them no data (KIP-392)."""
        self.fetch_delay_s = 0.0
        """Delay of each Fetch response, as from distant brokers."""
        self.producer_id_expiration_ms = 1 << 50
        """Practically for ever: the timestamps of scripted batches do not matter."""
        self.broker_configs: dict[str, str] = {}
        """The brokers' defaults for topics, by the brokers' own names. No others are known
        (``relay.topics.limits``)."""
        self.undescribed: set[str] = set()
        """Topic configs that DescribeConfigs leaves out."""
        self.requests: list[Seen] = []
        self._faults: dict[str, deque[tuple[int | None, Fault]]] = defaultdict(deque)
        self._errors: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._changed = asyncio.Event()
        self._ids_known = self.versions["Metadata"][1] >= 10

    # -- setting the scene ---

    def add_topic(
        self, name: str, *, partitions: int = 1, configs: dict[str, str] | None = None, internal: bool = False
    ) -> FakeTopic:
        """Adds a topic, and returns it. The brokers lead its partitions in turn."""
        nodes = list(self.brokers)
        logs = {index: FakeLog(leader=nodes[index % len(nodes)]) for index in range(partitions)}
        topic_id = uuid.uuid4() if self._ids_known else None
        topic = FakeTopic(name=name, topic_id=topic_id, logs=logs, configs=dict(configs or {}), internal=internal)
        if "max.message.bytes" in topic.configs:
            for log in logs.values():
                log.max_batch_size = int(topic.configs["max.message.bytes"])
        self.topics[name] = topic
        return topic

    def log(self, topic: str, partition: int = 0) -> FakeLog:
        """Returns a partition's log."""
        return self.topics[topic].logs[partition]

    def store(self, topic: str, partition: int, *batches: bytes) -> None:
        """Puts batches into a log as they are. Fetches that wait are answered."""
        for batch in batches:
            self.log(topic, partition).store(batch)
        self.changed()

    def lead(self, topic: str, partition: int, node_id: int) -> None:
        """Makes another broker the leader, in the next leader epoch."""
        log = self.log(topic, partition)
        log.leader = node_id
        log.epoch += 1

    def changed(self) -> None:
        """Wakes the fetches that wait for data."""
        self._changed.set()
        self._changed = asyncio.Event()

    def next(self, kind: str, fault: Fault, *, node_id: int | None = None) -> Fault:
        """Scripts what happens to the next request of this kind (at this broker). Several faults are used in the given
        order. Returns the fault."""
        self._faults[kind].append((node_id, fault))
        return fault

    def forgive(self) -> None:
        """Removes all faults that were not used."""
        self._faults.clear()

    def seen(self, kind: str) -> list[Seen]:
        """Returns the requests of a kind, in the order in which they arrived."""
        return [seen for seen in self.requests if seen.name == kind]

    def options(self, **settings: Any) -> ClusterOptions:
        """Returns what a client needs to find the cluster, with short backoffs."""
        connection = settings.pop("connection", ConnectionOptions(client_id="test"))
        bootstrap = tuple(("127.0.0.1", broker.port) for broker in self.brokers.values())
        return ClusterOptions(bootstrap=bootstrap, connection=connection, backoff_ms=1, backoff_max_ms=10, **settings)

    # -- life ---

    async def __aenter__(self) -> Self:
        for node_id in self.brokers:
            await self.start(node_id)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node_id, broker in self.brokers.items():
            await self.stop(node_id)
            broker.end()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.sleep(0)  # connections that were just being accepted
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._errors and error is None:
            raise self._errors[0]

    async def start(self, node_id: int) -> None:
        """Makes the broker listen on its port."""
        broker = self.brokers[node_id]

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if broker.server is None:
                writer.transport.abort()
                return
            self._connections += 1
            broker.writers.add(writer)
            task = asyncio.get_running_loop().create_task(self._serve(broker, self._connections, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        broker.server = await asyncio.start_server(accept, "127.0.0.1", broker.port, ssl=self.tls)

    async def stop(self, node_id: int) -> None:
        """Closes the broker's port and its connections at once."""
        broker = self.brokers[node_id]
        if broker.server is not None:
            # Closing a server loses the connections that it is just accepting (Python 3.11), so these are let in first.
            for sock in broker.server.sockets:
                asyncio.get_running_loop().remove_reader(sock.fileno())
            for _ in range(3):
                await asyncio.sleep(0)
            broker.server.close()
            broker.server = None
        self.drop(node_id)

    def drop(self, node_id: int) -> None:
        """Breaks the broker's connections. It goes on listening."""
        for writer in list(self.brokers[node_id].writers):
            writer.transport.abort()

    # -- serving ---

    async def _serve(
        self, broker: FakeBroker, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await self._exchange(broker, connection, await reader.readexactly(size), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except Exception as error:
            self._errors.append(error)
        finally:
            broker.writers.discard(writer)
            writer.transport.abort()

    async def _exchange(self, broker: FakeBroker, connection: int, frame: bytes, writer: asyncio.StreamWriter) -> None:
        """Answers one request. Raises ConnectionError if the connection is to end."""
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        kind = KINDS.get(key)
        if kind is None or kind.name.removesuffix("Request") not in self.versions:
            raise Unscripted(f"request with API key {key}, version {version}")
        name = kind.name.removesuffix("Request")
        least, most = self.versions[name]
        if name == "ApiVersions" and version > most:
            answer = ApiVersionsResponse[0](error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[], throttle_time_ms=0)
            writer.write(_framed(answer, correlation_id))
            return
        if not least <= version <= most:
            raise Unscripted(f"{name} v{version}, and this cluster speaks {least} to {most}")
        request = kind.decode(frame, version=version, header=True)
        self.requests.append(Seen(broker.node_id, connection, name, version, request))
        fault = self._fault_for(name, broker.node_id, request)
        fault.came.set()
        if fault.late_s:
            await asyncio.sleep(fault.late_s)
        answer = await _HANDLERS[name](self, broker, request, fault)
        if fault.alter is not None:
            fault.alter(answer)
        if fault.gate is not None:
            await fault.gate.wait()
        data = _framed(answer, correlation_id)
        if fault.spoil is not None:
            data = fault.spoil(data)
        if fault.silent:
            await asyncio.get_running_loop().create_future()
        writer.write(data if fault.cut_after is None else data[: fault.cut_after])
        await writer.drain()
        if fault.cut_after is not None:
            writer.close()
            raise ConnectionAbortedError

    def _fault_for(self, name: str, node_id: int, request: Any) -> Fault:
        """Returns the next fault for the request. A fault for one partition of a Produce request waits for a request
        that has that partition."""
        faults = self._faults[name]
        for at, (wanted, fault) in enumerate(faults):
            if wanted in (None, node_id) and (fault.when is None or fault.when(request)):
                if name == "Produce" and fault.only is not None and fault.only not in self._produced(request):
                    return Fault()
                del faults[at]
                return fault
        return Fault()

    # -- the requests ---

    def _produced(self, request: Any) -> list[tuple[str, int]]:
        """Returns the partitions of a Produce request."""
        topics = [(self.find(topic.name, topic.topic_id), topic.partition_data) for topic in request.topic_data]
        return [(topic.name, data.index) for topic, found in topics if topic is not None for data in found]

    def find(self, name: str | None, topic_id: uuid.UUID | None) -> FakeTopic | None:
        """Returns the topic with this name or id; None if there is none."""
        if name:
            return self.topics.get(name)
        return next((topic for topic in self.topics.values() if topic_id and topic.topic_id == topic_id), None)

    def judge(
        self,
        broker: FakeBroker,
        topic: FakeTopic | None,
        partition: int,
        *,
        epoch: int | None = -1,
        by_id: bool = False,
    ) -> int:
        """Returns the error code for a partition that is requested from this broker; 0 if the broker leads it in this
        epoch."""
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = topic.logs.get(partition)
        if log is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if log.leader != broker.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch is not None and 0 <= epoch != log.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < log.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    async def wait_changed(self, timeout_s: float) -> None:
        """Waits until data has come, or for ``timeout_s``."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return


def hits(fault: Fault, topic: FakeTopic | None, partition: int) -> bool:
    """Returns True if the fault has an error, and for this partition."""
    return bool(fault.error) and (fault.only is None or (topic is not None and fault.only == (topic.name, partition)))


def _framed(answer: Any, correlation_id: int) -> bytes:
    answer.with_header(correlation_id)
    return bytes(answer.encode(header=True, framed=True))


Handler = Callable[[FakeCluster, FakeBroker, Any, Fault], Any]
_HANDLERS: dict[str, Handler] = {}


def handles(name: str) -> Callable[[Handler], Handler]:
    """Registers the function that answers a kind of request."""

    def register(handler: Handler) -> Handler:
        _HANDLERS[name] = handler
        return handler

    return register


from tests.fakes import answers, writes  # noqa: E402, F401 - the handlers register themselves
