"""Writes a task's rows to one partition of the destination, and leaves out those that the log has already.

An attempt of a task learns only from the log what earlier or parallel attempts have written. So before it sends
anything, it reads what they may have written. The identity of a batch follows from the log and the rows alone. So if
two attempts send the same batch at the same moment, the broker appends one, and answers the other with the same offset.
After anything uncertain (a lost connection, an error code), the log is read again. ``write.mapped`` and ``write.exact``
define how batches are recognised, and their identities.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from mirror.net.cluster import Cluster
from mirror.net.errors import NetworkError, Refused, Unreachable
from mirror.net.logs.log import PartitionLog
from mirror.offsetmap.compare.survivors import cleaned
from mirror.raw.errors import FINAL, RawError, of_network
from mirror.raw.leaders import Leaders, backoff_of
from mirror.raw.model import TopicPartition
from mirror.raw.produce.sending import OLD_MS, OTHER_PRODUCER, REMEDIES, is_final
from mirror.reasons import HaltReason
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.identity import Identity
from mirror.records.restamp import restamp
from mirror.relay.halts import PartitionHalted
from mirror.relay.locate.resync import barrier
from mirror.spark.write.errors import Reason, SinkError
from mirror.spark.write.identity import Place
from mirror.spark.write.rows import Piece
from mirror.wire.errors import ErrorCode

READ_BYTES = 1 << 20
LOOK_FOR_S = 0.5
"""For how long a look at the log's end is valid, where nothing else shows what was written (``Appender._is_due``)."""
MOST_REFUSALS = 8
"""Most refusals in a row because the leader's state of the producer differs from the log."""
_OF_HALTS = {
    HaltReason.FOREIGN_WRITER.slug: Reason.FOREIGN_WRITER,
    HaltReason.LEADING_OFFSETS.slug: Reason.LEADING_OFFSETS,
}
_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


