"""Recognizes batches that the mirror had to rewrite because no broker takes them unchanged (the deep path). Pure.

The deep path puts the records into other batches if a batch lacks records inside, carries the time of its append, is
too large, or if the copy begins inside of it. That is no difference if the new batches hold the same records at the
same offsets, with the times that consumers see. So such batches are opened on both sides, and compared record by
record. A batch is excused only if there is a cause: its copy is in several batches, or its header shows why it was
rewritten.

A record that fits into no batch at the destination may have been passed over. The flow's internal topic names such
records, and this is checked: each is a finding of its own, and there must be a marker in its place.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

from mirror.audit.judge.changed.cleaned import GONE_HERE, GONE_THERE, is_excused, mistimed_of
from mirror.audit.judge.changed.rebatched import REBATCHED, rows_of_batches
from mirror.audit.judge.spans import less, overlapping
from mirror.audit.model.differences import Pairs, RecordDifference
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Side, Span, TopicPartition
from mirror.audit.model.rows import BatchRow, Hole, What
from mirror.records.header import CODEC_MASK, LOG_APPEND_TIME

SPARSE = "records were missing inside of the batch"
APPENDED = "the batch carried the time of its append"
CUT = "the batch was cut in pieces"
RECODED = "the batch was compressed with the codec of the flow"


class Reencoded(NamedTuple):
    """The result for one partition: the findings, and the holes inside of the rewritten batches at the source."""

    findings: list[Finding]
    holes: list[Hole]


def suspects(
    pairs: Pairs, passed: Sequence[int] = (), *, codec: int | None = None, rebatches: bool = False
) -> list[BatchRow]:
    """Returns the source's batches that the mirror may have rewritten, judged by headers alone, in order. ``passed``:
    offsets in order; batches at these offsets are included, too. ``codec``, ``rebatches``: see ``settled``."""
    spans = sorted(row.span for row in pairs.destination.values() if row.crc_ok)
    return [
        row
        for base in sorted(pairs.source)
        if (row := pairs.source[base]).crc_ok
        and (
            _cause(row, there := list(overlapping(spans, row.span)), codec)
            or (rebatches and there)
            or bisect_left(passed, row.base_offset) < bisect_left(passed, row.span.end)
        )
    ]


def settled(
    key: TopicPartition,
    source: dict[int, BatchRow],
    destination: dict[int, BatchRow],
    differences: Sequence[RecordDifference],
    cleaned: Set[Side],
    audited: Span,
    *,
    ended: bool,
    passed: Mapping[int, str] = MappingProxyType({}),
    codec: int | None = None,
    rebatches: bool = False,
    append_times: bool = False,
    cut_off_at: int | None = None,
    mistimed: Sequence[int] = (),
) -> Reencoded:
    """Takes out the batches whose records the destination has in other batches, except records that log cleaners have
    removed since.

    Args:
        key: the partition.
        source: the source's batches that differ, by base offset, with right checksums.
        destination: the destination's batches that differ, likewise.
        differences: the records that differ, in offset order.
        cleaned: the sides on which a log cleaner works.
        audited: the offsets that both logs have. Of a batch that one of the logs begins or ends inside of, only these
            offsets count.
        ended: both logs were examined to their ends, so the rest of a batch that the destination ends inside of becomes
            a finding here.
        passed: the offsets of records that the flow has passed over according to its internal topic, each with what
            became of it.
        codec: the codec in which the flow compresses batches that it rewrites (``compression.type``); None: the batch's
            own.
        rebatches: the flow makes larger batches of small ones in a row (``mode``).
        append_times: the destination's broker may have put its own times in.
        cut_off_at: the end of what is audited of the destination's log. A batch that reaches beyond it shows that the
            log goes on there, as it does while a mirror runs. None: no batch reaches beyond.
        mistimed: for each destination batch whose max timestamp is not that of its records, the offset of its first
            record, in order. Brokers use the max timestamp to find offsets by time.
    """
    found, holes = list[Finding](), list[Hole]()
    times = [Span(offset, offset + 1) for offset in mistimed]
    wrong = [_Wrong(one.offset, one.offset + 1, one) for one in differences]
    for several in list(rows_of_batches(source, destination)) if rebatches else ():
        span = Span(max(several.span.start, audited.start), min(several.span.end, audited.end))
        last = several.destination[-1].span.end
        if span.offsets <= 0 or (last > audited.end and (cut_off_at is None or last <= cut_off_at)):
            continue  # not audited, or the destination has more than the source
        differing = [one.what for one in overlapping(wrong, span)]
        if several.is_whole(
            differing, cleaned, whole=span == several.span, codec=codec, append_times=append_times
        ):  # fmt: skip
            several.take_from(source, destination)
            holes += _holes_inside(several.source, [row.span for row in several.destination], span, differing)
            batches = len(several.source)
            found.append(_finding(key, several.records, several.size, span, REBATCHED, differing, batches=batches))
            found += mistimed_of(key, several.destination, times)
            end = several.source[-1].span.end
            if ended and span.end < end:
                found.append(_rest(key, span.end, end, several.records, several.destination))
    theirs = sorted(destination.values(), key=lambda row: row.base_offset)
    spans = [row.span for row in theirs]
    by_start = {row.base_offset: row for row in theirs}
    for base in sorted(source):
        row = source[base]
        span = Span(max(row.base_offset, audited.start), min(row.last_offset + 1, audited.end))
        inside = list(overlapping(spans, span)) if span.offsets > 0 else []
        cause = _cause(row, inside, codec)
        pieces = [by_start[each.start] for each in inside]
        differing = [one.what for one in overlapping(wrong, span)]
        lost = [one for one in differing if one.at is Side.SOURCE and one.offset in passed]
        others = [one for one in differing if one.at is not Side.SOURCE or one.offset not in passed]
        if not cause and (inside or not lost):
            continue
        if not _are_pieces(row, pieces, others, cleaned, lost_n=len(lost), whole=span == row.span, codec=codec):
            continue
        del source[base]
        for piece in pieces:
            del destination[piece.base_offset]
        holes += _holes_inside([row], inside, span, others)
        if pieces or others:
            found.append(_finding(key, row.records - len(lost), row.size, span, cause, others))
        found += mistimed_of(key, pieces, times)
        found += [_lost(key, row, one, passed[one.offset]) for one in lost]
        if ended and span.end < row.span.end:
            found.append(_rest(key, span.end, row.span.end, row.records, pieces))
    return Reencoded(found, holes)


def _holes_inside(
    rows: Iterable[BatchRow], there: Sequence[Span], audited: Span, differing: Iterable[RecordDifference]
) -> list[Hole]:
    """Returns the audited offsets of the source's batches at which they have no record. These are the offsets that are
    neither in a batch of the destination (``there``, in order) nor those of records that only the source has
    (``differing``)."""
    gone = [Span(one.offset, one.offset + 1) for one in differing if one.at is Side.SOURCE]
    spans = [Span(max(row.base_offset, audited.start), min(row.span.end, audited.end)) for row in rows]
    return [Hole(*each, What.GAP) for each in less(less([one for one in spans if one.offsets], there), gone)]


class _Wrong(NamedTuple):
    """A difference as a span, so that it can be found by its offset."""

    start: int
    end: int
    what: RecordDifference


def _rest(key: TopicPartition, start: int, end: int, records: int, pieces: Sequence[BatchRow]) -> Finding:
    """Returns the finding for the rest of batches that the destination's log ends inside of: the offsets from ``start``
    up to ``end``. ``records``: the number of records of these batches. ``pieces``: the destination's part of them."""
    return Finding(
        kind=Kind.MISSING, topic=key.topic, partition=key.partition, source=Span(start, end), destination=None,
        batches=0, records=max(0, records - sum(piece.records for piece in pieces)),
        detail="the rest of a batch that the destination ends inside of",
    )  # fmt: skip


