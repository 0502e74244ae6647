"""A partition's log in memory. It refuses what a real broker refuses."""

from collections import deque
from dataclasses import dataclass, field

from crc32c import crc32c

from mirror.records.header import CRC_FROM, HEADER_SIZE, PREFIX_SIZE, SEQUENCES, BatchHeader
from mirror.wire.errors import ErrorCode
from tests.simulation.model.broker import REMEMBERED, TRANSACTION_COORDINATOR_FENCED, marker_batch, stamped

DEFAULT_MAX_BATCH = 1_048_588
"""Kafka's default max.message.bytes."""


@dataclass(slots=True)
class ProducerState:
    """What a broker remembers of a producer id: its epoch, and (first sequence, last sequence, base offset) of the last
    batches."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    coordinator_epoch: int = -1
    """That of its last marker; -1: it has none."""


@dataclass(slots=True, kw_only=True)
class FakeLog:
    """The batches of a partition. The last ``hidden`` offsets are not replicated: they are above the high watermark."""

    leader: int = 1
    epoch: int = 0
    start: int = 0
    local_start: int = 0
    """Offsets before this one are in tiered storage. Faults script how that behaves."""
    hidden: int = 0
    open_from: int | None = None
    """Start of an open transaction: read_committed consumers get nothing from here on. None: there is none."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """Aborted transactions that read_committed consumers are told about: (producer id, first offset)."""
    max_batch_size: int = DEFAULT_MAX_BATCH
    batches: list[bytes] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    end: int = 0

    @property
    def high_watermark(self) -> int:
        """The end for consumers."""
        return self.end - self.hidden

    @property
    def last_stable(self) -> int:
        """The end for read_committed consumers."""
        return self.high_watermark if self.open_from is None else min(self.high_watermark, self.open_from)

    def store(self, batch: bytes) -> None:
        """Appends a batch as it is, whatever it holds, as if others had written it."""
        self.batches.append(batch)
        self.end = BatchHeader.read(batch).next_offset if batch[16] == 2 else self.end + 1

    def truncate(self, offset: int) -> None:
        """Removes everything from ``offset`` on and begins the next leader epoch, as an unclean election does."""
        self.batches = [batch for batch in self.batches if _base(batch) < offset]
        self.end = offset
        self.epoch += 1
        for producer_id, state in list(self.producers.items()):
            state.batches = deque((one for one in state.batches if one[2] < offset), maxlen=REMEMBERED)
            if not state.batches:
                del self.producers[producer_id]

    def delete_before(self, offset: int) -> None:
        """Removes whole batches before ``offset``, as retention does."""
        self.batches = [batch for batch in self.batches if BatchHeader.read(batch).last_offset >= offset]
        self.start = offset

    # -- produce ---

    def produce(self, records: bytes, *, append_time: int | None = None) -> tuple[int, int]:
        """Appends what a Produce request has for this partition. Returns (error code, base offset). ``append_time``:
        the time of the append in ms since 1970, if the topic has LogAppendTime."""
        error = self._check(records)
        if error:
            return error, -1
        header = BatchHeader.read(records)
        state = self.producers.get(header.producer_id)
        error, base = self._sequenced(header, state)
        if error or base >= 0:
            return error, base
        stored = header._replace(base_offset=self.end, leader_epoch=self.epoch).pack() + records[HEADER_SIZE:]
        base = self.end
        self.batches.append(stored if append_time is None else stamped(stored, append_time))
        self.end += header.last_offset_delta + 1
        if header.producer_id >= 0:
            state = self._in_epoch(header.producer_id, header.producer_epoch)
            state.batches.append((header.base_sequence, header.last_sequence, base))
        return ErrorCode.NONE, base

    def newest_ms(self, base_offset: int) -> int:
        """Returns the max timestamp of the batch at this base offset; 0 if there is none."""
        headers = map(BatchHeader.read, self.batches)
        return next((one.max_timestamp for one in headers if one.base_offset == base_offset), 0)

    def write_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> int:
        """Appends an ABORT marker, which takes one offset, and returns the error code. Each call appends another
        one."""
        state = self.producers.get(producer_id)
        if state is not None and epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if state is not None and coordinator_epoch < state.coordinator_epoch:
            return TRANSACTION_COORDINATOR_FENCED
        self.batches.append(
            marker_batch(self.end, producer_id, epoch, leader_epoch=self.epoch, coordinator_epoch=coordinator_epoch)
        )
        self.end += 1
        self._in_epoch(producer_id, epoch).coordinator_epoch = coordinator_epoch
        return ErrorCode.NONE

    def _in_epoch(self, producer_id: int, epoch: int) -> ProducerState:
        """Returns what is remembered of a producer. A new epoch forgets the batches of the previous one."""
        state = self.producers.setdefault(producer_id, ProducerState(epoch))
        if state.epoch != epoch:
            state.epoch = epoch
            state.batches.clear()
        return state

    def _check(self, records: bytes) -> int:
        if len(records) < HEADER_SIZE:
            return ErrorCode.CORRUPT_MESSAGE
        header = BatchHeader.read(records)
        if header.size > len(records) or header.crc != crc32c(records[CRC_FROM : header.size]):
            return ErrorCode.CORRUPT_MESSAGE
        if header.is_transactional:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if (
            header.size != len(records)
            or header.magic != 2
            or header.base_offset != 0
            or not header.is_dense
            or header.record_count == 0
            or header.is_control
            or (header.producer_id >= 0 and header.base_sequence < 0)
        ):
            return ErrorCode.INVALID_RECORD
        return ErrorCode.MESSAGE_TOO_LARGE if header.size > self.max_batch_size else ErrorCode.NONE

    def _sequenced(self, header: BatchHeader, state: ProducerState | None) -> tuple[int, int]:
        """Returns (error code, base offset of the batch that this one repeats, or -1)."""
        if header.producer_id < 0 or state is None:
            return ErrorCode.NONE, -1
        if header.producer_epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > state.epoch:
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if header.base_sequence else ErrorCode.NONE), -1
        for first, last, base in state.batches:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return ErrorCode.NONE, base
        due = (state.batches[-1][1] + 1) % SEQUENCES if state.batches else 0
        if header.base_sequence != due:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1

    # -- fetch ---

    def read(self, offset: int, most: int, *, whole_first: bool, slices: bool = False, committed: bool = True) -> bytes:
        """Returns what a Fetch from ``offset`` gets: records from the batch that holds the offset on, cut at ``most``
        bytes, below the high watermark or, with ``committed``, below the last stable offset.

        ``whole_first``: at least one complete batch, whatever its size (KIP-74). Otherwise a first batch that does not
        fit is left out, as brokers do since Fetch v3. With ``slices``, the part that fits is returned all the same.
        """
        out = bytearray()
        until = self.last_stable if committed else self.high_watermark
        for batch in self.batches:
            base = _base(batch)
            last = BatchHeader.read(batch).last_offset if batch[16] == 2 else base
            if last < offset or (out and base >= until):
                continue
            if base >= until:
                break
            if not out and whole_first and len(batch) > most:
                return batch
            if not out and len(batch) > most and not slices:
                return b""
            out += batch[: most - len(out)]
            if len(out) >= most:
                break
        return bytes(out)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (largest epoch that is not above ``epoch``, the offset where it ends), with which a broker compares
        last_fetched_epoch."""
        if epoch > self.epoch:
            return -1, -1
        largest, end = -1, self.start
        for batch in self.batches:
            header = BatchHeader.read(batch)
            if header.leader_epoch <= epoch:
                largest, end = max(largest, header.leader_epoch), header.next_offset
        return largest, self.end if largest == self.epoch else end


def _base(batch: bytes) -> int:
    return int.from_bytes(batch[:8], signed=True)


assert PREFIX_SIZE < HEADER_SIZE