class Log:
    """Passes log events of ``mirror.relay`` to Python's logging."""

    _log = logging.getLogger("mirror.spark")

    def info(self, event: str, **fields: object) -> None:
        """Logs a normal event."""
        self._log.info("%s %s", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Logs an event that needs attention."""
        self._log.warning("%s %s", event, fields)


LOG = Log()


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The cluster that is written to. ``patience_s``: how long sending a batch is tried (delivery.timeout.ms)."""

    cluster: Cluster
    leaders: Leaders
    patience_s: float


class Found(NamedTuple):
    """A batch of the flow that the destination's log has."""

    place: Place
    header: BatchHeader
    records: memoryview

    @property
    def source_end(self) -> int:
        """The source offset behind it."""
        return self.place.offset + self.header.last_offset_delta + 1


class Appender(ABC):
    """Writes the rows of one source partition. ``put`` is called for each batch, in order."""

    def __init__(self, destination: Destination, at: TopicPartition) -> None:
        self._destination = destination
        self._to = at
        self._opened: PartitionLog | None = None
        self._at = -1
        """The offset up to which the log was read; -1: not read yet."""
        self._end = -1
        """The log's end when it was last asked for; -1: not yet."""
        self._found: deque[Found] = deque()
        """The flow's batches that were read, from the current piece on."""
        self._newest = -1
        """The source offset behind the last batch of the flow that was read or written; -1: none was."""
        self._sure = False
        """True if the log was read to its end, and no batch of ours is under way."""
        self._sure_at = 0.0
        self._refused = 0

    @property
    def name(self) -> str:
        """The partition's name in messages."""
        return f"{self._to.topic}-{self._to.partition}"

    async def put(self, piece: Piece) -> bool:
        """Appends a batch, unless the log has it. Returns True if it was appended.

        Raises:
            SinkError: the log does not have the batch, and it could not or must not be appended.
        """
        until = asyncio.get_running_loop().time() + self._destination.patience_s
        backoff = backoff_of(self._destination.cluster)
        self._refused = 0
        while True:
            problem: Exception
            try:
                return await self._put(piece, until)
            except PartitionHalted as stop:
                raise SinkError(_OF_HALTS.get(stop.halted.reason, Reason.NOT_A_COPY), stop.halted.detail) from stop
            except RawError as error:
                raise SinkError(Reason.UNREACHABLE, f"{self.name}: {error}") from error
            except FINAL as error:
                raise SinkError(Reason.UNREACHABLE, f"{self.name}: {of_network(error)}") from error
            except NetworkError as error:
                problem = error
            self._doubt()
            pause_s = backoff.next_s()
            if asyncio.get_running_loop().time() + pause_s >= until:
                raise SinkError(Reason.UNREACHABLE, f"{self.name}: delivery.timeout.ms is over; at last: {problem}")
            await asyncio.sleep(pause_s)

    async def _put(self, piece: Piece, until: float) -> bool:
        log = await self._log(until)
        if self._at < 0:
            self._at = await self._begin(log, piece)
        await self._look(log, piece)
        if self._newest < 0:
            await self._look_back(log, piece)
        if self._is_there(piece):
            return False
        return await self._send(log, piece)

    async def _log(self, until: float) -> PartitionLog:
        """Returns the log at its current leader. ``until``: when to give up (the event loop's time)."""
        if self._opened is None:
            cluster = self._destination.cluster
            leader = await self._destination.leaders.find(*self._to, until=until, anew=self._end >= 0)
            self._opened = PartitionLog(cluster, cluster.topics[self._to.topic], self._to.partition, leader)
        return self._opened

    def _doubt(self) -> None:
        """Called after a failure: the leader and the log's end have to be looked up again."""
        self._opened = None
        self._sure = False

    # -- looking -----------------------------------------------------------------------------------------------------

    async def _look(self, log: PartitionLog, piece: Piece) -> None:
        """Reads the log on until there is a batch of the flow at or behind the piece, or the log ends."""
        while True:
            while self._found and self._found[0].source_end <= piece.base:
                self._found.popleft()
            if self._found:
                return
            if self._at < self._end:
                await self._read_on(log)
            elif self._sure and not self._is_due(piece):
                return
            else:
                await self._before_end(log)
                end = await barrier(log, LOG)
                if end < self._at:
                    told = f"{self.name} was read or written to offset {self._at}, and ends at {end} now"
                    raise SinkError(Reason.LOST_END, told)
                self._end = end
                if end == self._at:
                    self._sure, self._sure_at = True, time.monotonic()
                    return

    def _is_due(self, piece: Piece) -> bool:
        """Returns True if the log's end has to be looked at again before the piece is sent. Another attempt may have
        written it meanwhile, and the broker might not recognise it as a repeat: its records are so old that the
        producer is forgotten, or a query of other rows gave it another identity."""
        if time.monotonic() - self._sure_at <= LOOK_FOR_S:
            return False
        return time.time() * 1000 - piece.header.max_timestamp >= OLD_MS or self._begins_run(piece)

    async def _read_on(self, log: PartitionLog) -> None:
        try:
            segment = await log.read(self._at, max_bytes=READ_BYTES)
        except Refused as error:
            start = await log.start() if error.code == ErrorCode.OFFSET_OUT_OF_RANGE else -1
            if start <= self._at:
                raise
            self._at = start  # the records up to there were deleted meanwhile
            return
        if not segment.batches:
            if segment.high_watermark < self._end:
                raise Unreachable(f"{log.name} ends at {self._end}, and is to be read to {segment.high_watermark} only")
            self._at = self._end  # a log cleaner has removed the batches up to the end
        for header, batch in segment.batches:
            if header.last_offset < self._at:
                continue
            self._at = header.next_offset
            place = self._place(header)
            if place is None:
                continue
            found = Found(place, header, batch[HEADER_SIZE:])
            if place.offset < self._newest:
                told = (
                    f"{self.name} has source offset {place.offset} at {header.base_offset}, behind later ones or twice"
                )
                raise SinkError(Reason.MISPLACED, told)
            self._newest = found.source_end
            self._found.append(found)

    def _is_there(self, piece: Piece) -> bool:
        """Returns True if the log has the piece. Raises SinkError if it has another batch in its place."""
        if not self._found:
            return False
        found = self._found[0]
        if found.place.offset == piece.base:
            if not _same(found, piece):
                told = (
                    f"{self.name} has another batch at offset {found.header.base_offset} than the row at {piece.base}"
                )
                raise SinkError(Reason.NOT_A_COPY, told)
            self._found.popleft()
            self._matched(found)
            return True
        if found.place.offset < piece.base:
            told = (
                f"{self.name} has a batch of source offsets {found.place.offset} to {found.source_end - 1}, and the row"
            )
            raise SinkError(Reason.NOT_A_COPY, f"{told} at {piece.base} begins inside of it")
        return self._is_behind(found, piece)

    # -- sending -----------------------------------------------------------------------------------------------------

    async def _send(self, log: PartitionLog, piece: Piece) -> bool:
        identity = await self._identity(log, piece)
        header = restamp(piece.header, identity, piece.header.attributes)
        self._sure = False
        try:
            base = await log.produce(header.pack() + piece.records)
        except Refused as error:
            self._judge(error)
            raise
        end = base + header.last_offset_delta + 1
        if base < self._at:
            await self._check_repeat(log, piece, base)
            self._sent(piece)  # the next pieces continue its run
            return False
        self._end = max(self._end, base)
        while self._at < base:
            await self._read_on(log)
        if self._found and self._found[0].header.base_offset < base:
            found = self._found[0]
            told = (
                f"{self.name}: source offset {piece.base} stands at {base}, behind source offset {found.place.offset}, "
                f"which was written at {found.header.base_offset} meanwhile"
            )
            raise SinkError(Reason.MISPLACED, told)
        if self._found and self._found[0].header.base_offset == base:
            self._found.popleft()
        self._check_base(piece, base)
        self._at = max(self._at, end)
        self._newest = max(self._newest, piece.end)
        self._sent(piece)
        self._sure, self._sure_at = True, time.monotonic()
        return True

    async def _check_repeat(self, log: PartitionLog, piece: Piece, base: int) -> None:
        """Checks a batch that the broker acknowledged as a repeat at ``base``, before the part of the log that was
        read: the timestamp index had led to a later offset, or its records were deleted meanwhile.

        Raises:
            SinkError: another batch is at ``base``.
        """
        if base < await log.start():
            return
        there = await log.batch_at(base)
        if there is not None and there[0].base_offset == base:
            place = self._place(there[0])
            records = memoryview(there[1])[HEADER_SIZE:]
            if place is not None and _same(Found(place, there[0], records), piece):
                return
        told = f"{self.name}: the row at {piece.base} was acknowledged at {base}, and is not there"
        raise SinkError(Reason.NOT_A_COPY, told)

    def _judge(self, error: Refused) -> None:
        """Decides what to do after the broker refused a batch. Returns if the log has to be read again and the batch
        sent again.

        Raises:
            SinkError: the broker will not accept the batch.
        """
        code = error.code
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            self._begin_anew()
        if code in OTHER_PRODUCER or code == _DUPLICATE:
            self._refused += 1
            if self._refused > MOST_REFUSALS:
                raise SinkError(Reason.FENCED, str(error))
        elif is_final(code):
            raise SinkError(Reason.REFUSED, str(error), REMEDIES.get(code, ""))

    # -- how batches are recognised and named ------------------------------------------------------------------------

    @abstractmethod
    async def _begin(self, log: PartitionLog, piece: Piece) -> int:
        """Returns an offset of the log from which to read: neither the piece nor later ones stand before it."""

    @abstractmethod
    async def _before_end(self, log: PartitionLog) -> None:
        """Called before the log's end is asked for."""

    @abstractmethod
    async def _look_back(self, log: PartitionLog, piece: Piece) -> None:
        """Called before the first batch is sent, if no batch of the flow was found from ``_begin``'s offset on."""

    @abstractmethod
    def _place(self, header: BatchHeader) -> Place | None:
        """Returns the source offset of a batch in the log; None if it is not a batch of this flow and partition."""

    @abstractmethod
    def _is_behind(self, found: Found, piece: Piece) -> bool:
        """Called if the log has a batch of a later source offset than the piece, and not the piece. Returns True if
        this proves that the piece was written; otherwise raises SinkError."""

    @abstractmethod
    def _matched(self, found: Found) -> None:
        """Takes note of a batch that the log has already."""

    @abstractmethod
    def _begins_run(self, piece: Piece) -> bool:
        """Returns True if the identity of the piece depends on where the rows of this attempt begin."""

    @abstractmethod
    async def _identity(self, log: PartitionLog, piece: Piece) -> Identity:
        """Returns the identity of a batch that the log does not have. Raises SinkError if it must not be appended."""

    @abstractmethod
    def _check_base(self, piece: Piece, base: int) -> None:
        """Raises SinkError if the piece must not stand at ``base``, where it was appended."""

    @abstractmethod
    def _sent(self, piece: Piece) -> None:
        """Takes note of an acknowledged batch."""

    @abstractmethod
    def _begin_anew(self) -> None:
        """Called if the leader has forgotten the producer and accepts only a new one (before Kafka 2.5)."""


def _same(found: Found, piece: Piece) -> bool:
    """Returns True if the batch at the destination equals the piece, except for the fields that the destination or the
    sink sets. A batch that a log cleaner has changed counts as equal: its place identifies it."""
    if cleaned(found.header):
        return True
    unowned = found.header._replace(
        base_offset=piece.base,
        leader_epoch=piece.header.leader_epoch,
        crc=piece.header.crc,
        producer_id=piece.header.producer_id,
        producer_epoch=piece.header.producer_epoch,
        base_sequence=piece.header.base_sequence,
    )
    return unowned == piece.header and found.records == piece.records
