"""Regions where the sides differ, windows of them, and the shift in force after a fault. Pure.

A lost or doubled batch moves everything after it. So a region of chunks that differ is examined from its beginning, a
window at a time. If the batches at the end of a window are moved by a number of offsets, the rest of the region is
compared with that shift subtracted from the destination's offsets. What is equal then has moved together; what still
differs is a new region. A shift that is larger than a window is found by searching for the window's batches elsewhere.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import NamedTuple

from mirror.audit.judge.kinds import Content, PlacedBatch
from mirror.audit.model.differences import Pairs
from mirror.audit.model.places import Bounds, Span, TopicPartition
from mirror.audit.model.rows import Hole
from mirror.audit.prepare.plan import Range

MOST_APART = 8
"""Maximum number of chunks between two chunks of one region: a batch may be larger than a chunk, so chunks may have no
batch."""
FIRST_CHUNKS = 2
"""The number of chunks in a region's first window. After a window that shows no shift, the next one is twice as
large."""


class DifferingChunk(NamedTuple):
    """A chunk that differs. ``batches``: the number of the source's batches, or of the destination's if the source has
    no batch there. ``certain``: False if it may be equal."""

    where: Range
    batches: int
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Chunks that differ, with equal ones before and after them.

    ``source`` and ``destination``: the offsets whose batches (by base offset) have to be explained by each other. They
    end at the logs' ends if nothing equal follows. ``shift``: by how many offsets the destination's batches are behind
    their place; it is subtracted from the destination's offsets here. ``by_record``: batches have other borders, so
    records are compared. ``chunks_at_once``: the number of chunks in the next window.
    """

    key: TopicPartition
    chunks: tuple[DifferingChunk, ...]
    source: Span
    destination: Span
    shift: int = 0
    by_record: bool = False
    chunks_at_once: int = FIRST_CHUNKS

    @property
    def batches(self) -> int:
        """The number of batches in the chunks that differ."""
        return sum(chunk.batches for chunk in self.chunks)

    def end_at(self, shift: int) -> int:
        """Returns the source offset up to which both sides reach if the destination is shifted back by ``shift``."""
        return min(self.source.end, self.destination.end + self.shift - shift)


def regions(chunks: Iterable[DifferingChunk], whole: Region) -> list[Region]:
    """Joins one partition's chunks into regions. One that reaches the end of ``whole`` ends where ``whole`` does."""
    runs: list[list[DifferingChunk]] = []
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


def widened(region: Region, source: int, destination: int) -> Region:
    """Returns the region with these ends, or its own where they are later."""
    ours, theirs = (
        Span(span.start, max(span.end, end))
        for span, end in ((region.source, source), (region.destination, destination))
    )
    return replace(region, source=ours, destination=theirs)


def overlaps(region: Region, behind: Region) -> bool:
    """Returns True if the first region reaches into the second one, and both are compared at the same shift and in the
    same units."""
    same = (region.key, region.shift, region.by_record) == (behind.key, behind.shift, behind.by_record)
    return same and region.source.start <= behind.source.start < region.source.end


def united(region: Region, behind: Region) -> Region:
    """Joins two regions, the first of which reaches into the second one. The first window of the result will have every
    chunk that begins before the first region's end."""
    chunks = (*region.chunks, *behind.chunks)
    first = sum(chunk.where.start < region.source.end for chunk in chunks)
    return replace(widened(region, behind.source.end, behind.destination.end), chunks=chunks, chunks_at_once=first)


def of_bounds(known: Bounds) -> Region:
    """Returns the region that covers all of a partition, without a shift."""
    start = known.audited.start
    return Region(
        key=known.key, chunks=(), source=Span(start, known.source.end), destination=Span(start, known.destination.end)
    )


@dataclass(slots=True)
class Window:
    """The first chunks of a region, to be examined row by row.

    ``rest``: the region's chunks behind them. ``where``: the offsets to examine. ``pairs``: the rows that were found
    there, which are records if ``by_record``. ``opened_from``: the first offset at which batches differed, if they were
    opened. ``cut``: the offsets at source and destination at which the rows end because another shift is in force from
    there on; None if there is none. ``equal``: the chunks in which log cleaners have left no difference since the two
    sides were compared.
    """

    region: Region
    chunks: tuple[DifferingChunk, ...]
    rest: tuple[DifferingChunk, ...]
    where: Range
    pairs: Pairs
    by_record: bool = False
    opened_from: int = 0
    cut: tuple[int, int] | None = None
    equal: list[Span] = field(default_factory=list)

    @classmethod
    def first_of(cls, region: Region, room: int) -> "Window | None":
        """Returns a window of at most ``room`` batches but at least one chunk; None without room."""
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
            # What the region's shift moved beyond its end belongs to the region; batches of others are removed later.
            end = max(end, region.source.end, region.destination.end)
        first = chunks[0].where
        where = first._replace(end=end, shift=region.shift)
        return cls(region, chunks, rest, where, Pairs(), region.by_record)

    @property
    def batches(self) -> int:
        """The approximate number of batches."""
        return sum(chunk.batches for chunk in self.chunks)


