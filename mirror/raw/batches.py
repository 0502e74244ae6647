"""One RecordBatch of a raw client: the record that a consumer returns for it, whether brokers accept it as it is, and
the batches that they would accept instead.

Pure. The verdict is the mirror's own (``records.admit``).
"""

from collections.abc import Iterable

from mirror.raw.errors import NotSendable, Unfit
from mirror.raw.model import ConsumerRecord, TimestampType, TopicPartition
from mirror.reasons import HaltReason
from mirror.records.admit import Cause, Fill, Forward, Halt, Rewrite, Terms, admit
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.rewriting import Oversize, rewrite
from mirror.records.header import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
)
from mirror.records.identity import Identity
from mirror.records.intact import is_intact
from mirror.records.restamp import restamp
from mirror.records.scan import measure
from mirror.records.transactions import Aborted

Bytes = bytes | bytearray | memoryview

_OF_HALTS = {
    HaltReason.OLD_FORMAT: Unfit.OLD_FORMAT,
    HaltReason.CORRUPT: Unfit.CORRUPT,
    HaltReason.UNKNOWN_ATTRIBUTES: Unfit.UNKNOWN_ATTRIBUTES,
    HaltReason.LOG_APPEND_TIME: Unfit.LOG_APPEND_TIME,
    HaltReason.SPARSE_BATCH: Unfit.HOLES,
    HaltReason.TOO_LARGE: Unfit.TOO_LARGE,
}


def check(value: Bytes, *, max_bytes: int | None = None) -> BatchHeader:
    """Returns the header of a batch that brokers accept and store as it is.

    Args:
        value: the bytes of one RecordBatch.
        max_bytes: the topic's ``max.message.bytes``; None: not known.

    Raises:
        NotSendable: the bytes are not one whole and undamaged batch, or brokers would refuse or change it.
    """
    header = _whole(value)
    verdict = admit(header, header.base_offset, Terms(max_batch_size=max_bytes))
    if isinstance(verdict, Fill):
        raise NotSendable(Unfit.CONTROL if verdict.cause is Cause.MARKER else Unfit.EMPTY, _span(header))
    if isinstance(verdict, Halt):
        raise NotSendable(_OF_HALTS[verdict.reason], verdict.detail)
    if not isinstance(verdict, Forward):
        raise AssertionError(f"{verdict} of a batch at its own base offset")
    if verdict.attributes != header.attributes:
        raise NotSendable(
            Unfit.TRANSACTIONAL if header.attributes & TRANSACTIONAL else Unfit.DELETE_HORIZON, _span(header)
        )
    return header


def sendable(value: Bytes, *, max_bytes: int | None = None) -> list[bytes]:
    """Returns the records of a batch in batches that brokers accept: usually the batch itself.

    Transactional and delete-horizon bits are cleared without opening the batch. A batch with holes, with append times
    or over ``max_bytes`` is opened, and its records are written into dense batches with the same codec (KIP-126). Each
    record keeps its key, value, headers and timestamp (the time of its append, if that is what consumers see), and its
    offset by the new batches' headers. The result is empty for a batch without records: a transaction marker, or one
    that compaction has emptied.

    A batch does not show whether its transaction was committed: read with ``isolation.level`` read_committed.

    Args:
        value: the bytes of one RecordBatch.
        max_bytes: no returned batch is larger; None: no limit.

    Raises:
        NotSendable: the bytes are not one whole and undamaged batch of magic 2, or a single record is over
            ``max_bytes``.
    """
    header = _whole(value)
    verdict = admit(header, header.base_offset, Terms(max_batch_size=max_bytes, rewrites=True))
    if isinstance(verdict, Fill):
        return []
    if isinstance(verdict, Forward):
        return [_with_attributes(header, value, verdict.attributes)]
    if isinstance(verdict, Rewrite):
        return _written_anew(header, value, due=header.base_offset, most_size=max_bytes)
    if isinstance(verdict, Halt):
        raise NotSendable(_OF_HALTS[verdict.reason], verdict.detail)
    raise AssertionError(f"{verdict} of a batch at its own base offset")


def trimmed(header: BatchHeader, batch: Bytes, offset: int) -> list[bytes]:
    """Returns the records of a batch from ``offset`` on, in a new batch with the same codec (KIP-712's mid-batch
    start). There are several batches if compaction has left holes between the records, or if they have more than 8 MiB
    before compression; none if no record is left.

    Args:
        header: the header of the batch, whose checksum was verified.
        batch: the whole batch.
        offset: the first offset that is wanted, inside the batch.

    Raises:
        NotSendable: the batch cannot be opened.
    """
    return _written_anew(header, batch, due=offset, most_size=None)


