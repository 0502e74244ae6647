"""Judges messages of formats from before Kafka 0.11 at the source, whose records the destination has in batches of
magic 2. Pure.

They are compared record by record (``read.units``), so a record that differs is a row that differs, and is named like
any other row. All remaining records are the same, and are counted here.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mirror.audit.judge.coverage import CoverageKey
from mirror.audit.judge.spans import clipped, merged, overlapping
from mirror.audit.model.findings import Finding, Kind
from mirror.audit.model.places import Span, TopicPartition
from mirror.audit.model.rows import BatchRow
from mirror.audit.read.ranges import OldSpan, RangeCoverage

OLD = "the source stores a format from before Kafka 0.11"
_NOT_THE_SAME = frozenset(
    {Kind.MISSING, Kind.MOVED, Kind.VALUE_CHANGED, Kind.HEADER_CHANGED, Kind.CORRUPT, Kind.CLEANED, Kind.OVERSIZE}
)
"""Kinds of findings that count records of the source that the destination does not have, or not the same."""
_NOT_COUNTED = frozenset({Kind.WHOLESALE, Kind.UNREADABLE})
"""Kinds of findings that do not count such records."""


def spans_of(read: Mapping[CoverageKey, RangeCoverage]) -> dict[TopicPartition, list[Span]]:
    """Returns the offsets at which the source has messages of old formats, by partition and in order. ``read``: the
    coverage of the source."""
    found: dict[TopicPartition, list[Span]] = defaultdict(list)
    for (topic, partition, _, _), part in read.items():
        found[TopicPartition(topic, partition)] += [Span(start, end) for start, end, *_ in part.old]
    return {key: merged(spans) for key, spans in found.items() if spans}


def told(read: Mapping[CoverageKey, RangeCoverage], findings: Iterable[Finding]) -> list[Finding]:
    """Returns a finding (``Kind.REENCODED``) for each partition with such messages, which counts those of their records
    that the destination has. There is none for a partition in which they cannot be counted.

    Args:
        read: the source's coverage.
        findings: all other findings.
    """
    by_key: dict[TopicPartition, list[Finding]] = defaultdict(list)
    for one in findings:
        by_key[TopicPartition(one.topic, -1 if one.partition is None else one.partition)].append(one)
    old: dict[TopicPartition, list[OldSpan]] = defaultdict(list)
    for (topic, partition, _, _), part in read.items():
        old[TopicPartition(topic, partition)] += [OldSpan(*span) for span in part.old]
    counted = (_of(key, sorted(spans), by_key[key]) for key, spans in sorted(old.items()) if spans)
    return [one for one in counted if one is not None]


def _of(key: TopicPartition, spans: list[OldSpan], findings: Iterable[Finding]) -> Finding | None:
    records = sum(span.records for span in spans)
    for one in findings:
        touched = one.source is not None and next(overlapping(spans, one.source), None) is not None
        if touched and one.kind in _NOT_COUNTED:
            return None
        if touched and one.kind in _NOT_THE_SAME and one.source is not None:
            records -= min(one.records, sum(part.offsets for part in clipped(one.source, _plain(spans))))
    if records <= 0:
        return None
    where = Span(spans[0].start, spans[-1].end)
    return Finding(
        kind=Kind.REENCODED, topic=key.topic, partition=key.partition, source=where, destination=where,
        batches=sum(span.entries for span in spans), records=records, bytes=sum(span.size for span in spans),
        detail=OLD,
    )  # fmt: skip


Rows = dict[int, BatchRow]
"""Rows by base offset."""


def in_pieces(
    runs: Sequence[tuple[int, int]], source: Rows, destination: Rows, broken: tuple[Rows, Rows]
) -> Iterator[tuple[list[BatchRow], list[BatchRow]]]:
    """Takes out damaged batches and wrappers of one side together with the rows inside of their offsets that the other
    side has. (There, the records are rows one by one.) Yields the rows of both sides.

    Args:
        runs: for each moved batch, its destination offset and its shift (destination offset minus source offset), in
            order.
        source: the source's rows that differ.
        destination: the destination's rows that differ.
        broken: the damaged rows of source and destination.
    """
    for at, others in enumerate(((destination, broken[1]), (source, broken[0]))):
        wide = [row for _, row in sorted(broken[at].items()) if row.span.offsets > 1]
        places = sorted({base for rows in others for base in rows}) if wide else []
        for row in wide:
            for shift in beside(runs, row.base_offset):
                shift = shift if at == 0 else -shift
                span = Span(row.span.start + shift, row.span.end + shift)
                among = places[bisect_left(places, span.start) : bisect_left(places, span.end)]
                inside = [
                    other
                    for base in among
                    for rows in others
                    if (other := rows.get(base)) and other.span.end <= span.end
                ]
                if not inside:
                    continue
                del broken[at][row.base_offset]
                for other in inside:
                    for rows in others:
                        rows.pop(other.base_offset, None)
                yield ([row], inside) if at == 0 else (inside, [row])
                break


def beside(runs: Sequence[tuple[int, int]], base: int) -> list[int]:
    """Returns the shifts of the moved batches right before and right behind this destination offset, and 0."""
    at = bisect_left(runs, (base, 0))
    return [*(shift for _, shift in [*runs[max(0, at - 1) : at], *runs[at : at + 1]]), 0]


def _plain(spans: Iterable[OldSpan]) -> list[Span]:
    return merged(Span(span.start, span.end) for span in spans)
