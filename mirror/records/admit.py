"""The verdict on one batch: may it go to the destination as it is?

Pure: a header, the offset that is due, and what the topic is like, give a ``Verdict``. A hole, that is offsets at which
a consumer of the source finds no record, is filled, and only if it has a cause. Everything that is not ``Forward``,
``Skip`` or ``Fill`` stops the partition with a named reason (rule "fail closed, and say why").
"""

from dataclasses import dataclass
from enum import Enum

from mirror.reasons import HaltReason
from mirror.records.header import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Send it, restamped; ``attributes`` are those that it must carry at the destination."""

    attributes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """It lies wholly before the offset that is due: a broker may answer a Fetch with it, and it was copied before."""


class Cause(Enum):
    """Why offsets have no record at the source. The names are stable: metrics carry them."""

    MARKER = "marker"
    """A transaction marker."""
    ABORTED = "aborted"
    """Data of an aborted transaction."""
    COMPACTED = "compacted"
    """The cleaner removed the records: an empty batch, or none at all."""
    ACCEPTED = "accepted"
    """A gap without a cause, that the operator has decided to go on behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """There is no record from the offset that is due up to ``until``: markers take these offsets.

    ``until`` is the batch's own base offset where the hole lies before it: the batch is then to be judged again."""

    until: int
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """The partition stops here. ``detail`` has the values that led to it; ``size``: bytes of a batch too large."""

    reason: HaltReason
    detail: str
    size: int = 0


Verdict = Forward | Skip | Fill | Halt
"""Rewrite(reason) will be a new class here; the type checker then shows each place to handle it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the destination topic takes, and which holes its source topic can have.

    Attributes:
        max_batch_size: the destination's ``max.message.bytes``; None if not known.
        compacted: whether the source's ``cleanup.policy`` has ``compact``, so that gaps have a cause.
        compacted_there: whether the destination's has, so that its log cleaner changes what was copied.
        append_times: whether the source topic has LogAppendTime: its times say when it was written, not what.
        accept_gaps: whether gaps without a cause are gone over (``on.gap: continue``).
        strict: whether batches go with the source's producer fields (``identity: strict``): nothing is filled then.
        refuses: the configs by which the destination takes less than the source did, with both values. Brokers judge by
            them.
    """

    max_batch_size: int | None = None
    compacted: bool = False
    compacted_there: bool = False
    append_times: bool = False
    accept_gaps: bool = False
    strict: bool = False
    refuses: tuple[tuple[str, int, int], ...] = ()


KNOWN_ATTRIBUTES = 0x7F
CODECS = frozenset(Codec)


def admit(header: BatchHeader, due: int, terms: Terms, *, aborted: bool = False) -> Verdict:
    """The verdict for the batch with this header, when ``due`` is the next offset that the destination lacks.

    The order matters: a batch is named by the first thing that is wrong with it, the gravest first.

    Args:
        header: as read; of a whole batch.
        due: all offsets below are at the destination or on their way.
        terms: of the topic.
        aborted: whether the batch belongs to an aborted transaction (``records.transactions``).
    """
    span = f"offsets {header.base_offset} to {header.last_offset}"
    if header.magic != 2:
        return Halt(reason=HaltReason.OLD_FORMAT, detail=f"magic {header.magic} at offset {header.base_offset}")
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        return Halt(
            reason=HaltReason.CORRUPT,
            detail=f"{header.record_count} records, last delta {header.last_offset_delta}, at {header.base_offset}",
        )
    if header.last_offset < due:
        return Skip()
    if header.attributes & ~KNOWN_ATTRIBUTES or header.codec_bits not in CODECS:
        return Halt(reason=HaltReason.UNKNOWN_ATTRIBUTES, detail=f"attributes {header.attributes:#06x}, {span}")
    if terms.strict and (header.base_offset > due or header.is_transactional or not header.record_count):
        return Halt(
            reason=HaltReason.NOT_STRICT, detail=f"offset {due} is due, attributes {header.attributes:#x}, {span}"
        )
    if header.base_offset > due:
        return _gap(header, due, span, terms)
    cause = _no_record(header, aborted=aborted)
    if cause is not None:
        return Fill(until=header.next_offset, cause=cause)
    if header.base_offset < due:
        return Halt(reason=HaltReason.MID_BATCH, detail=f"offset {due} is due, the batch has {span}")
    if not header.is_dense:
        return Halt(reason=HaltReason.SPARSE_BATCH, detail=f"{header.record_count} records in {span}")
    if header.attributes & LOG_APPEND_TIME:
        return Halt(reason=HaltReason.LOG_APPEND_TIME, detail=span)
    if terms.max_batch_size is not None and header.size > terms.max_batch_size:
        return Halt(
            reason=HaltReason.TOO_LARGE,
            detail=f"{header.size} bytes, {span}; the destination takes {terms.max_batch_size}",
            size=header.size,
        )
    # The transaction is decided, and the mirror writes outside of any: a broker refuses the bit without a transactional
    # id. The horizon is the cleaner's note to itself; a producer may not set it, and the deltas already relate to the
    # base timestamp as it stands (Kafka's Produce).
    return Forward(attributes=header.attributes & ~(TRANSACTIONAL | DELETE_HORIZON))


def damaged(header: BatchHeader) -> Halt:
    """The halt for a batch whose checksum is wrong: whatever its header says is not to be believed."""
    return Halt(
        reason=HaltReason.CORRUPT,
        detail=f"the batch with base offset {header.base_offset} ({header.size} bytes, attributes "
        f"{header.attributes:#06x}) does not match its checksum",
    )


def backwards(header: BatchHeader, due: int) -> Halt:
    """The halt for a batch that stands behind one with the same or higher offsets."""
    return Halt(
        reason=HaltReason.CORRUPT,
        detail=f"a batch of offsets {header.base_offset} to {header.last_offset} stands behind offset {due - 1}",
    )


def _no_record(header: BatchHeader, *, aborted: bool) -> Cause | None:
    """Why a consumer finds nothing in the batch, if so."""
    if header.is_control:
        return Cause.MARKER
    if aborted:
        return Cause.ABORTED
    return None if header.record_count else Cause.COMPACTED


def _gap(header: BatchHeader, due: int, span: str, terms: Terms) -> Fill | Halt:
    """Offsets before the batch that no batch has. Only compaction makes such: of transactions, every offset has its
    batch, also of aborted ones, and markers are batches."""
    if terms.compacted:
        return Fill(until=header.base_offset, cause=Cause.COMPACTED)
    if terms.accept_gaps:
        return Fill(until=header.base_offset, cause=Cause.ACCEPTED)
    return Halt(reason=HaltReason.UNEXPLAINED_GAP, detail=f"offset {due} is due, the next batch has {span}")