def stamped(header: BatchHeader, value: Bytes, identity: Identity) -> bytes:
    """Returns the batch as a producer of this identity sends it. Only the header changes; the checksum is carried over.

    Args:
        header: as ``check`` returned it.
        value: the batch.
        identity: producer id, epoch, and the sequence of its first record.
    """
    return restamp(header, identity, header.attributes).pack() + memoryview(value)[HEADER_SIZE:]


def _whole(value: Bytes) -> BatchHeader:
    """Returns the header of a whole and undamaged batch of magic 2. Raises NotSendable."""
    view = memoryview(value)
    try:
        size = measure(view, 0, len(view))
    except CorruptBatch as error:
        raise NotSendable(Unfit.NOT_ONE_BATCH, str(error)) from None
    if not isinstance(size, int):
        raise NotSendable(Unfit.NOT_ONE_BATCH, f"{len(view)} bytes are no whole batch")
    if size < len(view):
        raise NotSendable(Unfit.NOT_ONE_BATCH, f"{len(view) - size} bytes stand behind a batch of {size} bytes")
    if view[MAGIC_AT] != MAGIC:
        raise NotSendable(Unfit.OLD_FORMAT, f"magic {view[MAGIC_AT]}")
    header = BatchHeader.read(view)
    if not is_intact(view):
        raise NotSendable(Unfit.CORRUPT, f"the batch of {size} bytes does not match its checksum")
    return header


def _with_attributes(header: BatchHeader, value: Bytes, attributes: int) -> bytes:
    if attributes == header.attributes:
        return bytes(value)
    identity = Identity(header.producer_id, header.producer_epoch, header.base_sequence)
    changed = restamp(header, identity, attributes)
    kept = changed._replace(base_offset=header.base_offset, leader_epoch=header.leader_epoch)
    return kept.pack() + memoryview(value)[HEADER_SIZE:]


def _written_anew(header: BatchHeader, batch: Bytes, *, due: int, most_size: int | None) -> list[bytes]:
    records = bytes(memoryview(batch)[HEADER_SIZE:])
    try:
        pieces = rewrite(header, records, due=due, most_size=most_size)
        return [b"".join((piece.header.pack(), piece.records)) for piece in pieces]
    except Oversize as error:
        raise NotSendable(Unfit.RECORD_TOO_LARGE, str(error)) from None
    except NotOpened as error:
        raise NotSendable(Unfit.CORRUPT, str(error)) from None


def _span(header: BatchHeader) -> str:
    return f"attributes {header.attributes:#06x}, offsets {header.base_offset} to {header.last_offset}"


def records_of(
    at: TopicPartition,
    offset: int,
    batches: Iterable[tuple[BatchHeader, memoryview]],
    aborted: Iterable[tuple[int, int]],
    *,
    committed: bool,
) -> list[ConsumerRecord]:
    """Returns one ``ConsumerRecord`` for each batch that has records for a consumer. The bytes are copied.

    Args:
        at: the partition.
        offset: the consumer's position. Records before it are trimmed off the first batch.
        batches: whole and verified batches with their headers, in order; the first one may begin before ``offset``.
        aborted: (producer id, first offset) of the aborted transactions that the Fetch response lists.
        committed: True if aborted batches are left out.

    Raises:
        NotSendable: the first batch has to be trimmed, and cannot be opened.
    """
    transactions = Aborted(aborted)
    found: list[ConsumerRecord] = []
    for header, batch in batches:
        dropped = committed and transactions.follow(header, batch)
        if dropped or header.is_control or not header.record_count:
            continue
        if header.base_offset >= offset:
            found.append(_record(at, header, bytes(batch), header.leader_epoch))
            continue
        for value in trimmed(header, batch, offset):
            found.append(_record(at, BatchHeader.read(value), value, header.leader_epoch))
    return found


def _record(at: TopicPartition, header: BatchHeader, value: bytes, leader_epoch: int) -> ConsumerRecord:
    appended = header.attributes & LOG_APPEND_TIME
    return ConsumerRecord(
        topic=at.topic,
        partition=at.partition,
        offset=header.last_offset,
        timestamp=header.max_timestamp,
        timestamp_type=TimestampType.LOG_APPEND_TIME if appended else TimestampType.CREATE_TIME,
        value=value,
        leader_epoch=leader_epoch,
        base_offset=header.base_offset,
    )
