"""Where the sides differ, and how it goes on behind a fault: regions, windows of them, and the shift in force. Pure.

A lost or a doubled batch moves all that is behind it. So a region of chunks that differ is looked at from its
beginning, a window at a time, and once the batches of a window all lie so many offsets further, the rest of the region
is compared with the destination taken back by that shift: what then is equal has moved as one, and what is not is a
region again. A shift that is larger than a window is found by looking for the window's batches elsewhere.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mirror.audit.judge.classify import Content, Place
from mirror.audit.model import Bounds, Hole, Pairs, Span, TopicPartition
from mirror.audit.prepare.plan import Range

MOST_APART = 8
"""Chunks without any batch that may lie between two of one region: a batch may be larger than a chunk."""
FIRST_CHUNKS = 2
"""Chunks of a region's first window; each further one that shows no shift is twice as large."""


class Chunk(NamedTuple):
    """A chunk that differs. ``batches``: of the source, or of the destination where the source has none. ``certain``:
    that it differs was seen."""

    where: Range
    batches: int
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Chunks that differ, with equal ones before and behind.

    ``source`` and ``destination``: the offsets, of where batches begin, that are to be explained by each other; they
    end at the logs' ends if nothing equal is behind. ``shift``: how much further than they should be the destination
    has them; its offsets here are less that. ``by_record``: batches have other borders, and records are compared.
    ``chunks_at_once``: of the next window.
    """

    key: TopicPartition
    chunks: tuple[Chunk, ...]
    source: Span
    destination: Span
    shift: int = 0
    by_record: bool = False
    chunks_at_once: int = FIRST_CHUNKS

    @property
    def batches(self) -> int:
        """Of the chunks that differ."""
        return sum(chunk.batches for chunk in self.chunks)

    def end_at(self, shift: int) -> int:
        """Up to which source offset both sides go, if the destination is taken back by so much."""
        return min(self.source.end, self.destination.end + self.shift - shift)


def regions(chunks: Iterable[Chunk], whole: Region) -> list[Region]:
    """One partition's chunks, joined to regions. The last one ends where ``whole`` does, if it reaches its end."""
    runs: list[list[Chunk]] = []
    for chunk in sorted(chunks):
        if runs and chunk.where.start - runs[-1][-1].where.end <= MOST_APART * chunk.where.width:
            runs[-1].append(chunk)
        else:
            runs.append([chunk])
    found = []
    for run in runs:
        start, end = run[0].where.start, run[-1].where.end
        last = end >= whole.end_at(whole.shift)
        found.append(
            replace(
                whole,
                chunks=tuple(run),
                source=Span(start, whole.source.end if last else end),
                destination=Span(start, whole.destination.end if last else end),
                chunks_at_once=FIRST_CHUNKS,
            )
        )
    return found


def of_bounds(known: Bounds) -> Region:
    """All of a partition, at no shift."""
    start = known.audited.start
    return Region(
        key=known.key, chunks=(), source=Span(start, known.source.end), destination=Span(start, known.destination.end)
    )


@dataclass(slots=True)
class Window:
    """The first chunks of a region, to be looked at row by row.

    ``rest``: the chunks behind. ``where``: the offsets that are looked at; ``pairs``: what was seen there, records if
    ``by_record``; batches differ from ``opened_from`` on.
    """

    region: Region
    chunks: tuple[Chunk, ...]
    rest: tuple[Chunk, ...]
    where: Range
    pairs: Pairs
    by_record: bool = False
    opened_from: int = 0

    @classmethod
    def first_of(cls, region: Region, room: int) -> "Window | None":
        """A window of not more than ``room`` batches, but one chunk at least; None without room."""
        if room <= 0:
            return None
        count, batches = 0, 0
        for chunk in region.chunks[: region.chunks_at_once]:
            batches += chunk.batches
            if count and batches > room:
                break
            count += 1
        chunks, rest = region.chunks[:count], region.chunks[count:]
        end = chunks[-1].where.end
        if not rest:
            # What the region's shift has moved over its end belongs to it; other regions' batches are taken out again.
            end = max(end, region.source.end, region.destination.end)
        first = chunks[0].where
        where = first._replace(end=end, shift=region.shift)
        return cls(region, chunks, rest, where, Pairs(), region.by_record)

    @property
    def batches(self) -> int:
        """About."""
        return sum(chunk.batches for chunk in self.chunks)


def within(pairs: Pairs, where: Range) -> Pairs:
    """What begins in this range."""

    def has(base: int) -> bool:
        return base < where.end and (where.first or base >= where.start)

    return Pairs(
        {base: row for base, row in pairs.source.items() if has(base)},
        {base: row for base, row in pairs.destination.items() if has(base)},
        *(
            [hole for hole in holes if has(hole.start)]
            for holes in (pairs.holes, pairs.markers, pairs.odd, pairs.equal)
        ),
    )


