"""The verdict on one batch: may it go to the destination as it is?

Pure: a ``Verdict`` follows from a header, the offset that is due, and the topic's ``Terms``. A hole is a range of
offsets at which a consumer of the source finds no record. It is filled only if it has a cause. A batch that brokers
would refuse as it is gets rewritten, if the terms allow that. Everything else stops the partition with a named reason:
when in doubt, nothing is copied.
"""

from dataclasses import dataclass
from enum import Enum

from mirror.reasons import HaltReason
from mirror.records.header import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Send the batch, restamped. ``attributes``: the attribute bits that it must have at the destination."""

    attributes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The whole batch lies before the offset that is due. It was copied before; a broker may still answer a Fetch with
    such a batch."""


class Cause(Enum):
    """The cause why offsets have no record at the source. The names are stable: metrics carry them."""

    MARKER = "marker"
    """A transaction marker."""
    ABORTED = "aborted"
    """Data of an aborted transaction."""
    COMPACTED = "compacted"
    """The cleaner removed the records: an empty batch, or none at all."""
    ACCEPTED = "accepted"
    """A gap without a cause, which the operator has decided to skip."""
    OVERSIZE = "oversize"
    """A record that does not fit into any batch that the destination accepts, and is left out (``oversize.record``)."""


GIVEN_UP = frozenset({Cause.ACCEPTED, Cause.OVERSIZE})
"""Causes of holes that are written down before they are filled: nothing else would show that records are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """There is no record from the offset that is due up to ``until``: markers take these offsets.

    If the hole lies before the batch, ``until`` is the batch's own base offset: judge the batch again then."""

    until: int
    cause: Cause


class RewriteWish(Enum):
    """A cause to rewrite a batch that the destination would accept as it is: the flow's config asks for it."""

    OTHER_CODEC = "other_codec"
    """The flow says how batches are compressed at the destination, and this one has another codec."""
    REBATCHED = "rebatched"
    """The flow merges consecutive small batches into larger ones (``mode``)."""

    @property
    def slug(self) -> str:
        """Its stable name: metrics carry it."""
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """The records go to the destination, but not in this batch: see ``records.content``. ``reason``: the halt that this
    avoids, or the wish; metrics carry it."""

    reason: HaltReason | RewriteWish


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """The partition stops here. ``detail``: the values that led to it. ``size``: bytes of a batch that is too large."""

    reason: HaltReason
    detail: str
    size: int = 0


