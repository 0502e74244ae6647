"""Opens the destination's batches where the source has messages of an old format, so that both sides are compared
record by record there. Pure.

The mirror gathers such messages into batches, whose borders may be anywhere between the messages. The rest of the log
is compared batch by batch. A batch that reaches from such messages into the rest is opened as well; its records outside
of these messages are marked (``STRADDLES``).
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from mirror.audit.model.places import Span
from mirror.audit.model.rows import STRADDLES, UNREAD, What
from mirror.audit.read.holes import Holes
from mirror.audit.read.ranges import RangePiece, StoredInstead, stored_in
from mirror.audit.read.rows import HEADERS, unit_headers
from mirror.audit.read.units import Room, Row, Unit, unreadable
from mirror.records.content.decompressing import NotOpened
from mirror.records.content.raw import placed_records
from mirror.records.header import HEADER_SIZE, BatchHeader
from mirror.records.intact import is_intact

Split = Callable[[RangePiece, memoryview, int], RangePiece]
"""A function of a piece, the response that it is of, and the log offset that was due. Returns the piece to use instead.
"""


class Splitter:
    """Splits the batches in the pieces of a range into records: a ``Split``.

    ``stopped``: the log offset, inside of a batch, at which the last piece ended because no room was left; None if it
    did not end so.
    """

    def __init__(
        self, old: Sequence[Span], own: Span, *, first: bool, select: Callable[[RangePiece], RangePiece] | None = None
    ) -> None:
        """The pieces must contain every batch that reaches into the range, also one that begins before it.

        Args:
            old: the places of old messages in the source, in order, in the offsets of the pieces' headers.
            own: the range, in the same offsets.
            first: the range also owns a batch that begins before it and is not opened.
            select: replaces the log's offsets in the headers by the source's (``offsets: mapped``); it is applied to
                each piece first. Then holes do not count.
        """
        self._old = old
        self._starts, self._ends = (np.array([span[at] for span in old], np.int64) for at in (0, 1))
        self._own = own
        self._first = first
        self._select = select
        self.stopped: int | None = None

    def __call__(self, piece: RangePiece, body: memoryview, due: int) -> RangePiece:
        """Returns the piece with records in place of the batches that reach into ``old``."""
        if self._select is not None:
            piece = self._select(piece)
        own, first, mapped = self._own, self._first, self._select is not None
        self.stopped = None
        headers = piece.headers
        bases = headers["base_offset"].astype(np.int64)
        nexts = bases + headers["last_offset_delta"] + 1
        at = np.searchsorted(self._ends, bases, side="right")
        touched = (at < len(self._old)) & (self._starts[np.minimum(at, len(self._old) - 1)] < nexts)
        kept = touched | (bases >= own.start) | first
        if not touched.any() and kept.all() and not mapped:
            return piece
        stored = StoredInstead(0, 0)
        rows: list[Row] = []
        found = [headers[:0]]
        holes: list[tuple[int, int, int]] = []
        room = Room()
        next_offset = piece.next_offset
        for index in np.flatnonzero(kept).tolist():
            place = piece.places[index]
            if isinstance(place, Unit) or not touched[index]:
                rows.append(place)
                found.append(headers[index : index + 1])
                stored = stored.plus(stored_in([place]))
                continue
            base = int(bases[index])
            opened = _Opened(body, place.at, place.size, base, self._old, own, first=first)
            units = opened.units(max(base, own.start, due - opened.ahead), room)
            rows += units
            found.append(unit_headers(units))
            holes += opened.holes
            stored = stored.plus(opened.stored)
            if opened.stopped is not None:
                self.stopped = next_offset = opened.stopped + opened.ahead
                break
        headers = np.concatenate(found, dtype=HEADERS)  # big-endian as in a batch, because their bytes are digested
        if mapped:
            bases = headers["base_offset"].astype(np.int64)
            nexts = bases + headers["last_offset_delta"] + 1
            offsets = int((np.minimum(nexts, own.end) - np.maximum(bases, own.start)).clip(0).sum())
            kept_holes = piece.holes
        else:
            kept_holes = _until(piece.holes, holes, next_offset)
            offsets = next_offset - due - int((kept_holes[:, 1] - kept_holes[:, 0]).sum())
        is_cut = next_offset != piece.next_offset
        broken = None if is_cut else piece.broken
        return RangePiece(rows, headers, kept_holes, offsets, next_offset, broken, stored, cut=piece.cut)


def _until(holes: Holes, more: Sequence[tuple[int, int, int]], end: int) -> Holes:
    """Returns both kinds of holes together, in order and cut off at ``end``."""
    found = np.concatenate([holes, np.array(more, np.int64).reshape(-1, 3)])
    found = found[found[:, 0] < end]
    found[:, 1] = np.minimum(found[:, 1], end)
    return found[np.argsort(found[:, 0], kind="stable")]


class _Opened:
    """A batch of the destination that is opened.

    Attributes:
        ahead: how much higher its offsets are in the log than in the piece's headers.
        holes: the offsets inside of it, within the range, that have no record.
        stored: the batch and its bytes, to be counted; zeros if another range or piece counts them.
        stopped: the first offset for which no room was left; None if all records were taken.
    """

    def __init__(
        self, body: memoryview, at: int, size: int, base: int, old: Sequence[Span], own: Span, *, first: bool
    ) -> None:
        self._batch = body[at : at + size]
        self._at = at
        self._old = old
        self._own = own
        header = BatchHeader.read(self._batch)
        self.ahead = header.base_offset - base
        self._header = header._replace(base_offset=base)
        self._is_own = base >= own.start or first
        self.holes: list[tuple[int, int, int]] = []
        self.stopped: int | None = None
        self.stored = StoredInstead(0, 0)

    def units(self, due: int, room: Room) -> list[Unit]:
        """Returns the batch's records that are in the range, from offset ``due`` on, as many as there is room for. A
        batch that cannot be opened is one unit."""
        header = self._header
        if self._is_own and due <= max(header.base_offset, self._own.start):
            self.stored = StoredInstead(1, len(self._batch))
        end = min(header.last_offset, self._own.end - 1)
        if not is_intact(self._batch):
            why = f"the batch at offset {header.base_offset} does not match its checksum"
            return [unreadable(due, end, header.attributes, self._at, 0, why)]
        try:
            return self._units(due, end, room)
        except NotOpened as error:
            self.holes, self.stopped = [], None
            return [unreadable(due, end, header.attributes | UNREAD, self._at, 0, str(error))]

    def _units(self, due: int, end: int, room: Room) -> list[Unit]:
        header, found, at = self._header, list[Unit](), due
        straddles = not self._is_old(header.base_offset, header.next_offset)
        for record in placed_records(header, bytes(self._batch[HEADER_SIZE:])):
            if not due <= record.offset <= end:
                continue
            if room.full:
                self.stopped = at
                self.stored = (
                    self.stored if found else StoredInstead(0, 0)
                )  # without a record, the batch is counted when it is fetched again
                return found
            flags = header.attributes
            if straddles and not self._is_old(record.offset, record.offset + 1):
                flags |= STRADDLES
            unit = Unit(
                record.offset, record.offset, flags, record.timestamp, record.attributes, record.content, self._at,
                inner=False, stored=0,
            )  # fmt: skip
            found.append(unit)
            room.take(unit)
            if record.offset > at:
                self.holes.append((at, record.offset, What.INSIDE))
            at = record.offset + 1
        if at <= end:
            self.holes.append((at, end + 1, What.INSIDE))
        return found

    def _is_old(self, start: int, end: int) -> bool:
        """Returns True if all offsets from ``start`` up to ``end`` belong to old messages of the source."""
        at = bisect_right(self._old, start, key=attrgetter("end"))
        return at < len(self._old) and self._old[at].start <= start and end <= self._old[at].end