def before(pairs: Pairs, source: int, destination: int) -> Pairs:
    """What lies before these offsets on each side; holes are cut there. What both have behind the lower one is one
    side's alone."""
    low = min(source, destination)
    alone = [hole._replace(start=max(hole.start, low)) for hole in pairs.equal if hole.end > low]
    return Pairs(
        {base: row for base, row in pairs.source.items() if base < source},
        {base: row for base, row in pairs.destination.items() if base < destination},
        _cut(sorted([*pairs.holes, *alone]), source),
        _cut(sorted([*pairs.markers, *alone]), destination),
        _cut(pairs.odd, destination),
        _cut(pairs.equal, low),
    )


def _cut(holes: Iterable[Hole], end: int) -> list[Hole]:
    return [hole._replace(end=min(hole.end, end)) for hole in holes if hole.start < end]


def reach(where: Range, pairs: Pairs, most: int) -> int:
    """Where the batches that begin in a window end: what the other side has there is to be known whole.

    ``most``: of what both logs have. Damaged batches, whose last offset says nothing, reach nowhere.
    """
    ends = (row.span.end for row in pairs.rows if row.base_offset < where.end and row.crc_ok)
    return max(where.end, min(max(ends, default=where.end), most))


# -- the shift in force ------------------------------------------------------------------------------------------------


class Followed(NamedTuple):
    """How the rows of a window go on: so many offsets further than at its shift, from source offset ``start`` on.
    ``matched``: destination rows that the window's source rows explain."""

    shift: int
    start: int
    matched: int


def followed(pairs: Pairs) -> Followed:
    """The shift at the end of the rows. Each destination row is the source row that continues the shift of the one
    before, or else the nearest with its content; a shift of 0 if there is none."""
    places: dict[Content, list[int]] = defaultdict(list)
    for base in sorted(pairs.source):
        if pairs.source[base].crc_ok:
            places[pairs.source[base].content].append(base)
    shift = start = matched = 0
    for base in sorted(pairs.destination):
        row = pairs.destination[base]
        known = places.get(row.content)
        if not known or not row.crc_ok:
            continue
        expected = pairs.source.get(base - shift)
        if expected is not None and expected.content == row.content:
            origin = base - shift
        elif len(known) == 1:
            origin = known[0]
        else:
            continue  # one of many: what comes behind it tells which
        shift, matched = base - origin, matched + 1
        start = pairs.source[origin].span.end
    return Followed(shift, start, matched)


MOST_OPAQUE = 0.5
LEAST_OPAQUE = 8
"""Rows on each side of which at least half have no counterpart: batches with other borders, or other contents."""


def is_opaque(pairs: Pairs, matched: int) -> bool:
    """Nothing can be followed by batches here; it may by records."""
    sides = (pairs.source, pairs.destination)
    return all(len(rows) >= LEAST_OPAQUE and matched < MOST_OPAQUE * len(rows) for rows in sides)


class Jump(NamedTuple):
    """A shift to try, less the region's, and the source offset from which on it is in force."""

    shift: int
    start: int


Places = Mapping[Content, Sequence[Place]]


def jump_ahead(window: Window, in_source: Places, _: Places) -> Jump | None:
    """More was lost than a window holds: its first destination row that the source has behind the window."""
    region = window.region
    for base in sorted(window.pairs.destination):
        for place in in_source.get(window.pairs.destination[base].content, ()):
            at = place.row.base_offset
            if place.key == region.key and window.where.end <= at < region.source.end:
                return Jump(base - at, at)
    return None


def jump_back(window: Window, _: Places, in_destination: Places) -> Jump | None:
    """More was added than a window holds: its first source row that the destination has behind the window."""
    region = window.region
    for base in sorted(window.pairs.source):
        for place in in_destination.get(window.pairs.source[base].content, ()):
            at = place.row.base_offset - region.shift
            if place.key == region.key and window.where.end <= at < region.destination.end:
                return Jump(at - base, base)
    return None


def differing_offsets(chunks: Iterable[Chunk], start: int) -> int:
    """Of these chunks, from an offset on."""
    return sum(max(0, chunk.where.end - max(start, chunk.where.start)) for chunk in chunks)


def chunks_of(rows: Pairs, where: Range) -> list[Chunk]:
    """Differing chunks of a range that was read in one, as chunks to look at."""
    found = []
    for start in sorted({*rows.source, *rows.destination}):
        row = rows.source.get(start) or rows.destination[start]
        end = min(start + where.width, where.end)
        found.append(Chunk(where._replace(start=start, end=end, first=False), row.records))
    return found


def behind(chunks: Iterable[Chunk], start: int, end: int = 1 << 63) -> tuple[Chunk, ...]:
    """The parts of these chunks between two offsets."""
    found = []
    for chunk in chunks:
        where = chunk.where._replace(start=max(chunk.where.start, start), end=min(chunk.where.end, end))
        if where.end > where.start:
            found.append(chunk._replace(where=where._replace(first=where.first and where == chunk.where)))
    return tuple(found)


def skipped(window: Window, source: Span, destination: Span) -> list[Region]:
    """What a jump has passed over: offsets that one side has alone, between a window and where its shift begins."""
    region, end = window.region, max(source.end, destination.end)
    chunks = tuple(chunk._replace(certain=False) for chunk in behind(window.rest, source.start, end))
    if not chunks:
        return []
    return [replace(region, chunks=chunks, source=source, destination=destination, by_record=window.by_record)]
