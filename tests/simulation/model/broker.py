"""A model of what a broker does with one partition: exact where the mirror's protocol depends on it, absent elsewhere.

A log of whole batches as they are stored; a high watermark that trails its end; the idempotence rules; transaction
markers; truncation by a leader change; producer state that is rebuilt, swept, or partly forgotten. Nothing here awaits
or draws lots: a method is what the leader does with one request at one instant.
``tests/simulation/model/test_broker_real.py`` holds it against a real broker, answer by answer.

Sources: Kafka's ProducerStateManager and ProducerAppendInfo, and what was measured on brokers (4.3.0, 3.9.2).
"""

import copy
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from crc32c import crc32c

from mirror.net.coordinator import NOBODY, Ownership
from mirror.records.header import (
    CONTROL,
    CRC_AT,
    CRC_FROM,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX_SIZE,
    SEQUENCES,
    TRANSACTIONAL,
    BatchHeader,
)
from mirror.wire.errors import ErrorCode

REMEMBERED = 5
"""Batches per producer that a broker recognises when they come again."""
NO_SEQUENCE = -1
ABORT, COMMIT = 0, 1
TRANSACTION_COORDINATOR_FENCED = 52
_MARKER_RECORD = struct.Struct(">BbbbBhhBhib")
"""One control record: size 16, no attributes, deltas 0, key (version 0, type), value (version 0, coordinator epoch), no
headers; sizes as zigzag varints."""


class Stored(NamedTuple):
    """A batch as it lies in the log: base offset and leader epoch are the broker's."""

    header: BatchHeader
    data: bytes

    @property
    def payload(self) -> bytes:
        """The records, as they came."""
        return self.data[HEADER_SIZE:]


