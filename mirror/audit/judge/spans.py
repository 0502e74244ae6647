"""Joins, cuts and subtracts runs of offsets. Pure.

Sequences of spans must be in order and must not overlap, so that each search is a bisection: a partition may have
hundreds of thousands of holes.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Protocol, TypeVar

from mirror.audit.model.places import Span


class HasOffsets(Protocol):
    """A span, or anything else with a start and an end."""

    @property
    def start(self) -> int:
        """The first offset."""

    @property
    def end(self) -> int:
        """The first offset behind it."""


S = TypeVar("S", bound=HasOffsets)
_end = attrgetter("end")


def merged(spans: Iterable[Span]) -> list[Span]:
    """Returns the spans in order; those that touch or overlap are joined."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def overlapping(among: Sequence[S], span: HasOffsets) -> Iterator[S]:
    """Returns those of ``among`` (in order, not overlapping) that have an offset in common with the span."""
    first = bisect_right(among, span.start, key=_end)
    return takewhile(lambda other: other.start < span.end, (among[at] for at in range(first, len(among))))


def clipped(span: Span, within: Sequence[Span]) -> list[Span]:
    """Returns the parts of the span that lie within these (in order, not overlapping)."""
    parts = (Span(max(span.start, other.start), min(span.end, other.end)) for other in overlapping(within, span))
    return [part for part in parts if part.offsets]


def less(spans: Iterable[Span], taken: Sequence[Span]) -> Iterator[Span]:
    """Yields the parts of ``spans`` that none of ``taken`` (in order, not overlapping) covers."""
    for span in spans:
        at = span.start
        for other in overlapping(taken, span):
            if other.start > at:
                yield Span(at, other.start)
            at = other.end
        if at < span.end:
            yield Span(at, span.end)
