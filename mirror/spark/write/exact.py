"""``offsets=exact``: each batch is written at its source offsets, with the same identity as the daemon would give
it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mirror.net.errors import Unreachable
from mirror.net.logs.log import PartitionLog, Producer
from mirror.raw.model import TopicPartition
from mirror.records.header import BatchHeader
from mirror.records.identity import Identity, same_owner
from mirror.relay.leading.filler import Begun, Lead, lead
from mirror.relay.locate.resync import standing_still
from mirror.relay.locate.rules import ResyncRules, continued
from mirror.relay.locate.tails import look_back
from mirror.spark.write.errors import Reason, SinkError
from mirror.spark.write.identity import Place
from mirror.spark.write.log import LOG, Appender, Destination, Found
from mirror.spark.write.rows import Piece

SETTLE_S = 1.0
"""How long a log has to stand still before filler is written: the daemon's settle.ms."""


class _Begin:
    """Stands for the source's log in ``relay.leading.filler``: a log that begins with the first row's batch."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece

    async def start(self) -> int:
        """Returns the first row's base offset."""
        return self._piece.base

    async def batch_at(self, offset: int) -> tuple[BatchHeader, bytes]:
        """Returns the first row's batch, whatever the offset."""
        return self._piece.header, bytes(self._piece.records)


class _NoCleanup:
    """Stands for the daemon's handling of ``cleanup.policy``: the sink does not change the topic's config. A compacted
    topic refuses filler."""

    @asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Does nothing."""
        yield

    async def suspend_again(self) -> bool:
        """Returns False."""
        return False

    async def finish(self) -> None:
        """Does nothing."""


class ExactAppender(Appender):
    """Writes batches at their source offsets, and recognises written ones by these.

    Args:
        destination: the cluster.
        at: the destination's partition.
        rules: the partition's producer ids, and how many offsets before the first row may be filled. The ids are those
            that the daemon computes, so that a flow can continue a log that was written here, and the other way round.
    """

    def __init__(self, destination: Destination, at: TopicPartition, rules: Lead) -> None:
        super().__init__(destination, at)
        self._lead = rules
        self._begun = Begun()
        self._start = -1
        self._known: Sequence[Producer] | None = None
        self._next: Identity | None = None
        """The identity of the next batch at ``_next_at``, the log's end up to which it was read."""
        self._next_at = -1
        self._anew = False

    async def _begin(self, log: PartitionLog, piece: Piece) -> int:
        await lead(
            _Begin(piece),
            log,
            self._lead,
            self._begun,
            settled=lambda: standing_still(log, SETTLE_S, LOG),
            owns=_always,
            cleanup=_NoCleanup(),
            log=LOG,
        )
        self._start = await log.start()
        return max(self._start, min(piece.base, await log.visible_end()))

    async def _before_end(self, log: PartitionLog) -> None:
        # Producers must be asked for before the log's end: see ``relay.locate.resync``.
        self._next = None
        self._known = await log.producers()

    async def _look_back(self, log: PartitionLog, piece: Piece) -> None:
        """Nothing to do: the log's end shows what was written."""

    def _place(self, header: BatchHeader) -> Place | None:
        if header.is_control:
            return None
        return Place(header.base_offset, header.base_offset)

    def _is_there(self, piece: Piece) -> bool:
        # The records were written, and retention has deleted them since: the log begins behind them.
        return piece.end <= self._start or super()._is_there(piece)

    def _is_behind(self, found: Found, piece: Piece) -> bool:
        raise SinkError(Reason.NOT_A_COPY, f"{self.name} has offset {found.place.offset}, and no batch at {piece.base}")

    def _matched(self, found: Found) -> None:
        """Nothing to do: the log's end shows what was written."""

    def _begins_run(self, piece: Piece) -> bool:
        return False

    async def _identity(self, log: PartitionLog, piece: Piece) -> Identity:
        end = self._at
        if piece.base < end:
            raise SinkError(Reason.NOT_A_COPY, f"{self.name} ends at {end}, and has no batch at {piece.base}")
        if self._next is None or self._next_at != end:
            self._next, self._next_at = await self._continued(log, end), end
        if piece.base > end:
            told = f"{self.name} ends at {end}, and the next row begins at {piece.base}"
            raise SinkError(Reason.GAP, told)
        return self._next

    async def _continued(self, log: PartitionLog, end: int) -> Identity:
        """Returns the identity of the batch that follows the log's last batch. Raises SinkError if that batch is not of
        this flow."""
        tail = await look_back(log, await log.start(), end, owner=self._lead.owner, whole=True)
        if tail.data is not None and not same_owner(tail.data[0].producer_id, self._lead.owner):
            last = tail.data[0]
            told = f"{self.name}: the batch at offset {last.base_offset} is of producer id {last.producer_id}"
            raise SinkError(Reason.FOREIGN_WRITER, told)
        rules = ResyncRules(
            name=self.name, owner=self._lead.owner, filler=self._lead.filler, settle_s=0.0, next_epoch=self._anew
        )
        return continued(tail, self._known, rules, end)

    def _check_base(self, piece: Piece, base: int) -> None:
        if base != piece.base:
            raise SinkError(Reason.MISPLACED, f"{self.name}: the row at offset {piece.base} was appended at {base}")

    def _sent(self, piece: Piece) -> None:
        if self._next is None:
            raise Unreachable(f"{self.name}: nothing was sent")
        self._next, self._next_at = self._next.after(piece.header.last_offset_delta + 1), piece.end
        self._anew = False

    def _begin_anew(self) -> None:
        self._anew = True


async def _always() -> bool:
    """Returns True. The sink needs no ownership of a partition: every attempt sends the same filler."""
    return True