_BEFORE_ALL = -(1 << 63)


class InOrder:
    """A partition's differences in order, so that many ranges of them can be taken in about linear time."""

    def __init__(self, pairs: Pairs) -> None:
        self._rows = [(sorted(rows), rows) for rows in (pairs.source, pairs.destination)]
        self._holes = [sorted(holes) for holes in (pairs.holes, pairs.markers, pairs.odd, pairs.equal)]

    def within(self, where: Range) -> Pairs:
        """Returns the differences that begin in this range."""
        start = _BEFORE_ALL if where.first else where.start
        ours, theirs = (
            {base: rows[base] for base in bases[bisect_left(bases, start) : bisect_left(bases, where.end)]}
            for bases, rows in self._rows
        )
        return Pairs(ours, theirs, *(_beginning(holes, start, where.end) for holes in self._holes))


def _beginning(holes: Sequence[Hole], start: int, end: int) -> list[Hole]:
    begins = attrgetter("start")
    return [*holes[bisect_left(holes, start, key=begins) : bisect_left(holes, end, key=begins)]]


def within(pairs: Pairs, where: Range) -> Pairs:
    """Returns the differences that begin in this range."""
    return InOrder(pairs).within(where)


def before(pairs: Pairs, source: int, destination: int) -> Pairs:
    """Returns the differences before these offsets on each side, with holes cut there. Equal holes behind the lower of
    the two offsets become holes of one side only."""
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


def reach(where: Range, pairs: Pairs, most: int, *, moved: bool = True) -> int:
    """Returns the offset up to which both sides must be read: the end of the batches that begin in a window, of the
    other side's batches that begin before that end, and so on. Damaged batches do not count, because their last offset
    may be wrong.

    Args:
        where: the window.
        pairs: the rows that were read of the window, or of more.
        most: the end of what both logs have.
        moved: False: batches that the shift at the window's end explains do not count. Otherwise, if the batches of one
            side never end where those of the other do, this would reach to the logs' ends.
    """
    end, shift = where.end, 0 if moved else followed(pairs).shift
    sides = ((pairs.source, pairs.destination, shift), (pairs.destination, pairs.source, -shift))
    rows = ((base, row, others.get(base + by)) for some, others, by in sides for base, row in some.items())
    for base, row, other in sorted(rows, key=itemgetter(0)):
        if base >= end:
            break
        is_explained = shift and other is not None and other.content == row.content
        if row.crc_ok and not is_explained:
            end = max(end, min(row.span.end, most))
    return end


# -- the shift in force ------------------------------------------------------------------------------------------------


class Followed(NamedTuple):
    """The shift with which a window ends, relative to the window's own shift. ``start``: the source offset from which
    it holds. ``matched``: the number of destination rows that match a source row of the window."""

    shift: int
    start: int
    matched: int


def followed(pairs: Pairs) -> Followed:
    """Returns the shift at the end of the rows. Each destination row is matched with the source row that continues the
    shift of the previous match, or else with the only source row of its content. The shift is 0 without any match."""
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
            continue  # there are several candidates; the following rows will show which one it is
        shift, matched = base - origin, matched + 1
        start = pairs.source[origin].span.end
    return Followed(shift, start, matched)


def shifts_at(pairs: Pairs, border: int) -> list[int]:
    """Returns the shifts, except 0, that may be in force at this source offset: that of the last rows before it, and
    that of the first row behind it. They differ if there is a fault right there."""
    before = followed(Pairs({base: row for base, row in pairs.source.items() if base < border}, pairs.destination))
    behind = {base: row for base, row in pairs.source.items() if base >= border}
    contents = Counter(row.content for row in behind.values() if row.crc_ok)
    only = {row.content: base for base, row in behind.items() if contents[row.content] == 1}
    theirs = ((base, pairs.destination[base].content) for base in sorted(pairs.destination))
    first = next((base - only[content] for base, content in theirs if content in only), 0)
    return [shift for shift in dict.fromkeys((before.shift, first)) if shift]


