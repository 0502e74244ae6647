"""Evaluates a Fetch response for one range: the batches that it owns, the holes, and the next offset. Pure."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby, islice
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mirror.audit.errors import AuditError
from mirror.audit.model.places import Adopted, Side
from mirror.audit.model.rows import OLD_FORMAT, What
from mirror.audit.prepare.plan import Range
from mirror.audit.read.holes import NO_HOLES, PLAIN, Holes, Rules, coalesced, judged_batches
from mirror.audit.read.rows import HEADERS, headers_of
from mirror.audit.read.units import Room, Row, Unit, units_of
from mirror.audit.read.witness import Witness
from mirror.records.header import LOG_APPEND_TIME, MAGIC, MAGIC_AT, PREFIX_SIZE, BatchHeader, CorruptBatch
from mirror.records.intact import is_intact
from mirror.records.scan import scan

LISTED_GAPS = 10
"""Maximum number of gaps, and of reasons why records cannot be read, that a coverage row lists."""
MOST_CHANGES = 10_000
"""Maximum number of runs of old messages in one range: the readers of the destination need to know each of them."""


class OldSpan(NamedTuple):
    """The offsets of a run of messages of magic 0 or 1, without batches of magic 2 in between. ``entries``: the number
    of messages that end there; a wrapper counts as one. ``size``: their bytes."""

    start: int
    end: int
    entries: int
    records: int
    size: int


class MoreUnmapped(NamedTuple):
    """Counts of the batches of the flow that its offset map does not have, beyond those that are listed one by one.
    ``offsets``: the number of their offsets. ``start`` and ``end``: destination offsets that enclose all of them."""

    batches: int
    offsets: int
    start: int
    end: int

    def plus(self, start: int, end: int) -> "MoreUnmapped":
        """Returns the counts with the next batch added, which has these offsets."""
        return MoreUnmapped(
            self.batches + 1, self.offsets + end - start, self.start if self.batches else start, max(self.end, end)
        )


NO_MORE = MoreUnmapped(0, 0, 0, 0)


class StoredInstead(NamedTuple):
    """What a log itself holds for some rows: the number of batches and messages, and their bytes."""

    batches: int
    size: int

    def plus(self, other: "StoredInstead") -> "StoredInstead":
        """Returns the sum."""
        return StoredInstead(self.batches + other.batches, self.size + other.size)


class RangePiece(NamedTuple):
    """The part of one response that concerns a range: its own batches of records, and all holes within its borders.

    ``offsets``: how many of the range's offsets are in batches of records, including those that a neighbour owns.
    ``next_offset``: where to read on. ``broken``: the reason if the log's own structure is damaged after these batches,
    so that reading on is useless. ``stored``: what the log holds for the rows; None: one batch for each row. ``old``:
    the runs of messages of an old format among the rows. ``cut``: whether one of these batches begins before the range,
    and whether one ends behind it.
    """

    places: Sequence[Row]
    headers: NDArray[np.void]
    holes: Holes
    offsets: int
    next_offset: int
    broken: str | None = None
    stored: StoredInstead | None = None
    old: Sequence[OldSpan] = ()
    cut: tuple[bool, bool] = (False, False)

    @property
    def size(self) -> int:
        """The bytes of the rows."""
        return int(self.headers["length"].sum(dtype=np.int64)) + PREFIX_SIZE * len(self.places)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Start and end of each run of offsets without a batch."""
        return [(int(start), int(end)) for start, end, what in self.holes if what == What.GAP]

    @classmethod
    def hole(cls, start: int, end: int) -> Self:
        """Returns a piece that has no batch from ``start`` to ``end``."""
        holes = np.array([(start, end, What.GAP)], np.int64) if start < end else NO_HOLES
        return cls((), np.empty(0, HEADERS), holes, 0, end)


