"""Turns chunks that differ into the offsets to examine again. Pure."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from mirror.audit.judge.kinds import Content, PlacedBatch
from mirror.audit.judge.rounds.regions import DifferingChunk
from mirror.audit.model.differences import Pairs
from mirror.audit.model.findings import Finding
from mirror.audit.model.places import Span, TopicPartition
from mirror.audit.model.rows import BatchRow
from mirror.audit.prepare.plan import Range, chunk_range


def drill_down(
    differing: Mapping[TopicPartition, Pairs],
    ranges: Mapping[TopicPartition, Sequence[Range]],
    broken: Iterable[Finding],
) -> dict[TopicPartition, list[DifferingChunk]]:
    """Returns the chunks to examine, in order.

    The rows of ``differing`` are chunks. ``broken``: findings about damaged logs, which could not be read from there
    on. Chunks are cut there, and it is not certain that anything differs in a cut chunk.
    """
    unread = [(finding.topic, finding.partition, finding.source or finding.destination) for finding in broken]
    found: dict[TopicPartition, list[DifferingChunk]] = {}
    for key, pairs in sorted(differing.items()):
        spans = [span for *name, span in unread if tuple(name) == key and span]
        for start in sorted(pairs.source.keys() | pairs.destination.keys()):
            whole = _owner(ranges[key], start)
            chunk = chunk_range(whole, start)
            end = _readable_end(chunk, whole, spans)
            if end > chunk.start:
                readable = chunk._replace(end=end)
                row = pairs.source.get(start) or pairs.destination[start]
                found.setdefault(key, []).append(DifferingChunk(readable, row.records, certain=readable == chunk))
    return found


def _owner(ranges: Sequence[Range], start: int) -> Range:
    return ranges[bisect_right(ranges, start, key=lambda wanted: wanted.start) - 1]


def _readable_end(chunk: Range, whole: Range, unread: Iterable[Span]) -> int:
    """Returns the offset up to which both sides read the chunk. A log is unread from its damage to the range's end."""
    return min([chunk.end, *(span.start for span in unread if whole.start <= span.start < whole.end)])


def by_content(places: Iterable[tuple[TopicPartition, BatchRow]]) -> dict[Content, list[PlacedBatch]]:
    """Returns these batches by their content. Each list is ordered by partition and offset."""
    found: dict[Content, list[PlacedBatch]] = {}
    for key, row in sorted(places, key=lambda place: (place[0], place[1].base_offset)):
        found.setdefault(row.content, []).append(PlacedBatch(key, row))
    return found
