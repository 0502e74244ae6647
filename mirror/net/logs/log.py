"""One partition's log, as the leader of one epoch sees it: its ends, its batches and its producers. Also the requests
that change the log other than by copying: markers, filler, deletions.

All of it is off the data path. Partitions that ask the same question share a request
(``mirror.net.logs.leader_requests``).
"""

from kafka.protocol.admin import DeleteRecordsRequest

from mirror.net.cluster import Cluster
from mirror.net.errors import ConnectionLost, Refused, StoredInOldFormat
from mirror.net.logs import leader_requests, reading
from mirror.net.logs.leader_requests import EARLIEST, LATEST, TRUE_END, EpochEnd, Marker, Producer
from mirror.net.logs.reading import ONE_BATCH, Segment
from mirror.net.metadata import Leader, Topic
from mirror.net.options import Use
from mirror.net.rights import DELETE, TOPIC, WRITE, Right
from mirror.records.header import BatchHeader
from mirror.wire.errors import ErrorCode, error_slug
from mirror.wire.fetch import TopicKey
from mirror.wire.primitives import MalformedFrame, array_size
from mirror.wire.produce import after_batch, read_produce_response, request_head, topic_head, topics_size
from mirror.wire.versions import PRODUCE_FLEXIBLE, PRODUCE_KEY, PRODUCE_TOPIC_IDS, PRODUCE_VERSIONS

__all__ = ["EpochEnd", "Marker", "PartitionLog", "Producer", "Segment", "SourceLog"]

ZSTD_SINCE = 7
_TIMEOUT_SHARE = 0.9
"""The timeout in a request, as a part of the connection's request timeout: a broker's own answer has to come first."""


class PartitionLog:
    """One partition's log, as the leader of one epoch sees it.

    Every method raises:
        Refused: an error code from the leader, such as FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH or
            NOT_LEADER_OR_FOLLOWER.
        NetworkError: no answer. The request may have been executed all the same.
    """

    converts = False
    """True if messages of magic 0 and 1 are returned as stand-ins (``net.logs.reading.verified``). Otherwise reading
    them raises ``StoredInOldFormat``."""

    def __init__(self, cluster: Cluster, topic: Topic, index: int, leader: Leader) -> None:
        self.cluster = cluster
        self.topic = topic
        self.index = index
        self.leader = leader

    @property
    def name(self) -> str:
        """The partition and its cluster, for messages."""
        return f"{self.topic.name}-{self.index} at {self.cluster.name}"

    # -- looking -----------------------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Returns the first offset that the log still has."""
        return await self._list(EARLIEST)

    async def true_end(self) -> int:
        """Returns the leader's log end: the next offset that it assigns, replicated up to there or not."""
        return await self._list(LATEST, replica_id=TRUE_END)

    async def visible_end(self) -> int:
        """Returns the high watermark: offsets before it are replicated and cannot vanish in a clean election.

        Raises:
            Refused: OFFSET_NOT_AVAILABLE (78) right after an election, until the leader knows its high watermark.
        """
        return await self._list(LATEST)

    async def in_tiered_storage(self, offset: int) -> bool:
        """Returns True if the leader's own disk does not have this offset any more, but tiered storage does."""
        return await leader_requests.in_tiered_storage(self.cluster, self.topic.name, self.index, self.leader, offset)

    async def _list(self, timestamp: int, *, replica_id: int = -1) -> int:
        return await leader_requests.list_offset(
            self.cluster, self.topic.name, self.index, self.leader, timestamp, replica_id=replica_id
        )

    async def read(self, offset: int, *, max_bytes: int = ONE_BATCH, committed: bool = False) -> Segment:
        """Reads the log from the batch that holds ``offset``: up to ``max_bytes``, but at least one whole batch.

        Raises:
            Refused: OFFSET_OUT_OF_RANGE.
            StoredInOldFormat: the log has magic 0 or 1 there, and not ``converts``.
        """
        return await reading.read_segment(
            self.cluster,
            self.topic.name,
            self.topic.topic_id,
            self.index,
            self.leader,
            offset,
            max_bytes=max_bytes,
            committed=committed,
            converts=self.converts,
        )

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes] | None:
        """Returns header and bytes of the whole batch that holds ``offset``, or of the first one behind it; None if
        there is none."""
        segment = await self.read(offset)
        return (segment.batches[0][0], bytes(segment.batches[0][1])) if segment.batches else None

    async def producers(self) -> list[Producer] | None:
        """Returns the producers that the leader remembers; None if it cannot tell (before 2.8, or no right to ask)."""
        return await leader_requests.describe_producers(self.cluster, self.topic.name, self.index, self.leader)

    async def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        """Returns where the records of this leader epoch end, or None if the leader cannot be asked."""
        return await leader_requests.end_of_epoch(self.cluster, self.topic.name, self.index, self.leader, epoch)

    async def takes_zstd(self) -> bool:
        """Returns True if the leader knows zstd: KIP-110 came with Produce v7."""
        connection = await self.cluster.control(self.leader.node_id, use=Use.WRITING)
        speaks = connection.api_versions.get(PRODUCE_KEY)
        return speaks is not None and speaks.most >= ZSTD_SINCE

    # -- changing ----------------------------------------------------------------------------------------------------

    async def write_markers(self, marker: Marker, count: int) -> None:
        """Appends ``count`` ABORT markers, one offset each, which no consumer sees at any isolation level. Not
        idempotent, and the answer proves nothing: look at the log's end afterwards, whether this returns or raises.

        Raises:
            Refused: CLUSTER_AUTHORIZATION_FAILED without Alter or ClusterAction on the cluster.
        """
        await leader_requests.write_markers(self.cluster, self.topic.name, self.index, self.leader, marker, count)

    async def delete_before(self, offset: int) -> None:
        """Moves the log's start to ``offset`` (DeleteRecords), on all replicas. Brokers write the new start to disk
        only once a minute: a kill -9 before that brings the records back.

        Raises:
            Refused: POLICY_VIOLATION on a compacted topic whose cleanup.policy lacks delete; OFFSET_OUT_OF_RANGE above
                the high watermark; TOPIC_AUTHORIZATION_FAILED without Delete on the topic.
        """
        one = DeleteRecordsRequest.DeleteRecordsTopic
        wanted = one.DeleteRecordsPartition(partition_index=self.index, offset=offset)
        request = DeleteRecordsRequest(
            topics=[one(name=self.topic.name, partitions=[wanted])], timeout_ms=self._timeout_ms()
        )
        answer = await self.cluster.call(request, node_id=self.leader.node_id, use=Use.WRITING)
        what = f"{self.cluster.name}: DeleteRecords of {self.topic.name}-{self.index} before {offset}"
        rows = [row for topic in answer.topics for row in topic.partitions]
        if len(rows) != 1:
            raise ConnectionLost(f"{what}: {len(rows)} partitions in the answer, asked for 1")
        if rows[0].error_code:
            raise Refused(what, rows[0].error_code, needs=self._needs(DELETE))

    async def produce(self, batch: bytes) -> int:
        """Appends one record batch, as it is, acknowledged by all replicas in sync. It carries its own producer id,
        epoch and sequence.

        Returns:
            The base offset that the broker assigned, now or when it received the batch for the first time.
        """
        connection = await self.cluster.control(self.leader.node_id, use=Use.WRITING)
        most = PRODUCE_VERSIONS[1] if self.topic.topic_id else PRODUCE_TOPIC_IDS - 1
        version = connection.version_of(PRODUCE_KEY, (PRODUCE_VERSIONS[0], most), "Produce")
        key: TopicKey = self.topic.topic_id if self.topic.topic_id and version >= PRODUCE_TOPIC_IDS else self.topic.name
        flexible = version >= PRODUCE_FLEXIBLE
        no_tags = after_batch(version)
        one = topics_size(version, 1)
        body = b"".join((
            request_head(version, timeout_ms=self._timeout_ms()), one, topic_head(version, key), one,
            self.index.to_bytes(4), array_size(len(batch), compact=flexible), batch, no_tags * 3,
        ))  # fmt: skip
        frame = memoryview(await connection.ask(PRODUCE_KEY, version, body, flexible=flexible))
        what = f"{self.cluster.name}: Produce to {self.topic.name}-{self.index}"
        try:
            response = read_produce_response(version, frame)
        except MalformedFrame as error:
            raise ConnectionLost(f"{what}: {error}") from error
        connection.throttle(response.throttle_ms)
        produced = response.partitions
        if len(produced) != 1:
            raise ConnectionLost(f"{what}: {len(produced)} partitions in the answer, asked for 1")
        if produced[0].error:
            # REQUEST_TIMED_OUT carries a plausible base offset, so the error is checked first.
            self.cluster.failed("Produce", error_slug(produced[0].error))
            raise Refused(what, produced[0].error, produced[0].message, needs=self._needs(WRITE))
        return produced[0].base_offset

    def _needs(self, operation: str) -> Right:
        return Right(operation, TOPIC, self.topic.name, self.cluster.name)

    def _timeout_ms(self) -> int:
        return round(self.cluster.options.connection.request_timeout_s * 1000 * _TIMEOUT_SHARE)


