"""Evaluates a Fetch response for one range: the batches that it owns, the holes, and the next offset. Pure."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mirror.audit.errors import AuditError
from mirror.audit.model import What
from mirror.audit.prepare.plan import Range
from mirror.audit.read.holes import NO_HOLES, PLAIN, Holes, Rules, coalesced, sorted_out
from mirror.audit.read.rows import HEADERS, read_headers
from mirror.audit.read.witness import Witness
from mirror.records.header import LOG_APPEND_TIME, MAGIC_AT, PREFIX_SIZE, CorruptBatch
from mirror.records.intact import is_intact
from mirror.records.scan import Place, scan

LISTED_GAPS = 10
"""Gaps that a coverage row lists one by one; the others are only counted."""


class Piece(NamedTuple):
    """The part of one response that concerns a range: its own batches of records, and all holes within its borders.

    ``offsets``: how many of the range's offsets are in batches of records, including those that a neighbour owns.
    ``broken``: the reason if the log's own structure is damaged after these batches, so that reading on is useless.
    """

    places: Sequence[Place]
    headers: NDArray[np.void]
    holes: Holes
    offsets: int
    next_offset: int
    broken: str | None = None

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

    ``offsets`` counts those in batches of records; ``control``, ``aborted``, ``empty`` and ``gap_offsets`` count holes
    (``gaps`` lists the first gaps); ``odd`` counts what does not belong at a destination. With ``offsets: mapped``, a
    destination's gaps are the offsets that the map does not have, and ``unmapped`` are the destination offsets of the
    flow's batches that are not in the map. ``next_offset`` is where reading stopped; the range was read if that is its
    end. ``broken`` is the reason why the log could not be read further: its bytes or, if ``unreadable``, a broker that
    returns none. ``due``, ``ended`` and ``unexplained`` are those of the range's ``Witness``. ``log_start``: the log's
    current start, if it is after the range's start; what lay before it was deleted before it could be read.
    ``stamped``: batches of records with the time of their append.
    """

    batches: int = 0
    records: int = 0
    bytes: int = 0
    offsets: int = 0
    control: int = 0
    aborted: int = 0
    empty: int = 0
    gap_offsets: int = 0
    odd: int = 0
    unmapped: list[tuple[int, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    next_offset: int = 0
    broken: str | None = None
    unreadable: bool = False
    due: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    unexplained: list[tuple[int, int]] = field(default_factory=list)
    log_start: int | None = None
    stamped: int = 0

    @property
    def accounted(self) -> int:
        """The number of offsets whose nature is known."""
        return self.offsets + self.control + self.aborted + self.empty + self.gap_offsets + self.odd

    def take(self, piece: Piece) -> None:
        """Adds one more response."""
        self.batches += len(piece.places)
        self.records += int(piece.headers["record_count"].sum(dtype=np.int64))
        self.bytes += int(piece.headers["length"].sum(dtype=np.int64)) + PREFIX_SIZE * len(piece.places)
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
            self.odd += int(totals[What.FOREIGN] + totals[What.DAMAGED])
            self.gaps.extend(piece.gaps[: LISTED_GAPS - len(self.gaps)])
        self.next_offset = piece.next_offset
        self.broken = piece.broken

    @property
    def witness(self) -> Witness:
        """The witness of the range, from what its markers say about its transactions."""
        return Witness(0, set(self.due), set(self.ended), dict(self.unexplained))

    def become(self, other: Self, shift: int) -> None:
        """Takes the other one's values, with its offsets in this log increased by ``shift``."""
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))
        self.next_offset += shift
        self.gaps = [(start + shift, end + shift) for start, end in self.gaps]

    def to_json(self) -> str:
        """Returns it as text for the coverage row."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the coverage of a text that ``to_json`` made."""
        return cls(**json.loads(text))


