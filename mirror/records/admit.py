"""The verdict on one batch: may it go to the destination as it is?

Pure: a header, the offset that is due, and what the destination topic is like, give a ``Verdict``. Everything that is
not ``Forward`` and not ``Skip`` stops the partition with a named reason (rule "fail closed, and say why").
"""

from dataclasses import dataclass
from enum import Enum

from mirror.records.header import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader, Codec


class HaltReason(Enum):
    """Why a partition stops, and what its operator can do. The names are stable: metrics and logs carry them."""

    OLD_FORMAT = (
        "old_format",
        "the source stores this batch in the format of Kafka before 0.11 (magic 0 or 1), which cannot go "
        "raw; raise log.message.format.version at the source and let the old segments expire, or exclude the topic",
    )
    CONTROL_BATCH = (
        "control_batch",
        "a transaction marker takes an offset that this version cannot fill at the destination; exclude the topic",
    )
    TRANSACTIONAL = (
        "transactional",
        "the batch was written inside a transaction, which this version does not mirror; exclude the topic",
    )
    OFFSET_GAP = (
        "offset_gap",
        "the source has no record for these offsets (compaction, aborted transactions or loss), and this version fills "
        "no holes; exclude the topic",
    )
    SPARSE_BATCH = (
        "sparse_batch",
        "compaction removed records from inside the batch and no broker takes it as it is; exclude the topic",
    )
    MID_BATCH = (
        "mid_batch",
        "the destination ends inside a source batch, so it was not written by this mirror; "
        "delete the destination topic's records or mirror to a new topic",
    )
    LOG_APPEND_TIME = (
        "log_append_time",
        "the source topic has message.timestamp.type=LogAppendTime and the destination would lose those times; "
        "set the topic to CreateTime at the source or exclude it",
    )
    UNKNOWN_ATTRIBUTES = (
        "unknown_attributes",
        "the batch has attribute bits or a codec unknown to this version; upgrade the mirror or exclude the topic",
    )
    CORRUPT = (
        "corrupt",
        "the source answered with bytes that are not a batch; check the source broker's disk "
        "(kafka-dump-log --deep-iteration) and its log",
    )
    TOO_LARGE = (
        "too_large",
        "the batch is over the destination topic's max.message.bytes; raise it there to at least the source's value",
    )

    def __init__(self, slug: str, remedy: str) -> None:
        self.slug = slug
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Send it, restamped; ``attributes`` are those that it must carry at the destination."""

    attributes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """It lies wholly before the offset that is due: a broker may answer a Fetch with it, and it was copied before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """The partition stops here. ``detail`` has the values that led to it."""

    reason: HaltReason
    detail: str


Verdict = Forward | Skip | Halt
"""Rewrite(reason) and Fill(count) will be new classes here; the type checker then shows each place to handle them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the destination topic takes. ``max_batch_size`` in bytes, its ``max.message.bytes``; None if not known."""

    max_batch_size: int | None = None


KNOWN_ATTRIBUTES = 0x7F
CODECS = frozenset(Codec)


def admit(header: BatchHeader, due: int, terms: Terms) -> Verdict:
    """The verdict for the batch with this header, when ``due`` is the next offset that the destination lacks.

    The order matters: a batch is named by the first thing that is wrong with it, the gravest first.
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
    if header.base_offset < due:
        return Halt(reason=HaltReason.MID_BATCH, detail=f"offset {due} is due, the batch has {span}")
    if header.base_offset > due:
        return Halt(reason=HaltReason.OFFSET_GAP, detail=f"offset {due} is due, the next batch has {span}")
    if header.attributes & ~KNOWN_ATTRIBUTES or header.codec_bits not in CODECS:
        return Halt(reason=HaltReason.UNKNOWN_ATTRIBUTES, detail=f"attributes {header.attributes:#06x}, {span}")
    if header.is_control:
        return Halt(reason=HaltReason.CONTROL_BATCH, detail=span)
    if header.is_transactional:
        return Halt(reason=HaltReason.TRANSACTIONAL, detail=span)
    if not header.is_dense:
        return Halt(reason=HaltReason.SPARSE_BATCH, detail=f"{header.record_count} records in {span}")
    if header.attributes & LOG_APPEND_TIME:
        return Halt(reason=HaltReason.LOG_APPEND_TIME, detail=span)
    if terms.max_batch_size is not None and header.size > terms.max_batch_size:
        return Halt(
            reason=HaltReason.TOO_LARGE,
            detail=f"{header.size} bytes, {span}; the destination takes {terms.max_batch_size}",
        )
    # The horizon is the cleaner's note to itself; a producer may not set it, and the deltas already relate to the base
    # timestamp as it stands (broker facts, Produce).
    return Forward(attributes=header.attributes & ~DELETE_HORIZON)