class Remembered(NamedTuple):
    """A batch in a producer's state."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp: int


@dataclass(slots=True)
class ProducerState:
    """What a broker keeps of a producer id. ``timestamp``: of its last batch or marker, for the expiry."""

    epoch: int
    batches: deque[Remembered] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    timestamp: int = -1
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """NO_SEQUENCE behind a marker of a new epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_base(self) -> int:
        """Base offset of its last batch of data; -1: none."""
        return self.batches[-1].base_offset if self.batches else -1

    def move_to(self, epoch: int) -> None:
        """A new epoch forgets the batches of the one before."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class _Aborted(NamedTuple):
    """An aborted transaction: its first offset, and that of its marker."""

    producer_id: int
    first: int
    marker: int


class Answer(NamedTuple):
    """To a produce or a marker. The base offset means something only without an error, but is told with some."""

    error: int
    base_offset: int = -1
    append_time: int = -1
    """Of a repeat: the max timestamp of the batch that is there."""


def marker_batch(
    offset: int,
    producer_id: int,
    epoch: int,
    *,
    kind: int = ABORT,
    leader_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = 0,
) -> bytes:
    """A control batch of one marker as a broker writes it: 78 bytes."""
    record = _MARKER_RECORD.pack(32, 0, 0, 0, 8, 0, kind, 12, 0, coordinator_epoch, 0)
    header = BatchHeader(
        base_offset=offset,
        length=HEADER_SIZE - PREFIX_SIZE + len(record),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=CONTROL | TRANSACTIONAL,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return sealed(header.pack() + record)


def sealed(batch: bytes) -> bytes:
    """The batch with the checksum that belongs to its bytes."""
    return batch[:CRC_AT] + struct.pack(">I", crc32c(memoryview(batch)[CRC_FROM:])) + batch[CRC_FROM:]


def stamped(batch: bytes, append_time: int) -> bytes:
    """The batch as a broker stores it in a topic with LogAppendTime."""
    header = BatchHeader.read(batch)
    marked = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=append_time)
    return sealed(marked.pack() + batch[HEADER_SIZE:])


class PartitionModel:
    """One replica's log and what its leader answers from it. See the module's text."""

    def __init__(self, *, leader_epoch: int = 0) -> None:
        self.batches: list[Stored] = []
        self.start = 0
        self.end = 0
        self.replicated = 0
        """The high watermark."""
        self.epoch = leader_epoch
        self.epoch_start = 0
        """The log's end when this leader took over: until the high watermark is there, it tells consumers no end."""
        self.deposed = False
        """Another leads by now and this one does not know: nothing that it appends is ever replicated."""
        self.enough_replicas = True
        self.producers: dict[int, ProducerState] = {}
        self.tells_unknown = False
        """Kafka 1.0 to 2.3: a producer that is not remembered must begin with sequence 0, or is told so (59)."""
        self.swept: set[int] = set()
        """Producers whose state has expired, now or before."""
        self._swept_before_ms = 0
        self._start_on_disk = 0
        self._open: dict[int, int] = {}
        self._aborted: list[_Aborted] = []

    # -- produce -----------------------------------------------------------------------------------------------------

    def produce(self, batch: bytes, *, append_time: int | None = None) -> Answer:
        """A Produce request's batch. Appended batches are not replicated yet; the caller answers when they are.
        ``append_time``: in ms since 1970, if the topic has LogAppendTime."""
        header = BatchHeader.read(batch)
        error = _refusal(header, batch)
        if error:
            return Answer(error)
        if not self.enough_replicas:
            return Answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        state = self.producers.get(header.producer_id)
        if state is not None and header.producer_id >= 0:
            repeat = _repeat_of(header, state)
            if repeat is not None:
                return Answer(ErrorCode.NONE, repeat.base_offset, repeat.max_timestamp)
            error = _sequence_error(header, state)
            if error:
                return Answer(error)
        elif self.tells_unknown and header.base_sequence > 0:
            return Answer(ErrorCode.UNKNOWN_PRODUCER_ID)
        base = self.end
        if append_time is not None:
            batch = stamped(batch, append_time)
            header = BatchHeader.read(batch)
        self._append(header._replace(base_offset=base, leader_epoch=self.epoch), batch)
        return Answer(ErrorCode.NONE, base)

    def write_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int = 0, *, kind: int = ABORT, now_ms: int = 0
    ) -> int:
        """One marker of a WriteTxnMarkers request; the error code. Not idempotent: each call appends one offset."""
        state = self.producers.get(producer_id)
        if state is not None and epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if state is not None and coordinator_epoch < state.coordinator_epoch:
            return TRANSACTION_COORDINATOR_FENCED
        if not self.enough_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        batch = marker_batch(
            self.end,
            producer_id,
            epoch,
            kind=kind,
            leader_epoch=self.epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        self._append(BatchHeader.read(batch), batch)
        return ErrorCode.NONE

    def store(self, batch: bytes) -> None:
        """Puts a batch at its own base offset, whatever it holds: a log that others have written."""
        header = BatchHeader.read(batch)
        assert header.base_offset >= self.end, f"offset {header.base_offset} in a log that ends at {self.end}"
        self._append(header, batch)
        self.replicated = self.end

    def _append(self, header: BatchHeader, batch: bytes) -> None:
        stored = Stored(header, header.pack() + batch[HEADER_SIZE:])
        self.batches.append(stored)
        self.end = header.next_offset
        self._remember(stored)

    def _remember(self, stored: Stored) -> None:
        """What an appended (or replicated, or reloaded) batch leaves in the producer state."""
        header = stored.header
        if header.producer_id < 0:
            return
        if header.is_transactional:
            self._remember_transaction(stored)
        state = self.producers.get(header.producer_id)
        if state is None:
            state = self.producers[header.producer_id] = ProducerState(header.producer_epoch)
        state.move_to(header.producer_epoch)
        state.timestamp = header.max_timestamp
        if header.is_control:
            state.coordinator_epoch = _MARKER_RECORD.unpack_from(stored.data, HEADER_SIZE)[9]
        else:
            state.batches.append(
                Remembered(header.base_sequence, header.last_sequence, header.base_offset, header.max_timestamp)
            )

    def _remember_transaction(self, stored: Stored) -> None:
        header = stored.header
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
            return
        first = self._open.pop(header.producer_id, None)
        if first is not None and control_kind(stored.data) == ABORT:
            self._aborted.append(_Aborted(header.producer_id, first, header.base_offset))

    # -- reading -----------------------------------------------------------------------------------------------------

    def as_known(self, known: int | None) -> Self:
        """What a leader answers from while it knows of this high watermark; None: of the true one."""
        if known is None or known >= self.replicated:
            return self
        shown = copy.copy(self)
        shown.replicated = max(known, self.start)
        shown._open = {}
        for stored in self.batches[: self.at(shown.replicated)]:
            # A transaction whose marker is not below the high watermark is an open one.
            header = stored.header
            if header.is_control:
                shown._open.pop(header.producer_id, None)
            elif header.is_transactional:
                shown._open.setdefault(header.producer_id, header.base_offset)
        return shown

    @property
    def visible_end(self) -> int | None:
        """What ListOffsets tells consumers; None: OFFSET_NOT_AVAILABLE, the new leader does not know it yet."""
        return self.replicated if self.replicated >= self.epoch_start else None

    def at(self, offset: int) -> int:
        """Index of the first batch that ends at or behind ``offset``."""
        batches = self.batches
        low, high = 0, len(batches)
        while low < high:
            middle = (low + high) // 2
            if batches[middle].header.last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, offset: int, max_bytes: int = 1, *, committed: bool = False) -> list[Stored]:
        """A Fetch from ``offset``: whole batches below the high watermark, at least one if there is any. ``committed``:
        below the last stable offset."""
        out: list[Stored] = []
        size = 0
        until = self.last_stable if committed else self.replicated
        for stored in self.batches[self.at(offset) :]:
            if stored.header.base_offset >= until or (out and size + len(stored.data) > max_bytes):
                break
            out.append(stored)
            size += len(stored.data)
        return out

    @property
    def last_stable(self) -> int:
        """Below it, every transaction is decided."""
        return min([self.replicated, *self._open.values()])

    def aborted(self, first: int, last: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that touch offsets ``first`` to ``last``."""
        return [(one.producer_id, one.first) for one in self._aborted if one.first <= last and one.marker >= first]

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch is of a transaction that was aborted."""
        return header.is_transactional and any(
            one.producer_id == header.producer_id and one.first <= header.base_offset < one.marker
            for one in self._aborted
        )

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the latest epoch up to this one that the log has, and where its records end; -1, -1
        where it has no such epoch."""
        if epoch == self.epoch:
            return epoch, self.end
        later = [one.header.base_offset for one in self.batches if one.header.leader_epoch > epoch]
        # Old messages have none.
        until = [one.header.leader_epoch for one in self.batches if 0 <= one.header.leader_epoch <= epoch]
        return (max(until, default=epoch), min(later, default=self.end)) if epoch < self.epoch else (-1, -1)

    # -- the log's ends ----------------------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> int:
        """DeleteRecords: the log start moves, up to the high watermark. On disk it moves at the next checkpoint. Before
        Kafka 2.4 producers whose last batch goes are forgotten with it (KAFKA-7190)."""
        if not 0 <= offset <= self.replicated:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self.start = max(self.start, offset)
        if self.tells_unknown:
            self._forget({key for key, state in self.producers.items() if state.last_base < self.start})
        return ErrorCode.NONE

    def clean(self, at: int) -> bool:
        """The log cleaner takes a batch; false if it does not. What a producer that is remembered wrote last stays: its
        data as an empty batch, a marker as it is."""
        header = self.batches[at].header
        state = self.producers.get(header.producer_id)
        if state is None or header.producer_epoch != state.epoch or header.last_offset < state.last_base:
            del self.batches[at]
        elif header.is_control:
            return False
        elif header.last_sequence == state.last_sequence:
            empty = header._replace(record_count=0, length=HEADER_SIZE - PREFIX_SIZE)
            empty = BatchHeader.read(sealed(empty.pack()))
            self.batches[at] = Stored(empty, empty.pack())
        else:
            del self.batches[at]
        return True

    def checkpoint(self) -> None:
        """Once a minute, and at a clean stop: the log start is written down."""
        self._start_on_disk = self.start

    def replicate(self, offset: int | None = None) -> None:
        """The followers have everything below ``offset`` (None: everything there is)."""
        if not self.deposed:
            self.replicated = max(self.replicated, self.end if offset is None else min(offset, self.end))

    def sweep(self, before_ms: int) -> None:
        """Producer state whose last batch is older than ``producer.id.expiration.ms`` goes."""
        self._swept_before_ms = before_ms
        self._forget({key for key, state in self.producers.items() if state.timestamp < before_ms})

    def _forget(self, expired: set[int]) -> None:
        self.swept |= expired
        for key in expired:
            del self.producers[key]

    # -- leaders come and go -----------------------------------------------------------------------------------------

    def fail_over(self, keep: int, *, unclean: bool = False) -> Self:
        """The old leader's log, as it goes on for those who still talk to it; this one is the new leader from now on.

        ``keep``: what the new leader had of the log. It was in sync, so that is never below the high watermark, unless
        the election was ``unclean``.
        """
        assert unclean or self.replicated <= keep
        assert self.start <= keep <= self.end
        old = copy.copy(self)
        old.batches = list(self.batches)
        old.producers = copy.deepcopy(self.producers)
        old.deposed = True
        self.batches = [stored for stored in self.batches if stored.header.base_offset < keep]
        self.end = keep
        self.replicated = min(self.replicated, keep)
        self.epoch += 1
        self.epoch_start = self.end
        self._reload()
        return old

    def restart(self, *, clean: bool) -> None:
        """The broker itself stops and starts again. Either way it comes back with a snapshot that has each producer's
        last batch only: written at the stop, or when the log was recovered. After a kill the log start may be an older
        one. (A new leader that was a follower remembers all that a leader does: ``fail_over``.)"""
        if clean:
            self.checkpoint()
        else:
            self.start = self._start_on_disk
            self._reload()
        for state in self.producers.values():
            state.batches = deque(list(state.batches)[-1:], maxlen=REMEMBERED)
        self.epoch += 1
        self.epoch_start = self.end

    def _reload(self) -> None:
        """The producer state as the batches of the log leave it."""
        self.producers, self._open, self._aborted = {}, {}, []
        for stored in self.batches:
            if not self.tells_unknown or stored.header.next_offset > self.start:
                self._remember(stored)
        self.sweep(self._swept_before_ms)


def _refusal(header: BatchHeader, batch: bytes) -> int:
    """What is wrong with a batch on its own."""
    if header.crc != crc32c(memoryview(batch)[CRC_FROM:]):
        return ErrorCode.CORRUPT_MESSAGE
    if header.is_transactional:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if (
        header.magic != MAGIC
        or header.base_offset != 0
        or header.is_control
        or header.record_count == 0
        or not header.is_dense
        or (header.producer_id >= 0 and header.base_sequence < 0)
    ):
        return ErrorCode.INVALID_RECORD
    return ErrorCode.NONE


def _repeat_of(header: BatchHeader, state: ProducerState) -> Remembered | None:
    """The remembered batch that has the same epoch and sequences. What it holds is not looked at."""
    if header.producer_epoch != state.epoch:
        return None
    for known in state.batches:
        if (known.first_sequence, known.last_sequence) == (header.base_sequence, header.last_sequence):
            return known
    return None


def _sequence_error(header: BatchHeader, state: ProducerState) -> int:
    """Whether a batch that is no repeat continues what is remembered."""
    if header.producer_epoch < state.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    due = 0 if header.producer_epoch > state.epoch else (state.last_sequence + 1) % SEQUENCES
    return ErrorCode.NONE if header.base_sequence == due else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def control_kind(batch: bytes) -> int:
    """Of a control batch: ABORT or COMMIT."""
    return int(_MARKER_RECORD.unpack_from(batch, HEADER_SIZE)[6])


class CoordinatorModel:
    """Who owns each transactional id: the last who asked."""

    def __init__(self) -> None:
        self.owners: dict[str, Ownership] = {}
        self.last_epoch = 32_766
        """Behind it an id gets another producer id."""
        self._next_id = 1000

    def init_producer_id(self, transactional_id: str) -> Ownership:
        """A new epoch, which fences all before it; behind the last one another producer id, which does not."""
        before = self.owners.get(transactional_id)
        if before is None or before.epoch >= self.last_epoch:
            self._next_id += 1
            owner = Ownership(self._next_id, 0)
        else:
            owner = before._replace(epoch=before.epoch + 1)
        self.owners[transactional_id] = owner
        return owner

    def describe(self, transactional_id: str) -> Ownership:
        """DescribeTransactions: the present owner."""
        return self.owners.get(transactional_id, NOBODY)