@dataclass(slots=True, kw_only=True)
class RangeCoverage:
    """Counts of what was read of a range: its own batches of records, and each of its offsets by its nature.

    ``offsets`` counts those in batches of records; ``control``, ``aborted``, ``empty``, ``gap_offsets`` and ``inside``
    count holes (``gaps`` lists the first gaps); ``odd`` counts offsets of batches that do not belong at a destination.
    With ``offsets: mapped``, a destination's gaps are the offsets that the map does not have; ``unmapped`` has the
    destination offsets of the first batches of the flow that are not in the map, and ``unlisted`` counts the further
    ones. ``next_offset`` is where reading stopped; the range was read to its end if the two are equal. ``broken`` is
    the reason why the log could not be read further: its bytes or, if ``unreadable``, a broker that returns none.
    ``due``, ``ended``, ``unexplained``, ``undone`` and ``commits`` are those of the range's ``Witness``. ``log_start``:
    the log's current start, if it is after the range's start; the offsets before it were deleted before they could be
    read. ``batches`` and ``bytes`` count what the log holds, ``rows`` and ``row_bytes`` the rows for Spark; they are
    equal where no records are compared by themselves. ``old``: the runs of messages of old formats, as ``OldSpan``.
    ``spoiled``: the reasons why records cannot be read, for the first such batches and messages. ``damaged``: the
    number of batches and messages with a wrong checksum, or that cannot be opened. ``stamped``: the number of batches
    of records with the time of their append. ``begins_before`` and ``ends_behind``: a batch of the range begins before
    it, or ends behind it; all of its records count. ``content``: what identifies all batches (``Chunks.content``), in
    hex; empty where rows are not chunks.
    """

    batches: int = 0
    records: int = 0
    bytes: int = 0
    rows: int = 0
    row_bytes: int = 0
    offsets: int = 0
    control: int = 0
    aborted: int = 0
    empty: int = 0
    gap_offsets: int = 0
    inside: int = 0
    odd: int = 0
    unmapped: list[tuple[int, int]] = field(default_factory=list)
    unlisted: MoreUnmapped = NO_MORE
    gaps: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = 0
    broken: str | None = None
    unreadable: bool = False
    due: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    unexplained: list[tuple[int, int]] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    commits: list[tuple[int, int]] = field(default_factory=list)
    log_start: int | None = None
    old: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    spoiled: list[str] = field(default_factory=list)
    damaged: int = 0
    stamped: int = 0
    begins_before: bool = False
    ends_behind: bool = False
    content: str = ""

    @property
    def accounted(self) -> int:
        """The number of offsets whose nature is known."""
        holes = self.control + self.aborted + self.empty + self.gap_offsets + self.inside
        return self.offsets + holes + self.odd

    def take(self, piece: RangePiece) -> None:
        """Adds the piece of one more response.

        Raises:
            AuditError: the format of messages changes more than ``MOST_CHANGES`` times.
        """
        rows = StoredInstead(len(piece.places), piece.size)
        stored = rows if piece.stored is None else piece.stored
        self.batches += stored.batches
        self.records += int(piece.headers["record_count"].sum(dtype=np.int64))
        self.bytes += stored.size
        self.rows += rows.batches
        self.row_bytes += rows.size
        for span in piece.old:
            self._take_old(span)
        if piece.stored is not None:
            spoiled = (row.why for row in piece.places if isinstance(row, Unit) and row.why)
            self.spoiled.extend(islice(spoiled, LISTED_GAPS - len(self.spoiled)))
        self.offsets += piece.offsets
        self.stamped += int(((piece.headers["attributes"] & LOG_APPEND_TIME) != 0).sum())
        if len(piece.holes):
            starts, ends, whats = piece.holes.T
            totals = np.zeros(len(What), np.int64)
            np.add.at(totals, whats, ends - starts)
            self.control += int(totals[What.CONTROL])
            self.aborted += int(totals[What.ABORTED])
            self.empty += int(totals[What.EMPTY])
            self.gap_offsets += int(totals[What.GAP])
            self.inside += int(totals[What.INSIDE])
            self.odd += int(totals[What.FOREIGN] + totals[What.DAMAGED])
            self.gaps.extend(piece.gaps[: LISTED_GAPS - len(self.gaps)])
        self.begins_before |= piece.cut[0]
        self.ends_behind |= piece.cut[1]
        self.next_offset = piece.next_offset
        self.broken = piece.broken

    def _take_old(self, span: OldSpan) -> None:
        last = self.old[-1] if self.old else None
        if last is None or last[1] != span.start:
            if len(self.old) >= MOST_CHANGES:
                raise AuditError(
                    f"the format of messages changes more than {MOST_CHANGES:,} times before offset {span.start}",
                    "leave the topic out: no broker writes such a log",
                )
            self.old.append(span)
        else:
            entries, records, size = (mine + more for mine, more in zip(last[2:], span[2:], strict=True))
            self.old[-1] = OldSpan(last[0], span.end, entries, records, size)

    @property
    def witness(self) -> Witness:
        """The witness of the range, as it was after the last response."""
        return Witness(0, set(self.due), set(self.ended), dict(self.unexplained), set(self.undone), dict(self.commits))

    def become(self, other: Self, shift: int) -> None:
        """Takes all values of ``other``, with the offsets among them increased by ``shift``. (Not those of markers and
        of the log's start, which remain the log's own.)"""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))
        self.next_offset += shift
        self.gaps = [(start + shift, end + shift) for start, end in self.gaps]
        self.old = [(start + shift, end + shift, *counts) for start, end, *counts in self.old]  # type: ignore[misc]

    def to_json(self) -> str:
        """Returns the coverage as text for the coverage row."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the coverage of a text that ``to_json`` made."""
        fields = json.loads(text)
        return cls(**{**fields, "unlisted": MoreUnmapped(*fields["unlisted"])})