Verdict = Forward | Skip | Fill | Rewrite | Halt


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The batches that the destination topic accepts, and the holes that its source topic can have.

    Attributes:
        max_batch_size: the destination's ``max.message.bytes``, or less, if a refusal has shown that its broker takes
            less (``relay.topics.verdicts``); None if not known.
        compacted: True if the source's ``cleanup.policy`` has ``compact``, so that gaps have a cause.
        compacted_there: True if the destination's ``cleanup.policy`` has ``compact``, so that its log cleaner changes
            what was copied.
        append_times: True if the source topic has LogAppendTime: a timestamp is then the time of the append, and no
            property of the record.
        takes_append_times: True if the destination's broker may put its own times into the batches
            (``destination.timestamps: append``).
        append_times_there: True if the destination topic has LogAppendTime, by its config as last described.
        accept_gaps: True if gaps without a cause are skipped (``on.gap: continue``).
        rewrites: True if a batch that the destination would refuse is opened, and its records are written anew
            (``deep.path.enable``).
        converts: True if batches are made of messages of old formats (magic 0 and 1), wherever the source is read.
        passes_over: a record is left out if a batch with only this record is larger than so many bytes
            (``oversize.record``). It is the limit in the destination topic's config, whatever refusals have shown.
            None: no record is left out.
        codec: the codec that every batch must have at the destination (``compression.type``); None: any.
        rebatches: consecutive batches smaller than so many bytes are merged into larger ones (``mode``); 0: none are.
        strict: True if batches keep the source's producer fields (``identity: strict``): nothing is filled then.
        refuses: the configs by which the destination accepts less than the source did: (config, the destination's
            value, the value needed). Brokers judge by them.
    """

    max_batch_size: int | None = None
    compacted: bool = False
    compacted_there: bool = False
    append_times: bool = False
    takes_append_times: bool = False
    append_times_there: bool = False
    accept_gaps: bool = False
    rewrites: bool = False
    converts: bool = False
    passes_over: int | None = None
    codec: int | None = None
    rebatches: int = 0
    strict: bool = False
    refuses: tuple[tuple[str, int, int], ...] = ()


NOT_INSIDE = -1
"""No batch is known to hold the offset that is due."""
KNOWN_ATTRIBUTES = 0x7F
CODECS = frozenset(Codec)


def admit(header: BatchHeader, due: int, terms: Terms, *, aborted: bool = False, inside: int = NOT_INSIDE) -> Verdict:
    """Returns the verdict for the batch with this header, when ``due`` is the next offset that the destination lacks.

    The order of the checks matters: the first one that fails gives the reason, so the gravest comes first.

    Args:
        header: the header of a whole batch, as read.
        due: all offsets below are at the destination or on their way.
        terms: the topic's terms.
        aborted: True if the batch belongs to an aborted transaction (``records.transactions``).
        inside: base offset of the batch that is known to hold ``due``; ``NOT_INSIDE``: none is. No checksum covers base
            offsets, so a batch that only seems to hold ``due`` may be damaged, and is not rewritten.
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
    refused = _refused(header, due, span, terms)
    if refused is not None:
        known = header.base_offset in (due, inside)
        return Rewrite(reason=refused.reason) if terms.rewrites and known else refused
    if terms.codec is not None and header.codec_bits != terms.codec:
        return Rewrite(reason=RewriteWish.OTHER_CODEC)
    # The transaction is decided, and the mirror writes outside of any: a broker refuses the bit without a transactional
    # id. The delete horizon is the cleaner's note to itself. A producer may not set it, and the deltas already relate
    # to the base timestamp as it stands (Kafka's Produce).
    return Forward(attributes=header.attributes & ~(TRANSACTIONAL | DELETE_HORIZON))


def _refused(header: BatchHeader, due: int, span: str, terms: Terms) -> Halt | None:
    """Returns the halt for a batch that no broker, or not this destination, accepts as it is; None if it is
    accepted."""
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
    return None


def damaged(header: BatchHeader) -> Halt:
    """Returns the halt for a batch whose checksum is wrong: nothing in its header can be trusted."""
    return Halt(
        reason=HaltReason.CORRUPT,
        detail=f"the batch with base offset {header.base_offset} ({header.size} bytes, attributes "
        f"{header.attributes:#06x}) does not match its checksum",
    )


def backwards(header: BatchHeader, due: int) -> Halt:
    """Returns the halt for a batch that follows one with the same or higher offsets."""
    return Halt(
        reason=HaltReason.CORRUPT,
        detail=f"a batch of offsets {header.base_offset} to {header.last_offset} stands behind offset {due - 1}",
    )


def _no_record(header: BatchHeader, *, aborted: bool) -> Cause | None:
    """Returns the cause why a consumer finds no record in the batch, or None if it finds some."""
    if header.is_control:
        return Cause.MARKER
    if aborted:
        return Cause.ABORTED
    return None if header.record_count else Cause.COMPACTED


def _gap(header: BatchHeader, due: int, span: str, terms: Terms) -> Fill | Halt:
    """Returns the verdict on the offsets before the batch, which no batch has. Only compaction makes such gaps: in
    transactions, also aborted ones, every offset has its batch, and markers are batches."""
    if terms.compacted:
        return Fill(until=header.base_offset, cause=Cause.COMPACTED)
    if terms.accept_gaps:
        return Fill(until=header.base_offset, cause=Cause.ACCEPTED)
    return Halt(reason=HaltReason.UNEXPLAINED_GAP, detail=f"offset {due} is due, the next batch has {span}")