def unmatched(pairs: Pairs) -> int:
    """Returns how many rows of both sides have no counterpart at any place of the other side."""
    ours, theirs = (Counter(row.content for row in rows.values()) for rows in (pairs.source, pairs.destination))
    return sum(((ours - theirs) + (theirs - ours)).values())


MOST_RECORDS = 1_000_000
"""Maximum number of records in batches that are opened together, because all records that differ are held at a time."""


def most_records(pairs: Pairs) -> int:
    """Returns the number of records of the side that has more of them."""
    return max(sum(row.records for row in rows.values()) for rows in (pairs.source, pairs.destination))


MOST_OPAQUE = 0.5
LEAST_OPAQUE = 8
"""A window is opaque if each side has at least ``LEAST_OPAQUE`` rows, and less than the fraction ``MOST_OPAQUE`` of
them have a counterpart: the batches have other borders, or other contents."""


def is_opaque(pairs: Pairs, matched: int) -> bool:
    """Returns True if the window is opaque: its batches show no shift, but its records may."""
    sides = (pairs.source, pairs.destination)
    return all(len(rows) >= LEAST_OPAQUE and matched < MOST_OPAQUE * len(rows) for rows in sides)


class ShiftToTry(NamedTuple):
    """A shift to try, relative to the region's, and the source offset from which it holds."""

    shift: int
    start: int


Places = Mapping[Content, Sequence[PlacedBatch]]


def jump_ahead(window: Window, in_source: Places, _: Places) -> ShiftToTry | None:
    """Returns the jump over lost batches, if more were lost than a window holds: to the first place behind the window
    at which the source has one of the window's destination rows. None if there is no such place."""
    region = window.region
    for base in sorted(window.pairs.destination):
        for place in in_source.get(window.pairs.destination[base].content, ()):
            at = place.row.base_offset
            if place.key == region.key and window.where.end <= at < region.source.end:
                return ShiftToTry(base - at, at)
    return None


def jump_back(window: Window, _: Places, in_destination: Places) -> ShiftToTry | None:
    """Returns the jump over added batches, if more were added than a window holds: from the first of the window's
    source rows that the destination has behind the window. None if there is no such row."""
    region = window.region
    for base in sorted(window.pairs.source):
        for place in in_destination.get(window.pairs.source[base].content, ()):
            at = place.row.base_offset - region.shift
            if place.key == region.key and window.where.end <= at < region.destination.end:
                return ShiftToTry(at - base, base)
    return None


def differing_offsets(chunks: Iterable[DifferingChunk], start: int) -> int:
    """Returns the number of offsets in these chunks from ``start`` on."""
    return sum(max(0, chunk.where.end - max(start, chunk.where.start)) for chunk in chunks)


def chunks_of(rows: Pairs, where: Range) -> list[DifferingChunk]:
    """Returns the chunks to examine of a range that was compared by chunks. ``rows``: the chunks that differ."""
    found = []
    for start in sorted({*rows.source, *rows.destination}):
        row = rows.source.get(start) or rows.destination[start]
        end = min(start + where.width, where.end)
        found.append(DifferingChunk(where._replace(start=start, end=end, first=False), row.records))
    return found


def behind(chunks: Iterable[DifferingChunk], start: int, end: int = 1 << 63) -> tuple[DifferingChunk, ...]:
    """Returns the parts of these chunks between two offsets."""
    found = []
    for chunk in chunks:
        where = chunk.where._replace(start=max(chunk.where.start, start), end=min(chunk.where.end, end))
        if where.end > where.start:
            whole = where == chunk.where
            # The difference in a chunk may lie in the part that is cut off, so the rest is not certain to differ.
            found.append(
                DifferingChunk(where._replace(first=where.first and whole), chunk.batches, chunk.certain and whole)
            )
    return tuple(found)


def skipped(window: Window, source: Span, destination: Span) -> list[Region]:
    """Returns the region that a jump passed over, between a window and the start of the new shift: offsets that only
    one side has. Returns an empty list if no differing chunk lies there."""
    region, end = window.region, max(source.end, destination.end)
    chunks = tuple(chunk._replace(certain=False) for chunk in behind(window.rest, source.start, end))
    if not chunks:
        return []
    return [replace(region, chunks=chunks, source=source, destination=destination, by_record=window.by_record)]
