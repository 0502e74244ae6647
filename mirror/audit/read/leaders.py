"""Fetches from the leaders of one cluster's partitions, one partition per request, and interprets the answers.

It keeps a connection to each leader. Each failure is raised as an exception that tells the caller what it can do about
it. The caller decides whether to ask again.
"""

from collections.abc import Mapping

from mirror.audit.errors import AuditError
from mirror.audit.model.places import TopicPartition
from mirror.audit.model.request import Endpoint
from mirror.audit.prepare.bounds import cluster_options
from mirror.audit.prepare.offsets import list_offsets
from mirror.audit.prepare.patience import patiently
from mirror.audit.prepare.plan import Range
from mirror.audit.read.fetching import FetchInFlight, send_fetch
from mirror.net.buffers import OVERHEAD, Frame, FramePool
from mirror.net.cluster import Cluster
from mirror.net.connection import Connection
from mirror.net.errors import NetworkError
from mirror.net.stream import SIZE_ONLY
from mirror.offsetmap.fields import id_text
from mirror.wire.errors import UNREADABLE, ErrorCode, Reaction, error_name, outcome_of
from mirror.wire.fetch import Fetched, read_fetch_response
from mirror.wire.primitives import MalformedFrame

RUN_AGAIN = "run the audit again: it freezes new bounds"
CHECK_BROKER = "check that the broker is up and see its log, then run the audit again"


DAMAGED = UNREADABLE - {ErrorCode.UNKNOWN_SERVER_ERROR}
"""Error codes that mean that a log is damaged. UNKNOWN_SERVER_ERROR may mean that, too, but it is also the answer while
tiered storage is down. So it is no finding: the fetch is tried again, and then the audit ends without a verdict."""


class BrokenLog(Exception):
    """The broker says that it cannot read its log at this place (``DAMAGED``). Its disk may have failed only once."""


class NotThere(Exception):
    """The broker's log does not have the offset, or no longer has it."""


class Throttled(Exception):
    """The broker applied a quota: its answer has only a time to wait. The next request on the connection waits for so
    long by itself."""


class Again(Exception):
    """This attempt failed, but another one may succeed. ``moved``: the metadata must be refreshed first."""

    def __init__(self, why: str, *, moved: bool) -> None:
        super().__init__(why)
        self.moved = moved


