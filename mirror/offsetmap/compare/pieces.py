"""Finds the place inside of an original at which a copy fits as a piece of it.

A batch that no broker takes unchanged is copied in pieces (``records.content.rewriting``): dense batches, each with
consecutive records of the original, at offsets without a gap. Where it was cut depends on the size limit of that time,
so the records decide. Log cleaners may have changed both sides since.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from mirror.offsetmap.compare.looks import ComparedBatch
from mirror.records.content.opening import NotOpened
from mirror.records.content.raw import placed_records
from mirror.records.header import BatchHeader

STEPS = 1_000
"""After so many records, other tasks of the event loop get a turn."""
_DIGEST_SIZE = 12


class Rows(NamedTuple):
    """The records of a batch. ``deltas``: their offsets, counted from the batch's first one, in order. ``digests``: a
    digest of each record, without its offset: a copy has other offsets."""

    deltas: list[int]
    digests: list[bytes]

    def left(self, inside: int) -> int:
        """Returns the number of records at offset ``inside`` or behind it."""
        return len(self.deltas) - bisect_left(self.deltas, inside)

    def next(self, inside: int) -> int | None:
        """Returns the first offset from ``inside`` on that has a record; None if there is none."""
        at = bisect_left(self.deltas, inside)
        return self.deltas[at] if at < len(self.deltas) else None

    def places(self, inside: int, length: int, count: int) -> list[int]:
        """Returns the offsets up to which a batch may have been copied, if ``count`` offsets of it were copied from
        ``inside`` on. Offsets that have a record now were among the copied ones; each of the others may have had a
        record then. Of the possible ends in front of the same record, only the first one is returned.

        Args:
            inside: the offset in the batch up to which it was copied before.
            length: the number of offsets of the batch.
            count: the number of offsets that were copied in addition.
        """
        start, least = bisect_left(self.deltas, inside), inside + count
        if not 0 < count <= length - inside:
            return []
        return [least, *(delta + 1 for delta in self.deltas[bisect_left(self.deltas, least) : start + count])]


class PiecePlace(NamedTuple):
    """A place for the copy: offsets inside of the original. ``whole``: the copy has every record that the original has
    there, and there is at least one."""

    start: int
    end: int
    whole: bool


async def rows_of(batch: ComparedBatch, *, timed: bool = True) -> Rows | None:
    """Returns the records of a batch; None if they are not kept, or cannot be read. ``timed``: False if times are not
    compared (``ComparedBatch.timed``)."""
    return await rows_in(batch.header, batch.records, timed=timed)


async def rows_in(header: BatchHeader, records: memoryview | None, *, timed: bool = True) -> Rows | None:
    """Does what ``rows_of`` does, for a batch with this header and these bytes behind it."""
    if records is None:
        return None
    rows = Rows([], [])
    try:
        for record in placed_records(header._replace(base_offset=0), bytes(records)):
            front = b"%d %d;" % (record.timestamp if timed else 0, record.attributes)
            digest = blake2b(front, digest_size=_DIGEST_SIZE)
            digest.update(record.content)
            rows.deltas.append(record.offset)
            rows.digests.append(digest.digest())
            if len(rows.deltas) % STEPS == 0:
                await asyncio.sleep(0)
    except NotOpened:
        return None
    return rows


def spots(original: Rows, original_length: int, inside: int, copy: Rows, copy_length: int) -> Iterator[PiecePlace]:
    """Yields the places in an original at which a copy fits as the piece that comes next.

    Args:
        original: the records of the original.
        original_length: the number of its offsets.
        inside: everything in the original before this offset was copied before.
        copy: the records of the copy.
        copy_length: the number of its offsets.
    """
    first = original.next(inside)
    if first is None:
        return
    digest = original.digests[bisect_left(original.deltas, first)]
    # In front of the next record there may have been others, which the source's cleaner has removed since.
    starts = {first - delta for delta, mine in zip(copy.deltas, copy.digests, strict=True) if mine == digest}
    for start in sorted(starts | {first}):
        if inside <= start and start + copy_length <= original_length:
            spot = fits_at(original, start, copy, copy_length)
            if spot is not None:
                yield spot


def fits_at(original: Rows, start: int, copy: Rows, copy_length: int) -> PiecePlace | None:
    """Returns the place at offset ``start`` of the original; None if a record there differs from the copy's."""
    end = start + copy_length
    low, high = bisect_left(original.deltas, start), bisect_left(original.deltas, end)
    here = dict(zip(original.deltas[low:high], original.digests[low:high], strict=True))
    both = 0
    for delta, digest in zip(copy.deltas, copy.digests, strict=True):
        there = here.get(start + delta)
        if there is not None and there != digest:
            return None
        both += there is not None
    # A record that only the copy has was removed by the source's cleaner since; one that only the original has, by the
    # destination's. Without a record in common, nothing proves or excludes this place: the original may be another
    # batch with a hole there.
    return PiecePlace(start, end, whole=0 < both == len(here))