def _lost(key: TopicPartition, row: BatchRow, one: RecordDifference, why: str) -> Finding:
    """Returns the finding for a record that was passed over. ``why``: what became of it."""
    return Finding(
        kind=Kind.OVERSIZE, topic=key.topic, partition=key.partition, source=Span(one.offset, one.offset + 1),
        destination=None, batches=int(row.records == 1), records=1, detail=why, bytes=one.size,
    )  # fmt: skip


def _finding(
    key: TopicPartition,
    records: int,
    size: int,
    span: Span,
    cause: str,
    differing: Sequence[RecordDifference],
    *,
    batches: int = 1,
) -> Finding:
    """Returns the finding for rewritten batches. ``records``, ``size``: the records and bytes of the source's batches,
    without records that were passed over. If records differ, the finding is about these instead."""
    there = [one for one in differing if one.at is Side.DESTINATION]
    kind, detail = Kind.REENCODED, cause
    if there:
        kind, detail, records, size = Kind.UNVERIFIABLE, GONE_HERE, len(there), sum(one.size for one in there)
    elif differing:
        kind, detail, records, size = Kind.CLEANED, GONE_THERE, len(differing), sum(one.size for one in differing)
    return Finding(
        kind=kind, topic=key.topic, partition=key.partition, source=span, destination=span, batches=batches,
        records=records, bytes=size, detail=detail,
    )  # fmt: skip


def counted(found: Iterable[Finding]) -> Mapping[str, tuple[int, int]]:
    """Returns the numbers of batches and records of findings about rewritten batches, by cause."""
    sums: dict[str, tuple[int, int]] = {}
    for one in found:
        batches, records = sums.get(one.detail, (0, 0))
        sums[one.detail] = batches + one.batches, records + one.records
    return sums


def _cause(row: BatchRow, there: Sequence[Span], codec: int | None) -> str:
    """Returns the cause for which the records of a source batch may be in other batches; empty: there is none.
    ``there``: the offsets of the destination's batches in its place. ``codec``: see ``settled``."""
    if not there or not row.records or there[0].start < row.base_offset or there[-1].end > row.last_offset + 1:
        return ""  # a batch that reaches beyond the source's has other borders: that is "re-segmented"
    if row.records < row.span.offsets:
        return SPARSE if [*there] != [row.span] else ""  # with the same borders, it was cleaned after it was copied
    if row.flags & LOG_APPEND_TIME:
        return APPENDED
    if codec is not None and row.flags & CODEC_MASK != codec:
        return RECODED
    return CUT if there[0] != row.span else ""


def _are_pieces(
    row: BatchRow,
    pieces: Sequence[BatchRow],
    differing: Sequence[RecordDifference],
    cleaned: Set[Side],
    *,
    lost_n: int,
    whole: bool,
    codec: int | None,
) -> bool:
    """Returns True if these pieces can be the complete result of rewriting the batch. They must be dense, and have its
    codec (or the flow's, ``codec``, which may have been set later) and no other attribute. They must hold the same
    records, except those that a log cleaner may have removed since, and the ``lost_n`` records that were passed over.
    ``whole``: all of the batch's offsets are audited."""
    here, there = (sum(one.at is side for one in differing) for side in Side)
    return (
        all(
            (piece.records == piece.span.offsets or Side.DESTINATION in cleaned)
            and piece.flags in (row.flags & CODEC_MASK, codec)
            for piece in pieces
        )
        and all(is_excused(one, cleaned) for one in differing)
        and (not whole or sum(piece.records for piece in pieces) - there == row.records - here - lost_n)
    )