def cut_records(
    body: memoryview,
    at: int,
    end: int,
    wanted: Range,
    due: int,
    rules: Rules = PLAIN,
    aborted: Iterable[tuple[int, int]] = (),
    witness: Witness | None = None,
    adopted: Adopted | None = None,
) -> RangePiece:
    """Returns the part of the record set ``body[at:end]``, fetched at offset ``due``, that concerns the range.

    A broker may answer with batches before ``due``: it begins with the batch that holds that offset, and some brokers
    begin earlier. Those batches are left out. The batch that begins before the range belongs to its neighbour, unless
    the range is the first. Each record of messages of a format before Kafka 0.11 is a unit. If there is no room for all
    of them, the last ones are left out, and have to be fetched again.

    Args:
        body: the response.
        at: where the record set begins in it.
        end: where the record set ends.
        wanted: the range, in the offsets of this log.
        due: the offset that was asked for.
        rules: how batches are classified.
        aborted: the response's list of aborted transactions.
        witness: the range's witness, with what earlier responses showed.
        adopted: the part of a destination that was there before the flow.

    Raises:
        AuditError: markers contradict ``aborted``.
    """
    flags = OLD_FORMAT if rules.side is Side.DESTINATION else 0
    places, broken = _rows(body, at, end, due, wanted.end, flags)
    headers = headers_of(body, places)
    whats = judged_batches(rules, body, places, headers, aborted, witness, adopted)
    bases = headers["base_offset"].astype(np.int64)
    nexts = bases + headers["last_offset_delta"] + 1
    live = (nexts > due) | (bases >= due)
    first = int(live.argmax()) if live.any() else len(places)
    unfound = first == len(places) or bases[first] > due
    if unfound and not all(_is_sound(body, place) for place in places[:first]):
        # No batch has the due offset. A batch that was left out may have it, if damage changed its last offset.
        return RangePiece((), headers[:0], NO_HOLES, 0, due, f"a batch before offset {due} has a wrong checksum")
    places, headers, bases, nexts = places[first:], headers[first:], bases[first:], nexts[first:]
    whats = whats[first:]
    previous = np.concatenate(([due], nexts[:-1]))[: len(places)]
    # Offsets only rise in a log, and no two batches share one. But the range may begin inside of its first batch.
    wrong = (nexts <= bases) | (bases < previous)
    if places and due == wanted.start:
        wrong[0] = nexts[0] <= bases[0]
    if wrong.any():
        stop = int(wrong.argmax())
        broken = f"offsets {int(bases[stop])} to {int(nexts[stop]) - 1} in a batch where {int(previous[stop])} is due"
        if stop and bases[stop] < previous[stop]:
            stop -= 1  # the batch before may be the one with wrong offsets, so it is not used either
            while stop and _are_together(places[stop - 1], places[stop]):
                stop -= 1
        places, headers, bases, nexts = places[:stop], headers[:stop], bases[:stop], nexts[:stop]
        previous, whats = previous[:stop], whats[:stop]
    if not places:
        return RangePiece((), headers, NO_HOLES, 0, due, broken)
    starts, ends = np.clip(bases, due, wanted.end), np.clip(nexts, due, wanted.end)
    is_data = whats == What.DATA
    has_units = any(isinstance(place, Unit) for place in places)
    holes = _holes(starts, ends, whats, np.minimum(previous, wanted.end), places if has_units else ())
    next_offset = min(int(nexts[-1]), wanted.end)
    if next_offset == wanted.end:
        # The damage lies in a neighbour's range, whose reader reports it, or behind the audited offsets.
        broken = None
    own = is_data & (bases < wanted.end)
    if not wanted.first:
        own &= bases >= wanted.start
    cut = bool((own & (bases < wanted.start)).any()), bool((own & (nexts > wanted.end)).any())
    if not own.all():
        places = [place for place, keep in zip(places, own, strict=True) if keep]
        headers = headers[own]
    piece = RangePiece(places, headers, holes, int((ends - starts)[is_data].sum()), next_offset, broken, cut=cut)
    return piece._replace(stored=stored_in(places), old=_old(places)) if has_units else piece


