"""The one place that decides where a partition goes on: the destination's log, read when there is any doubt.

Design section 4, for destinations where every offset is a copied batch. In exact mode the log end *is* the next source
offset to copy; what this module adds is the certainty that nothing is still on its way to that log (``barrier``,
``settle``), that what stands there is ours and equal to the source (``_prove``), and the identity that continues it.
"""

import asyncio
from typing import NamedTuple, Protocol

from mirror.net.cluster import Cluster, Leader, Topic
from mirror.net.errors import Refused, Unreachable
from mirror.net.offsets import EARLIEST, LATEST, TRUE_END, Producer, describe_producers, list_offset, read_batch
from mirror.records.header import DELETE_HORIZON, HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity, producer_id, same_owner
from mirror.relay.halts import PartitionHalted, Trouble, halt
from mirror.relay.partition import Location, Partition
from mirror.relay.settings import RelaySettings
from mirror.wire.errors import ErrorCode

POLL_S = 0.1
"""Between two looks at a log end that is not replicated yet."""
MISSING_LOOKS = 8
"""Looks in a row, each longer after the one before, until a topic that a cluster does not know counts as gone: a broker
that has just started (before KRaft) knows no topic for a moment. About 13 s with the usual backoff."""


class Log(Protocol):
    """What is needed of a logger; structlog's fits."""

    def info(self, event: str, **fields: object) -> object:
        """Something happened."""

    def warning(self, event: str, **fields: object) -> object:
        """Something needs a look."""


class _Tail(NamedTuple):
    """The last batch of the destination."""

    header: BatchHeader
    payload: bytes

    def same_as(self, header: BatchHeader, payload: bytes) -> bool:
        """Payload identity: everything but who wrote it, the epoch, and the checksum (which covers who wrote it)."""
        mine, other = self.header, header
        return (
            mine.base_offset == other.base_offset
            and mine.length == other.length
            and mine.attributes & ~DELETE_HORIZON == other.attributes & ~DELETE_HORIZON
            and mine[6:9] == other[6:9]
            and mine.record_count == other.record_count
            and self.payload == payload
        )


