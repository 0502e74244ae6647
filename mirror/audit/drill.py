"""From chunks that differ to the ranges to look at again, batch by batch. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mirror.audit.classify import Content, Place
from mirror.audit.model import BatchRow, Finding, Kind, Pairs, Span, TopicPartition
from mirror.audit.plan import Range, chunk_range

CHUNKS_PER_PARTITION = 64
CHUNKS_IN_ALL = 512
"""Differing chunks that are looked at batch by batch, some 1 MB each; beyond them a difference is wholesale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """``chunks`` are looked at; ``clipped`` among them are those that damage to a log cut short."""

    chunks: tuple[Range, ...]
    clipped: frozenset[Range]
    wholesale: tuple[Finding, ...]


def drill_down(
    differing: Mapping[TopicPartition, Pairs],
    ranges: Mapping[TopicPartition, Sequence[Range]],
    broken: Iterable[Finding],
) -> Drill:
    """What to look at. ``differing`` has chunks for rows; ``broken`` are the damaged logs, unread from there on."""
    unread = [(finding.topic, finding.partition, finding.source or finding.destination) for finding in broken]
    chunks: list[Range] = []
    clipped: set[Range] = set()
    wholesale: list[Finding] = []
    for key, pairs in sorted(differing.items()):
        starts = sorted(pairs.source.keys() | pairs.destination.keys())
        room = max(0, min(CHUNKS_PER_PARTITION, CHUNKS_IN_ALL - len(chunks)))
        for start in starts[:room]:
            whole = _owner(ranges[key], start)
            chunk = chunk_range(whole, start)
            end = _readable_end(chunk, whole, [span for *name, span in unread if tuple(name) == key and span])
            if end > chunk.start:
                readable = chunk._replace(end=end)
                chunks.append(readable)
                if readable != chunk:
                    clipped.add(readable)
        if starts[room:]:
            wholesale.append(_wholesale(key, starts[room:], ranges[key], pairs))
    return Drill(chunks=tuple(chunks), clipped=frozenset(clipped), wholesale=tuple(wholesale))


def _owner(ranges: Iterable[Range], start: int) -> Range:
    return next(wanted for wanted in ranges if wanted.start <= start < wanted.end)


def _readable_end(chunk: Range, whole: Range, unread: Iterable[Span]) -> int:
    """Up to where the chunk was read on both sides; a log is unread from its damage to the end of the range."""
    return min([chunk.end, *(span.start for span in unread if whole.start <= span.start < whole.end)])


def _wholesale(key: TopicPartition, starts: Sequence[int], ranges: Sequence[Range], pairs: Pairs) -> Finding:
    last = chunk_range(_owner(ranges, starts[-1]), starts[-1])
    span = Span(starts[0], last.end)
    batches = sum(row.records for start in starts if (row := pairs.source.get(start) or pairs.destination.get(start)))
    return Finding(
        kind=Kind.WHOLESALE,
        topic=key.topic,
        partition=key.partition,
        source=span,
        destination=span,
        batches=batches,
        records=0,
        detail=f"{len(starts):,} chunks differ and were not looked at batch by batch",
    )


def unexplained(drill: Drill, differing: Mapping[TopicPartition, Pairs]) -> Iterator[Range]:
    """Chunks that differed as wholes and in which no batch differs: the log changed between the two looks."""
    for chunk in drill.chunks:
        pairs = differing.get(chunk.key, Pairs())
        bases = pairs.starts
        if chunk not in drill.clipped and not any(
            (chunk.first or base >= chunk.start) and base < chunk.end for base in bases
        ):
            yield chunk


def by_content(places: Iterable[tuple[TopicPartition, BatchRow]]) -> dict[Content, list[Place]]:
    """Places by what lies there, each list in the order of offsets."""
    found: dict[Content, list[Place]] = {}
    for key, row in sorted(places, key=lambda place: (place[0], place[1].base_offset)):
        found.setdefault(row.content, []).append(Place(key, row))
    return found