class Leaders:
    """Fetches from the leaders of one cluster. ``open`` connects; from then on, it belongs to the running event
    loop."""

    def __init__(self, endpoint: Endpoint, *, cluster_id: str, topic_ids: Mapping[str, str], fetch_bytes: int) -> None:
        """
        Args:
            endpoint: how to reach the cluster.
            cluster_id: the id that the cluster must have.
            topic_ids: the ids that topics must have, by name; a topic without an id is not checked.
            fetch_bytes: the limit for the records of one response.
        """
        self._endpoint = endpoint
        self._cluster_id = cluster_id
        self._topic_ids = topic_ids
        self._fetch_bytes = fetch_bytes
        self._cluster: Cluster | None = None
        self._connections: dict[int, Connection] = {}
        # Two frames: one is digested while the next one arrives.
        self._pool = FramePool(budget=2 * (fetch_bytes + OVERHEAD), frame_size=fetch_bytes + OVERHEAD)

    async def open(self, topics: set[str]) -> None:
        """Connects to the cluster, and checks that it is the one whose bounds were frozen.

        Raises:
            AuditError: it is another cluster, a topic was recreated, or the cluster cannot be reached.
        """
        try:
            await patiently(lambda: self._open(topics))
        except NetworkError as error:
            raise AuditError(f"cluster {self._endpoint.alias} cannot be read: {error}", CHECK_BROKER) from error

    async def _open(self, topics: set[str]) -> None:
        alias = self._endpoint.alias
        await self.close()
        self._cluster = await Cluster.open(alias, cluster_options(self._endpoint))
        found = self._cluster.cluster_id
        if found != self._cluster_id:
            raise AuditError(
                f"cluster {alias} answers with cluster id {found or '(none)'}, not {self._cluster_id or '(none)'}",
                "bootstrap.servers must name brokers of one cluster only",
            )
        await self.refresh(topics)

    async def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None

    async def refresh(self, topics: set[str]) -> None:
        """Refreshes the metadata of these topics.

        Raises:
            AuditError: a topic was deleted and created again since the bounds were frozen.
            NetworkError: the cluster does not answer.
        """
        assert self._cluster is not None
        await self._cluster.refresh(sorted(topics))
        for topic in topics:
            known = self._cluster.topics.get(topic)
            wanted = self._topic_ids.get(topic)
            if known and known.topic_id and wanted and id_text(known.topic_id) != wanted:
                raise AuditError(f"topic {topic} of cluster {self._endpoint.alias} was recreated meanwhile", RUN_AGAIN)

    async def listed(self, wanted: Range, timestamp: int) -> int:
        """Returns the leader's answer to ListOffsets. ``timestamp``: in ms since 1970, or a special value of
        ``prepare.offsets`` such as ``EARLIEST``.

        Raises:
            AuditError: the partition has no leader, or an error persists.
            NetworkError: the leader does not answer.
        """
        assert self._cluster is not None
        key = TopicPartition(wanted.topic, wanted.partition)
        return (await list_offsets(self._cluster, [key], timestamp))[key]

    def place(self, wanted: Range) -> str:
        """Returns the partition's name for messages."""
        return f"cluster {self._endpoint.alias}: topic {wanted.topic} partition {wanted.partition}"

    # -- one fetch -----------------------------------------------------------------------------------------------------

    async def send(self, wanted: Range, offset: int, isolation_level: int) -> FetchInFlight:
        """Sends the leader a fetch for the records from ``offset`` on, when a throttle allows it. At
        ``READ_COMMITTED``, the answer also lists aborted transactions.

        Raises:
            Again: there is no leader at present, or it cannot be reached.
        """
        assert self._cluster is not None
        leader = self._cluster.leader(wanted.topic, wanted.partition)
        if leader is None:
            raise Again("it has no leader", moved=True)
        connection = self._connections.get(leader.node_id)
        try:
            if connection is None or connection.closed:
                connection = self._connections[leader.node_id] = await self._cluster.dial(
                    leader.node_id, read_ahead=SIZE_ONLY, allocate=self._pool.take
                )
            await connection.may_send()
            return self._write(connection, wanted, offset, isolation_level)
        except NetworkError as error:
            raise Again(str(error), moved=True) from error

    def send_ahead(self, wanted: Range, offset: int, isolation_level: int) -> FetchInFlight | None:
        """Sends the fetch that ``send`` would send, at once. Returns None, and sends nothing, if there is no connection
        to the leader yet, or if it is throttled."""
        assert self._cluster is not None
        leader = self._cluster.leader(wanted.topic, wanted.partition)
        connection = self._connections.get(leader.node_id) if leader else None
        if connection is None or connection.closed or connection.throttled_s:
            return None
        return self._write(connection, wanted, offset, isolation_level)

    def _write(self, connection: Connection, wanted: Range, offset: int, isolation_level: int) -> FetchInFlight:
        assert self._cluster is not None
        return send_fetch(
            self._cluster,
            connection,
            [(wanted.topic, wanted.partition, offset)],
            client_id=self._endpoint.client_id,
            partition_bytes=self._fetch_bytes,
            response_bytes=self._fetch_bytes,
            isolation_level=isolation_level,
        )

    async def receive(self, sent: FetchInFlight, wanted: Range) -> tuple[Frame, Fetched]:
        """Returns the answer to a fetch, with or without records. The caller has to release the frame.

        Raises:
            Throttled: a quota; ask again.
            Again: the connection was lost, the answer is malformed, or an error code that may pass.
            BrokenLog: the broker cannot read its log there.
            NotThere: the log does not have the offset.
            AuditError: the topic may not be read.
        """
        try:
            frame = await sent.future
        except NetworkError as error:
            raise Again(str(error), moved=True) from error
        try:
            response = read_fetch_response(sent.version, frame.body)
            sent.connection.throttle(response.throttle_ms)
            if not response.error and not response.partitions and response.throttle_ms:
                frame.release()
                raise Throttled
            if not response.error and len(response.partitions) != 1:
                raise MalformedFrame(f"{len(response.partitions)} partitions where one was asked for")
            code = response.error or response.partitions[0].error
            if code == ErrorCode.NONE:
                found = response.partitions[0]
                if (sent.topics.get(found.topic), found.partition) != (wanted.topic, wanted.partition):
                    raise MalformedFrame(f"partition {found.partition} of {found.topic!r}, which was not asked for")
                return frame, found
        except MalformedFrame as error:
            frame.release()
            sent.connection.close()
            raise Again(f"malformed fetch response: {error}", moved=False) from error
        frame.release()
        raise self._meaning(code, wanted)

    def _meaning(self, code: int, wanted: Range) -> Exception:
        """Returns the exception for this error code."""
        place = self.place(wanted)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return NotThere(error_name(code))
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return AuditError(f"{place} may not be read", "grant the audit's principal Read and Describe on the topic")
        if code in DAMAGED:
            return BrokenLog(f"the broker cannot read its own log here: {error_name(code)}")
        return Again(error_name(code), moved=outcome_of(code) is Reaction.FIND_LEADER)