class SourceLog(PartitionLog):
    """A log that is copied batch by batch; messages of old formats, too, if it ``converts``.

    If the log begins inside a batch (after DeleteRecords), its ``start`` is the beginning of that batch: the batch is
    copied whole, and the start of the destination's log is then moved to ``floor``, too.

    If the copy begins later than the log (``start.from``), the log looks as if it began there. If that is inside a
    batch, the records before it are left out of the copy (KIP-712: "mid-batch start").
    """

    floor = 0
    """The first offset that consumers find, and the lowest for which the broker answers a Fetch. Set by ``start``."""

    def __init__(
        self, cluster: Cluster, topic: Topic, index: int, leader: Leader, *, converts: bool = False, begins: int = 0
    ) -> None:
        """``begins``: the offset at which the copy begins, if the log begins before it."""
        super().__init__(cluster, topic, index, leader)
        self.converts = converts
        self.begins = begins

    async def start(self) -> int:
        """Returns the base offset of the batch that holds the first offset; ``begins`` if the copy begins later."""
        self.floor = floor = max(await super().start(), self.begins)
        if floor == self.begins:
            return floor
        try:
            found = await self.batch_at(floor)
        except StoredInOldFormat:
            return floor
        except Refused as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return floor
        return max(self.begins, min(floor, found[0].base_offset)) if found is not None else floor

    async def read(self, offset: int, *, max_bytes: int = ONE_BATCH, committed: bool = False) -> Segment:
        """As in ``PartitionLog``. ``offset`` may lie before ``floor``, inside the first batch."""
        return await super().read(max(offset, self.floor), max_bytes=max_bytes, committed=committed)

    async def first_since(self, at_ms: int) -> int | None:
        """Returns the lowest offset of a record with this timestamp (ms since 1970) or a later one; None: there is no
        such record.

        Raises:
            Refused: UNSUPPORTED_FOR_MESSAGE_FORMAT if the log has messages of magic 0, which have no timestamps.
        """
        found = await self._list(at_ms)
        return found if found >= 0 else None