class Locator:
    """Seeks positions; holds no state of a partition."""

    def __init__(self, *, source: Cluster, destination: Cluster, settings: RelaySettings, log: Log) -> None:
        self._source = source
        self._destination = destination
        self._settings = settings
        self._log = log

    async def locate(self, partition: Partition, *, takeover: bool) -> Location:
        """Where the partition goes on. ``takeover``: it was not ours a moment ago, so a predecessor may still speak.

        Raises:
            PartitionHalted: it cannot go on, and looking again will not help.
            NetworkError: not to be known now; try again after a refresh of the metadata.
        """
        destination = self._topic(self._destination, partition, partition.destination_id)
        source = self._topic(self._source, partition, partition.source_id)
        partition.destination_id, partition.source_id = destination.topic_id, source.topic_id
        partition.missing = 0
        there = self._leader(self._destination, partition)
        here = self._leader(self._source, partition)
        start, end = await self._bounds(self._source, partition, here)
        log_start = await self._list(self._destination, partition, there, EARLIEST)
        position = await self.barrier(partition, there)
        tail = await self._tail(partition, destination, there, log_start, position)
        known = await describe_producers(self._destination, partition.topic, partition.index, there)
        if takeover or not self._armed(partition, tail, known):
            while (again := await self._settled(partition, there)) != position:
                position = again
                tail = await self._tail(partition, destination, there, log_start, position)
            known = await describe_producers(self._destination, partition.topic, partition.index, there)
        try:
            end = await self._check_range(partition, here, start, end, position)
            proven, last_epoch = await self._prove(partition, source, here, start, position, tail)
        except PartitionHalted:
            await self._blame(partition, destination, there, log_start, tail)
            raise
        return Location(
            offset=position,
            identity=self._continue(partition, tail, known),
            last_epoch=last_epoch,
            destination_leader=there,
            source_leader=here,
            source_end=end,
            log_start=log_start,
            proven=proven,
        )

    async def barrier(self, partition: Partition, leader: Leader) -> int:
        """The destination's log end, once every replica in sync has it: nothing above can vanish, nothing is hidden."""
        told = False
        while True:
            end = await self._list(self._destination, partition, leader, LATEST, replica_id=TRUE_END)
            try:
                visible = await self._list(self._destination, partition, leader, LATEST)
            except Refused as error:
                if error.code != ErrorCode.OFFSET_NOT_AVAILABLE:
                    raise
                visible = -1
            if end == visible:
                return end
            if not told:
                told = True
                self._log.info(
                    "under_replicated",
                    topic=partition.topic,
                    partition=partition.index,
                    detail=f"the destination's log ends at {end} and is replicated to {visible}",
                )
            await asyncio.sleep(POLL_S)

    async def _settled(self, partition: Partition, leader: Leader) -> int:
        """The barrier ``settle.ms`` later, which is longer than bytes of a dead predecessor can still arrive: if it has
        not moved, it will not."""
        await asyncio.sleep(self._settings.settle_ms / 1000)
        return await self.barrier(partition, leader)

    # -- the pieces --------------------------------------------------------------------------------------------------

    def _topic(self, cluster: Cluster, partition: Partition, pinned: bytes | None) -> Topic:
        topic = cluster.topics.get(partition.topic)
        if topic is None:
            missing = f"cluster {cluster.name} has no topic {partition.topic}"
            partition.missing += 1
            if partition.missing < MISSING_LOOKS:
                raise Unreachable(missing)
            raise halt(Trouble.TOPIC_MISSING, missing)
        if pinned is not None and topic.topic_id is not None and pinned != topic.topic_id:
            raise halt(
                Trouble.RECREATED,
                f"cluster {cluster.name}, topic {partition.topic}: id {topic.topic_id.hex()}, before {pinned.hex()}",
            )
        return topic

    def _leader(self, cluster: Cluster, partition: Partition) -> Leader:
        leader = cluster.leader(partition.topic, partition.index)
        if leader is None:
            raise Unreachable(f"cluster {cluster.name}: {partition.name} has no leader at present")
        return leader

    async def _list(
        self, cluster: Cluster, partition: Partition, leader: Leader, timestamp: int, *, replica_id: int = -1
    ) -> int:
        return await list_offset(cluster, partition.topic, partition.index, leader, timestamp, replica_id=replica_id)

    async def _bounds(self, cluster: Cluster, partition: Partition, leader: Leader) -> tuple[int, int]:
        start = await self._list(cluster, partition, leader, EARLIEST)
        return start, await self._list(cluster, partition, leader, LATEST, replica_id=TRUE_END)

    async def _tail(self, partition: Partition, topic: Topic, leader: Leader, log_start: int, end: int) -> _Tail | None:
        """The destination's last batch; None if its log holds none."""
        if end <= log_start:
            return None
        try:
            found = await read_batch(
                self._destination, partition.topic, topic.topic_id, partition.index, leader, end - 1
            )
        except Refused as error:
            if error.code != ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                raise
            raise halt(Trouble.FOREIGN_WRITER, str(error)) from error
        if found is None:
            return None
        header, batch = found
        if header.is_control:
            raise halt(Trouble.NOT_A_COPY, f"{partition.name} ends with a marker at {header.base_offset}")
        if not same_owner(header.producer_id, self._owner(partition)):
            raise halt(
                Trouble.FOREIGN_WRITER,
                f"{partition.name}: the batch at offset {header.base_offset} is of producer id {header.producer_id}",
            )
        return _Tail(header, batch[HEADER_SIZE:])

    def _owner(self, partition: Partition) -> int:
        return producer_id(
            flow=self._settings.flow,
            cluster_id=self._source.cluster_id,
            topic=partition.topic,
            partition=partition.index,
        )

    def _armed(self, partition: Partition, tail: _Tail | None, known: list[Producer] | None) -> bool:
        """The broker remembers the very batch that we continue from, so a late repeat of anything is recognised."""
        if tail is None or known is None:
            return False
        mine = Producer(tail.header.producer_id, tail.header.producer_epoch, tail.header.last_sequence)
        return mine in known

    async def _check_range(self, partition: Partition, leader: Leader, start: int, end: int, position: int) -> int:
        """The source must still have what is due, and must have had what was copied. Its end, looked at again."""
        if position == 0 and start > 0:
            raise halt(Trouble.LEADING_OFFSETS, f"{partition.name} begins at offset {start} at the source")
        if start > position:
            raise halt(
                Trouble.RETENTION_OVERTOOK,
                f"{partition.name}: offset {position} is due and the source begins at {start}",
            )
        if end < position:
            # Once may be a leader that is still catching up; twice is a source that never had these records.
            await asyncio.sleep(self._settings.settle_ms / 1000)
            end = await self._list(self._source, partition, leader, LATEST, replica_id=TRUE_END)
            if end < position:
                raise halt(
                    Trouble.NOT_A_COPY,
                    f"{partition.name}: the destination ends at {position} and the source at {end}",
                )
        return end

    async def _prove(
        self, partition: Partition, source: Topic, leader: Leader, start: int, position: int, tail: _Tail | None
    ) -> tuple[bool, int]:
        """Compares the destination's last batch with the source's; (compared, leader epoch of the source's).

        An empty log that begins at 0 needs no proof.
        """
        if tail is None and position == 0:
            return True, -1
        base = tail.header.base_offset if tail is not None else position
        if tail is None or base < start:
            side = f"the source begins at {start}" if tail is not None else "the destination's log is empty"
            self._log.warning(
                "prefix_unproven",
                topic=partition.topic,
                partition=partition.index,
                detail=f"{side}, so that nothing before offset {position} can be compared",
            )
            return False, -1
        found = await read_batch(self._source, partition.topic, source.topic_id, partition.index, leader, base)
        if found is None or not tail.same_as(found[0], found[1][HEADER_SIZE:]):
            raise halt(Trouble.NOT_A_COPY, f"{partition.name}: the batches at offset {base} differ")
        return True, found[0].leader_epoch

    async def _blame(
        self, partition: Partition, topic: Topic, leader: Leader, log_start: int, tail: _Tail | None
    ) -> None:
        """The last batch is ours, and does not fit the source. If somebody else has written just before it, that is
        why: a whole window of ours may have landed behind."""
        for _ in range(self._settings.max_in_flight):
            if tail is None:
                return
            tail = await self._tail(partition, topic, leader, log_start, tail.header.base_offset)

    def _continue(self, partition: Partition, tail: _Tail | None, known: list[Producer] | None) -> Identity:
        """After data (P, e, last): (P, e, last + 1). With no data left, what the broker remembers; else afresh."""
        owner = self._owner(partition)
        if tail is not None:
            header = tail.header
            last = Identity(header.producer_id, header.producer_epoch, header.last_sequence)
            return last.after(1)
        ours = [state for state in known or () if same_owner(state.producer_id, owner)]
        if not ours:
            return Identity(owner, 0, 0)
        newest = max(ours, key=lambda state: (state.producer_id, state.epoch))
        return Identity(newest.producer_id, newest.epoch, newest.last_sequence).after(1)
