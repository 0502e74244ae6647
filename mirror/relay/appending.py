"""A lane for ``offsets: mapped``: batches are appended where the destination's log ends, and where that was is noted.

A lane of its own kind, so that the one for exact offsets pays nothing for it.
"""

from mirror.net.connection import Connection, Piece
from mirror.relay.acks import bases_of
from mirror.relay.partition import Partition, Phase
from mirror.relay.sink import NOT_OF_THE_REQUEST, Lane
from mirror.wire.errors import ErrorCode
from mirror.wire.primitives import MalformedFrame
from mirror.wire.produce import Expected, PlainAnswer, Produced, ProduceResponse, as_expected

FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})


class AppendingLane(Lane):
    """Any base offset behind the last one is as good as another. Several source partitions may go to one partition of
    the destination; a request then has a batch of one of them only, since a broker loses the first of two."""

    _shared = False

    def attach(self, partition: Partition) -> None:
        """Pins the partition to this lane."""
        place = partition.topic_head, partition.index
        self._shared = self._shared or any(place == (each.topic_head, each.index) for each in self._partitions)
        super().attach(partition)

    def _build(self, connection: Connection, most: int) -> list[Piece]:
        """See ``Lane``."""
        if not self._shared:
            return super()._build(connection, most)
        first: dict[tuple[bytes, int], Partition] = {}
        for partition in self._ready:
            first.setdefault((partition.topic_head, partition.index), partition)
        chosen = set(first.values())
        later = [partition for partition in self._ready if partition not in chosen]
        self._ready = list(first.values())
        pieces = super()._build(connection, 1)
        # Before those that have another batch: each in its turn.
        self._ready = later + self._ready
        return pieces

    def _acknowledge_expected(self, taken: list[Partition], frame: memoryview, likely: Expected) -> bool:
        """See ``Lane``."""
        answer = as_expected(frame, likely)
        if answer is not None:
            self._acknowledge(taken, answer)
        return answer is not None

    def _acknowledge(self, taken: list[Partition], answer: PlainAnswer) -> None:
        """See ``Lane``."""
        bases = bases_of(taken, answer)
        if bases is None:
            raise MalformedFrame(NOT_OF_THE_REQUEST)
        for partition, base_offset in zip(taken, bases, strict=True):
            self._acknowledge_one(partition, base_offset)

    def _acknowledge_one(self, partition: Partition, base_offset: int) -> None:
        """See ``Lane``."""
        copied = partition.copied
        if partition.phase is not Phase.ACTIVE or copied is None or base_offset < copied.destination:
            self._unexpected(partition, base_offset)
            return
        batch = partition.in_flight.popleft()
        self._freed = True
        copied.landed(base_offset, batch[2])
        partition.acknowledged = copied.source
        frame = batch[3]
        if frame is not None:
            partition.frames -= 1
            frame.release()
        if copied.jumps:
            self._owner.jump(partition)
        if partition.window == 1:
            self._confirm(partition, base_offset, batch)
        if partition.outbox and not partition.queued:
            partition.queued = True
            self._ready.append(partition)

    def _refused(self, partition: Partition, answer: Produced, response: ProduceResponse) -> None:
        """See ``Lane``. Behind somebody else's fence the partition is left to them, and taken over anew later: brokers
        before 3.0 cannot be asked whose it is."""
        if answer.error in FENCED and partition.phase is Phase.ACTIVE:
            partition.released = True
        super()._refused(partition, answer, response)
