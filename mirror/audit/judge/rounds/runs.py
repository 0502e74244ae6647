"""Findings that are not made batch by batch: moved runs, records in other batches, and what was only counted. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mirror.audit.judge.rounds.regions import Region
from mirror.audit.model.findings import APART, Finding, Kind
from mirror.audit.model.places import Span, TopicPartition

MOST_APART = 1_000
"""If a window has more explained findings (``naming._EXPLAINED``) than this, neighbours are folded into one."""


@dataclass(slots=True)
class MovedRun:
    """A run of batches that have moved together: its source offsets, its shift, and the number of batches that were
    found to be equal there."""

    span: Span
    shift: int
    batches: int


def less(moved: Iterable[MovedRun], span: Span) -> list[MovedRun]:
    """Returns these runs without ``span``, in which another shift is in force."""
    kept: list[MovedRun] = []
    for one in moved:
        before = Span(one.span.start, min(one.span.end, span.start))
        behind = Span(max(one.span.start, span.end), one.span.end)
        kept += [replace(one, span=part) for part in (before, behind) if part.offsets]
    return kept


def wholesale(queue: Iterable[Region], named: int) -> list[Finding]:
    """Returns findings for regions that were no longer examined. ``named``: the number of batches that were named
    before that, for the detail text."""
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


def moved_finding(key: TopicPartition, one: MovedRun) -> Finding:
    """Returns the finding for a run that has moved."""
    there = Span(one.span.start + one.shift, one.span.end + one.shift)
    return Finding(
        kind=Kind.MOVED, topic=key.topic, partition=key.partition, source=one.span, destination=there,
        batches=one.batches, records=0, detail=f"by {one.shift:+,} offsets",
    )  # fmt: skip


def resegmented(key: TopicPartition, opened: Iterable[MovedRun]) -> list[Finding]:
    """Returns findings for the runs that were compared record by record. Runs that touch are joined."""
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


def folded(explained: Sequence[Finding]) -> list[Finding]:
    """Folds findings about log cleaners and rewritten batches, to not many more than ``MOST_APART``: a cleaner may
    change millions of batches, with unchanged ones between them. Neighbours of the same kind and detail become one
    finding, which has their sums and ends with ``APART``.

    Args:
        explained: one partition's findings, in order; runs are already joined. Findings of other kinds, such as moved
            runs, stay as they are.
    """
    alike: dict[tuple[object, ...], list[Finding]] = defaultdict(list)
    for one in explained:
        alike[one.kind, one.detail, one.source is None, one.destination is None].append(one)
    size = -(-len(explained) // MOST_APART)
    if size <= 1:
        return list(explained)
    return [
        _as_one(found[at : at + size]) if found[at].kind in _CLEANERS else found[at]
        for found in alike.values()
        for at in range(0, len(found), size if found[0].kind in _CLEANERS else 1)
    ]


_CLEANERS = (Kind.CLEANED, Kind.REENCODED, Kind.UNVERIFIABLE)
"""The kinds of findings that are folded."""


def _as_one(found: Sequence[Finding]) -> Finding:
    first = found[0]
    if len(found) == 1:
        return first
    return replace(
        first,
        source=_around(one.source for one in found),
        destination=_around(one.destination for one in found),
        batches=sum(one.batches for one in found),
        records=sum(one.records for one in found),
        bytes=sum(one.bytes for one in found),
        detail=first.detail + APART,
    )


def _around(spans: Iterable[Span | None]) -> Span | None:
    some = [span for span in spans if span is not None]
    return Span(min(span.start for span in some), max(span.end for span in some)) if some else None