def stored_in(rows: Iterable[Row]) -> StoredInstead:
    """Returns what the log holds for these rows."""
    sizes = [row.stored if isinstance(row, Unit) else row.size for row in rows]
    return StoredInstead(sum(size > 0 for size in sizes), sum(sizes))


def _is_sound(body: memoryview, row: Row) -> bool:
    return not row.why if isinstance(row, Unit) else is_intact(body[row.at : row.at + row.size])


def _are_together(row: Row, other: Row) -> bool:
    """Returns True for two records of the same wrapper."""
    return isinstance(row, Unit) and isinstance(other, Unit) and row.at == other.at


def _old(rows: Sequence[Row]) -> list[OldSpan]:
    """Returns the runs of messages of old formats among these rows."""
    found = []
    for is_old, some in groupby(rows, key=lambda row: isinstance(row, Unit)):
        units = [row for row in some if isinstance(row, Unit)]
        if is_old:
            entries, size = stored_in(units)
            records = sum(not unit.why for unit in units)
            found.append(OldSpan(units[0].offset, units[-1].last_offset + 1, entries, records, size))
    return found


def _holes(
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    whats: NDArray[np.int8],
    previous: NDArray[np.int64],
    rows: Sequence[Row],
) -> Holes:
    """Returns the batches that are holes and the gaps before batches, in order. Those of one kind that touch are
    joined.

    Args:
        starts: the first offset of each batch, cut to the range.
        ends: the offset after each batch, likewise.
        whats: the nature of each batch.
        previous: the offset after the batch before.
        rows: the batches themselves; may be empty if none is a unit.
    """
    is_hole = (whats != What.DATA) & (ends > starts)
    is_gap = starts > previous
    if not is_hole.any() and not is_gap.any():
        return NO_HOLES
    kinds = np.full(len(starts), What.GAP, np.int64)
    if rows:
        kinds[[isinstance(row, Unit) and row.inner for row in rows]] = What.INSIDE
    found = np.concatenate(
        [
            np.column_stack((previous[is_gap], starts[is_gap], kinds[is_gap])),
            np.column_stack((starts[is_hole], ends[is_hole], whats[is_hole].astype(np.int64))),
        ]
    )
    return coalesced(found[np.argsort(found[:, 0], kind="stable")])


def _rows(body: memoryview, at: int, end: int, due: int, most: int, flags: int) -> tuple[list[Row], str | None]:
    """Returns the complete batches of a record set and the records of complete messages of old formats, as many as
    there is room for; and the reason why the bytes after them are damaged, or None. ``most``: the end of the range.
    ``flags``: flags of units."""
    rows: list[Row] = []
    room, any_is_whole = Room(), False
    before = due - 1
    try:
        for place in scan(body, at, end):
            any_is_whole = True
            if body[place.at + MAGIC_AT] == MAGIC:
                rows.append(place)
                continue
            if rows:
                before = _last_offset(body, rows[-1])
            for unit in units_of(body, place, before, due, most, flags=flags):
                rows.append(unit)
                room.take(unit)
                if room.full:
                    return rows, None
    except CorruptBatch as error:
        return rows, str(error)
    if not any_is_whole and end > at:
        return rows, f"{end - at} bytes that are no whole batch"  # brokers send at least one, however large (KIP-74)
    return rows, None


def _last_offset(body: memoryview, row: Row) -> int:
    return row.last_offset if isinstance(row, Unit) else BatchHeader.read(body, row.at).last_offset
