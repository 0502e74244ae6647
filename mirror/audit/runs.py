"""What was compared as a whole, as findings: moved runs, records in other batches, and what was only counted. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mirror.audit.model import Finding, Kind, Span, TopicPartition
from mirror.audit.regions import Region


@dataclass(slots=True)
class Moved:
    """What lies at a shift as one: source offsets, and how many batches were seen to be equal there."""

    span: Span
    shift: int
    batches: int


def less(moved: Iterable[Moved], span: Span) -> list[Moved]:
    """What of these is left where another shift is in force."""
    kept: list[Moved] = []
    for one in moved:
        before = Span(one.span.start, min(one.span.end, span.start))
        behind = Span(max(one.span.start, span.end), one.span.end)
        kept += [replace(one, span=part) for part in (before, behind) if part.offsets]
    return kept


def wholesale(queue: Iterable[Region], named: int) -> list[Finding]:
    """What was not looked at any more. One side alone has it where a jump passed over it."""
    found = []
    for region in queue:
        span = Span(region.chunks[0].where.start, region.chunks[-1].where.end)
        ours, theirs = region.source.offsets > 0, region.destination.offsets > 0
        kind = Kind.WHOLESALE if ours and theirs else Kind.MISSING if ours else Kind.EXTRA
        found.append(
            Finding(
                kind=kind,
                topic=region.key.topic,
                partition=region.key.partition,
                source=span if ours else None,
                destination=Span(span.start + region.shift, span.end + region.shift) if theirs else None,
                batches=region.batches,
                records=0,
                detail=f"{len(region.chunks):,} chunks differ and were not looked at batch by batch: "
                f"{named:,} batches that differ are named",
            )
        )
    return found


def moved_finding(key: TopicPartition, one: Moved) -> Finding:
    there = Span(one.span.start + one.shift, one.span.end + one.shift)
    return Finding(
        kind=Kind.MOVED, topic=key.topic, partition=key.partition, source=one.span, destination=there,
        batches=one.batches, records=0, detail=f"by {one.shift:+,} offsets",
    )  # fmt: skip


def resegmented(key: TopicPartition, opened: Iterable[Moved]) -> list[Finding]:
    """What was compared record by record; what touches is one."""
    runs: list[tuple[Span, Span]] = []
    for one in sorted(opened, key=lambda one: one.span):
        there = Span(one.span.start + one.shift, one.span.end + one.shift)
        if runs and one.span.start <= runs[-1][0].end:
            ours, theirs = runs.pop()
            runs.append((Span(ours.start, max(ours.end, one.span.end)), Span(theirs.start, max(theirs.end, there.end))))
        elif one.span.offsets:
            runs.append((one.span, there))
    return [
        Finding(
            kind=Kind.RESEGMENTED, topic=key.topic, partition=key.partition, source=ours, destination=theirs,
            batches=0, records=0, detail="the records are in other batches; they were compared one by one",
        )
        for ours, theirs in runs
    ]  # fmt: skip