def cut_records(
    body: memoryview,
    at: int,
    end: int,
    wanted: Range,
    due: int,
    rules: Rules = PLAIN,
    aborted: Iterable[tuple[int, int]] = (),
    witness: Witness | None = None,
) -> Piece:
    """Returns the part of the record set ``body[at:end]``, fetched at offset ``due``, that concerns the range.

    A broker may answer with batches before ``due`` (it begins with the batch that holds it, and some begin earlier):
    those are left out. The batch that begins before the range belongs to its neighbour, unless the range is the first.
    ``aborted``: the response's list of aborted transactions. ``witness``: what the range's markers have said so far.

    Raises:
        AuditError: batches of a format before Kafka 0.11; markers that contradict ``aborted``.
    """
    places, broken = _places(body, at, end, wanted)
    if not places and end > at and broken is None:
        broken = f"{end - at} bytes that are no whole batch"  # brokers send at least one batch, however large it is
    headers = read_headers(body, places)
    whats = sorted_out(rules, body, places, headers, aborted, witness)
    bases = headers["base_offset"].astype(np.int64)
    nexts = bases + headers["last_offset_delta"] + 1
    live = (nexts > due) | (bases >= due)
    first = int(live.argmax()) if live.any() else len(places)
    unfound = first == len(places) or bases[first] > due
    if unfound and not all(is_intact(body[begins : begins + size]) for begins, size in places[:first]):
        # No batch has the due offset. One of those left out may have it, if its last offset is wrong.
        return Piece((), headers[:0], NO_HOLES, 0, due, f"a batch before offset {due} has a wrong checksum")
    places, headers, bases, nexts = places[first:], headers[first:], bases[first:], nexts[first:]
    whats = whats[first:]
    previous = np.concatenate(([due], nexts[:-1]))[: len(places)]
    # Offsets only rise in a log, and no two batches share one. But the range may begin inside its first batch.
    wrong = (nexts <= bases) | (bases < previous)
    if places and due == wanted.start:
        wrong[0] = nexts[0] <= bases[0]
    if wrong.any():
        stop = int(wrong.argmax())
        broken = f"offsets {int(bases[stop])} to {int(nexts[stop]) - 1} in a batch where {int(previous[stop])} is due"
        if stop and bases[stop] < previous[stop]:
            stop -= 1  # or the batch before states a wrong last offset: then nothing in it can be trusted either
        places, headers, bases, nexts = places[:stop], headers[:stop], bases[:stop], nexts[:stop]
        previous, whats = previous[:stop], whats[:stop]
    if not places:
        return Piece((), headers, NO_HOLES, 0, due, broken)
    starts, ends = np.clip(bases, due, wanted.end), np.clip(nexts, due, wanted.end)
    is_data = whats == What.DATA
    holes = _holes(starts, ends, whats, np.minimum(previous, wanted.end))
    next_offset = min(int(nexts[-1]), wanted.end)
    if next_offset == wanted.end:
        broken = None  # the damage lies in a neighbour's range, and is reported there
    own = is_data & (bases < wanted.end)
    if not wanted.first:
        own &= bases >= wanted.start
    if not own.all():
        places = [place for place, keep in zip(places, own, strict=True) if keep]
        headers = headers[own]
    return Piece(places, headers, holes, int((ends - starts)[is_data].sum()), next_offset, broken)


def _holes(
    starts: NDArray[np.int64], ends: NDArray[np.int64], whats: NDArray[np.int8], previous: NDArray[np.int64]
) -> Holes:
    """Returns the batches that are holes and the gaps before batches, in order. Neighbours of one kind are joined."""
    is_hole = (whats != What.DATA) & (ends > starts)
    is_gap = starts > previous
    if not is_hole.any() and not is_gap.any():
        return NO_HOLES
    found = np.concatenate(
        [
            np.column_stack((previous[is_gap], starts[is_gap], np.full(int(is_gap.sum()), What.GAP, np.int64))),
            np.column_stack((starts[is_hole], ends[is_hole], whats[is_hole].astype(np.int64))),
        ]
    )
    return coalesced(found[np.argsort(found[:, 0], kind="stable")])


def _places(body: memoryview, at: int, end: int, wanted: Range) -> tuple[list[Place], str | None]:
    """Returns the whole batches, and what is wrong after them, or None."""
    places: list[Place] = []
    try:
        for place in scan(body, at, end):
            if body[place.at + MAGIC_AT] != 2:
                raise AuditError(
                    f"topic {wanted.topic} partition {wanted.partition} has batches in the format of Kafka before 0.11 "
                    f"in its offsets {wanted.start} to {wanted.end}",
                    "leave the topic out: this version audits magic 2 only",
                )
            places.append(place)
    except CorruptBatch as error:
        return places, str(error)
    return places, None
